package engine

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// TestAClaimHandsOutNoMoreThanOneAnswerHolds however many large jobs it may have: the others
// stay ready, and the delivery that did not happen does not count.
func TestAClaimHandsOutNoMoreThanOneAnswerHolds(t *testing.T) {
	const large, small = 14, 200
	var data []string
	for i := range large + small {
		if i < large { // so that by their average all of the first claim fit
			data = append(data, strings.Repeat("x", 700_000))
		} else {
			data = append(data, fmt.Sprint(i))
		}
	}
	for name, with := range map[string]func(*api.Config){
		"plain":          func(*api.Config) {},
		"gathered":       func(c *api.Config) { c.ClaimJitterMS = 20 },
		"durable leases": func(c *api.Config) { c.LeasesDurable = true },
		"by priority":    func(*api.Config) {},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				fs := vfs.NewMem()
				e := openOn(t, fs, "a")
				defer func() { e.Close() }()
				put(t, e, "q", configOf(api.Disk, queueConfig, with))
				req := &api.WriteRequest{}
				for i, d := range data {
					r := api.Record{Data: []byte(d)}
					if name == "by priority" {
						r.Tier = api.Tier(i % 3)
					}
					req.Records = append(req.Records, r)
				}
				if _, err := e.Write(bg, "q", req); err != nil {
					t.Fatal(err)
				}
				seen := map[uint64]bool{}
				note := func(j *api.Job) {
					if seen[j.Seq] || j.Deliveries != 1 {
						t.Errorf("job %d comes with delivery %d, seen before: %v", j.Seq, j.Deliveries, seen[j.Seq])
					}
					seen[j.Seq] = true
				}
				for claims := 0; len(seen) < large+small; claims++ {
					bytes := 0
					req := &api.ClaimRequest{Node: "w", Max: 1000, WaitMS: uint32(1000 * (claims % 2))}
					res, err := e.Claim(bg, "q", req, func(j *api.Job) { note(j); bytes += j.Size() })
					if err != nil {
						t.Fatal(err)
					}
					if bytes > api.MaxClaimBytes || res.Count == 0 {
						t.Fatalf("claim %d hands out %d jobs of %d bytes", claims, res.Count, bytes)
					}
					s := stateOf(t, e, "q")
					if ready := uint64(large + small - len(seen)); res.Ready != ready || s.Queue.Ready != ready || s.Queue.InFlight != uint64(len(seen)) {
						t.Fatalf("%d of %d jobs are handed out, the claim says that %d are ready, the queue %+v", len(seen), large+small, res.Ready, s.Queue)
					}
				}
			})
		})
	}
}

// TestAWorkStreamGetsWhatDidNotFitIntoOneAnswer without another job coming.
func TestAWorkStreamGetsWhatDidNotFitIntoOneAnswer(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		small := make([]string, 1000)
		for i := range small {
			small[i] = "x"
		}
		write(t, e, "q", small...)
		claimJobs(t, e, "q", "other", 999) // so that the average is small
		var large []string
		for range 20 {
			large = append(large, strings.Repeat("x", 700_000))
		}
		write(t, e, "q", large...)
		w := openWork(t, e, "q", "w", 100)
		got := 0
		for got < 21 {
			bytes := 0
			n, err := w.Next(bg, func(j *api.Job) { bytes += j.Size() })
			if err != nil || bytes > api.MaxClaimBytes {
				t.Fatalf("%d jobs of %d bytes, %v", n, bytes, err)
			}
			if got += n; n == 0 {
				if d := w.woken(); d > time.Second {
					t.Fatalf("the stream was told %s later", d)
				}
			}
		}
	})
}

// TestAWaitingClaimGetsWhatDidNotFitIntoTheAnswerOfAnother at once, not when its wait is over.
func TestAWaitingClaimGetsWhatDidNotFitIntoTheAnswerOfAnother(t *testing.T) {
	for name, with := range map[string]func(*api.Config){
		"plain":          func(*api.Config) {},
		"durable leases": func(c *api.Config) { c.LeasesDurable = true },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				e := openOn(t, vfs.NewMem(), "a")
				defer e.Close()
				put(t, e, "q", configOf(api.Disk, queueConfig, with))
				write(t, e, "q", strings.Repeat("x", 80), strings.Repeat("y", 80))
				var wg sync.WaitGroup
				res, err := e.Claim(bg, "q", &api.ClaimRequest{Node: "a", Max: 10, MaxBytes: 100}, func(*api.Job) {
					begin := time.Now()
					wg.Go(func() { // while nothing is left
						res, err := e.Claim(bg, "q", &api.ClaimRequest{Node: "b", Max: 10, WaitMS: 20_000}, func(*api.Job) {})
						if waited := time.Since(begin); err != nil || res.Count != 1 || waited > 2*time.Second {
							t.Errorf("the claim waits for %s and gets %d jobs, %v", waited, res.Count, err)
						}
					})
					time.Sleep(time.Second) // it stands in line
				})
				if err != nil || res.Count != 1 {
					t.Errorf("the first claim gets %d jobs, %v", res.Count, err)
				}
				wg.Wait()
			})
		})
	}
}
