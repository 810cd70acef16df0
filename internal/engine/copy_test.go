package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/tests/bubble"
)

// copied opens an engine that keeps its copy on the shelf.
func (s *shelf) openEngine(t testing.TB, fs vfs.FS, lsn uint64, with ...func(*Options)) *Engine {
	t.Helper()
	term, end := s.lead()
	log := s.open(term)
	r := &Replica{Log: log, Files: shelfFiles{s}, Term: term, End: end, LSN: lsn}
	e := openOn(t, fs, "boot", append([]func(*Options){func(o *Options) { o.Replica, o.DiskFlush = r, time.Second }}, with...)...)
	t.Cleanup(func() { e.Close(); log.Close() })
	return e
}

// told is what writers were told, over all the lives of their topics.
type told struct {
	mu   sync.Mutex
	data map[string]map[uint64]string
	t    *testing.T
}

func (w *told) acked(topic string, seq uint64, data string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.data[topic] == nil {
		w.data[topic] = map[uint64]string{}
	}
	if was, ok := w.data[topic][seq]; ok {
		w.t.Errorf("%s: number %d was given to %s and to %s", topic, seq, was, data)
	}
	w.data[topic][seq] = data
}

// judge compares what was told with what is there, and returns how much is lost.
func (w *told) judge(e *Engine, topic string) (lost int) {
	records, gaps, _, err := full(e, topic, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	is := map[uint64]string{}
	for _, r := range records {
		var seq uint64
		var data string
		fmt.Sscanf(r, "%d=%s", &seq, &data)
		is[seq] = data
	}
	for seq, data := range w.data[topic] {
		if is[seq] == data {
			continue
		}
		lost++
		if is[seq] != "" || !slices.ContainsFunc(gaps, func(g string) bool {
			var from, to uint64
			fmt.Sscanf(g, "%d-%d", &from, &to)
			return from <= seq && seq <= to
		}) {
			w.t.Errorf("%s: %d=%s was acknowledged and is %q, in none of %v", topic, seq, data, is[seq], gaps)
			return lost
		}
	}
	return lost
}

// holdsAll takes the copy over and checks that nothing of a topic is missing there.
func (s *shelf) holdsAll(t *testing.T, w *told, topic string) {
	t.Helper()
	s.lead()
	fs := vfs.NewMem()
	lsn := s.rebuild(t, fs, "/data")
	if lost := w.judge(s.openEngine(t, fs, lsn), topic); lost > 0 {
		t.Errorf("%d are missing, and the copy was whole", lost)
	}
}

// The machine goes with its disk, again and again, and what is left of it writes
// on for a while; each time another one goes on from the copy.
func TestWhatALostMachineTakesIsAnnounced(t *testing.T) {
	classes := []api.Durability{api.Fsync, api.Disk, api.Memory, api.Ephemeral}
	for _, sync := range []bool{true, false} {
		bubble.Run(t, func(t *testing.T) {
			w := told{data: map[string]map[uint64]string{}, t: t}
			s := newShelf(60 * time.Millisecond)
			fs, lsn := vfs.FS(vfs.NewMem()), uint64(0)
			mode := func(o *Options) { o.Replica.Sync, o.Replica.BaseBytes = sync, 256<<10 }
			var lost [4]int
			for round := range lostMachines {
				e := s.openEngine(t, fs, lsn, mode)
				crowd := newWriters(e, &w, classes, round)
				time.Sleep(1200*time.Millisecond + time.Duration(rand.IntN(1500))*time.Millisecond)
				fs = vfs.NewMem()
				s.lead()
				lsn = s.rebuild(t, fs, "/data")
				crowd.end(t)
				e.Close()
				next := s.openEngine(t, fs, lsn, mode)
				for i, c := range classes {
					n := w.judge(next, c.String())
					lost[i] += n
					if sync && c == api.Fsync && n > 0 {
						t.Errorf("round %d: %d acknowledged writes are gone", round, n)
					}
				}
				next.Close()
			}
			t.Logf("sync %v: lost of %d fsync %d, of %d disk %d, of %d memory %d, of %d ephemeral %d", sync,
				len(w.data["fsync"]), lost[0], len(w.data["disk"]), lost[1], len(w.data["memory"]), lost[2], len(w.data["ephemeral"]), lost[3])
			if !sync && lost[0] == 0 {
				t.Error("nothing was lost: this test shows nothing")
			}
		})
	}
}

// The copy became asynchronous after its newest base was made, and the next leader
// has it synchronous again: neither makes what was lost in between unsaid.
func TestWhatIsLostBehindABaseOfASynchronousCopyIsAnnounced(t *testing.T) {
	for _, next := range []bool{true, false} {
		bubble.Run(t, func(t *testing.T) {
			w := told{data: map[string]map[uint64]string{}, t: t}
			s := newShelf(60 * time.Millisecond)
			fs := vfs.FS(vfs.NewMem())
			mode := func(sync bool) func(*Options) { return func(o *Options) { o.Replica.Sync = sync } }
			write := func(e *Engine, n int) {
				t.Helper()
				for range n {
					data := fmt.Sprintf(`"%d"`, rand.Uint64())
					res, err := tryWrite(e, "fsync", data)
					if err != nil {
						t.Fatal(err)
					}
					w.acked("fsync", res.FirstSeq, data)
				}
			}
			e := s.openEngine(t, fs, 0, mode(true))
			put(t, e, "fsync", configOf(api.Fsync))
			write(e, 3)
			e.copier.testIdle(t)
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			s.noFile.Store(true)
			e = s.openEngine(t, fs, e.log.Synced(), mode(false))
			write(e, 3)
			time.Sleep(5 * time.Second)
			s.away.Store(true)
			write(e, 5)
			s.away.Store(false)
			s.lead()
			fs = vfs.NewMem()
			lsn := s.rebuild(t, fs, "/data")
			e.Close()
			e = s.openEngine(t, fs, lsn, mode(next))
			write(e, 5)
			if lost := w.judge(e, "fsync"); lost != 5 {
				t.Errorf("%d of the writes are lost, 5 were not shipped", lost)
			}
		})
	}
}

// writers write to a topic of each class until they are ended or refused.
type writers struct {
	stop atomic.Bool
	all  sync.WaitGroup
}

func newWriters(e *Engine, w *told, classes []api.Durability, round int) *writers {
	c := &writers{}
	for _, class := range classes {
		for i := range 3 {
			c.all.Go(func() {
				cfg := configOf(class)
				for n := 0; !c.stop.Load(); n++ {
					data := fmt.Sprintf(`"%d-%d-%d"`, round, i, n)
					res, err := e.Write(bg, class.String(), &api.WriteRequest{Config: &cfg, Records: []api.Record{{Data: []byte(data)}}})
					if err != nil {
						return
					}
					w.acked(class.String(), res.FirstSeq, data)
					time.Sleep(time.Duration(rand.IntN(5000)) * time.Microsecond)
				}
			})
		}
	}
	return c
}

func (c *writers) end(t *testing.T) {
	c.stop.Store(true)
	c.all.Wait()
}

func (c *copier) testIdle(t testing.TB) {
	t.Helper()
	for range 1000 {
		if !c.tail.Held() && c.tail.Lag() == 0 && c.baseAt.Load() > 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("the copy does not become whole")
}

// A store that is away holds up nobody but who needs new numbers reserved, is no
// pressure, and gets everything when it is back.
func TestAsynchronousWritersDoNotNoticeAStoreThatIsAway(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		w := told{data: map[string]map[uint64]string{}, t: t}
		s := newShelf(60 * time.Millisecond)
		e := s.openEngine(t, newSlowDisk(time.Millisecond), 0, func(o *Options) { o.SegmentBytes = 1 << 20 })
		put(t, e, "fsync", configOf(api.Fsync))
		write := func(n int) {
			for i := range n {
				begin := time.Now()
				res, err := tryWrite(e, "fsync", fmt.Sprintf(`"%d"`, i))
				if err != nil {
					t.Fatal(err)
				}
				w.acked("fsync", res.FirstSeq, fmt.Sprintf(`"%d"`, i))
				if took := time.Since(begin); took > 30*time.Millisecond && i > 0 {
					t.Errorf("write %d took %v", i, took)
				}
				time.Sleep(90 * time.Millisecond)
			}
		}
		write(100)
		e.copier.testIdle(t)
		s.away.Store(true)
		write(6000) // about ten minutes
		if m := e.Metrics().Replica; m.Lag < 9*time.Minute || m.LagBytes < 100<<10 {
			t.Errorf("the store is away: %+v", m)
		}
		if p := e.governor.State(); p.Pressure > 0.01 || p.Rung > 0 {
			t.Errorf("the store is away: %+v", p)
		}
		s.away.Store(false)
		e.copier.testIdle(t)
		s.holdsAll(t, &w, "fsync")
	})
}

