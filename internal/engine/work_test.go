package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// worker is a work stream that notes what is pushed to it.
type worker struct {
	*Work
	t    *testing.T
	node string
	jobs []api.Job
}

func openWork(t *testing.T, e *Engine, queue, node string, max int, with ...func(*api.ClaimRequest)) *worker {
	t.Helper()
	req := &api.ClaimRequest{Node: node, Max: max}
	for _, f := range with {
		f(req)
	}
	w, err := e.OpenWork(bg, queue, req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return &worker{Work: w, t: t, node: node}
}

// fresh returns the jobs that are pushed now.
func (w *worker) fresh() []api.Job {
	w.t.Helper()
	from := len(w.jobs)
	for {
		n, err := w.Next(bg, func(j *api.Job) { w.jobs = append(w.jobs, *j) })
		if err != nil {
			w.t.Fatal(err)
		}
		if n == 0 {
			return w.jobs[from:]
		}
	}
}

// woken waits for the stream to be told of something, and returns how long
// that took.
func (w *worker) woken() time.Duration {
	w.t.Helper()
	start := time.Now()
	select {
	case <-w.Ready():
	case <-time.After(time.Hour):
		w.t.Fatal("nobody told the work stream of its job")
	}
	return time.Since(start)
}

// told reports whether the stream has been woken already.
func (w *worker) told() bool {
	synctest.Wait()
	select {
	case <-w.Ready():
		return true
	default:
		return false
	}
}

func (w *worker) wants(want string) {
	w.t.Helper()
	var got []string
	for _, j := range w.fresh() {
		got = append(got, fmt.Sprintf("%d/%d", j.Seq, j.Deliveries))
	}
	if fmt.Sprint(got) != want {
		w.t.Fatalf("%s got %v, want %s (number/deliveries)", w.node, got, want)
	}
}

// onQueue runs a test on a queue named q under a clock of its own.
func onQueue(t *testing.T, test func(*testing.T, *Engine), with ...func(*api.Config)) {
	t.Helper()
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, vfs.NewMem(), "a")
		defer e.Close()
		put(t, e, "q", configOf(api.Disk, append([]func(*api.Config){queueConfig}, with...)...))
		test(t, e)
	})
}

func TestAWorkStreamHoldsAtMostMaxAndRefillsAtAnAck(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		write(t, e, "q", "1", "2", "3", "4", "5")
		w := openWork(t, e, "q", "w", 2)
		w.wants("[1/1 2/1]")
		w.wants("[]")
		ack(t, e, "q", "w", 1)
		if d := w.woken(); d > 0 {
			t.Fatalf("the stream was told %v after the ack", d)
		}
		w.wants("[3/1]")
		if s := stateOf(t, e, "q"); s.Queue.InFlight != 2 {
			t.Fatalf("%+v", s.Queue)
		}
	})
}

func TestAWriteWakesOnlyAsManyWorkersAsItHasJobs(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		var all []*worker
		for i := range 3 {
			w := openWork(t, e, "q", fmt.Sprint("w", i), 1)
			w.wants("[]")
			all = append(all, w)
		}
		for round := range 6 {
			write(t, e, "q", "1")
			for i, w := range all {
				if told := w.told(); told != (i == round%3) {
					t.Fatalf("round %d: worker %d told: %v", round, i, told)
				} else if told {
					seq := uint64(round + 1)
					w.wants(fmt.Sprintf("[%d/1]", seq))
					ack(t, e, "q", w.node, seq)
					w.wants("[]")
				}
			}
		}
	})
}

func TestAJobWhoseLeaseEndedIsPushedAgain(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		write(t, e, "q", "1")
		w := openWork(t, e, "q", "w", 1, func(r *api.ClaimRequest) { r.HasLease, r.LeaseMS = true, 5000 })
		w.wants("[1/1]")
		first := w.jobs[0].LeaseID
		w.wants("[]")
		if d := w.woken(); d < 5*time.Second || d > 5250*time.Millisecond {
			t.Fatalf("the job came back after %v", d)
		}
		w.wants("[1/2]")
		if w.jobs[1].LeaseID == first {
			t.Fatal("two deliveries share a lease id")
		}
	})
}

func TestAWorkStreamGetsWhatOthersGiveBack(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		write(t, e, "q", "1", "2")
		claimJobs(t, e, "q", "other", 1)
		w := openWork(t, e, "q", "w", 2)
		w.wants("[2/1]")
		if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "other", Seqs: []uint64{1}, DelayMS: 700}); err != nil {
			t.Fatal(err)
		}
		if d := w.woken(); d < 700*time.Millisecond || d > 950*time.Millisecond {
			t.Fatalf("a delayed job came after %v", d)
		}
		w.wants("[1/2]")
		if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{1, 2}, NotStarted: true}); err != nil {
			t.Fatal(err)
		}
		if d := w.woken(); d > 0 {
			t.Fatalf("the stream was told %v after the nack", d)
		}
		w.wants("[1/2 2/1]")
	})
}

// What a stream is pushed at once is in the server's memory until its client takes it.
func TestAWorkStreamLeasesAtOnceWhatThereIsRoomFor(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		for range 10 {
			write(t, e, "q", `"`+strings.Repeat("x", 1000)+`"`)
		}
		w := openWork(t, e, "q", "w", 10)
		w.LimitReads(func(most int64) int64 { return min(most, 3500) })
		for _, want := range []int{3, 3, 3, 1} {
			if n, err := w.Next(bg, func(*api.Job) {}); n != want || err != nil {
				t.Fatalf("%d jobs of a kilobyte, %v; want %d", n, err, want)
			}
		}
	})
}

