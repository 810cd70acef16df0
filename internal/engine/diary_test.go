package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/tests/bubble"
)

const ttl = api.SessionTTLMS * time.Millisecond

func lives(e *Engine, wid string) bool { _, err := e.SessionOwner(wid); return err == nil }

// synced makes what the log has outlive a loss of power.
func synced(t *testing.T, e *Engine) {
	t.Helper()
	if err := e.log.Sync(); err != nil {
		t.Fatal(err)
	}
}

func TestASessionLivesOnForTheTimeThatItHasLeft(t *testing.T) {
	restarts(t, func(t *testing.T, next func(*Engine) *Engine, w *wall) {
		e := next(nil)
		put(t, e, "a", configOf(api.Disk))
		tryWrite(e, "a", "1", "2")
		old, idle, open := newSession(t, e, api.WatchTopic{Topic: "a"}), newSession(t, e, api.WatchTopic{Topic: "a"}), newSession(t, e, api.WatchTopic{Topic: "a"})
		s := openStream(t, e, open, "")
		expect(t, s, "a 1-2", "a caught-up")
		time.Sleep(ttl - time.Minute)
		for range 2 { // the last stream counts
			openStream(t, e, idle, "").Close()
		}
		time.Sleep(time.Minute / 2)
		synced(t, e)
		e = next(e)
		time.Sleep(time.Minute)
		for wid, want := range map[string]bool{old: false, idle: true, open: true} {
			if lives(e, wid) != want {
				t.Errorf("the session lives: %v, want %v", !want, want)
			}
		}
		synced(t, e)
		e = next(e)
		w.down(ttl - 70*time.Second)
		synced(t, e)
		e = next(e)
		if lives(e, idle) || !lives(e, open) {
			t.Fatal("the time that the server was off does not count, or counts for one that had a stream until it stopped")
		}
		expect(t, openStream(t, e, open, idOf("a", 1)), "a 2-2", "a caught-up")
		expect(t, openStream(t, e, open, idOf("a", 9)), "a caught-up") // no client has got what never was
		w.down(2 * ttl)
		synced(t, e)
		if e = next(e); !lives(e, open) {
			t.Fatal("a session that had a stream has its whole time")
		}
		time.Sleep(time.Second)
		synced(t, e)
		e = next(e)
		w.down(ttl)
		e = next(e)
		if n := e.push.Counts().Sessions; n != 0 {
			t.Fatalf("%d sessions outlive their time", n)
		}
		e.Close()
	})
}

// A step of the clock takes nothing of a session's time, nor does it bring any.
func TestASteppedClockEndsNoSessionAtARestart(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			restarts(t, func(t *testing.T, next func(*Engine) *Engine, w *wall) {
				e := next(nil)
				put(t, e, "a", configOf(api.Fsync))
				wid := newSession(t, e, api.WatchTopic{Topic: "a"})
				openStream(t, e, wid, "").Close()
				w.jump(step)
				time.Sleep(ttl / 2)
				write(t, e, "a", "1")
				if e = next(e); !lives(e, wid) {
					t.Error("a session is gone in the middle of its time")
				}
				time.Sleep(ttl/2 + time.Second)
				if lives(e, wid) {
					t.Error("a session outlives its time")
				}
				e.Close()
			})
		})
	}
}

// After a rewind, nothing of what is sent again may be left out.
func TestARewindHoldsOverARestart(t *testing.T) {
	restarts(t, func(t *testing.T, next func(*Engine) *Engine, _ *wall) {
		e := next(nil)
		put(t, e, "a", configOf(api.Disk))
		tryWrite(e, "a", "1", "2", "3")
		wid := newSession(t, e, api.WatchTopic{Topic: "a"})
		s := openStream(t, e, wid, "")
		expect(t, s, "a 1-3", "a caught-up")
		s.Close()
		synced(t, e)
		e = next(e)
		openStream(t, e, wid, idOf("a", 1))
		synced(t, e)
		e = next(e)
		expect(t, openStream(t, e, wid, ""), "a 2-3", "a caught-up")
		e.Close()
	})
}