// A lost machine takes what was written since the copy last followed, however seldom the disk is synced for itself.
func TestACopyFollowsWhatTheDiskIsNotSyncedFor(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := newShelf(time.Millisecond)
		e := s.openEngine(t, vfs.NewMem(), 0, func(o *Options) { o.DiskFlush = 24 * time.Hour })
		classes := []api.Durability{api.Disk, api.Memory}
		for _, class := range classes {
			put(t, e, class.String(), configOf(class))
		}
		e.copier.testIdle(t)
		w := told{data: map[string]map[uint64]string{}, t: t}
		for _, class := range classes {
			res, err := tryWrite(e, class.String(), "1")
			if err != nil {
				t.Fatal(err)
			}
			w.acked(class.String(), res.FirstSeq, "1")
		}
		time.Sleep(3 * time.Second)
		for _, class := range classes {
			s.holdsAll(t, &w, class.String())
		}
	})
}

// A copy that is too far behind is given up, and begins again with a base.
func TestACopyThatIsTooFarBehindGetsANewBase(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		w := told{data: map[string]map[uint64]string{}, t: t}
		s := newShelf(60 * time.Millisecond)
		fs := vfs.NewMem()
		e := s.openEngine(t, fs, 0, func(o *Options) { o.Replica.LagMax = 1 << 20 })
		put(t, e, "fsync", configOf(api.Fsync))
		big := strings.Repeat("x", 10<<10)
		write := func(n int) {
			for i := range n {
				data := fmt.Sprintf(`"%d%s"`, i, big)
				res, err := tryWrite(e, "fsync", data)
				if err != nil {
					t.Fatal(err)
				}
				w.acked("fsync", res.FirstSeq, data)
			}
		}
		write(20)
		e.copier.testIdle(t)
		s.away.Store(true)
		for range 5 {
			write(50)
			time.Sleep(2 * time.Second)
		}
		if n := e.copier.tail.Lag(); n > 2<<20 || !e.copier.tail.Held() {
			t.Errorf("%d bytes are kept for a copy that is to have 1 MiB", n)
		}
		s.away.Store(false)
		e.copier.testIdle(t)
		write(20)
		e.copier.testIdle(t)
		was := e.log.Synced()
		fs = vfs.NewMem()
		s.lead()
		lsn := s.rebuild(t, fs, "/data")
		if lsn < was {
			t.Errorf("the copy ends at %d of %d", lsn, was)
		}
		next := s.openEngine(t, fs, lsn)
		if lost := w.judge(next, "fsync"); lost > 0 {
			t.Errorf("%d are missing, and the copy was whole", lost)
		}
	})
}

