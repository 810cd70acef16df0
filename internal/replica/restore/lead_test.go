package restore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/tests/bubble"
)

func (l *leader) directory(fs vfs.FS, path string) *Directory {
	l.t.Helper()
	if err := fs.MkdirAll(path, 0o700); err != nil {
		l.t.Fatal(err)
	}
	return &Directory{FS: fs, Path: path, Node: "test", Copy: l.to.copy(), Logger: slog.New(slog.DiscardHandler)}
}

// opened leads with a directory and says what is in it then.
func (l *leader) opened(d *Directory) (Led, string) {
	l.t.Helper()
	led, err := d.Lead(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	e := open(l.t, d.FS, d.Path)
	text := digest(l.t, e)
	if err := e.Close(); err != nil {
		l.t.Fatal(err)
	}
	return led, text
}

// shipped is a leader with something in its copy.
func shipped(t testing.TB) *leader {
	l := lead(t)
	l.put("a")
	l.ship()
	l.base()
	l.write("a", 3)
	l.ship()
	return l
}

// overtaken is a leader that has stopped with five records that it had not shipped, and that
// another server has taken over from. want is what that one has, old what is in d.
func overtaken(t testing.TB) (l *leader, d *Directory, want, old string) {
	t.Helper()
	l = shipped(t)
	d = l.directory(l.fs.FS, "/data")
	if err := d.writeNote(note{Term: 1}); err != nil {
		t.Fatal(err)
	}
	want = digest(t, l.Engine)
	l.write("a", 5)
	old = digest(t, l.Engine)
	l.stop()
	if _, got := l.opened(l.directory(vfs.NewMem(), "/new")); got != want {
		t.Fatalf("the new leader has %s, want %s", got, want)
	}
	return l, d, want, old
}

// stop closes the leader's engine; its directory is /data.
func (l *leader) stop() {
	l.t.Helper()
	if err := l.Close(); err != nil {
		l.t.Fatal(err)
	}
}

func TestEmptyCopyLeavesTheDirectory(t *testing.T) {
	l := lead(t)
	l.put("a")
	l.write("a", 3)
	want := digest(t, l.Engine)
	l.stop()
	led, got := l.opened(l.directory(l.fs.FS, "/data"))
	if got != want || led.LSN != 0 || led.Term != 1 {
		t.Errorf("led %+v with %s, want %s", led, got, want)
	}
}

func TestNewMachineBeginsWithTheCopy(t *testing.T) {
	l := shipped(t)
	led, got := l.opened(l.directory(vfs.NewMem(), "/new"))
	if want := digest(t, l.Engine); got != want || led.LSN != l.last {
		t.Errorf("led %+v with %s, want %s", led, got, want)
	}
}

func TestLeaderGoesOnWithItsOwnDirectory(t *testing.T) {
	l := shipped(t)
	d := l.directory(l.fs.FS, "/data")
	if err := d.writeNote(note{Term: 1}); err != nil {
		t.Fatal(err)
	}
	copied := l.last
	l.write("a", 5) // not shipped
	want := digest(t, l.Engine)
	l.stop()
	for term := uint64(2); term < 4; term++ {
		led, got := l.opened(d)
		if got != want || led.LSN != copied || led.Term != term {
			t.Errorf("led %+v with %s, want %s", led, got, want)
		}
	}
}

func TestDirectoryOfAnOldLeaderIsSetAside(t *testing.T) {
	l, d, want, old := overtaken(t)
	if _, got := l.opened(d); got != want {
		t.Errorf("the old leader goes on with %s, want %s", got, want)
	}
	if got := digest(t, open(t, l.fs.FS, "/data.stale-1")); got != old {
		t.Errorf("set aside: %s, want %s", got, old)
	}
}

func TestCopyOfAnotherDirectoryIsRefused(t *testing.T) {
	l := shipped(t)
	entries := len(l.to.entries)
	refused := func(fs vfs.FS, n *note, want string) {
		t.Helper()
		d := l.directory(fs, "/data")
		if n != nil {
			if err := d.writeNote(*n); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := d.Lead(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if len(l.to.entries) != entries {
			t.Error("who is refused has led")
		}
	}
	other := lead(t)
	other.put("b")
	other.stop()
	refused(other.fs.FS, &note{Term: 1}, "are of different servers")
	l.stop()
	refused(l.fs.FS, nil, "has not led this copy")
}

// TestKilledTakeoverIsFinished fails every change of the file system in turn,
// as if the process was killed there.
func TestKilledTakeoverIsFinished(t *testing.T) {
	for fail := 0; ; fail++ {
		l, d, want, old := overtaken(t)
		var changes atomic.Int64 // files are fetched side by side
		killed := errors.New("killed")
		faulty := *d
		faulty.FS = errorfs.Wrap(l.fs.FS, errorfs.InjectorFunc(func(o errorfs.Op) error {
			if o.Kind.ReadOrWrite() != errorfs.OpIsWrite || o.Kind == errorfs.OpFileClose {
				return nil
			}
			if changes.Add(1) > int64(fail) {
				return killed
			}
			return nil
		}))
		_, err := faulty.Lead(t.Context())
		if _, got := l.opened(d); got != want {
			t.Fatalf("killed at change %d (%v): the directory holds %s, want %s", fail, err, got, want)
		}
		names, lerr := l.fs.List("/")
		if lerr != nil {
			t.Fatal(lerr)
		}
		found := 0
		for _, name := range names {
			if strings.HasPrefix(name, "data.stale-1") {
				found++
				if got := digest(t, open(t, l.fs.FS, "/"+name)); got != old {
					t.Fatalf("killed at change %d (%v): %s holds %s, want %s", fail, err, name, got, old)
				}
			}
		}
		if found != 1 {
			t.Fatalf("killed at change %d: %d directories set aside of %v", fail, found, names)
		}
		left, lerr := l.fs.List("/data")
		if lerr != nil {
			t.Fatal(lerr)
		}
		if slices.ContainsFunc(left, func(n string) bool { return strings.HasPrefix(n, mirrorNames) }) {
			t.Fatalf("killed at change %d: %v are left", fail, left)
		}
		if err == nil {
			return
		}
	}
}

func TestStandbyTakesOver(t *testing.T) {
	for what, end := range map[string]bool{"silence": false, "stop": true} {
		t.Run(what, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				l := shipped(t)
				d := l.directory(vfs.NewMem(), "/standby")
				done := make(chan Led)
				begun := time.Now()
				go func() {
					led, err := d.Stand(t.Context(), Standby{Silence: 15 * time.Second, Poll: 250 * time.Millisecond})
					if err != nil {
						t.Error(err)
					}
					done <- led
				}()
				for range 10 {
					time.Sleep(10 * time.Second)
					l.write("a", 2)
					l.ship()
				}
				want := digest(t, l.Engine)
				if end {
					l.append(replica.Group{Term: 1, Last: l.last, Pieces: []replica.Piece{replica.End}})
				}
				last := time.Now()
				led := <-done
				waited := time.Since(last)
				if end && waited > time.Second || !end && (waited < 15*time.Second || waited > 16*time.Second) || led.Term != 2 || led.LSN != l.last {
					t.Errorf("it took over after %v (%v in all): %+v", waited, time.Since(begun), led)
				}
				e := open(t, d.FS, d.Path)
				if got := digest(t, e); got != want {
					t.Errorf("the standby has %s, want %s", got, want)
				}
				e.Close()
				l.Close()
			})
		})
	}
}

