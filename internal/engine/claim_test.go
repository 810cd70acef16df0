package engine

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// Ten jobs and three claimers who ask for 10, 10 and 1 within the window.
func TestCoalescedClaimsShareTheJobsRoundRobin(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, vfs.NewMem(), "a")
		defer e.Close()
		put(t, e, "q", configOf(api.Disk, queueConfig, func(c *api.Config) { c.ClaimJitterMS = 50 }))
		write(t, e, "q", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10")
		var wg sync.WaitGroup
		var got [3]int
		for i, max := range []int{10, 10, 1} {
			wg.Go(func() { got[i] = len(claimJobs(t, e, "q", fmt.Sprint("w", i), max)) })
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		if fmt.Sprint(got) != "[5 4 1]" {
			t.Fatal(got)
		}
	})
}

func TestANackDelayAndADeliveryLimitAreKept(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, vfs.NewMem(), "a")
		defer e.Close()
		put(t, e, "q", configOf(api.Disk, queueConfig, func(c *api.Config) { c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter = 2, true, "dead" }))
		write(t, e, "q", "1")
		for n := uint64(1); n <= 2; n++ {
			if jobs := claimJobs(t, e, "q", "w", 1); len(jobs) != 1 || jobs[0].Deliveries != n {
				t.Fatal(n, jobs)
			}
			if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{1}, DelayMS: 500}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(499 * time.Millisecond)
			if jobs := claimJobs(t, e, "q", "w", 1); len(jobs) != 0 {
				t.Fatal("a job came back before its delay was over")
			}
			time.Sleep(time.Millisecond)
		}
		if jobs := claimJobs(t, e, "q", "w", 1); len(jobs) != 0 {
			t.Fatal("a job was handed out beyond its limit")
		}
		if got, _ := mustFull(t, e, "dead"); fmt.Sprint(got) != "[1=1]" {
			t.Fatal(got)
		}
		if s := stateOf(t, e, "q"); s.Count != 0 || s.Queue.DeadLettered != 1 {
			t.Fatalf("%+v", s)
		}
	})
}

// Without a topic for the dead letters a delivery limit has nowhere to move a
// job to: it is handed out without end.
func TestADeliveryLimitWithoutDeadLettersIsNone(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, vfs.NewMem(), "a")
		defer e.Close()
		put(t, e, "q", configOf(api.Disk, queueConfig, func(c *api.Config) { c.MaxDeliveries = 2 }))
		write(t, e, "q", "1")
		for n := uint64(1); n <= 5; n++ {
			if jobs := claimJobs(t, e, "q", "w", 1); len(jobs) != 1 || jobs[0].Deliveries != n {
				t.Fatalf("delivery %d: %v", n, jobs)
			}
			if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{1}}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A claim that moves dead letters on a slow disk leases some of its jobs before
// and some behind that. The one deadline that it is told holds for all of them.
func TestTheDeadlineToldHoldsForEveryJobOfTheClaim(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var slow atomic.Int64
		e := openOn(t, slowSyncs(&slow), "a")
		defer e.Close()
		put(t, e, "q", configOf(api.Fsync, queueConfig, func(c *api.Config) {
			c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter, c.LeaseMS = 2, true, "dead", 1000
		}))
		write(t, e, "q", "1", "2")
		for range 2 {
			claimJobs(t, e, "q", "w", 1)
			if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{1}}); err != nil {
				t.Fatal(err)
			}
		}
		slow.Store(int64(100 * time.Millisecond))
		go func() {
			time.Sleep(10 * time.Millisecond) // while the topic for the dead letters is made
			write(t, e, "q", "3")
		}()
		var seqs []uint64
		var deadline int64
		_, err := e.Claim(bg, "q", &api.ClaimRequest{Node: "w", Max: 2}, func(j *api.Job) { seqs, deadline = append(seqs, j.Seq), max(deadline, j.Deadline) })
		if err != nil || fmt.Sprint(seqs) != "[2 3]" {
			t.Fatal(seqs, err)
		}
		slow.Store(0)
		time.Sleep(time.Until(time.UnixMilli(deadline)) - time.Millisecond)
		if jobs := claimJobs(t, e, "q", "thief", 2); len(jobs) != 0 {
			t.Errorf("a millisecond before the deadline that the claim was told, jobs %v are somebody else's", jobs)
		}
	})
}

// A queue knows when it has heard of a worker last, whatever the worker did.
func TestAQueueKnowsWhenItHasHeardOfAWorker(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, vfs.NewMem(), "a")
		defer e.Close()
		put(t, e, "q", configOf(api.Memory, queueConfig, func(c *api.Config) { c.LeaseMS = 40_000 }))
		write(t, e, "q", "1", "2")
		heard := func(want time.Duration) {
			t.Helper()
			rows, _ := e.TopicRows(1, nil)
			if r := &rows[0]; r.Heard != want || want >= 0 && r.Lease != 40*time.Second {
				t.Errorf("heard %s ago of a worker with a lease of %s, want %s", r.Heard, r.Lease, want)
			}
		}
		heard(-1)
		claimJobs(t, e, "q", "w", 2)
		time.Sleep(13 * time.Second)
		heard(13 * time.Second)
		if _, err := e.Extend(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{1}, LeaseMS: 40_000}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		heard(time.Second)
		if _, err := e.Ack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{1}}); err != nil {
			t.Fatal(err)
		}
		heard(0)
	})
}

