package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// patient is how a claim that waited ended.
type patient struct {
	api.ClaimResult
	jobs []api.Job
	err  error
	took time.Duration
}

// claimAndWait begins a claim that waits for up to 20 s and stands in line when it returns.
func claimAndWait(ctx context.Context, e *Engine, node string, max int) <-chan patient {
	done := make(chan patient, 1)
	go func() {
		var w patient
		begin := time.Now()
		w.ClaimResult, w.err = e.Claim(ctx, "q", &api.ClaimRequest{Node: node, Max: max, WaitMS: 20_000}, func(j *api.Job) { w.jobs = append(w.jobs, *j) })
		w.took = time.Since(begin)
		done <- w
	}()
	synctest.Wait()
	return done
}

func TestClaimsThatWaitAreDealtJobsRoundRobin(t *testing.T) {
	for name, jitter := range map[string]uint32{"at once": 0, "in a window": 50} {
		t.Run(name, func(t *testing.T) {
			onQueue(t, func(t *testing.T, e *Engine) {
				var all []<-chan patient
				for i, max := range []int{10, 10, 1} {
					all = append(all, claimAndWait(bg, e, fmt.Sprint("w", i), max))
					time.Sleep(100 * time.Millisecond) // its first window is over
				}
				write(t, e, "q", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10")
				n, most, least := 0, 0, 10
				for _, w := range all {
					got := <-w
					n, most, least = n+got.Count, max(most, got.Count), min(least, got.Count)
					if got.err != nil || got.Count != len(got.jobs) || got.Ready != 0 {
						t.Errorf("%+v", got)
					}
				}
				if n != 10 || most != 5 || least != 1 {
					t.Errorf("ten jobs were dealt as %d, at most %d and at least %d; want 5, 4 and 1", n, most, least)
				}
			}, func(c *api.Config) { c.ClaimJitterMS = jitter })
		})
	}
}

// Whoever has waited longest is dealt to first, also by a window that others have opened, and
// whether it is a claim or a work stream.
func TestAWindowDealsToThoseWhoWaitedBefore(t *testing.T) {
	for _, jobs := range []int{1, 2} {
		for _, into := range []time.Duration{0, 100, 199} { // of the window of 200 ms
			for _, kind := range []string{"claim", "work stream"} {
				t.Run(fmt.Sprintf("%d jobs, %d ms into the window, %s", jobs, into, kind), func(t *testing.T) {
					onQueue(t, func(t *testing.T, e *Engine) {
						first := make(chan int, 1)
						if kind == "claim" {
							old := claimAndWait(bg, e, "old", 1)
							go func() { first <- (<-old).Count }()
						} else {
							go func() { first <- workOne(t, e) }()
						}
						time.Sleep(400 * time.Millisecond)
						late := []<-chan patient{claimAndWait(bg, e, "late1", 1), claimAndWait(bg, e, "late2", 1)}
						time.Sleep(into * time.Millisecond)
						for range jobs {
							write(t, e, "q", "1")
						}
						if got := <-first; got != 1 {
							t.Errorf("who waited first got %d jobs", got)
						}
						for range 2 - jobs + 1 { // those who wait on
							write(t, e, "q", "2")
						}
						for _, w := range late {
							if got := <-w; got.Count != 1 || got.took > time.Second {
								t.Errorf("a later claim: %+v", got)
							}
						}
					}, func(c *api.Config) { c.ClaimJitterMS = 200 })
				})
			}
		}
	}
}

// workOne waits with a work stream for one job.
func workOne(t *testing.T, e *Engine) (n int) {
	w, err := e.OpenWork(bg, "q", &api.ClaimRequest{Node: "old", Max: 1})
	if err != nil {
		t.Error(err)
		return 0
	}
	defer w.Close()
	for begin := time.Now(); n == 0 && time.Since(begin) < 700*time.Millisecond; {
		if n, err = w.Next(bg, func(*api.Job) {}); err != nil {
			t.Error(err)
			return 0
		}
		if n == 0 {
			select {
			case <-w.Ready():
			case <-time.After(300 * time.Millisecond):
			}
		}
	}
	return n
}

// However long a claim has waited, or was held up by dead letters that it moved, the lease is as
// long as it was asked for, and its holder is told so.
func TestALeaseCountsFromWhenItsJobIsDealt(t *testing.T) {
	const lease = 2000
	dead := func(c *api.Config) {
		c.LeaseMS, c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter = lease, 1, true, "dead"
	}
	for name, jitter := range map[string]uint32{"at once": 0, "in a window": 50} {
		told := func(t *testing.T, who string, jobs []api.Job, dealt time.Time) {
			t.Helper()
			if len(jobs) != 1 || jobs[0].Deadline != dealt.UnixMilli()+lease {
				t.Errorf("%s: %+v, want one job with %d ms from %d on", who, jobs, lease, dealt.UnixMilli())
			}
		}
		t.Run(name+" after a wait", func(t *testing.T) {
			onQueue(t, func(t *testing.T, e *Engine) {
				first, second := claimAndWait(bg, e, "first", 1), claimAndWait(bg, e, "second", 1)
				time.Sleep(3 * time.Second)
				write(t, e, "q", "1", "2")
				for who, w := range map[string]<-chan patient{"first": first, "second": second} {
					got := <-w
					told(t, who, got.jobs, time.Now())
				}
				time.Sleep(lease * time.Millisecond)
				if s := stateOf(t, e, "q"); s.Queue.InFlight != 2 {
					t.Errorf("at the deadline %+v", s.Queue)
				}
			}, dead, func(c *api.Config) { c.ClaimJitterMS = jitter })
		})
		t.Run(name+" in a work stream", func(t *testing.T) {
			onQueue(t, func(t *testing.T, e *Engine) {
				w := openWork(t, e, "q", "stream", 1)
				w.wants("[]")
				time.Sleep(3 * time.Second)
				write(t, e, "q", "1")
				w.woken()
				n, err := w.Next(bg, func(j *api.Job) { w.jobs = append(w.jobs, *j) })
				if n != 1 || err != nil {
					t.Error(n, err)
				}
				told(t, "stream", w.jobs, time.Now())
			}, dead, func(c *api.Config) { c.ClaimJitterMS = jitter })
		})
		t.Run(name+" behind a dead letter", func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				var slow atomic.Int64
				e := openOn(t, slowSyncs(&slow), "a")
				defer e.Close()
				put(t, e, "q", configOf(api.Disk, queueConfig, dead, func(c *api.Config) { c.ClaimJitterMS = jitter }))
				write(t, e, "q", "1")
				claimJobs(t, e, "q", "w", 1)
				if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{1}}); err != nil {
					t.Fatal(err)
				}
				slow.Store(int64(500 * time.Millisecond))
				go func() {
					time.Sleep(200 * time.Millisecond) // while the topic for the dead letters is made
					write(t, e, "q", "2")
				}()
				jobs := claimJobs(t, e, "q", "w", 1)
				told(t, "w", jobs, time.Now())
				slow.Store(0)
			})
		})
	}
}

