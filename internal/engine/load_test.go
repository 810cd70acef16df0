package engine

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// The tests below run real writers against a disk whose syncs take time, in a
// bubble: the clock is theirs alone, and whatever needs no disk takes none.

// slowDisk is a file system whose syncs of data take a time of their own.
type slowDisk struct {
	vfs.FS
	sync atomic.Int64 // ns
}

func newSlowDisk(d time.Duration) *slowDisk {
	s := &slowDisk{FS: vfs.NewMem()}
	s.sync.Store(int64(d))
	return s
}

type slowFile struct {
	vfs.File
	disk *slowDisk
}

func (f slowFile) SyncData() error {
	time.Sleep(time.Duration(f.disk.sync.Load()))
	return f.File.SyncData()
}

func (s *slowDisk) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.FS.OpenReadWrite(name, c, o...)
	if err != nil {
		return nil, err
	}
	return slowFile{f, s}, nil
}

// crowd is writers that write without pause. Refused, they come back when they may.
type crowd struct {
	e              *Engine
	acked, refused atomic.Int64
	rungAtRefusal  atomic.Int64 // when the first was refused, one more
	stop           atomic.Bool
	all            sync.WaitGroup
}

func (c *crowd) start(t *testing.T, n int) {
	for range n {
		c.all.Go(func() {
			for !c.stop.Load() {
				_, err := tryWrite(c.e, "a", "1")
				var known *api.Error
				switch {
				case err == nil:
					c.acked.Add(1)
				case asAPI(err, &known) && known.Code == api.CodeThrottled:
					c.refused.Add(1)
					c.rungAtRefusal.CompareAndSwap(0, int64(c.e.governor.State().Rung)+1)
					time.Sleep(known.RetryAfter)
				default:
					t.Error(err)
					return
				}
			}
		})
	}
}

func (c *crowd) end() {
	c.stop.Store(true)
	c.all.Wait()
}

// pressures samples the pressure for a time.
func pressures(e *Engine, d time.Duration) (all []float64) {
	for range d / (100 * time.Millisecond) {
		time.Sleep(100 * time.Millisecond)
		all = append(all, e.governor.State().Pressure)
	}
	return all
}

func turnsOf(all []float64) (n int) {
	up, extreme := true, 0.0
	for _, p := range all {
		if up && p > extreme || !up && p < extreme {
			extreme = p
		} else if up && p < extreme-0.01 || !up && p > extreme+0.01 {
			up, extreme = !up, p
			n++
		}
	}
	return n
}

// Ten times as many writers as the queue has slots: the ladder climbs once, to
// its last rung, before anyone is refused, and is gone a second after the load.
func TestTheLadderClimbsUnderRealLoadBeforeItRefuses(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, newSlowDisk(10*time.Millisecond), "b", func(o *Options) { o.IngestSlots, o.SegmentBytes = 20, 16<<20 })
		defer e.Close()
		put(t, e, "a", configOf(api.Fsync))
		c := crowd{e: e}
		c.start(t, 200) // the race detector has slots for 255 goroutines, and may crash with more
		time.Sleep(time.Second)
		if rung := e.governor.State().Rung; rung != 4 {
			t.Errorf("rung %d after a second of ten times the load", rung)
		}
		under := pressures(e, 5*time.Second)
		if n := turnsOf(under); n > 1 {
			t.Errorf("the pressure turns round %d times under constant load: %.2f", n, under)
		}
		if c.refused.Load() == 0 {
			t.Error("nobody was refused")
		}
		if rung := c.rungAtRefusal.Load() - 1; rung < 1 {
			t.Errorf("a write was refused on rung %d", rung)
		}
		c.end()
		time.Sleep(time.Second)
		if st := e.governor.State(); st.Pressure >= 0.05 {
			t.Errorf("a second after the load: %+v", st)
		}
	})
}

// Who waits for the disk alone is no overload, however slow it is.
func TestWritersThatTheDiskKeepsUpWithArePressureOfNobody(t *testing.T) {
	for _, writers := range []int{1, 2, 64} {
		bubble.Run(t, func(t *testing.T) {
			e := openOn(t, newSlowDisk(10*time.Millisecond), "b", func(o *Options) { o.SegmentBytes = 4 << 20 })
			defer e.Close()
			put(t, e, "a", configOf(api.Fsync))
			c := crowd{e: e}
			c.start(t, writers)
			for i, p := range pressures(e, 3*time.Second) {
				if p > 0.1 {
					t.Errorf("%d writers: pressure %.2f in sample %d", writers, p, i)
				}
			}
			c.end()
			// No window has cost them anything: each sync is for all.
			if rounds := c.acked.Load() / int64(writers); rounds < 140 {
				t.Errorf("%d writers: %d rounds of 10 ms in 3 s", writers, rounds)
			}
		})
	}
}

// What the window itself adds to the wait must not hold the window open.
func TestTheCommitWindowIsNoReasonForItself(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, newSlowDisk(time.Millisecond), "b")
		defer e.Close()
		put(t, e, "a", configOf(api.Fsync))
		e.governor.Pin(1)
		c := crowd{e: e}
		c.start(t, 8)
		time.Sleep(time.Second)
		if st := e.governor.State(); st.Pool > 0.05 {
			t.Errorf("%+v", st)
		}
		c.end()
	})
}

