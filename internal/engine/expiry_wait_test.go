package engine

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// soon is how late what time alone brings may be (contract 10.2; 11.8 allows more).
const soon = 100 * time.Millisecond

func timed(ms uint64) func(*api.Config) { return func(c *api.Config) { c.TTLMS = ms } }

func rejects(records uint64) func(*api.Config) {
	return func(c *api.Config) { c.Discard, c.CapRecords = api.DiscardReject, records }
}

// A work stream has room again the moment a job that it holds has expired.
func TestAWorkStreamIsGivenTheRoomOfWhatExpires(t *testing.T) {
	for name, jitter := range map[string]uint32{"at once": 0, "in a window": 50} {
		t.Run(name, func(t *testing.T) {
			onQueue(t, func(t *testing.T, e *Engine) {
				write(t, e, "q", "1")
				w := openWork(t, e, "q", "w", 1)
				w.wants("[1/1]")
				w.wants("[]")
				time.Sleep(300 * time.Millisecond)
				write(t, e, "q", "2")
				time.Sleep(300 * time.Millisecond)
				write(t, e, "q", "3", "4")
				for _, want := range []struct {
					at  time.Duration // since it was written, of a job before it
					got string
				}{{3000 - 600, "[2/1]"}, {300, "[3/1]"}} {
					begin := time.Now()
					w.woken()
					w.wants(want.got)
					at := want.at * time.Millisecond
					if late := time.Since(begin) - at; late < 0 || late > soon {
						t.Errorf("%s came %v after what it waited for had expired", want.got, late)
					}
				}
			}, timed(3000), func(c *api.Config) { c.ClaimJitterMS = jitter })
		})
	}
}

// A router goes on the moment its destination has room because a record there has expired, or
// the record that has none there has expired in its source.
func TestARouterIsGivenTheRoomOfWhatExpires(t *testing.T) {
	for name, c := range map[string]struct {
		source, queue []func(*api.Config)
		write, want   string
	}{
		"in the destination": {queue: []func(*api.Config){timed(3300), rejects(1)}, write: "1", want: "2"},
		"in the source": {source: []func(*api.Config){timed(3300)}, queue: []func(*api.Config){func(c *api.Config) { c.Discard, c.CapBytes = api.DiscardReject, 10 }},
			write: `"larger than the queue"`, want: "2"},
	} {
		t.Run(name, func(t *testing.T) {
			onQueue(t, func(t *testing.T, e *Engine) {
				put(t, e, "in", configOf(api.Disk, c.source...))
				putRouter(t, e, "r", "in", "q")
				begin := time.Now()
				write(t, e, "in", c.write)
				claimJobs(t, e, "q", "v", 1)
				time.Sleep(200 * time.Millisecond)
				write(t, e, "in", "2")
				claim := claimAndWait(bg, e, "w", 1)
				got := <-claim
				if late := time.Since(begin) - 3300*time.Millisecond; got.err != nil || got.Count != 1 || string(got.jobs[0].Data) != c.want || late < 0 || late > soon {
					t.Errorf("the worker got %+v %v after what it waited for had expired", got, late)
				}
			}, c.queue...)
		})
	}
}

// What comes of many records that expire one behind the other is done at a pace.
func TestRecordsThatExpireInARowAreNotLookedAtOneByOne(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		for i := range 1000 {
			write(t, e, "q", fmt.Sprint(i))
			time.Sleep(time.Millisecond)
		}
		if n := len(openWork(t, e, "q", "w", 500).fresh()); n != 500 {
			t.Fatalf("%d jobs", n)
		}
		time.Sleep(900 * time.Millisecond)
		before := e.log.Metrics().Frames
		time.Sleep(time.Second)
		if n := e.log.Metrics().Frames - before; n < 5 || n > 70 {
			t.Errorf("%d operations for 1000 records that expired in a second", n)
		}
	}, timed(2000))
}

// Nothing is looked at before its turn where nobody waits: neither of a topic that is at rest,
// nor of a queue whose work streams have room or nothing to wait for, nor once they have gone.
func TestNoTimerRunsForRecordsThatNobodyWaitsFor(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		put(t, e, "in", configOf(api.Disk, timed(1500)))
		put(t, e, "out", configOf(api.Disk, timed(1500), rejects(1)))
		putRouter(t, e, "r", "in", "out")
		looks := func(topic string) bool {
			synctest.Wait()
			e.looks.mu.Lock()
			defer e.looks.mu.Unlock()
			_, looks := e.looks.at[e.reg.get(topic)]
			return looks
		}
		is := func(want bool, topics ...string) {
			t.Helper()
			for _, topic := range topics {
				if got := looks(topic); got != want {
					t.Errorf("%s: a timer runs: %v", topic, got)
				}
			}
		}
		write(t, e, "in", "1")
		write(t, e, "q", "1")
		is(false, "in", "out", "q")
		w := openWork(t, e, "q", "w", 1)
		w.wants("[1/1]")
		w.wants("[]")
		is(false, "q") // nothing is claimable
		write(t, e, "q", "2")
		write(t, e, "in", "2")
		is(true, "in", "out", "q")
		w.Close()
		time.Sleep(5 * time.Second)
		is(false, "in", "out", "q")
	}, timed(1500))
}

// What has expired by the time that it is brought to anybody is a gap, not a record: also where
// a visit comes late.
func TestAVisitThatComesLateBringsNothingThatHasExpired(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		var late atomic.Bool
		e.hooks.begin = func(string) {
			if late.Load() {
				time.Sleep(300 * time.Millisecond)
			}
		}
		put(t, e, "a", configOf(api.Disk, timed(100)))
		put(t, e, "in", configOf(api.Disk, timed(100)))
		putRouter(t, e, "r", "in", "copy")
		s := watched(t, e, "a")
		time.Sleep(100 * time.Millisecond)
		late.Store(true)
		write(t, e, "a", "1")
		write(t, e, "in", "1")
		time.Sleep(400 * time.Millisecond)
		if v := events(t, s, 1)[0]; v.kind != "tombstone" {
			t.Errorf("the stream got %+v", v)
		}
		if c := stateOf(t, e, "copy"); c.Count != 0 || c.HeadSeq != 1 {
			t.Errorf("the destination has %+v", c.TopicCounters)
		}
	})
}