// next leads on a new machine, and returns the number of a record that it writes there.
func (l *leader) next(topic string) uint64 {
	l.t.Helper()
	d := l.directory(vfs.NewMem(), "/new")
	if _, err := d.Lead(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	e := open(l.t, d.FS, d.Path)
	res, err := e.Write(l.t.Context(), topic, &api.WriteRequest{Records: []api.Record{{Data: []byte("1")}}})
	if err = errors.Join(err, e.Close()); err != nil {
		l.t.Fatal(err)
	}
	return res.FirstSeq
}

// TestWhatTheLeaderBehindAStopLosesIsAnnounced loses a machine that went on behind a
// leader that had stopped, before it shipped anything.
func TestWhatTheLeaderBehindAStopLosesIsAnnounced(t *testing.T) {
	l := lead(t)
	l.put("a", func(c *api.Config) { c.Durability = api.Disk })
	l.ship()
	l.base()
	l.write("a", 3)
	l.ship()
	l.append(replica.Group{Term: 1, Last: l.last, Pieces: []replica.Piece{replica.End}})
	if seq := l.next("a"); seq != 4 {
		t.Errorf("nothing was lost, and the leader behind the stop goes on with number %d, not 4", seq)
	}
	if seq := l.next("a"); seq <= 4 {
		t.Errorf("the leader after it gives out number %d again", seq)
	}
}

// TestAKilledStartIsNotTakenForAnotherServer kills starts of a server on its own directory,
// which has what the copy has not, several times at each change that they make.
func TestAKilledStartIsNotTakenForAnotherServer(t *testing.T) {
	for fail := 0; ; fail++ {
		l := shipped(t)
		d := l.directory(l.fs.FS, "/data")
		if err := d.writeNote(note{Term: 1}); err != nil {
			t.Fatal(err)
		}
		l.write("a", 5)
		want := digest(t, l.Engine)
		l.stop()
		var err error
		for range 3 {
			var changes atomic.Int64
			faulty := *d
			faulty.FS = errorfs.Wrap(l.fs.FS, errorfs.InjectorFunc(func(o errorfs.Op) error {
				if o.Kind.ReadOrWrite() == errorfs.OpIsWrite && o.Kind != errorfs.OpFileClose && changes.Add(1) > int64(fail) {
					return errors.New("killed")
				}
				return nil
			}))
			_, err = faulty.Lead(t.Context())
		}
		if _, got := l.opened(d); got != want {
			t.Fatalf("killed at change %d (%v): the directory holds %s, want %s", fail, err, got, want)
		}
		if err == nil {
			return
		}
	}
}

// TestAStartThatFailsDoesNotMakeAnOldDirectoryTheNewest has a server fail to start behind
// another one that has led, and start again.
func TestAStartThatFailsDoesNotMakeAnOldDirectoryTheNewest(t *testing.T) {
	l := shipped(t)
	d := l.directory(l.fs.FS, "/data")
	if err := d.writeNote(note{Term: 1}); err != nil {
		t.Fatal(err)
	}
	want := digest(t, l.Engine)
	l.write("a", 5) // another one has led before that was shipped
	l.stop()
	l.opened(l.directory(vfs.NewMem(), "/new"))
	failing := *d
	failing.Copy.Files = failingFiles{d.Copy.Files}
	if _, err := failing.Lead(t.Context()); err == nil {
		t.Fatal("it starts and cannot read the copy")
	}
	if _, got := l.opened(d); got != want {
		t.Errorf("the directory holds %s, want %s", got, want)
	}
}

// failingFiles are files that cannot be read.
type failingFiles struct{ replica.Files }

func (failingFiles) Get(context.Context, string) (io.ReadCloser, error) {
	return nil, errors.New("the store is away")
}

// TestStandbyOfACopyThatNobodyHasLedLeadsAtOnce begins a copy with a standby; the next one waits.
func TestStandbyOfACopyThatNobodyHasLedLeadsAtOnce(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		l := lead(t)
		for i, want := range []time.Duration{0, 15 * time.Second} {
			d, begun := l.directory(vfs.NewMem(), fmt.Sprint("/standby", i)), time.Now()
			led, err := d.Stand(t.Context(), Standby{Silence: 15 * time.Second, Poll: 250 * time.Millisecond})
			if waited := time.Since(begun).Truncate(time.Second); err != nil || waited != want || led.Term != uint64(i)+1 {
				t.Errorf("standby %d leads term %d after %v (%v), want %v", i, led.Term, waited, err, want)
			}
		}
		l.Close()
	})
}