// What is over leaves the store with the next segment, however often that was stated before.
func TestSessionsThatAreOverLeaveTheStore(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, vfs.NewMem(), "boot")
		put(t, e, "a", configOf(api.Disk))
		stored := func() (n int) {
			tryWrite(e, "a", "1")
			sealNow(t, e)
			if err := e.store.Watches(func(*op.Watch) error { n++; return nil }); err != nil {
				t.Fatal(err)
			}
			return n
		}
		var wids []string
		for range 50 {
			wids = append(wids, newSession(t, e, api.WatchTopic{Topic: "a"}))
		}
		if n := stored(); n != 50 {
			t.Fatalf("the store has %d of 50 sessions", n)
		}
		for _, wid := range wids {
			openStream(t, e, wid, "").Close()
		}
		newSession(t, e, api.WatchTopic{Topic: "a"})
		if n := stored(); n != 51 {
			t.Fatalf("the store has %d of 51 sessions", n)
		}
		time.Sleep(ttl + time.Second)
		if n := stored(); n != 0 {
			t.Fatalf("the store has %d sessions whose time is over", n)
		}
		if _, err := e.DeleteTopic(bg, "a", false); err != nil {
			t.Fatal(err)
		}
		put(t, e, "b", configOf(api.Disk))
		sealNow(t, e)
		if err := e.shrinkStore(new(draining)); err != nil {
			t.Fatal(err)
		}
		if all := e.store.Segments(); len(all) != 0 {
			t.Fatalf("segments %v are kept", all)
		}
		e.Close()
	})
}

func TestTheCapOfSessionsHoldsOverARestart(t *testing.T) {
	restarts(t, func(t *testing.T, next func(*Engine) *Engine, _ *wall) {
		e := next(nil)
		put(t, e, "a", configOf(api.Disk))
		var wids []string
		for range 6 {
			wids = append(wids, newSession(t, e, api.WatchTopic{Topic: "a"}))
			time.Sleep(time.Second)
		}
		openStream(t, e, wids[1], "")
		synced(t, e)
		e = next(e)
		e.opt.Limits.MaxWatchSessions = 3 // of what is revived
		e.found.init()
		for i, wid := range wids {
			e.found.put(&op.Watch{ID: watchIDOf(wid), Since: e.startMS - int64(len(wids)-i)*1000})
		}
		e.found.all[watchIDOf(wids[1])].Since = 0
		e.push.Keep(func(any) bool { return false })
		if err := e.reviveSessions(); err != nil {
			t.Fatal(err)
		}
		var got []bool
		for _, wid := range wids {
			got = append(got, lives(e, wid))
		}
		if want := "[false true false false true true]"; fmt.Sprint(got) != want {
			t.Errorf("sessions that live: %v, want %s", got, want)
		}
		e.Close()
	})
}

// The owner who is gone takes the session along, for good.
func TestSessionsOfAnOwnerWhoIsGoneAreNotRevived(t *testing.T) {
	restarts(t, func(t *testing.T, next func(*Engine) *Engine, _ *wall) {
		e := next(nil)
		put(t, e, "a", configOf(api.Disk))
		wids := map[Owner]string{}
		for _, o := range []Owner{{1}, {2}} {
			res, err := e.OpenSession(&api.WatchRequest{Topics: []api.WatchTopic{{Topic: "a"}}, WatchOptions: watchOptions()}, o)
			if err != nil {
				t.Fatal(err)
			}
			wids[o] = res.WID
		}
		synced(t, e)
		e = next(e)
		e.KeepSessions(func(o Owner) bool { return o == Owner{2} })
		for range 2 {
			if o, err := e.SessionOwner(wids[Owner{2}]); err != nil || o != (Owner{2}) || lives(e, wids[Owner{1}]) {
				t.Fatalf("owner %v %v", o, err)
			}
			synced(t, e)
			e = next(e)
		}
		e.Close()
	})
}

