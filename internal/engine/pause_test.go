package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

func pause(t *testing.T, e *Engine, name string, paused bool) {
	t.Helper()
	if err := e.Pause(name, paused); err != nil {
		t.Fatal(err)
	}
}

// Whoever waits for the jobs of a paused queue rests until it goes on, and then gets them
// at once: claims in line, claims that are gathered, and work streams. Jobs come, run out
// and are given back meanwhile.
func TestWhoeverWaitsOnAPausedQueueRestsUntilItGoesOn(t *testing.T) {
	for name, jitter := range map[string]uint32{"in line": 0, "gathered": 50} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				e := openOn(t, vfs.NewMem(), "a")
				defer e.Close()
				put(t, e, "q", configOf(api.Disk, queueConfig, func(c *api.Config) { c.ClaimJitterMS = jitter }))
				write(t, e, "q", "1", "2")
				back := claimJobs(t, e, "q", "w", 1)[0].Seq
				if _, err := e.Claim(bg, "q", &api.ClaimRequest{Node: "gone", Max: 1, LeaseMS: 1000, HasLease: true}, func(*api.Job) {}); err != nil {
					t.Fatal(err)
				}
				claimed := make(chan int, 4)
				wait := func() {
					go func() {
						res, err := e.Claim(bg, "q", &api.ClaimRequest{Node: "waits", Max: 1, WaitMS: 20_000}, func(*api.Job) {})
						if err != nil {
							t.Error(err)
						}
						claimed <- res.Count
					}()
				}
				wait() // before the pause
				synctest.Wait()
				pause(t, e, "q", true)
				wait() // and in it
				stream := openWork(t, e, "q", "stream", 4)
				if got := stream.fresh(); len(got) > 0 {
					t.Fatal("a work stream got", seqsOf(got))
				}
				write(t, e, "q", "3")
				if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{back}}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second) // a claim that does not rest would keep this from ending
				synctest.Wait()
				if len(claimed) > 0 {
					t.Fatal("a claim was answered by a paused queue before its time")
				}
				if got := stream.fresh(); len(got) > 0 {
					t.Fatal("a work stream got", seqsOf(got))
				}
				if s := stateOf(t, e, "q"); s.Queue.Ready != 3 || s.Queue.InFlight != 0 || !s.Config.Paused {
					t.Fatalf("%+v", s)
				}
				begin := time.Now()
				pause(t, e, "q", false)
				if a, b := <-claimed, <-claimed; a != 1 || b != 1 || time.Since(begin) > 100*time.Millisecond {
					t.Fatalf("the claims got %d and %d jobs after %s", a, b, time.Since(begin))
				}
				time.Sleep(workRetry + time.Duration(jitter)*time.Millisecond)
				if got := stream.fresh(); len(got) != 1 {
					t.Fatal("the work stream got", seqsOf(got))
				}
			})
		})
	}
}

// A pause comes back from the log and from the store, and so does its end.
func TestAPauseSurvivesARestart(t *testing.T) {
	fs := vfs.NewMem()
	e := openOn(t, fs, "a")
	again := func() {
		t.Helper()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = openOn(t, fs, "a")
	}
	for _, name := range []string{"paused", "resumed", "born", "put"} {
		put(t, e, name, configOf(api.Ephemeral, queueConfig, func(c *api.Config) { c.Paused, c.WaitSLOMS = name == "born", 77 }))
	}
	pause(t, e, "paused", true)
	pause(t, e, "put", true)
	put(t, e, "put", configOf(api.Memory, queueConfig))
	pause(t, e, "resumed", true)
	pause(t, e, "resumed", false)
	check := func(when string) {
		t.Helper()
		for name, want := range map[string]bool{"paused": true, "resumed": false, "born": true, "put": true} {
			if got := stateOf(t, e, name).Config; got.Paused != want || got.HasPaused {
				t.Errorf("%s: %s is paused: %v", when, name, got.Paused)
			}
		}
	}
	check("at once")
	again()
	check("from the log")
	sealNow(t, e)
	again()
	check("from the store")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}
