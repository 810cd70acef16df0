package wal

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

func benchLog(b *testing.B) *Log {
	l, _, _ := openLog(b, Options{Dir: b.TempDir() + "/wal"}, 0)
	b.Cleanup(func() { mustClose(b, l) })
	return l
}

// BenchmarkAppend appends 300-byte operations and waits for their class.
func BenchmarkAppend(b *testing.B) {
	names := []string{"memory", "written", "synced"}
	for class, name := range names {
		for _, writers := range []int{1, 4, 64} {
			b.Run(fmt.Sprintf("%s/writers=%d", name, writers), func(b *testing.B) {
				l := benchLog(b)
				benchAppend(b, l, writers, 300, Class(class))
				m := l.Metrics()
				b.ReportMetric(float64(m.Frames)/float64(max(1, m.Fsyncs)), "ops/sync")
				b.ReportMetric(float64(m.Frames)/float64(max(1, m.Batches)), "ops/write")
			})
		}
	}
}

// BenchmarkBatch appends operations as large as 100 records.
func BenchmarkBatch(b *testing.B) {
	for class, name := range []string{"memory", "written", "synced"} {
		b.Run(name, func(b *testing.B) {
			l := benchLog(b)
			b.SetBytes(25 << 10)
			benchAppend(b, l, 16, 25<<10, Class(class))
			b.ReportMetric(float64(l.Metrics().Rotations), "rotations")
		})
	}
}

func benchAppend(b *testing.B, l *Log, writers, size int, class Class) {
	body := make([]byte, size-20)
	head := make([]byte, 20)
	sum := Checksum(body)
	ctx := context.Background()
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for w := range writers {
		n := b.N / writers
		if w < b.N%writers {
			n++
		}
		wg.Go(func() {
			for range n {
				if err := l.Reserve(ctx, time.Minute); err != nil {
					b.Error(err)
					return
				}
				gen := l.Gen()
				lsn, _, err := l.Append(gen, head, body, sum, class)
				if err == nil {
					err = l.Wait(lsn, gen, class)
				}
				if err != nil {
					b.Error(err)
					return
				}
				if l.m.debt.Load() > 0 {
					s, _ := l.OldestSealed()
					_ = l.Release(s.Number)
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}