// TestStandbyLeavesALeaderThatHasJustBegun has another one lead right when the leader
// has stopped.
func TestStandbyLeavesALeaderThatHasJustBegun(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		l := shipped(t)
		l.append(replica.Group{Term: 1, Last: l.last, Pieces: []replica.Piece{replica.End}})
		l.to.copy().Log.Lead(t.Context(), "other")
		d := l.directory(vfs.NewMem(), "/standby")
		begun := time.Now()
		if _, err := d.Stand(t.Context(), Standby{Silence: 15 * time.Second, Poll: 250 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begun); waited < 15*time.Second {
			t.Errorf("a standby takes the lead from one that began %v ago", waited)
		}
		l.Close()
	})
}

// TestRestoringFromAStoppedLeaderLosesNothing restores what a leader has left that stopped.
func TestRestoringFromAStoppedLeaderLosesNothing(t *testing.T) {
	l := lead(t)
	l.put("a", func(c *api.Config) { c.Durability = api.Disk })
	l.ship()
	l.base()
	l.write("a", 3)
	l.ship()
	whole := Point{LSN: l.last}
	l.append(replica.Group{Term: 1, Last: l.last, TimeMS: l.now, Pieces: []replica.Piece{replica.End}})
	head := func(e *engine.Engine) uint64 {
		st, err := e.Topic("a", false)
		if err != nil {
			t.Fatal(err)
		}
		return st.HeadSeq
	}
	if h := head(l.restored(Point{})); h != 3 {
		t.Errorf("nothing was lost, and the head is %d of 3", h)
	}
	if h := head(l.restored(whole)); h == 3 {
		t.Error("a point of the past is restored, and what came behind it is not announced")
	}
}