// The ids of a client are numbers of another history than that of the backup.
func TestABackupDropsTheSessions(t *testing.T) {
	e := open(t, t.TempDir())
	write(t, e, "a", "1", "2")
	wid := newSession(t, e, api.WatchTopic{Topic: "a"})
	s := openStream(t, e, wid, "")
	expect(t, s, "a 1-2", "a caught-up")
	dir := t.TempDir() + "/b"
	if err := e.Backup(bg, dir); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second start is no restoration any more
		r := open(t, dir)
		if lives(r, wid) {
			t.Fatal("the session lives in the backup")
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A backup of a server that keeps a copy is no copy, either: its numbers were not all shipped, but what
// begins with it is another history.
func TestABackupOfAServerWithACopyDropsTheSessions(t *testing.T) {
	for _, synchronous := range []bool{false, true} {
		bubble.Run(t, func(t *testing.T) {
			s, fs := newShelf(20*time.Millisecond), vfs.NewMem()
			e := s.openEngine(t, fs, 0, func(o *Options) { o.Replica.Sync = synchronous })
			put(t, e, "a", configOf(api.Fsync))
			write(t, e, "a", "1", "2")
			wid := newSession(t, e, api.WatchTopic{Topic: "a"})
			expect(t, openStream(t, e, wid, ""), "a 1-2", "a caught-up")
			if err := e.Backup(bg, "/b"); err != nil {
				t.Fatal(err)
			}
			e.Close()
			r := openOn(t, fs, "boot", func(o *Options) { o.Dir = "/b" })
			if lives(r, wid) {
				t.Errorf("synchronous %v: the session lives in the backup", synchronous)
			}
			// The numbers that readers may have seen of what was not shipped are not given again.
			write(t, r, "a", "3")
			records, gaps, _, err := full(r, "a", 0)
			if err != nil || len(records) != 3 || len(gaps) > 0 == synchronous {
				t.Errorf("synchronous %v: %v, gaps %v, %v", synchronous, records, gaps, err)
			}
			r.Close()
		})
	}
}

// A client that loses its server goes on at the next one that has the copy.
func TestASessionGoesOnAtTheNextLeader(t *testing.T) {
	for _, based := range []bool{false, true} {
		bubble.Run(t, func(t *testing.T) {
			s := newShelf(20 * time.Millisecond)
			mode := func(o *Options) { o.Replica.Sync = true }
			e := s.openEngine(t, vfs.NewMem(), 0, mode)
			put(t, e, "a", configOf(api.Fsync))
			write(t, e, "a", "1", "2")
			wid := newSession(t, e, api.WatchTopic{Topic: "a"})
			expect(t, openStream(t, e, wid, ""), "a 1-2", "a caught-up")
			if based {
				sealNow(t, e)
				if err := e.copier.makeBase(bg, false); err != nil {
					t.Fatal(err)
				}
			}
			write(t, e, "a", "3")
			fs := vfs.NewMem()
			s.lead()
			lsn := s.rebuild(t, fs, "/data")
			e.Close()
			next := s.openEngine(t, fs, lsn, mode)
			expect(t, openStream(t, next, wid, idOf("a", 2)), "a 3-3", "a caught-up")
			next.Close()
		})
	}
}

// A log that takes nothing does not keep anybody from listening.
func TestASessionThatCannotBeLoggedEndsWithTheServer(t *testing.T) {
	dir := t.TempDir()
	e := open(t, dir)
	write(t, e, "a", "1")
	topics := []api.WatchTopic{{Topic: "a"}}
	opt := watchOptions()
	for range 1000 {
		opt.Nodes = append(opt.Nodes, strings.Repeat("n", 200))
	}
	res, err := e.OpenSession(&api.WatchRequest{Topics: topics, WatchOptions: opt}, Owner{})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, openStream(t, e, res.WID, ""), "a 1-1", "a caught-up")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if e = open(t, dir); lives(e, res.WID) {
		t.Fatal("a session is there that was too large")
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = open(t, dir, func(o *Options) { o.DiskReserve = 1 << 62 })
	full := newSession(t, e, topics[0])
	expect(t, openStream(t, e, full, ""), "a 1-1", "a caught-up")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if e = open(t, dir); lives(e, full) {
		t.Fatal("a session is there that was made while the disk was full")
	}
}

// The announcement that a topic lives again may be lost with the server that made it.
func TestAClientIsToldOfAnotherLifeAfterARestart(t *testing.T) {
	restarts(t, func(t *testing.T, next func(*Engine) *Engine, w *wall) {
		e := next(nil)
		put(t, e, "a", configOf(api.Disk))
		tryWrite(e, "a", "1", "2")
		wid := newSession(t, e, api.WatchTopic{Topic: "a"})
		expect(t, openStream(t, e, wid, ""), "a 1-2", "a caught-up")
		e.DeleteTopic(bg, "a", false)
		put(t, e, "a", configOf(api.Disk))
		tryWrite(e, "a", "1", "2", "3")
		expect(t, openStream(t, e, wid, ""), "a gap 1-3 recreated", "a 1-3", "a caught-up")
		for _, had := range []uint64{2, 9} {
			synced(t, e)
			e = next(e)
			expect(t, openStream(t, e, wid, idOf("a", had)), "a gap 1-3 recreated", "a 1-3", "a caught-up")
		}
		sealNow(t, e)
		synced(t, e)
		e = next(e)
		expect(t, openStream(t, e, wid, idOf("a", 2)), "a gap 1-3 recreated", "a 1-3", "a caught-up")
		// From here on its client is known to know.
		expect(t, openStream(t, e, wid, idOf("a", 3)), "a caught-up")
		for range 2 {
			synced(t, e)
			e = next(e)
			expect(t, openStream(t, e, wid, idOf("a", 2)), "a 3-3", "a caught-up")
			sealNow(t, e)
		}
		e.Close()
	})
}

// While the clock stands still, since it was set back, only the number of a topic tells its lives
// apart: none that a session knows is given out again.
func TestATopicMadeAgainIsNotTheOneThatASessionKnows(t *testing.T) {
	restarts(t, func(t *testing.T, next func(*Engine) *Engine, w *wall) {
		e := next(nil)
		put(t, e, "other", configOf(api.Disk))
		time.Sleep(time.Second)
		tryWrite(e, "other", "1")
		w.jump(-time.Hour)
		put(t, e, "a", configOf(api.Disk))
		tryWrite(e, "a", "1")
		wid := newSession(t, e, api.WatchTopic{Topic: "a"})
		s := openStream(t, e, wid, "")
		expect(t, s, "a 1-1", "a caught-up")
		s.Close()
		if _, err := e.DeleteTopic(bg, "a", false); err != nil {
			t.Fatal(err)
		}
		sealNow(t, e)
		synced(t, e)
		e = next(e)
		put(t, e, "a", configOf(api.Disk))
		tryWrite(e, "a", "2")
		expect(t, openStream(t, e, wid, idOf("a", 1)), "a gap 1-1 recreated", "a 1-1", "a caught-up")
		e.Close()
	})
}

// Which life of a topic is the later one a session knows though the wall clock was set back while the
// server was down, and nothing is left of the time at which the former began: its client is told once.
func TestALaterLifeIsThatAlsoWithAClockThatWasSetBack(t *testing.T) {
	restarts(t, func(t *testing.T, next func(*Engine) *Engine, w *wall) {
		w.jump(24 * time.Hour)
		e := next(nil)
		put(t, e, "a", configOf(api.Ephemeral))
		tryWrite(e, "a", "1", "2")
		wid := newSession(t, e, api.WatchTopic{Topic: "a"})
		s := openStream(t, e, wid, "")
		expect(t, s, "a 1-2", "a caught-up")
		s.Close()
		if _, err := e.DeleteTopic(bg, "a", false); err != nil {
			t.Fatal(err)
		}
		synced(t, e)
		w.down(-24 * time.Hour)
		e = next(e)
		put(t, e, "a", configOf(api.Disk))
		tryWrite(e, "a", "1", "2", "3", "4", "5", "6")
		s = openStream(t, e, wid, idOf("a", 2))
		expect(t, s, "a gap 1-6 recreated", "a 1-6", "a caught-up")
		s.Close()
		s = openStream(t, e, wid, idOf("a", 6))
		tryWrite(e, "a", "7")
		expect(t, s, "a 7-7", "a caught-up")
		s.Close()
		synced(t, e)
		e = next(e)
		expect(t, openStream(t, e, wid, idOf("a", 7)), "a caught-up")
		e.Close()
	})
}
