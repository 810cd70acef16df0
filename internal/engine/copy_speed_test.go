package engine

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// A write to a synchronous copy takes as long as the store, and hardly longer if many write:
// nobody waits until all groups that are under way are stored. The store is no pressure.
func TestASynchronousWriteTakesAsLongAsItsStore(t *testing.T) {
	const store = 60 * time.Millisecond
	for _, writers := range []int{1, 64} {
		bubble.Run(t, func(t *testing.T) {
			s := newShelf(store)
			e := s.openEngine(t, newSlowDisk(time.Millisecond), 0, func(o *Options) { o.Replica.Sync = true })
			put(t, e, "fsync", configOf(api.Fsync))
			e.copier.testIdle(t)
			var mu sync.Mutex
			var took []time.Duration
			var all sync.WaitGroup
			begin := time.Now()
			for range writers {
				all.Go(func() {
					for time.Since(begin) < 20*time.Second {
						time.Sleep(rand.N(2 * time.Millisecond)) // its way to the server and back
						at := time.Now()
						if _, err := tryWrite(e, "fsync", `1`); err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						took = append(took, time.Since(at))
						mu.Unlock()
					}
				})
			}
			all.Wait()
			slices.Sort(took)
			p50, p99, rate := took[len(took)/2], took[len(took)*99/100], float64(len(took))/time.Since(begin).Seconds()
			t.Logf("%d writers: p50 %v, p99 %v, %.0f a second", writers, p50, p99, rate)
			if p50 > 70*time.Millisecond || writers == 64 && (rate < 900 || p99 > store*3/2) {
				t.Errorf("%d writers of a store that takes %v: p50 %v, %.0f a second", writers, store, p50, rate)
			}
			// What the store just answered may stand in the ready set as the sample is taken.
			// A wait for the store that counted would be all the pressure there is.
			if p := e.governor.State(); p.Pressure > float64(writers)/256 || p.Rung > 0 {
				t.Errorf("the store is slow: %+v", p)
			}
		})
	}
}
