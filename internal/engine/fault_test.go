package engine

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/internal/api"
)

// writable waits until the log takes a write again.
func writable(t *testing.T, e *Engine, topic, data string) api.WriteResult {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		res, err := tryWrite(e, topic, data)
		if err == nil {
			return res
		}
		if time.Now().After(end) {
			t.Fatalf("no write 30 s after the fault has ended: %v", err)
		}
	}
}

// Whatever call of the disk fails, once or from then on: what was refused is
// never seen, reads go on, and writes go on soon after the fault has ended.
func TestAFailingDiskRefusesWithoutATrace(t *testing.T) {
	points := 0
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC} {
		for _, forever := range []bool{false, true} {
			for n := 1; n <= 24; n++ {
				t.Run(fmt.Sprint(errno, " call ", n, " forever ", forever), func(t *testing.T) {
					t.Parallel() // a log that failed waits a second before it tries again
					failingDisk(t, errno, n, forever)
				})
				points++
			}
		}
	}
	t.Logf("%d faults", points)
}

func failingDisk(t *testing.T, errno syscall.Errno, n int, forever bool) {
	fs := newFaults(vfs.NewMem())
	e := openOn(t, fs, "a")
	put(t, e, "f", configOf(api.Fsync))
	put(t, e, "d", configOf(api.Disk))
	write(t, e, "f", "0")
	write(t, e, "d", "0")
	fs.mu.Lock()
	start := fs.n
	fs.mu.Unlock()
	fs.set(func(_ errorfs.Op, k int) error {
		if k == start+n || forever && k > start+n {
			return errno
		}
		return nil
	})
	want := map[string][]string{"f": {"0"}, "d": {"0"}}
	for i := 1; i <= 8; i++ {
		for _, topic := range []string{"f", "d"} {
			data := fmt.Sprint(i)
			_, err := tryWrite(e, topic, data)
			if err == nil {
				want[topic] = append(want[topic], data)
			} else if !api.IsCode(err, api.CodeInternal) {
				t.Fatalf("a write that the disk refused answers %v", err)
			} else if d := err.(*api.Error).Detail["storage"]; d == nil {
				t.Fatalf("detail.storage is missing: %v", err)
			}
			sameRecords(t, e, topic, want[topic])
		}
	}
	fs.set(nil)
	for topic := range want {
		writable(t, e, topic, "99")
		want[topic] = append(want[topic], "99")
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openOn(t, fs, "a")
	for topic, data := range want {
		sameRecords(t, e, topic, data)
	}
}

func sameRecords(t *testing.T, e *Engine, topic string, want []string) {
	t.Helper()
	var all []string
	for i, d := range want {
		all = append(all, fmt.Sprintf("%d=%s", i+1, d))
	}
	if got, gaps := mustFull(t, e, topic); fmt.Sprint(got) != fmt.Sprint(all) || len(gaps) > 0 {
		t.Fatalf("topic %s holds %v %v, want %v", topic, got, gaps, all)
	}
}

// A topic whose end could not be logged is still there, whoever looks first.
func TestATopicWhoseEndCouldNotBeLoggedStays(t *testing.T) {
	fs := newFaults(vfs.NewMem())
	e := openOn(t, fs, "a")
	put(t, e, "t", configOf(api.Disk))
	write(t, e, "t", "1")
	for range 4 {
		fs.failing("/wal/", syscall.EIO)
		var wg sync.WaitGroup
		wg.Go(func() {
			if res, err := e.DeleteTopic(bg, "t", false); err == nil {
				t.Errorf("a topic was deleted on a disk that fails: %+v", res)
			}
		})
		for range 4 {
			wg.Go(func() {
				if _, err := e.Topic("t", false); err != nil {
					t.Errorf("a topic whose end failed is gone: %v", err)
				}
			})
		}
		wg.Wait()
		fs.set(nil)
		writable(t, e, "t", "1")
	}
}
