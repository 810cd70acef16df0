package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// onSlowDisk runs a test on a disk that takes a second to sync once it is slow, with a queue that
// waits for that.
func onSlowDisk(t *testing.T, test func(t *testing.T, e *Engine, slow func()), with ...func(*api.Config)) {
	bubble.Run(t, func(t *testing.T) {
		disk := &sickDisk{}
		e := openOn(t, errorfs.Wrap(vfs.NewMem(), disk), "a")
		put(t, e, "q", configOf(api.Fsync, append([]func(*api.Config){queueConfig}, with...)...))
		test(t, e, func() { disk.slow.Store(int64(time.Second)) })
		disk.slow.Store(0)
		e.Close()
	})
}

// A write that is repeated while the first is on its way to the disk waits for it.
func TestARepeatIsAnsweredNoEarlierThanTheFirstWrite(t *testing.T) {
	onSlowDisk(t, func(t *testing.T, e *Engine, slow func()) {
		slow()
		begin := time.Now()
		first := make(chan api.WriteResult, 1)
		go func() {
			res, err := keyed(e, "q", "k")
			if err != nil {
				t.Error(err)
			}
			first <- res
		}()
		synctest.Wait()
		res, err := keyed(e, "q", "k")
		if took := time.Since(begin); err != nil || !res.Deduped || took < time.Second {
			t.Errorf("the repeat is answered after %v: %+v %v", took, res, err)
		}
		if got := <-first; got.Deduped || got.FirstSeq != res.FirstSeq {
			t.Errorf("the first write has %+v, its repeat %+v", got, res)
		}
	})
}

// A job that a delete takes, which is on its way to the disk, cannot be acknowledged as well: it
// would be counted twice.
func TestAnAckOfAJobThatADeleteTakesCountsNothing(t *testing.T) {
	onSlowDisk(t, func(t *testing.T, e *Engine, slow func()) {
		write(t, e, "q", "1", "22", "333")
		claimJobs(t, e, "q", "w", 2)
		slow()
		done := make(chan struct{})
		go func() {
			defer close(done)
			if res, err := e.DeleteRecords(bg, "q", &api.DeleteRequest{HasBefore: true, BeforeSeq: 2}); err != nil || res.Deleted != 1 {
				t.Errorf("%+v %v", res, err)
			}
		}()
		synctest.Wait()
		if res := ack(t, e, "q", "w", 1, 2); res.Done != 1 || len(res.Skipped) != 1 || res.Skipped[0] != 1 {
			t.Errorf("%+v, want job 2 acknowledged and job 1 skipped", res)
		}
		<-done
		if s := stateOf(t, e, "q"); s.Count != 1 || s.Bytes != 3 || s.Queue.Ready != 1 || s.Queue.InFlight != 0 {
			t.Errorf("%+v is left, want one job of three bytes", s)
		}
	})
}

// What a job that was not started counts for is the same after a restart.
func TestAJobThatWasNotStartedCountsNoDeliveryOverARestart(t *testing.T) {
	restarts(t, func(t *testing.T, next func(*Engine) *Engine, _ *wall) {
		e := next(nil)
		put(t, e, "q", configOf(api.Fsync, queueConfig, func(c *api.Config) { c.LeasesDurable = true }))
		write(t, e, "q", "1")
		for range 3 {
			claimJobs(t, e, "q", "w", 1)
			if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{1}, NotStarted: true}); err != nil {
				t.Fatal(err)
			}
			e = next(e)
		}
		if jobs := claimJobs(t, e, "q", "w", 1); len(jobs) != 1 || jobs[0].Deliveries != 1 {
			t.Errorf("%+v, want the job for the first time", jobs)
		}
		e.Close()
	})
}

// A time to live that becomes shorter counts for what is there at once.
func TestAShorterTTLTakesEffectAtOnce(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		ttl := func(ms uint64) {
			put(t, e, "q", configOf(api.Disk, queueConfig, func(c *api.Config) { c.TTLMS = ms }))
		}
		ttl(3_600_000)
		write(t, e, "q", "1")
		time.Sleep(time.Minute)
		if s := stateOf(t, e, "q"); s.Count != 1 {
			t.Fatalf("%+v", s)
		}
		ttl(1000)
		if s := stateOf(t, e, "q"); s.Count != 0 {
			t.Errorf("%d records of a minute are there with a ttl_ms of 1000", s.Count)
		}
	})
}