// A stop leaves nothing behind, whatever the class, unless the store is away: then
// it does not wait for long.
func TestAStopShipsWhatIsLeft(t *testing.T) {
	for _, sync := range []bool{true, false} {
		bubble.Run(t, func(t *testing.T) {
			w := told{data: map[string]map[uint64]string{}, t: t}
			s := newShelf(60 * time.Millisecond)
			e := s.openEngine(t, vfs.NewMem(), 0, func(o *Options) { o.Replica.Sync = sync })
			for _, c := range []api.Durability{api.Fsync, api.Disk, api.Memory} {
				put(t, e, c.String(), configOf(c))
				for i := range 10 {
					data := fmt.Sprintf(`"%d"`, i)
					res, err := tryWrite(e, c.String(), data)
					if err != nil {
						t.Fatal(err)
					}
					w.acked(c.String(), res.FirstSeq, data)
				}
			}
			e.copier.testIdle(t)
			if res, err := tryWrite(e, "memory", `"last"`); err == nil {
				w.acked("memory", res.FirstSeq, `"last"`)
			}
			begin := time.Now()
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took > time.Second {
				t.Errorf("a stop took %v", took)
			}
			if g, err := replica.DecodeGroup(s.entries[len(s.entries)-1].Data); err != nil || !g.Ends() {
				t.Errorf("sync %v: a standby is not told that this server has stopped: %+v, %v", sync, g, err)
			}
			fs := vfs.NewMem()
			lsn := s.rebuild(t, fs, "/data")
			next := s.openEngine(t, fs, lsn)
			for topic := range w.data {
				if lost := w.judge(next, topic); lost > 0 {
					t.Errorf("sync %v: %d of %s are missing", sync, lost, topic)
				}
			}
			tryWrite(next, "disk", `"first"`) // which has to have its numbers reserved
			s.away.Store(true)
			tryWrite(next, "disk", `"more"`)
			begin = time.Now()
			next.Close()
			if took := time.Since(begin); took > 2*endPatience {
				t.Errorf("with the store away a stop took %v", took)
			}
		})
	}
}

