package stores_test

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"

	"github.com/weirmq/weir/internal/replica/stores"
	"github.com/weirmq/weir/tests/kafkatest"
	"github.com/weirmq/weir/tests/postgrestest"
)

// BenchmarkAppend is one leader that waits for each entry, and one that has as many under way
// as it may. Compare the stores; all of them share the machine.
func BenchmarkAppend(b *testing.B) {
	base := "base=" + url.QueryEscape("file://"+b.TempDir())
	for _, store := range []struct {
		name    string
		address func(b *testing.B) string
	}{
		{"file", func(b *testing.B) string { return "file://" + b.TempDir() }},
		{"postgres", func(b *testing.B) string {
			s := postgrestest.Start(b, postgrestest.Options{})
			return s.URL(s.Addr()) + "&" + base
		}},
		{"kafka1", func(b *testing.B) string {
			return kafkatest.Start(b, kafkatest.Options{ShareVersion: kafkatest.Without}).URL() + "/bench?" + base
		}},
		{"kafka3", func(b *testing.B) string {
			return kafkatest.StartCluster(b, kafkatest.Options{ShareVersion: kafkatest.Without}).URL() + "/bench?" + base
		}},
	} {
		b.Run(store.name, func(b *testing.B) {
			log, files, err := stores.Open(b.Context(), store.address(b), stores.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer log.Close()
			defer files.Close()
			if _, err := log.Lead(b.Context(), "bench"); err != nil {
				b.Fatal(err)
			}
			for _, size := range []int{300, 64 * 300} {
				for _, wait := range []bool{true, false} {
					b.Run(fmt.Sprintf("%d/wait=%v", size, wait), func(b *testing.B) {
						data := make([]byte, size)
						var underWay sync.WaitGroup
						for b.Loop() {
							underWay.Add(1)
							err := log.Append(context.Background(), data, func(_ uint64, err error) {
								defer underWay.Done()
								if err != nil {
									b.Error(err)
								}
							})
							if err != nil {
								b.Fatal(err)
							}
							if wait {
								underWay.Wait()
							}
						}
						underWay.Wait()
					})
				}
			}
		})
	}
}
