package engine

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
	"github.com/weirmq/weir/tests/crashfs"
)

func durableLeases(on bool) api.Config {
	return configOf(api.Fsync, queueConfig, func(c *api.Config) { c.LeasesDurable, c.LeaseMS = on, 3_600_000 })
}

// heldJobs says who holds what until when, by the minute, and what is not held.
func heldJobs(t *testing.T, e *Engine) string {
	t.Helper()
	held, _, err := e.Held("q", 100_000)
	if err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	for _, h := range held {
		fmt.Fprintf(&s, "%d: %s, %d for %v\n", h.Seq, h.Node, h.Deliveries, h.Ends.Round(time.Minute))
	}
	q := stateOf(t, e, "q").Queue
	fmt.Fprintf(&s, "ready %d, delayed %d", q.Ready, q.Delayed)
	return s.String()
}

// Leases that are made durable are those that there are at that time: none comes back that the log has
// from an earlier time, when they were durable, and none is missing that is younger.
func TestLeasesThatBecomeDurableAreThoseOfThatTime(t *testing.T) {
	for _, between := range []bool{false, true} { // a restart while they are not durable
		t.Run(fmt.Sprintf("restart between %v", between), func(t *testing.T) {
			restarts(t, func(t *testing.T, next func(*Engine) *Engine, _ *wall) {
				e := next(nil)
				settle := func(f func(*api.SettleRequest) (api.SettleResult, error), req *api.SettleRequest) {
					t.Helper()
					if res, err := f(req); err != nil || res.Done != len(req.Seqs) {
						t.Fatal(res, err)
					}
				}
				nack := func(r *api.SettleRequest) (api.SettleResult, error) { return e.Nack(bg, "q", r) }
				extend := func(r *api.SettleRequest) (api.SettleResult, error) { return e.Extend(bg, "q", r) }
				put(t, e, "q", durableLeases(true))
				write(t, e, "q", "1", "2", "3", "4", "5", "6", "7", "8", "9")
				claimJobs(t, e, "q", "old", 6)
				settle(nack, &api.SettleRequest{Node: "old", Seqs: []uint64{6}, DelayMS: 7_200_000})
				put(t, e, "q", durableLeases(false))
				if between {
					e = next(e)
					claimJobs(t, e, "q", "old", 5)
				}
				settle(nack, &api.SettleRequest{Node: "old", Seqs: []uint64{1, 2, 3}})
				settle(extend, &api.SettleRequest{Node: "old", Seqs: []uint64{4}, LeaseMS: 14_400_000})
				if got := seqsOf(claimJobs(t, e, "q", "young", 1)); got != "[1]" {
					t.Fatal(got)
				}
				if got := seqsOf(claimJobs(t, e, "q", "delays", 1)); got != "[2]" {
					t.Fatal(got)
				}
				settle(nack, &api.SettleRequest{Node: "delays", Seqs: []uint64{2}, DelayMS: 7_200_000})
				ack(t, e, "q", "old", 5)
				put(t, e, "q", durableLeases(true))
				want := heldJobs(t, e)
				e = next(e)
				if got := heldJobs(t, e); got != want {
					t.Errorf("after a restart\n%s\nbefore it\n%s", got, want)
				}
				e.Close()
			})
		})
	}
}

// What is claimed or given back while the configuration that makes leases durable is on its way
// is as durable as what comes after it.
func TestALeaseIsAsDurableAsTheConfigurationThatComes(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		disk := &sickDisk{}
		mem := crashfs.New()
		e := openOn(t, errorfs.Wrap(mem, disk), "a")
		defer e.Close()
		put(t, e, "q", durableLeases(false))
		write(t, e, "q", "1", "2", "3")
		claimJobs(t, e, "q", "w", 2)
		disk.slow.Store(int64(time.Second))
		done := make(chan struct{})
		go func() {
			defer close(done)
			put(t, e, "q", durableLeases(true))
		}()
		time.Sleep(100 * time.Millisecond)
		if jobs := claimJobs(t, e, "q", "v", 1); len(jobs) != 1 {
			t.Error(jobs)
		}
		if res, err := e.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{1}}); err != nil || res.Done != 1 {
			t.Error(res, err)
		}
		<-done
		disk.slow.Store(0)
		want := heldJobs(t, e)
		again := openOn(t, mem.CrashClone(vfs.CrashCloneCfg{}), "b")
		defer again.Close()
		if got := heldJobs(t, again); got != want {
			t.Errorf("after a crash\n%s\nbefore it\n%s", got, want)
		}
	})
}

// A job that is on its way to the dead letters while leases become durable, and does not get there,
// is nobody's after a restart, too.
func TestAJobThatCouldNotBeBuriedWhileLeasesBecameDurableIsNobodys(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		disk := &sickDisk{}
		mem := crashfs.New()
		setFree(mem, 500)
		e := openOn(t, errorfs.Wrap(mem, disk), "a")
		defer e.Close()
		config := func(durable bool) api.Config {
			c := durableLeases(durable)
			c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter = 1, true, "dead"
			return c
		}
		put(t, e, "q", config(true))
		write(t, e, "q", "1")
		claimJobs(t, e, "q", "w", 1)
		put(t, e, "q", config(false))
		if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{1}}); err != nil {
			t.Fatal(err)
		}
		disk.slow.Store(int64(5 * time.Second))
		var both sync.WaitGroup
		both.Go(func() { claimJobs(t, e, "q", "v", 1) }) // makes the topic for the dead letters
		time.Sleep(100 * time.Millisecond)
		both.Go(func() { put(t, e, "q", config(true)) })
		setFree(mem, 99)
		e.space.sample()
		both.Wait()
		disk.slow.Store(0)
		want := heldJobs(t, e)
		if want != "ready 1, delayed 0" {
			t.Error(want)
		}
		again := openOn(t, mem.CrashClone(vfs.CrashCloneCfg{}), "b")
		defer again.Close()
		if got := heldJobs(t, again); got != want {
			t.Errorf("after a crash\n%s\nbefore it\n%s", got, want)
		}
	})
}

// However many leases there are: they do not fit into one operation of the log.
func TestManyLeasesBecomeDurable(t *testing.T) {
	fs := vfs.NewMem()
	e := openOn(t, fs, "a")
	put(t, e, "q", durableLeases(false))
	for range 50 {
		write(t, e, "q", strings.Split(strings.Repeat("1 ", 99)+"1", " ")...)
	}
	for i := range 5 {
		if got := len(claimJobs(t, e, "q", fmt.Sprint("w", i%2), 1000)); got != 1000 {
			t.Fatal(got)
		}
	}
	put(t, e, "q", durableLeases(true))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openOn(t, fs, "a")
	_, nodes, err := e.Held("q", 1)
	if err != nil || nodes["w0"] != 3000 || nodes["w1"] != 2000 {
		t.Errorf("%v, %v; want 3000 of w0 and 2000 of w1", nodes, err)
	}
}