// A durable lease is logged as it was told: a restart gives the job to nobody before its end.
func TestADurableLeaseOfAClaimThatWaitedHoldsOverARestart(t *testing.T) {
	restarts(t, func(t *testing.T, next func(*Engine) *Engine, _ *wall) {
		e := next(nil)
		put(t, e, "q", configOf(api.Fsync, queueConfig, func(c *api.Config) { c.LeasesDurable, c.LeaseMS = true, 10_000 }))
		w := claimAndWait(bg, e, "w", 1)
		time.Sleep(15 * time.Second)
		write(t, e, "q", "1")
		if got := <-w; got.Count != 1 {
			t.Fatalf("%+v", got)
		}
		time.Sleep(8 * time.Second)
		e = next(e)
		if jobs := claimJobs(t, e, "q", "other", 1); len(jobs) > 0 {
			t.Errorf("8 s into a lease of 10 s somebody else has %v", jobs)
		}
		if res := ack(t, e, "q", "w", 1); res.Done != 1 {
			t.Errorf("%+v", res)
		}
		e.Close()
	})
}

func TestAClaimWaitsUntilItsTimeIsUp(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		got := <-claimAndWait(bg, e, "w", 1)
		if got.err != nil || got.Count != 0 || got.took != 20*time.Second || !got.Waits || got.Waited != got.took {
			t.Errorf("%+v", got)
		}
	})
}

func TestWhatEndsTheWaitOfAClaim(t *testing.T) {
	job := func(t *testing.T, got patient) {
		if got.err != nil || got.Count != 1 {
			t.Errorf("%+v; want the job", got)
		}
	}
	nothing := func(t *testing.T, got patient) {
		if got.err != nil || got.Count != 0 {
			t.Errorf("%+v; want an answer without jobs", got)
		}
	}
	for name, c := range map[string]struct {
		held bool // another node has a job
		end  func(t *testing.T, e *Engine, gone context.CancelFunc)
		want func(*testing.T, patient)
	}{
		"a write":          {false, func(t *testing.T, e *Engine, _ context.CancelFunc) { write(t, e, "q", "1") }, job},
		"a stop":           {false, func(_ *testing.T, e *Engine, _ context.CancelFunc) { e.Drain() }, nothing},
		"the caller's end": {false, func(_ *testing.T, _ *Engine, gone context.CancelFunc) { gone() }, nothing},
		"a job given back": {true, func(t *testing.T, e *Engine, _ context.CancelFunc) {
			if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "other", Seqs: []uint64{1}}); err != nil {
				t.Error(err)
			}
		}, job},
		"a delay that is over": {true, func(t *testing.T, e *Engine, _ context.CancelFunc) {
			if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "other", Seqs: []uint64{1}, DelayMS: 5000}); err != nil {
				t.Error(err)
			}
			time.Sleep(5 * time.Second)
		}, job},
		"a lease that ends": {true, func(*testing.T, *Engine, context.CancelFunc) { time.Sleep(10*time.Second + time.Millisecond) }, job},
		"the queue's end": {false, func(t *testing.T, e *Engine, _ context.CancelFunc) {
			if _, err := e.DeleteTopic(bg, "q", false); err != nil {
				t.Error(err)
			}
		}, func(t *testing.T, got patient) {
			if !api.IsCode(got.err, api.CodeTopicNotFound) {
				t.Errorf("%+v; want topic_not_found", got)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			onQueue(t, func(t *testing.T, e *Engine) {
				if c.held {
					write(t, e, "q", "1")
					claimJobs(t, e, "q", "other", 1)
				}
				ctx, gone := context.WithCancel(bg)
				defer gone()
				w := claimAndWait(ctx, e, "w", 1)
				begin := time.Now()
				c.end(t, e, gone)
				took := time.Since(begin)
				got := <-w
				if got.took != took {
					t.Errorf("the claim ended after %v, its cause came after %v", got.took, took)
				}
				c.want(t, got)
			}, func(c *api.Config) { c.LeaseMS = 10_000 })
		})
	}
}