// Once another server leads, nothing is acknowledged any more, and whoever runs
// the engine is told.
func TestAnEngineThatAnotherHasReplacedAnswersNothing(t *testing.T) {
	for _, sync := range []bool{true, false} {
		bubble.Run(t, func(t *testing.T) {
			s := newShelf(60 * time.Millisecond)
			told := make(chan error, 2)
			e := s.openEngine(t, vfs.NewMem(), 0, func(o *Options) { o.Replica.Sync, o.Replica.Fenced = sync, func(err error) { told <- err } })
			put(t, e, "a", configOf(api.Fsync))
			tryWrite(e, "a", "1")
			s.lead()
			_, err := tryWrite(e, "a", "2")
			if sync && err == nil {
				t.Error("a write was acknowledged that another leader knows nothing of")
			}
			if err := <-told; !errors.Is(err, replica.ErrFenced) {
				t.Error(err)
			}
			var known *api.Error
			if _, err := tryWrite(e, "a", "3"); !asAPI(err, &known) || known.Code != api.CodeNotReady {
				t.Errorf("sync %v: a write: %v", sync, err)
			}
			if _, _, _, err := full(e, "a", 0); !asAPI(err, &known) || known.Code != api.CodeNotReady {
				t.Errorf("sync %v: a read: %v", sync, err)
			}
			if m := e.Metrics().Replica; m.Fenced != 1 || len(told) > 0 {
				t.Errorf("%+v, told %d more", m, len(told))
			}
		})
	}
}

// A synchronous copy on a slow store is no pressure, and a group forms itself.
func TestASlowCopyIsNoPressure(t *testing.T) {
	for _, sync := range []bool{true, false} {
		bubble.Run(t, func(t *testing.T) {
			s := newShelf(60 * time.Millisecond)
			e := s.openEngine(t, newSlowDisk(5*time.Millisecond), 0, func(o *Options) { o.SegmentBytes, o.Replica.Sync = 4<<20, sync })
			put(t, e, "a", configOf(api.Fsync))
			e.copier.testIdle(t)
			c := crowd{e: e}
			c.start(t, map[bool]int{true: 64, false: 4}[sync])
			time.Sleep(time.Second)
			from := c.acked.Load()
			for i, p := range pressures(e, 2*time.Second) {
				if st := e.governor.State(); p > 0.01 || st.Rung > 0 {
					t.Errorf("sync %v: pressure %.2f in sample %d: %+v", sync, p, i, st)
					break
				}
			}
			if n := (c.acked.Load() - from) / 2; sync && n < 800 {
				t.Errorf("%d writes/s of 64 writers at 60 ms", n)
			} else {
				t.Logf("sync %v: %d writes/s", sync, n)
			}
			c.end()
		})
	}
}

// A process that sleeps between taking the lead and opening its directory may be one that
// has been replaced meanwhile.
func TestALeaderThatSleptBeforeItBeganHasNothingProved(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := newShelf(time.Millisecond)
		s.away.Store(true)
		e := s.openEngine(t, vfs.NewMem(), 0, func(o *Options) {
			o.Replica.Alive, o.Replica.Since = 5*time.Second, time.Now().Add(-time.Minute)
		})
		if d := e.Unproved(); d < time.Minute {
			t.Errorf("the copy has not confirmed for %v that this server leads, but it asked a minute ago", d)
		}
		s.away.Store(false)
		time.Sleep(2 * time.Second) // the store looks again once a second
		if d := e.Unproved(); d > 5*time.Second {
			t.Errorf("%v after the store is back nothing is proved", d)
		}
	})
}