func TestAClosedWorkStreamGivesItsJobsToTheNext(t *testing.T) {
	for _, durable := range []bool{false, true} {
		onQueue(t, func(t *testing.T, e *Engine) {
			write(t, e, "q", "1", "2", "3")
			claimJobs(t, e, "q", "w", 1)
			ctx, leave := context.WithCancel(bg)
			first, err := e.OpenWork(ctx, "q", &api.ClaimRequest{Node: "w", Max: 5})
			if err != nil {
				t.Fatal(err)
			}
			defer first.Close()
			if n, err := first.Next(ctx, func(*api.Job) {}); n != 2 || err != nil {
				t.Fatal(n, err)
			}
			second := openWork(t, e, "q", "v", 5)
			second.wants("[]")
			leave()
			if !second.told() {
				t.Fatal("the next worker was not told at once")
			}
			second.wants("[2/2 3/2]")
			if res := ack(t, e, "q", "w", 1, 2, 3); res.Done != 1 || fmt.Sprint(res.Skipped) != "[2 3]" {
				t.Fatalf("the node's own claim must stay and nothing else: %+v", res)
			}
			if n, err := first.Next(ctx, func(*api.Job) { t.Error("a job went to a closed stream") }); n != 0 || err == nil {
				t.Fatal(n, err)
			}
		}, func(c *api.Config) { c.LeasesDurable = durable })
	}
}

func TestDurableLeasesOfAClosedWorkStreamDoNotComeBackAfterARestart(t *testing.T) {
	fs := vfs.NewMem()
	e := openOn(t, fs, "a")
	put(t, e, "q", configOf(api.Fsync, queueConfig, func(c *api.Config) { c.LeasesDurable = true }))
	write(t, e, "q", "1", "2")
	claimJobs(t, e, "q", "other", 1)
	w := openWork(t, e, "q", "w", 5)
	w.wants("[2/1]")
	w.Close()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openOn(t, fs, "a")
	if jobs := claimJobs(t, e, "q", "v", 5); len(jobs) != 1 || jobs[0].Seq != 2 || jobs[0].Deliveries != 2 {
		t.Fatalf("%+v", jobs)
	}
}

func TestAWorkStreamEndsWithItsQueue(t *testing.T) {
	for _, again := range []bool{false, true} {
		onQueue(t, func(t *testing.T, e *Engine) {
			write(t, e, "q", "1")
			w := openWork(t, e, "q", "w", 1)
			w.wants("[1/1]")
			if _, err := e.DeleteTopic(bg, "q", false); err != nil {
				t.Fatal(err)
			}
			if !w.told() {
				t.Fatal("nobody told the stream that its queue is gone")
			}
			if again {
				put(t, e, "q", configOf(api.Disk, queueConfig))
				write(t, e, "q", "2")
			}
			if _, err := w.Next(bg, func(*api.Job) { t.Error("a job of another queue") }); !api.IsCode(err, api.CodeTopicNotFound) {
				t.Fatal(err)
			}
			w.Close()
		})
	}
}

func TestAJobBeyondItsLimitGoesToTheDeadLettersAndTheStreamGoesOn(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		write(t, e, "q", "1", "2")
		w := openWork(t, e, "q", "w", 1)
		w.wants("[1/1]")
		if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{1}}); err != nil {
			t.Fatal(err)
		}
		w.wants("[2/1]")
		if got, _ := mustFull(t, e, "dead"); fmt.Sprint(got) != "[1=1]" {
			t.Fatal(got)
		}
	}, func(c *api.Config) { c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter = 1, true, "dead" })
}

func TestAWorkStreamTakesPartInTheClaimWindow(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		var all []*worker
		for i, max := range []int{10, 10, 1} {
			w := openWork(t, e, "q", fmt.Sprint("w", i), max)
			w.wants("[]")
			all = append(all, w)
		}
		write(t, e, "q", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10")
		got := make(chan int, 3)
		for _, w := range all {
			go func() {
				<-w.Ready()
				n, err := w.Next(bg, func(*api.Job) {})
				if err != nil {
					t.Error(err)
				}
				got <- n
			}()
			synctest.Wait()
		}
		var n [3]int
		for i := range n {
			n[i] = <-got
		}
		if n[0]+n[1]+n[2] != 10 || max(n[0], n[1], n[2]) != 5 || min(n[0], n[1], n[2]) != 1 {
			t.Fatalf("ten jobs were dealt %v, want 5, 4 and 1", n)
		}
	}, func(c *api.Config) { c.ClaimJitterMS = 50 })
}

func TestAWorkerThatDoesNotComeForItsJobLosesItToAnother(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		busy, idle := openWork(t, e, "q", "busy", 1), openWork(t, e, "q", "idle", 1)
		busy.wants("[]")
		idle.wants("[]")
		write(t, e, "q", "1")
		if d := idle.woken(); d > 250*time.Millisecond {
			t.Fatalf("the job lay for %v", d)
		}
		idle.wants("[1/1]")
	})
}

func TestIdleWorkStreamsAskNothing(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		var all []*worker
		for i := range 100 {
			w := openWork(t, e, "q", fmt.Sprint("w", i), 1)
			w.wants("[]")
			all = append(all, w)
		}
		time.Sleep(time.Hour)
		for _, w := range all {
			if w.told() {
				t.Fatal("a work stream of an empty queue was woken")
			}
		}
	})
}

func TestOpenWorkRefusesWhatAClaimWould(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		put(t, e, "log", configOf(api.Disk))
		for _, c := range []struct {
			topic string
			code  api.Code
		}{{"none", api.CodeTopicNotFound}, {"log", api.CodeNotAQueue}} {
			if _, err := e.OpenWork(bg, c.topic, &api.ClaimRequest{Node: "w", Max: 1}); !api.IsCode(err, c.code) {
				t.Errorf("%s: %v, want %s", c.topic, err, c.code)
			}
		}
	})
}