// A write says how long it was held up: by a full ingest queue, and by a commit window that the
// pressure has widened.
func TestAWriteSaysHowLongItWasHeldUp(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, vfs.NewMem(), "b", func(o *Options) { o.IngestSlots = 1 })
		put(t, e, "a", configOf(api.Memory))
		if res := write(t, e, "a", "1"); res.ThrottleMS != 0 {
			t.Errorf("nothing held the write up, and it says %v ms", res.ThrottleMS)
		}
		for _, patient := range []bool{false, true} {
			if err := e.log.Reserve(bg, time.Minute); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(300*time.Millisecond, e.log.Unreserve)
			res, err := e.Write(bg, "a", &api.WriteRequest{Records: []api.Record{{Data: []byte("1")}}, DisableBackpressure: patient})
			if err != nil || res.ThrottleMS != 300 {
				t.Errorf("patient %v: it waited 300 ms for room and says %v ms, %v", patient, res.ThrottleMS, err)
			}
		}
		e.Close()
	})
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, newSlowDisk(time.Millisecond), "b")
		put(t, e, "a", configOf(api.Fsync))
		e.governor.Pin(1)
		c := crowd{e: e}
		c.start(t, 8)
		time.Sleep(time.Second)
		write(t, e, "a", "1") // it may come while a group is gathered; the next one comes with a group
		if res := write(t, e, "a", "1"); res.ThrottleMS < 9 || res.ThrottleMS > 10 || res.SyncMS < res.ThrottleMS {
			t.Errorf("a commit window of 10 ms is told as %v ms, of %v", res.ThrottleMS, res.SyncMS)
		}
		c.end()
		e.Close()
	})
}

// A disk that hangs lets no write end: that is not calm.
func TestADiskThatHangsKeepsThePressureUp(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		disk := newSlowDisk(time.Millisecond)
		e := openOn(t, disk, "b")
		defer e.Close()
		put(t, e, "a", configOf(api.Fsync))
		disk.sync.Store(int64(10 * time.Second))
		c := crowd{e: e}
		c.start(t, 1)
		last := 0.0
		for _, p := range pressures(e, 9*time.Second) {
			if p < last {
				t.Fatalf("the pressure falls from %.2f to %.2f", last, p)
			}
			last = p
		}
		if last < 0.95 {
			t.Errorf("pressure %.2f", last)
		}
		disk.sync.Store(0)
		c.end()
	})
}

// More than the disk can take away: whoever writes is held up by the syncer.
func TestASyncerThatWritersWaitForIsPressure(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, newSlowDisk(time.Second), "b", func(o *Options) { o.SegmentBytes = 64 << 20 })
		defer e.Close()
		put(t, e, "a", configOf(api.Disk))
		var all sync.WaitGroup
		big := string(make([]byte, 1<<20))
		for range 20 {
			all.Go(func() { tryWrite(e, "a", `"`+big[:1<<19]+`"`); tryWrite(e, "a", `"`+big[:1<<19]+`"`) })
		}
		time.Sleep(800 * time.Millisecond)
		if st := e.governor.State(); st.Pool < 0.95 {
			t.Errorf("%+v", st)
		}
		all.Wait()
	})
}

// Each kind of blocking work counts for itself: one that is used up is not made
// less by others that are idle.
func TestTheBusiestKindOfBlockingWorkCounts(t *testing.T) {
	for name, used := range map[string]func(e *Engine, d time.Duration){
		"sealer":  func(e *Engine, d time.Duration) { e.work.sealing.Add(int64(d)) },
		"routers": func(e *Engine, d time.Duration) { e.work.routing.Add(int64(d) * int64(e.sched.Shards())) },
	} {
		bubble.Run(t, func(t *testing.T) {
			e := openOn(t, vfs.NewMem(), "b", func(o *Options) { o.Workers = 8 })
			defer e.Close()
			time.Sleep(governorPeriod / 2) // between two samples
			for share, want := range map[float64]float64{0.5: 0, 0.75: 0.5, 1: 1} {
				for range 20 {
					time.Sleep(governorPeriod)
					used(e, time.Duration(share*float64(governorPeriod)))
				}
				if got := e.governor.State().Pool; got < want-0.1 || got > want+0.1 {
					t.Errorf("%s busy for %v of the time: %.2f, want %.2f", name, share, got, want)
				}
			}
		})
	}
}

// A rung that changes with every sample is told once a second, and the one that stays in the end is told, too.
func TestTheLogIsNotFilledWithRungs(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var log routerLog
		e := openOn(t, vfs.NewMem(), "b", log.set)
		for i := range 100 {
			e.governor.Pin(float64(i % 2))
			time.Sleep(100 * time.Millisecond)
		}
		e.governor.Pin(0)
		time.Sleep(2 * time.Second)
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		lines = slices.DeleteFunc(lines, func(l string) bool { return !strings.Contains(l, "another rung") })
		if n := len(lines); n < 2 || n > 13 || !strings.Contains(lines[n-1], "rung=0") {
			t.Errorf("%d lines about the rung in 12 s: %q", n, lines)
		}
	})
}
