package engine

import (
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
	"github.com/weirmq/weir/tests/crashfs"
)

// A call that settles or extends and answers that it failed has changed nothing:
// the job is held under its lease as before, and no longer than before.
func TestASettlingCallThatFailsChangesNothing(t *testing.T) {
	for name, call := range map[string]func(*Engine, *api.SettleRequest) error{
		"ack":  func(e *Engine, r *api.SettleRequest) error { _, err := e.Ack(bg, "q", r); return err },
		"nack": func(e *Engine, r *api.SettleRequest) error { _, err := e.Nack(bg, "q", r); return err },
		"extend": func(e *Engine, r *api.SettleRequest) error {
			r.LeaseMS = 3_600_000
			_, err := e.Extend(bg, "q", r)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				fs := newFaults(vfs.NewMem())
				e := openOn(t, fs, "a")
				put(t, e, "q", configOf(api.Fsync, queueConfig, func(c *api.Config) { c.LeasesDurable, c.LeaseMS = true, 60_000 }))
				write(t, e, "q", "1")
				if got := seqsOf(claimJobs(t, e, "q", "w", 1)); got != "[1]" {
					t.Fatal(got)
				}
				fs.failing("/wal/", syscall.EIO)
				for range 2 { // the first finds the failure, the second a log that takes nothing
					if err := call(e, &api.SettleRequest{Node: "w", Seqs: []uint64{1}}); !api.IsCode(err, api.CodeInternal) {
						t.Fatalf("on a disk that fails: %v", err)
					}
				}
				fs.set(nil)
				time.Sleep(5 * time.Second)
				if got := seqsOf(claimJobs(t, e, "q", "other", 1)); got != "[]" {
					t.Errorf("%s: another worker gets %s while the lease lasts", name, got)
				}
				if s := stateOf(t, e, "q"); s.Queue.InFlight != 1 || s.Queue.Ready != 0 {
					t.Errorf("%+v", s.Queue)
				}
				time.Sleep(56 * time.Second)
				if got := seqsOf(claimJobs(t, e, "q", "other", 1)); got != "[1]" {
					t.Errorf("%s: another worker gets %s after the lease", name, got)
				}
				if res := ack(t, e, "q", "other", 1); res.Done != 1 {
					t.Errorf("%+v", res)
				}
			})
		})
	}
}

// So has an ack that cannot find out how large its jobs are: of a lease that a restart has
// brought back nobody knows it, and one of the records cannot be read.
func TestAnAckWhoseRecordCannotBeReadChangesNothing(t *testing.T) {
	mem := vfs.NewMem()
	e := openOn(t, mem, "a")
	put(t, e, "q", configOf(api.Fsync, queueConfig, func(c *api.Config) { c.LeasesDurable, c.LeaseMS = true, 3_600_000 }))
	for range 3 { // each in a table of its own
		write(t, e, "q", "1")
		sealNow(t, e)
	}
	if got := seqsOf(claimJobs(t, e, "q", "w", 3)); got != "[1 2 3]" {
		t.Fatal(got)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	var failing atomic.Bool
	first := ""
	e = openOn(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(o errorfs.Op) error {
		if o.Kind != errorfs.OpFileReadAt || !strings.HasSuffix(o.Path, ".sst") || !failing.Load() {
			return nil
		}
		if first == "" {
			first = o.Path
		}
		if o.Path == first { // so that the first job is planned already
			return nil
		}
		return syscall.EIO
	})), "a")
	failing.Store(true)
	if _, err := e.Ack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{1, 2, 3}}); !api.IsCode(err, api.CodeInternal) {
		t.Fatalf("on a disk that cannot be read: %v", err)
	}
	failing.Store(false)
	if s := stateOf(t, e, "q"); s.Queue.InFlight != 3 || s.Count != 3 {
		t.Errorf("%+v %+v", s.TopicCounters, s.Queue)
	}
	if res := ack(t, e, "q", "w", 1, 2, 3); res.Done != 3 {
		t.Errorf("once the disk is well: %+v", res)
	}
}