// TestAServerKilledBehindItsFirstBaseGoesOn has the first base of a copy, but not the entry
// that makes it count.
func TestAServerKilledBehindItsFirstBaseGoesOn(t *testing.T) {
	l := lead(t)
	l.put("a")
	l.write("a", 3)
	d := l.directory(l.fs.FS, "/data")
	if err := d.writeNote(note{Term: 1}); err != nil {
		t.Fatal(err)
	}
	l.append(replica.Group{Term: 1}) // a sign of life
	l.base()
	l.gap()
	want := digest(t, l.Engine)
	l.stop()
	if led, got := l.opened(d); got != want || led.LSN != 0 {
		t.Errorf("led %+v with %s, want %s", led, got, want)
	}
}

// TestAStandbyOnAnotherServersDirectoryIsRefused begins a standby on a directory with records, and its
// leader has not made a base yet.
func TestAStandbyOnAnotherServersDirectoryIsRefused(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		other, l := lead(t), lead(t)
		other.put("b")
		other.stop()
		l.put("a")
		l.append(replica.Group{Term: 1}) // a sign of life
		go func() {
			time.Sleep(time.Second)
			l.ship()
			l.base()
		}()
		_, err := l.directory(other.fs.FS, "/data").Stand(t.Context(), Standby{Silence: 15 * time.Second, Poll: 250 * time.Millisecond})
		if err == nil || !strings.Contains(err.Error(), "has not led this copy") || l.to.newest.Number != 1 {
			t.Errorf("%v, want that the directory has not led this copy; newest term %d", err, l.to.newest.Number)
		}
		l.Close()
	})
}

