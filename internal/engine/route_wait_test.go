package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// wantsJob fails the test unless the claim is answered with this job within a second.
func wantsJob(t *testing.T, claim <-chan patient, data string) {
	t.Helper()
	begin := time.Now()
	got := <-claim
	if took := time.Since(begin); got.err != nil || got.Count != 1 || string(got.jobs[0].Data) != data || took > time.Second {
		t.Errorf("after %v the worker has %+v, want the job %s", took, got, data)
	}
}

func TestARouterGoesOnOnceWhatHadNoRoomIsNotToBeCopied(t *testing.T) {
	for what, do := range map[string]func(t *testing.T, e *Engine){
		"deleted": func(t *testing.T, e *Engine) {
			if _, err := e.DeleteRecords(bg, "in", &api.DeleteRequest{HasBefore: true, BeforeSeq: 2}); err != nil {
				t.Error(err)
			}
		},
		"acknowledged": func(t *testing.T, e *Engine) {
			claimJobs(t, e, "in", "w", 1)
			ack(t, e, "in", "w", 1)
		},
		"filtered": func(t *testing.T, e *Engine) {
			putRouter(t, e, "r", "in", "q", func(c *api.RouterConfig) { c.Filter = &api.Predicate{Value: "small"} })
		},
	} {
		t.Run(what, func(t *testing.T) {
			onQueue(t, func(t *testing.T, e *Engine) {
				put(t, e, "in", configOf(api.Disk, queueConfig))
				putRouter(t, e, "r", "in", "q")
				claim := claimAndWait(bg, e, "w", 1)
				if _, err := e.Write(bg, "in", &api.WriteRequest{Records: []api.Record{{Data: []byte(`"larger than the queue"`)}, {Data: []byte("2"), HasTag: true, Tag: []byte("small")}}}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				do(t, e)
				wantsJob(t, claim, "2")
			}, func(c *api.Config) { c.Discard, c.CapBytes = api.DiscardReject, 10 })
		})
	}
}

// What is deleted while a router finds that it has no room for it is passed over all the same.
func TestARouterWaitsForNoRoomForWhatHasGone(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		gone := false
		e.hooks.read = func(string) {
			if gone {
				return
			}
			gone = true
			if _, err := e.DeleteRecords(bg, "in", &api.DeleteRequest{HasBefore: true, BeforeSeq: 2}); err != nil {
				t.Error(err)
			}
		}
		put(t, e, "in", configOf(api.Disk))
		putRouter(t, e, "r", "in", "q")
		claim := claimAndWait(bg, e, "w", 1)
		write(t, e, "in", `"larger than the queue"`, "2")
		wantsJob(t, claim, "2")
	}, func(c *api.Config) { c.Discard, c.CapBytes = api.DiscardReject, 10 })
}

// Room that is made while a router finds that there is none wakes it all the same.
func TestARouterMissesNoRoom(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		putRouter(t, e, "r", "in", "q")
		first, second := claimAndWait(bg, e, "w", 1), claimAndWait(bg, e, "w", 1)
		made := false
		e.hooks.noRoom = func(string) {
			if made {
				return
			}
			made = true
			wantsJob(t, first, "1")
			if _, err := e.Ack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{1}}); err != nil {
				t.Error(err)
			}
		}
		write(t, e, "in", "1", "2")
		wantsJob(t, second, "2")
	}, func(c *api.Config) { c.Discard, c.CapRecords = api.DiscardReject, 1 })
}