// A durable lease that could not be logged is nobody's: it would be gone after a
// restart, and the job with two workers.
func TestAClaimThatFailsHandsOutNothing(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		fs := newFaults(vfs.NewMem())
		e := openOn(t, fs, "a")
		put(t, e, "q", configOf(api.Fsync, queueConfig, func(c *api.Config) { c.LeasesDurable, c.LeaseMS = true, 60_000 }))
		write(t, e, "q", "1", "2")
		fs.failing("/wal/", syscall.EIO)
		for range 2 { // the first finds the failure, the second a log that takes nothing
			var jobs []api.Job
			_, err := e.Claim(bg, "q", &api.ClaimRequest{Node: "w", Max: 2}, func(j *api.Job) { jobs = append(jobs, *j) })
			if !api.IsCode(err, api.CodeInternal) || len(jobs) > 0 {
				t.Errorf("on a disk that fails: %d jobs, %v", len(jobs), err)
			}
		}
		fs.set(nil)
		time.Sleep(5 * time.Second)
		if got := seqsOf(claimJobs(t, e, "q", "other", 2)); got != "[1 2]" {
			t.Errorf("another worker gets %s once the disk is well", got)
		}
	})
}

// So is one that was dealt to a claim whose time was up before it was told.
func TestAClaimWhoseTimeIsUpHandsOutNothingThatCouldNotBeLogged(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		fs := newFaults(vfs.NewMem())
		e := openOn(t, fs, "a")
		put(t, e, "q", configOf(api.Fsync, queueConfig, func(c *api.Config) { c.LeasesDurable, c.LeaseMS = true, 60_000 }))
		write(t, e, "q", "1")
		if got := seqsOf(claimJobs(t, e, "q", "dies", 1)); got != "[1]" {
			t.Fatal(got)
		}
		w := &waiter{ready: make(chan struct{}, 1), room: func() int { return 1 }}
		c, err := e.claimNow(bg, "q", &api.ClaimRequest{Node: "w", Max: 1}, w)
		if err != nil || !c.lined {
			t.Fatal("the claim stands in no line", err)
		}
		fs.failing("/wal/", syscall.EIO)
		if _, err := e.Write(bg, "q", &api.WriteRequest{Records: []api.Record{{}}}); err == nil {
			t.Fatal("the disk takes a write")
		}
		time.Sleep(61 * time.Second)
		if _, err := c.look("q"); err != nil { // it deals
			t.Fatal(err)
		}
		<-w.ready // otherwise it may be told first
		up := make(chan time.Time, 1)
		up <- time.Now()
		if _, err = c.await(bg, "q", up); err == nil {
			_, err = c.deliver(bg, func(j *api.Job) { t.Errorf("job %d is handed out without a lease", j.Seq) })
		}
		if !api.IsCode(err, api.CodeInternal) {
			t.Errorf("the claim ends with %v", err)
		}
		fs.set(nil)
		time.Sleep(5 * time.Second)
		if got := seqsOf(claimJobs(t, e, "q", "other", 1)); got != "[1]" {
			t.Errorf("another worker gets %s once the disk is well", got)
		}
	})
}

// A write that fails is said to have had no effect only if no restart finds it.
func TestAFailedWriteThatARestartMayFindIsNotSaidToBeNone(t *testing.T) {
	for _, replaced := range []bool{true, false} {
		mem := crashfs.New()
		fs := newFaults(mem)
		e := openOn(t, fs, "a")
		put(t, e, "f", configOf(api.Fsync))
		write(t, e, "f", "1")
		var failed atomic.Bool
		fs.set(func(o errorfs.Op, _ int) error {
			writes := o.Kind == errorfs.OpFileWrite || o.Kind == errorfs.OpFileWriteAt
			if writes || !strings.Contains(o.Path, "/wal/") || strings.HasSuffix(o.Path, "/mark") || replaced && failed.Swap(true) {
				return nil
			}
			return syscall.EIO
		})
		_, err := tryWrite(e, "f", "2")
		after := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))})
		if !api.IsCode(err, api.CodeInternal) {
			t.Fatalf("the write is answered %v", err)
		}
		got, _ := mustFull(t, openOn(t, after, "a"), "f")
		if found := len(got) > 1; found == replaced {
			t.Fatalf("replaced %v: a restart finds %v", replaced, got)
		}
		if none := strings.Contains(err.Error(), "nothing of this call"); none != replaced {
			t.Errorf("a restart finds %v of a write that was answered %v", got, err)
		}
		fs.set(nil)
	}
}