// TestADamagedFormatDoesNotThrowADirectoryAway starts a server on its own directory, which has
// what the copy has not, when its FORMAT is gone or has another bit.
func TestADamagedFormatDoesNotThrowADirectoryAway(t *testing.T) {
	for _, format := range []string{"", `{"format":7,"bood":"boot","clean":false}`, `{"format":7,"boot":"boot","clean"`} {
		l := shipped(t)
		d := l.directory(l.fs.FS, "/data")
		if err := d.writeNote(note{Term: 1}); err != nil {
			t.Fatal(err)
		}
		l.write("a", 5)
		l.stop()
		want := l.file(l.seg)
		err := l.fs.FS.Remove("/data/FORMAT")
		if format != "" {
			err = writeFile(l.fs.FS, "/data/FORMAT", []byte(format))
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _ = d.Lead(t.Context()) // the engine says what is wrong
		if got := l.file(l.seg); !bytes.Equal(got, want) {
			t.Errorf("FORMAT is %q, and what the log had is thrown away", format)
		}
	}
}

// TestAnOldDirectoryIsSetAsideInsideItself has a server that may write nothing but its data
// directory, as in a unit of systemd or a container.
func TestAnOldDirectoryIsSetAsideInsideItself(t *testing.T) {
	l, d, want, old := overtaken(t)
	d.FS = errorfs.Wrap(l.fs.FS, errorfs.InjectorFunc(func(o errorfs.Op) error {
		if o.Kind.ReadOrWrite() == errorfs.OpIsWrite && !strings.HasPrefix(o.Path, "/data/") && o.Path != "/data" {
			return syscall.EROFS
		}
		return nil
	}))
	if _, got := l.opened(d); got != want {
		t.Errorf("the old leader goes on with %s, want %s", got, want)
	}
	if got := digest(t, open(t, l.fs.FS, "/data/.data.stale-1")); got != old {
		t.Errorf("set aside: %s, want %s", got, old)
	}
}

// distant is a log that takes its time for each entry.
type distant struct{ replica.Log }

func (d distant) Read(ctx context.Context, after uint64) (replica.Entry, error) {
	time.Sleep(60 * time.Millisecond)
	return d.Log.Read(ctx, after)
}

// TestATakeoverReadsNothingAgain has a standby follow a long log, on an empty directory and on
// that of an earlier leader.
func TestATakeoverReadsNothingAgain(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		for _, led := range []bool{false, true} {
			l := shipped(t)
			d := l.directory(vfs.NewMem(), "/standby")
			d.Copy.Log = distant{d.Copy.Log}
			if led {
				l.opened(d)
				next, err := l.to.copy().Log.Lead(t.Context(), "next")
				if err != nil {
					t.Fatal(err)
				}
				l.term, l.pos = next.Term, next.End
			}
			begun := make(chan Led)
			go func() {
				got, err := d.Stand(t.Context(), Standby{Silence: 15 * time.Second, Poll: 250 * time.Millisecond})
				if err != nil {
					t.Error(err)
				}
				begun <- got
			}()
			for range 500 {
				time.Sleep(100 * time.Millisecond)
				l.append(replica.Group{Term: l.term, Last: l.last})
			}
			time.Sleep(time.Second)
			l.append(replica.Group{Term: l.term, Last: l.last, Pieces: []replica.Piece{replica.End}})
			stopped := time.Now()
			<-begun
			if took := time.Since(stopped); took > 2*time.Second {
				t.Errorf("it led before: %v; the leader has stopped, and the takeover took %v", led, took)
			}
			l.Close()
		}
	})
}

