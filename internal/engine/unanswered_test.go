package engine

import (
	"context"
	"fmt"
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

// sickDisk takes its time to sync, or does not read what is sealed.
type sickDisk struct {
	slow atomic.Int64 // ns
	sick atomic.Bool
}

func (d *sickDisk) String() string { return "a sick disk" }

func (d *sickDisk) MaybeError(o errorfs.Op) error {
	switch o.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData:
		time.Sleep(time.Duration(d.slow.Load()))
	case errorfs.OpFileRead, errorfs.OpFileReadAt, errorfs.OpOpen:
		if d.sick.Load() && strings.Contains(o.Path, "/kv/") {
			return syscall.EIO
		}
	}
	return nil
}

// A durable claim that is not answered, because its client has gone or its records cannot be read,
// has given its jobs back: nobody holds them after a restart either, and it does not count.
func TestADurableClaimThatIsNotAnsweredIsNobodysAfterARestart(t *testing.T) {
	gone, leave := context.WithCancel(bg)
	leave()
	req := func() *api.ClaimRequest { return &api.ClaimRequest{Node: "gone", Max: 5} }
	told := func(*api.Job) { t.Error("a job is handed out") }
	for name, claim := range map[string]func(*testing.T, *Engine, *sickDisk){
		"a client that has gone": func(t *testing.T, e *Engine, _ *sickDisk) {
			write(t, e, "q", "1", "2")
			if _, err := e.Claim(gone, "q", req(), told); err == nil {
				t.Error("the claim is answered")
			}
		},
		"a client that goes when it was dealt jobs": func(t *testing.T, e *Engine, disk *sickDisk) {
			ctx, leave := context.WithCancel(bg)
			w := claimAndWait(ctx, e, "gone", 5)
			disk.slow.Store(int64(time.Second))
			write(t, e, "q", "1", "2")
			for stateOf(t, e, "q").Queue.InFlight == 0 {
				time.Sleep(time.Millisecond)
			}
			leave()
			if got := <-w; got.Count > 0 {
				t.Errorf("the claim is answered: %+v", got)
			}
			disk.slow.Store(0)
		},
		"a work stream that has gone": func(t *testing.T, e *Engine, _ *sickDisk) {
			write(t, e, "q", "1", "2")
			w, err := e.OpenWork(bg, "q", req())
			if err != nil {
				t.Fatal(err)
			}
			if _, err = w.Next(gone, told); err == nil {
				t.Error("the stream goes on")
			}
			w.Close()
		},
		"records that cannot be read": func(t *testing.T, e *Engine, disk *sickDisk) {
			write(t, e, "q", "1", "2")
			sealNow(t, e)
			disk.sick.Store(true)
			if _, err := e.Claim(bg, "q", req(), told); err == nil {
				t.Error("the claim is answered")
			}
			disk.sick.Store(false)
		},
	} {
		for _, jitter := range []uint32{0, 50} {
			t.Run(fmt.Sprintf("%s, windows of %d ms", name, jitter), func(t *testing.T) {
				bubble.Run(t, func(t *testing.T) {
					mem := crashfs.New()
					disk := &sickDisk{}
					e := openOn(t, errorfs.Wrap(mem, disk), "a")
					put(t, e, "q", configOf(api.Fsync, queueConfig, func(c *api.Config) { c.LeasesDurable, c.ClaimJitterMS = true, jitter }))
					claim(t, e, disk)
					if s := stateOf(t, e, "q"); s.Queue.Ready != 2 {
						t.Errorf("before the restart %+v", s.Queue)
					}
					again := openOn(t, mem.CrashClone(vfs.CrashCloneCfg{}), "a")
					jobs := claimJobs(t, again, "q", "w", 5)
					if seqsOf(jobs) != "[1 2]" || jobs[0].Deliveries != 1 || jobs[1].Deliveries != 1 {
						t.Errorf("after the restart somebody gets %+v, want both jobs, for the first time", jobs)
					}
					again.Close()
					e.Close()
				})
			})
		}
	}
}
