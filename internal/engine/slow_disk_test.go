package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// atOnce fails the test if f takes time.
func atOnce(t *testing.T, what string, f func()) {
	t.Helper()
	begin := time.Now()
	f()
	if took := time.Since(begin); took > soon {
		t.Errorf("%s took %v", what, took)
	}
}

// A router waits for the disk that its destination is synced to. The streams of other topics
// do not.
func TestNoStreamWaitsForTheRoutersOfAnotherTopic(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		disk := newSlowDisk(0)
		e := openOn(t, disk, "a", oneWorker)
		defer e.Close()
		put(t, e, "other", configOf(api.Memory))
		put(t, e, "in", configOf(api.Memory))
		put(t, e, "out", configOf(api.Fsync))
		putRouter(t, e, "r", "in", "out")
		s, copies := watched(t, e, "other"), watched(t, e, "out")
		disk.sync.Store(int64(10 * time.Second))
		write(t, e, "in", "1")
		synctest.Wait()
		atOnce(t, "a push of another topic", func() {
			write(t, e, "other", "1")
			follow(t, s, 1)
		})
		disk.sync.Store(0)
		follow(t, copies, 1)
	})
}

// Who reads a destination makes the copies that are missing, which may be many. Nobody else
// waits for that, neither streams nor routers of other topics, and what is written meanwhile is
// copied, too.
func TestNobodyWaitsForARouterThatAnotherMoves(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, vfs.NewMem(), "a", oneWorker)
		defer e.Close()
		for _, topic := range []string{"other", "in", "out", "in2", "out2"} {
			put(t, e, topic, configOf(api.Memory))
		}
		putRouter(t, e, "r", "in", "out")
		putRouter(t, e, "r2", "in2", "out2")
		s, copies, copies2 := watched(t, e, "other"), watched(t, e, "out"), watched(t, e, "out2")
		r := e.routes.get("r")
		r.turn.Lock()
		write(t, e, "in", "1")
		synctest.Wait()
		atOnce(t, "a push of another topic", func() {
			write(t, e, "other", "1")
			follow(t, s, 1)
		})
		atOnce(t, "a copy of another topic", func() {
			write(t, e, "in2", "1")
			follow(t, copies2, 1)
		})
		e.letGo(r)
		atOnce(t, "what was written meanwhile", func() { follow(t, copies, 1) })
	})
}

// Who watches over a server sees it also while its disk stands still, whatever topics wait for
// that.
func TestWhoLooksAtAServerDoesNotWaitForItsDisk(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		disk := newSlowDisk(0)
		e := openOn(t, disk, "a")
		defer e.Close()
		put(t, e, "ends", configOf(api.Fsync, queueConfig))
		put(t, e, "expires", configOf(api.Fsync, queueConfig, timed(1500)))
		write(t, e, "ends", "1")
		write(t, e, "expires", "1")
		time.Sleep(time.Second)
		disk.sync.Store(int64(20 * time.Second))
		begin := time.Now()
		go e.PutTopic(bg, "begins", configOf(api.Fsync))
		go e.DeleteTopic(bg, "ends", false)
		go tryWrite(e, "expires", "2")
		time.Sleep(700 * time.Millisecond)
		for what, look := range map[string]func() int{
			"Metrics":   func() int { return e.Metrics().Topics },
			"TopicRows": func() int { rows, _ := e.TopicRows(100, nil); return len(rows) },
			"Busiest":   func() int { rows, _ := e.Busiest(100, nil); return len(rows) },
			"Topics":    func() int { return len(e.Topics("", "", 100, false, nil).Topics) },
			"Count":     func() int { return 1 + int(e.Count("expires")) },
			"Totals":    func() int { return int(e.Totals().Appended) },
			"Oldest":    func() int { _, _ = e.Oldest(bg, "expires"); return 2 },
			"OldestReady": func() int {
				_, _, _ = e.OldestReady(bg, "expires", true)
				return 2
			},
		} {
			atOnce(t, what, func() {
				if n := look(); n < 2 {
					t.Errorf("%s sees %d", what, n)
				}
			})
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("all looks took %v", took)
		}
		disk.sync.Store(0)
		synctest.Wait()
	})
}