// A topic that is seconds old when the store goes away has numbers for the time that it is.
func TestATopicThatBeganRightBeforeTheStoreWentAwayDoesNotWait(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := newShelf(60 * time.Millisecond)
		e := s.openEngine(t, newSlowDisk(time.Millisecond), 0)
		put(t, e, "t", configOf(api.Disk))
		batch := make([]string, 100)
		for i := range batch {
			batch[i] = "1"
		}
		write := func(n int) {
			for i := range n {
				begin := time.Now()
				if _, err := tryWrite(e, "t", batch...); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took > 30*time.Millisecond && i > 0 {
					t.Fatalf("write %d took %v", i, took)
				}
				time.Sleep(400 * time.Millisecond)
			}
		}
		write(5) // 250 records a second, for two seconds
		e.copier.testIdle(t)
		s.away.Store(true)
		time.AfterFunc(11*time.Minute, func() { s.away.Store(false) })
		write(1500)
	})
}

// An idle leader says in time that it lives, however rarely its copy follows.
func TestALeaderWhoseCopyFollowsRarelyProvesThatItLeads(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := newShelf(60 * time.Millisecond)
		e := s.openEngine(t, vfs.NewMem(), 0, func(o *Options) { o.Replica.Alive, o.Replica.Every = 5*time.Second, time.Minute })
		for range 1800 { // three minutes
			time.Sleep(100 * time.Millisecond)
			if d := e.Unproved(); d >= 10*time.Second {
				t.Fatalf("it is to say every 5 s that it leads, and has not for %v", d)
			}
		}
	})
}

// A leader whose store takes less than is written, and confirms each entry in time, is the leader.
func TestALeaderThatIsFarBehindProvesThatItLeads(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		const takes, alive = 2 * time.Second, time.Second
		s := newShelf(takes)
		e := s.openEngine(t, vfs.NewMem(), 0, func(o *Options) { o.Replica.Alive = alive })
		put(t, e, "a", configOf(api.Memory))
		e.copier.testIdle(t)
		record := `"` + strings.Repeat("x", 1<<20) + `"`
		for range 32 { // four groups of a MiB are under way at once
			if _, err := tryWrite(e, "a", record); err != nil {
				t.Fatal(err)
			}
		}
		for begin := time.Now(); time.Since(begin) < 20*time.Second; time.Sleep(100 * time.Millisecond) {
			if d := e.Unproved(); d > 2*takes+alive {
				t.Fatalf("the store confirms an entry each half second, and for %v nothing is proved", d)
			}
		}
	})
}

// What a slow store confirms is as old as the question.
func TestALeaderProvesWhatWasTrueWhenItAsked(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		const takes = 4 * time.Second
		s := newShelf(takes)
		e := s.openEngine(t, vfs.NewMem(), 0, func(o *Options) { o.Replica.Alive = 5 * time.Second })
		time.Sleep(takes)
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			if d := e.Unproved(); d < takes {
				t.Fatalf("%v ago the store was asked at the latest, and takes %v", d, takes)
			}
		}
	})
}

// A leader whose copy has no base says that what it has is in its own directory alone.
func TestALeaderWithoutABaseSaysWhatItHasAlone(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := newShelf(60 * time.Millisecond)
		s.noFile.Store(true)
		e := s.openEngine(t, vfs.NewMem(), 0, func(o *Options) { o.Replica.Alive = 5 * time.Second })
		alone := func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			g, err := replica.DecodeGroup(s.entries[len(s.entries)-1].Data)
			return err == nil && g.Alone()
		}
		time.Sleep(10 * time.Second)
		if alone() {
			t.Error("it has nothing, and says that it has")
		}
		put(t, e, "a", configOf(api.Fsync))
		time.Sleep(10 * time.Second)
		if !alone() {
			t.Error("it does not say that a topic is in its own directory alone")
		}
		s.noFile.Store(false)
		e.copier.testIdle(t)
		time.Sleep(10 * time.Second)
		if alone() {
			t.Error("the copy has all there is")
		}
	})
}