// A job that is deleted while a claim moves it to the dead letters is deleted,
// and no letter.
func TestADeletedJobIsNoDeadLetter(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var slow atomic.Int64
		e := openOn(t, slowSyncs(&slow), "a")
		defer e.Close()
		put(t, e, "q", configOf(api.Fsync, queueConfig, func(c *api.Config) {
			c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter = 1, true, "dead"
		}))
		write(t, e, "q", "1", "2")
		jobs := claimJobs(t, e, "q", "w", 2)
		if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{1, 2}}); err != nil || len(jobs) != 2 {
			t.Fatal(jobs, err)
		}
		slow.Store(int64(100 * time.Millisecond))
		go func() {
			time.Sleep(10 * time.Millisecond) // while the topic for the dead letters is made
			if _, err := e.DeleteRecords(bg, "q", &api.DeleteRequest{BeforeSeq: 2, HasBefore: true}); err != nil {
				t.Error(err)
			}
		}()
		if jobs := claimJobs(t, e, "q", "w", 2); len(jobs) != 0 {
			t.Error(jobs)
		}
		slow.Store(0)
		if got, _ := mustFull(t, e, "dead"); fmt.Sprint(got) != "[1=2]" {
			t.Errorf("dead letters %v, want job 2 alone", got)
		}
		if s := stateOf(t, e, "q"); s.Count != 0 || s.Queue.DeadLettered != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// The delete that takes a job from a claim on its way to the dead letters may fail: the job
// is there again then, for the next claim to move.
func TestADeadJobWhoseDeleteFailsIsMovedLater(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		fs := newFaults(vfs.NewMem())
		e := openOn(t, fs, "a")
		defer e.Close()
		put(t, e, "q", configOf(api.Fsync, queueConfig, func(c *api.Config) {
			c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter = 1, true, "dead"
		}))
		write(t, e, "q", "1")
		jobs := claimJobs(t, e, "q", "w", 1)
		if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{1}}); err != nil || len(jobs) != 1 {
			t.Fatal(jobs, err)
		}
		x := e.reg.get("q")
		x.mu.Lock()
		c := &claim{e: e, t: x, req: &api.ClaimRequest{Node: "w", Max: 1}}
		dead := c.pick(1, mostDead, e.leaseClock())
		x.mu.Unlock()
		var fail atomic.Bool
		gate := make(chan struct{})
		fs.set(func(o errorfs.Op, _ int) error {
			if fail.Load() || o.Kind != errorfs.OpFileSyncData || !strings.Contains(o.Path, "/wal/") {
				return nil
			}
			fs.mu.Unlock()
			<-gate
			fs.mu.Lock()
			fail.Store(true)
			return errorfs.ErrInjected
		})
		failed := make(chan error)
		go func() {
			_, err := e.DeleteRecords(bg, "q", &api.DeleteRequest{BeforeSeq: 2, HasBefore: true})
			failed <- err
		}()
		planned(t, e, "q", func(t *entry) bool { return !t.Free(1) })
		left := e.tryMoveDead(bg, x, "q", dead)
		x.mu.Lock()
		for _, p := range left { // as the claim does at its end
			x.jobs.q.Abort(p.Seq)
		}
		x.mu.Unlock()
		close(gate)
		if err := <-failed; err == nil {
			t.Fatal("the delete did not fail: the test is none")
		}
		time.Sleep(10 * time.Second) // the log is written again
		if jobs := claimJobs(t, e, "q", "w", 1); len(jobs) != 0 {
			t.Error(jobs)
		}
		got, _ := mustFull(t, e, "dead")
		if s := stateOf(t, e, "q"); len(got) != 1 || s.Count != 0 || s.Queue.InFlight != 0 || s.Queue.DeadLettered != 1 {
			t.Errorf("dead letters %v; the queue is %+v", got, s)
		}
	})
}

// slowSyncs is a disk whose syncs take as long as d says, in ns.
func slowSyncs(d *atomic.Int64) vfs.FS {
	return errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(o errorfs.Op) error {
		if o.Kind == errorfs.OpFileSyncData || o.Kind == errorfs.OpFileSync {
			time.Sleep(time.Duration(d.Load()))
		}
		return nil
	}))
}

func TestAClaimStormHandsOutEachJobOnce(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	put(t, e, "q", configOf(api.Disk, queueConfig))
	for range 20 {
		write(t, e, "q", slices.Repeat([]string{"1"}, 50)...)
	}
	var mu sync.Mutex
	seen := map[uint64]int{}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			node := fmt.Sprint("w", w)
			for {
				jobs := claimJobs(t, e, "q", node, 7)
				if len(jobs) == 0 {
					return
				}
				var seqs []uint64
				mu.Lock()
				for _, j := range jobs {
					seen[j.Seq]++
					seqs = append(seqs, j.Seq)
				}
				mu.Unlock()
				if res := ack(t, e, "q", node, seqs...); res.Done != len(seqs) {
					t.Errorf("of %d acks %d were done", len(seqs), res.Done)
				}
			}
		})
	}
	wg.Wait()
	for seq := uint64(1); seq <= 1000; seq++ {
		if seen[seq] != 1 {
			t.Fatalf("job %d was handed out %d times", seq, seen[seq])
		}
	}
	if s := stateOf(t, e, "q"); s.Count != 0 || s.Bytes != 0 || s.Queue.InFlight != 0 || s.Queue.Ready != 0 {
		t.Fatalf("%+v", s)
	}
}