// A job that is dealt to somebody who goes at that moment is the next one's.
func TestAClaimerThatGoesPassesItsJobOn(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		for round := range 200 {
			ctx, gone := context.WithCancel(bg)
			first, second := claimAndWait(ctx, e, "gone", 1), claimAndWait(bg, e, "stays", 1)
			go gone()
			write(t, e, "q", "x")
			got := <-first
			if got.Count == 1 { // it was quicker than its end
				write(t, e, "q", "y")
			}
			if other := <-second; other.Count != 1 || other.took > time.Second {
				t.Fatalf("round %d: %+v after %+v", round, other, got)
			}
			if _, err := e.DeleteRecords(bg, "q", &api.DeleteRequest{BeforeSeq: 1 << 40, HasBefore: true}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestStreamsAndClaimsStandInOneLine(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		stream := openWork(t, e, "q", "stream", 2)
		stream.wants("[]")
		claim := claimAndWait(bg, e, "claim", 2)
		write(t, e, "q", "1", "2")
		stream.woken()
		stream.wants("[1/1 2/1]")
		ack(t, e, "q", "stream", 1, 2)
		stream.wants("[]") // it stands behind the claim now
		write(t, e, "q", "3", "4")
		if got := <-claim; got.Count != 2 || got.err != nil {
			t.Errorf("%+v", got)
		}
	})
}

func TestOneWhoWaitsForJobsIsThere(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		w := claimAndWait(bg, e, "w", 1)
		time.Sleep(15 * time.Second)
		if rows, _ := e.TopicRows(1, nil); rows[0].Streams != 0 || rows[0].Asked != 0 {
			t.Errorf("%d streams, asked %v ago; a claim is waiting", rows[0].Streams, rows[0].Asked)
		}
		<-w
		time.Sleep(time.Second)
		if rows, _ := e.TopicRows(1, nil); rows[0].Asked != time.Second {
			t.Errorf("asked %v ago; want the end of the wait", rows[0].Asked)
		}
	})
}

// Writers, claimers that wait, some with little patience, and work streams: each job is
// handed out once, and none lies while somebody waits.
func TestAStormOfClaimsThatWaitHandsOutEachJobOnce(t *testing.T) {
	const jobs, claimers = 2000, 24
	for name, jitter := range map[string]uint32{"at once": 0, "in windows": 2} {
		t.Run(name, func(t *testing.T) {
			e := openOn(t, vfs.NewMem(), "b")
			put(t, e, "q", configOf(api.Memory, queueConfig, func(c *api.Config) { c.ClaimJitterMS = jitter }))
			var got [jobs + 1]atomic.Int32
			var n atomic.Int64
			end, all := context.WithTimeout(bg, 60*time.Second)
			defer all()
			var wg sync.WaitGroup
			for i := range claimers {
				wg.Go(func() {
					for end.Err() == nil {
						ctx, cancel := end, context.CancelFunc(func() {})
						if i%3 == 0 {
							ctx, cancel = context.WithTimeout(end, time.Duration(rand.IntN(3000))*time.Microsecond)
						}
						_, err := e.Claim(ctx, "q", &api.ClaimRequest{Node: fmt.Sprint(i), Max: 1 + i%4, WaitMS: 30_000}, func(j *api.Job) {
							got[j.Seq].Add(1)
							if n.Add(1) == jobs {
								all()
							}
						})
						if err != nil && end.Err() == nil && ctx.Err() == nil {
							t.Error(err)
						}
						cancel()
					}
				})
			}
			for range jobs / 4 {
				if _, err := tryWrite(e, "q", "1", "2", "3", "4"); err != nil {
					t.Fatal(err)
				}
			}
			wg.Wait()
			for seq := 1; seq <= jobs; seq++ {
				if c := got[seq].Load(); c != 1 {
					t.Fatalf("job %d was handed out %d times; %d of %d in all", seq, c, n.Load(), jobs)
				}
			}
		})
	}
}