// lateFiles carries the first put of a base out long after it was given up.
type lateFiles struct {
	shelfFiles
	bases atomic.Int32
}

func (l *lateFiles) Put(ctx context.Context, name string, size int64, content io.Reader) error {
	if !strings.HasPrefix(name, replica.BasePrefix) || l.bases.Add(1) > 1 {
		return l.shelfFiles.Put(ctx, name, size, content)
	}
	b, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	time.AfterFunc(20*time.Second, func() { _ = l.shelfFiles.Put(bg, name, size, bytes.NewReader(b)) })
	<-ctx.Done()
	return ctx.Err()
}

// A store may carry out what nobody waits for any more. A base that comes late must not
// replace the one that counts: the copy would have none.
func TestABaseThatComesLateReplacesNone(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		w := told{data: map[string]map[uint64]string{}, t: t}
		s := newShelf(60 * time.Millisecond)
		e := s.openEngine(t, vfs.NewMem(), 0, func(o *Options) { o.Replica.Files = &lateFiles{shelfFiles: shelfFiles{s}} })
		put(t, e, "a", configOf(api.Fsync))
		for i := range 10 {
			data := fmt.Sprintf(`"%d"`, i)
			res, err := tryWrite(e, "a", data)
			if err != nil {
				t.Fatal(err)
			}
			w.acked("a", res.FirstSeq, data)
		}
		e.copier.testIdle(t)
		time.Sleep(time.Minute)
		s.holdsAll(t, &w, "a")
	})
}

// A server that went on without its copy for a while may have no log any more of what it wrote meanwhile.
func TestALogThatDoesNotReachBackToItsCopyIsCovered(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		w := told{data: map[string]map[uint64]string{}, t: t}
		s := newShelf(60 * time.Millisecond)
		fs := vfs.NewMem()
		small := func(o *Options) { o.SegmentBytes = 1 << 20 }
		write := func(e *Engine, n int) {
			for i := range n {
				data := fmt.Sprintf(`"%d%s"`, i, strings.Repeat("x", 10<<10))
				res, err := tryWrite(e, "a", data)
				if err != nil {
					t.Fatal(err)
				}
				w.acked("a", res.FirstSeq, data)
			}
		}
		e := s.openEngine(t, fs, 0, small)
		put(t, e, "a", configOf(api.Fsync))
		write(e, 10)
		e.copier.testIdle(t)
		copied := e.log.Synced()
		e.Close()
		e = openOn(t, fs, "boot", small)
		write(e, 1000)
		time.Sleep(time.Minute)
		e.Close()
		s.noFile.Store(true)
		e = s.openEngine(t, fs, copied, small)
		if first := e.copier.tail.First(); first <= copied+1 {
			t.Fatalf("the log reaches back to %d, and the copy to %d: this test shows nothing", first, copied)
		}
		time.Sleep(time.Minute)
		if lag := e.Metrics().Replica.Lag; lag < 30*time.Second {
			t.Errorf("the copy is said to be %v behind, and lacks what no base has brought", lag)
		}
		s.noFile.Store(false)
		e.copier.testIdle(t)
		write(e, 10)
		e.copier.testIdle(t)
		s.holdsAll(t, &w, "a")
	})
}

// Whose numbers the copy does not know may give none out, also if it was restarted since: should
// its machine be lost, the next leader would give them out again.
func TestARestartedLeaderGivesOutNoNumberThatItsCopyDoesNotKnow(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s, fs := newShelf(10*time.Millisecond), vfs.NewMem()
		e := s.openEngine(t, fs, 0)
		put(t, e, "a", configOf(api.Disk))
		e.copier.testIdle(t)
		s.away.Store(true)
		put(t, e, "t", configOf(api.Disk))
		e.Close()
		next := s.openEngine(t, fs, s.rebuild(t, vfs.NewMem(), "/data"))
		written := make(chan error, 1)
		go func() {
			_, err := tryWrite(next, "t", "1")
			written <- err
		}()
		time.Sleep(10 * time.Second)
		select {
		case err := <-written:
			t.Errorf("a write is answered while the copy does not even know its topic: %v", err)
			return
		default:
		}
		s.away.Store(false)
		if err := <-written; err != nil {
			t.Error(err)
		}
		next.Close()
	})
}