// TestNobodyTakesOverWhatACopyDoesNotHave begins the copy of a server that has records, and ends the server
// before the first base.
func TestNobodyTakesOverWhatACopyDoesNotHave(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		l := lead(t)
		l.put("a")
		l.write("a", 3)
		want := digest(t, l.Engine)
		l.stop()
		d := l.directory(l.fs.FS, "/data")
		led, err := d.Lead(t.Context())
		if last := l.to.entries[len(l.to.entries)-1].Pos; err != nil || led.End != last {
			t.Fatalf("led %+v, %v; its copy goes on behind %d", led, err, last)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		s := Standby{Silence: 15 * time.Second, Poll: 250 * time.Millisecond}
		if led, err := l.directory(vfs.NewMem(), "/standby").Stand(ctx, s); err == nil {
			t.Errorf("a standby takes over with nothing: %+v", led)
		}
		if led, err := d.Stand(t.Context(), s); err != nil || led.Term != 2 {
			t.Errorf("the server itself comes back as a standby: %+v, %v", led, err)
		}
		e := open(t, d.FS, d.Path)
		if got := digest(t, e); got != want {
			t.Errorf("it holds %s, want %s", got, want)
		}
		e.Close()
	})
}

// counting counts the files that are fetched.
type counting struct {
	replica.Files
	fetched *atomic.Int64
}

func (c counting) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if strings.HasPrefix(name, "kv/") {
		c.fetched.Add(1)
	}
	return c.Files.Get(ctx, name)
}

// TestAStandbyOfADamagedCopyDoesNotFetchItAgainAndAgain has a copy that is damaged behind its
// newest base, until there is another.
func TestAStandbyOfADamagedCopyDoesNotFetchItAgainAndAgain(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		l := shipped(t)
		bad := &l.to.entries[len(l.to.entries)-1]
		bad.Data = bad.Data[:len(bad.Data)-1]
		led := standsPatiently(t, l.directory(vfs.NewMem(), "/standby"))
		l.write("a", 2)
		l.ship()
		takesTheNextBase(t, l, led)
		l.Close()
	})
}

// standsPatiently has a standby stand for ten minutes at a copy that it cannot follow: it does not fetch its files
// again and again.
func standsPatiently(t *testing.T, d *Directory) (led <-chan error) {
	t.Helper()
	var fetched atomic.Int64
	d.Copy.Files = counting{d.Copy.Files, &fetched}
	ended := make(chan error, 1)
	go func() {
		_, err := d.Stand(t.Context(), Standby{Silence: 15 * time.Second, Poll: 250 * time.Millisecond})
		ended <- err
	}()
	time.Sleep(time.Second)
	once := fetched.Load()
	time.Sleep(10 * time.Minute)
	if n := fetched.Load(); n > 12*once {
		t.Errorf("%d files were fetched in ten minutes, %d at first", n, once)
	}
	return ended
}

// takesTheNextBase gives it a base that it can follow, and the leader's end.
func takesTheNextBase(t *testing.T, l *leader, led <-chan error) {
	t.Helper()
	l.base()
	l.append(replica.Group{Term: 1, Last: l.last, Pieces: []replica.Piece{replica.End}})
	time.Sleep(time.Second)
	select {
	case err := <-led:
		if err != nil {
			t.Error(err)
		}
	default:
		t.Fatal("there is a base behind what is broken, and the standby does not take it")
	}
}

// TestAnotherBitInTheNoteDoesNotMakeAnOldDirectoryTheNewest damages what says which term a
// directory has led, of which another server has led later ones.
func TestAnotherBitInTheNoteDoesNotMakeAnOldDirectoryTheNewest(t *testing.T) {
	for bit := range 8 {
		l, d, _, old := overtaken(t)
		text, err := readFile(l.fs.FS, "/data/REPLICA")
		if err != nil {
			t.Fatal(err)
		}
		text[bytes.IndexByte(text, '1')] ^= 1 << bit
		if err := writeFile(l.fs.FS, "/data/REPLICA", text); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Lead(t.Context()); err != nil {
			if !strings.Contains(err.Error(), "/data/REPLICA") {
				t.Errorf("bit %d: %v does not name the file", bit, err)
			}
			continue
		}
		if got := digest(t, open(t, l.fs.FS, "/data")); got == old {
			t.Errorf("bit %d: the old directory goes on with %s", bit, text)
		}
	}
}
