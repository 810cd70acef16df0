package engine

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// stuckScene is a queue with a job that counts as ready and that nobody can have.
type stuckScene struct {
	*Engine
	disk *vfs.MemFS
	sickDisk
	log routerLog

	looks  atomic.Int64 // how often the engine asked for the time: each look at a queue does
	spins  context.Context
	giveUp context.CancelFunc
}

// mostLooks is far more than anybody needs who waits, and soon reached by who spins.
const mostLooks = 5000

func newStuckScene(t *testing.T) *stuckScene {
	s := &stuckScene{disk: vfs.NewMem()}
	s.spins, s.giveUp = context.WithCancel(bg)
	setFree(s.disk, 500)
	s.Engine = openOn(t, errorfs.Wrap(s.disk, &s.sickDisk), "a", s.log.set, func(o *Options) {
		o.Now = func() time.Time {
			if s.looks.Add(1) == mostLooks {
				s.giveUp()
			}
			return time.Now()
		}
	})
	return s
}

// deadJob puts a job into q that has been delivered as often as it may be.
func (s *stuckScene) deadJob(t *testing.T) {
	t.Helper()
	write(t, s.Engine, "q", "1")
	claimJobs(t, s.Engine, "q", "w", 1)
	if _, err := s.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{1}}); err != nil {
		t.Fatal(err)
	}
}

// stream is a work stream whose client takes what comes, until it spins.
func (s *stuckScene) stream(t *testing.T) {
	w, err := s.OpenWork(s.spins, "q", &api.ClaimRequest{Node: "stream", Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			if _, err := w.Next(s.spins, func(*api.Job) {}); err != nil {
				return
			}
			select {
			case <-w.Ready():
			case <-s.spins.Done():
				return
			}
		}
	}()
}

// Whoever waits for jobs looks again from time to time at one that counts as ready and cannot be
// had, and at once for any other; the log says so now and then.
func TestWhoWaitsDoesNotSpinOverAJobThatCannotBeHad(t *testing.T) {
	for name, c := range map[string]struct {
		begin, mend func(*testing.T, *stuckScene)
		lines       int
	}{
		"its dead letters are full": {func(t *testing.T, s *stuckScene) {
			put(t, s.Engine, "dead", configOf(api.Disk, func(c *api.Config) { c.CapRecords, c.Discard = 1, api.DiscardReject }))
			write(t, s.Engine, "dead", "0")
			s.deadJob(t)
		}, func(t *testing.T, s *stuckScene) { put(t, s.Engine, "dead", configOf(api.Disk)) }, 1},
		"the disk is full": {func(t *testing.T, s *stuckScene) {
			put(t, s.Engine, "dead", configOf(api.Disk))
			s.deadJob(t)
			setFree(s.disk, 99)
			s.space.sample()
		}, func(_ *testing.T, s *stuckScene) {
			setFree(s.disk, 500)
			s.space.sample()
		}, 0},
		"it is being deleted": {func(t *testing.T, s *stuckScene) {
			write(t, s.Engine, "q", "1")
			s.slow.Store(int64(30 * time.Second))
			go func() {
				if _, err := s.DeleteRecords(bg, "q", &api.DeleteRequest{BeforeSeq: 2, HasBefore: true}); err != nil {
					t.Error(err)
				}
			}()
			time.Sleep(time.Second)
		}, func(_ *testing.T, s *stuckScene) { s.slow.Store(0); time.Sleep(10 * time.Second) }, 0},
	} {
		for _, jitter := range []uint32{0, 1, 50} {
			for _, streams := range []int{0, 2} {
				t.Run(fmt.Sprintf("%s, windows of %d ms, %d streams", name, jitter, streams), func(t *testing.T) {
					bubble.Run(t, func(t *testing.T) {
						s := newStuckScene(t)
						defer s.Close()
						defer s.giveUp()
						put(t, s.Engine, "q", configOf(api.Fsync, queueConfig, func(c *api.Config) {
							c.ClaimJitterMS, c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter = jitter, 1, true, "dead"
						}))
						c.begin(t, s)
						s.looks.Store(0)
						for range streams {
							s.stream(t)
						}
						var all []<-chan patient
						for i := range 3 {
							all = append(all, claimAndWait(s.spins, s.Engine, fmt.Sprint("w", i), 5))
						}
						for _, w := range all {
							if got := <-w; got.err != nil || got.Count > 0 || got.took < 20*time.Second || got.took > 20*time.Second+time.Duration(jitter)*time.Millisecond {
								t.Errorf("%+v; want a whole wait for nothing", got)
							}
						}
						if n := s.looks.Load(); n >= mostLooks {
							t.Fatalf("they have looked %d times, and not let the time pass", n)
						}
						if n := s.log.count("dead letters could not be moved"); n != c.lines {
							t.Errorf("the log says so %d times, want %d", n, c.lines)
						}
						s.looks.Store(0)
						last := claimAndWait(s.spins, s.Engine, "last", 5)
						c.mend(t, s)
						time.Sleep(500 * time.Millisecond)
						if st := stateOf(t, s.Engine, "q"); st.Count > 0 {
							t.Errorf("half a second after nothing was in the way %+v", st.Queue)
						}
						if streams > 0 {
							return
						}
						write(t, s.Engine, "q", "2")
						begin := time.Now()
						if got := <-last; got.Count != 1 || time.Since(begin) > time.Duration(jitter)*time.Millisecond {
							t.Errorf("%+v %v after the write", got, time.Since(begin))
						}
					})
				})
			}
		}
	}
}

// A queue whose dead letters cannot be moved says so again while that lasts, and how often it has tried.
func TestTheLogIsRemindedOfDeadLettersThatCannotBeMoved(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := newStuckScene(t)
		defer s.Close()
		put(t, s.Engine, "q", configOf(api.Disk, queueConfig, func(c *api.Config) { c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter = 1, true, "dead" }))
		put(t, s.Engine, "dead", configOf(api.Disk, func(c *api.Config) { c.CapRecords, c.Discard = 1, api.DiscardReject }))
		write(t, s.Engine, "dead", "0")
		s.deadJob(t)
		for range 150 { // claims that do not wait, one a second
			claimJobs(t, s.Engine, "q", "w", 1)
			time.Sleep(time.Second)
		}
		lines := s.log.Lines("dead letters could not be moved")
		for i, tries := range []string{"tries=1 ", "tries=60 ", "tries=60 "} {
			if len(lines) != 3 || !strings.Contains(lines[i], tries) {
				t.Fatalf("in 150 s the log says so %d times, want three lines, of 1, 60 and 60 tries:\n%s", len(lines), lines)
			}
		}
	})
}
