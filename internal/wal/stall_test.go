package wal

import (
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/tests/bubble"
)

// A stallCase does something to a log whose watchdog bites after 30 s.
type stallCase struct {
	name string
	want string // what the watchdog says; "" if it has to keep still for 10 minutes
	opt  Options
	// do is called once something was written; disk is what the log runs on,
	// and hang blocks until the end of the test.
	do func(t *testing.T, l *Log, disk *faultFS, hang func())
}

// put appends without waiting for the end of it.
func addOne(l *Log, class Class) {
	go func() { _, _, _ = tryAdd(l, "", "x", class) }()
}

func hangAt(disk *faultFS, hang func(), kind string, match func(call) bool) {
	disk.set(func(c call) error {
		if c.kind == kind && (match == nil || match(c)) {
			hang()
		}
		return nil
	})
}

func ofSegment(c call) bool { return !strings.HasSuffix(c.path, markName) }

var stallCases = []stallCase{
	{name: "a sync that hangs, with a caller", want: "what was written is not synced",
		do: func(_ *testing.T, l *Log, disk *faultFS, hang func()) {
			hangAt(disk, hang, "sync", ofSegment)
			addOne(l, Synced)
		}},
	{name: "a sync that hangs behind a disk write", want: "what was written is not synced",
		do: func(_ *testing.T, l *Log, disk *faultFS, hang func()) {
			hangAt(disk, hang, "sync", ofSegment)
			addOne(l, Written)
		}},
	{name: "a write that hangs", want: "what was appended is not written",
		do: func(_ *testing.T, l *Log, disk *faultFS, hang func()) {
			hangAt(disk, hang, "write", ofSegment)
			addOne(l, Memory)
		}},
	{name: "a sync that hangs while disk writes go on", want: "what was written is not synced",
		do: func(_ *testing.T, l *Log, disk *faultFS, hang func()) {
			hangAt(disk, hang, "sync", ofSegment)
			addOne(l, Synced)
			go func() {
				for range 100 {
					addOne(l, Written)
					time.Sleep(500 * time.Millisecond)
				}
			}()
		}},
	{name: "the next file never comes", want: "what was appended is not written",
		do: func(t *testing.T, l *Log, disk *faultFS, hang func()) {
			hangAt(disk, hang, "create", nil)
			if err := backUp(l); err != nil {
				t.Error(err)
			}
			addOne(l, Written)
		}},
	{name: "a failed file is never replaced", want: "a failed file is not replaced",
		do: func(_ *testing.T, l *Log, disk *faultFS, hang func()) {
			disk.set(func(c call) error {
				if c.kind == "sync" && ofSegment(c) {
					return syscall.EIO
				}
				if c.kind == "create" {
					hang()
				}
				return nil
			})
			addOne(l, Synced)
		}},
	{name: "a lock that is held", want: "its lock is held",
		do: func(_ *testing.T, l *Log, _ *faultFS, hang func()) {
			go func() {
				l.mu.Lock()
				hang()
				l.mu.Unlock()
			}()
		}},
	{name: "a caller whom nobody wakes", want: "1 callers wait",
		do: func(_ *testing.T, l *Log, _ *faultFS, hang func()) {
			go func() {
				l.callers.Add(1)
				hang()
				l.callers.Add(-1)
			}()
		}},
	{name: "a close that hangs", want: "it does not close",
		do: func(_ *testing.T, l *Log, disk *faultFS, hang func()) {
			hangAt(disk, hang, "sync", func(c call) bool { return !ofSegment(c) })
			go func() { _ = l.Close() }()
		}},

	{name: "nothing to do", do: func(*testing.T, *Log, *faultFS, func()) {}},
	{name: "a hanging keeper that nobody waits for",
		do: func(_ *testing.T, l *Log, disk *faultFS, hang func()) {
			hangAt(disk, hang, "create", nil)
			l.kick()
		}},
	{name: "a slow disk that moves",
		do: func(t *testing.T, l *Log, disk *faultFS, _ func()) {
			disk.set(func(c call) error {
				if c.kind == "sync" || c.kind == "write" {
					time.Sleep(20 * time.Second)
				}
				return nil
			})
			go func() {
				for range 10 {
					_, _, _ = tryAdd(l, "", "x", Synced)
				}
			}()
		}},
	{name: "a new file that takes long",
		opt: Options{SegmentBytes: 4 << 20},
		do: func(t *testing.T, l *Log, disk *faultFS, _ func()) {
			disk.set(func(c call) error {
				if c.kind == "write" && c.size == 1<<20 {
					time.Sleep(25 * time.Second)
				}
				return nil
			})
			if err := backUp(l); err != nil {
				t.Error(err)
			}
			addOne(l, Written)
			addOne(l, Synced)
		}},
	{name: "a full disk that every write is told of",
		do: func(_ *testing.T, l *Log, disk *faultFS, _ func()) {
			disk.set(func(call) error { return syscall.ENOSPC })
			go func() {
				for range 500 {
					_, _, _ = tryAdd(l, "", "x", Synced)
					time.Sleep(time.Second)
				}
			}()
		}},
	{name: "disk writes that may stay unsynced for five minutes",
		opt: Options{FlushEvery: 5 * time.Minute},
		do:  func(_ *testing.T, l *Log, _ *faultFS, _ func()) { addOne(l, Written) }},
}

// A log that does not move while work waits for it says so after 30 s, whatever
// holds it up, and only then.
func TestAStalledLogIsNoticed(t *testing.T) {
	for _, c := range stallCases {
		t.Run(c.name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				disk := newFaultFS(vfs.NewMem(), nil)
				opt := c.opt
				var said string
				var at time.Time
				opt.FS, opt.StallAfter = disk, 30*time.Second
				if opt.SegmentBytes == 0 {
					opt.SegmentBytes = 8 << 10
				}
				opt.Stalled = func(what string) { said, at = what, time.Now() }
				l, _, _ := openLog(t, opt, 0)
				add(t, l, "", "first", Synced)
				time.Sleep(time.Minute)
				release := make(chan struct{})
				begin := time.Now()
				c.do(t, l, disk, func() { <-release })
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if said != c.want {
					t.Errorf("the watchdog says %q, want %q", said, c.want)
				}
				if took := at.Sub(begin); said != "" && (took < 29*time.Second || took > 35*time.Second) {
					t.Errorf("it says so after %s", took)
				}
				disk.set(nil)
				close(release)
				_ = l.Close()
			})
		})
	}
}

// What a stopped process did not do is no stall: neither one long pause nor one
// in every look, and the count begins anew after a pause.
func TestASuspendedProcessIsNotStalled(t *testing.T) {
	stuck := stance{unwritten: true}
	now := time.Unix(0, 0)
	w := stallWatch{period: time.Second, at: now, last: stuck}
	look := func(gap time.Duration) string {
		now = now.Add(gap)
		return w.look(now, stuck)
	}
	for range 100 {
		if said := look(4 * time.Second); said != "" {
			t.Fatalf("a process that is stopped again and again: %q", said)
		}
	}
	for range stallLooks - 1 {
		if said := look(time.Second); said != "" {
			t.Fatalf("too early: %q", said)
		}
	}
	if said := look(time.Hour); said != "" {
		t.Fatalf("after an hour away: %q", said)
	}
	for range stallLooks - 1 {
		if said := look(time.Second); said != "" {
			t.Fatalf("too early after an hour away: %q", said)
		}
	}
	if look(time.Second) == "" {
		t.Error("a log that stands still is not noticed")
	}
}

// panics are places at which the log's own code may panic with its lock held.
// Each is run in a process of its own, which has to die of it.
var panics = map[string]func(t *testing.T){
	"keeper": func(t *testing.T) {
		// The keeper's sync fails; telling it panics.
		var written atomic.Bool
		fs := newFaultFS(vfs.NewMem(), nil)
		l, _, _ := openLog(t, Options{FS: fs, SegmentBytes: 8 << 10, FlushEvery: time.Hour}, 0)
		add(t, l, "", "first", Synced)
		if err := backUp(l); err != nil {
			t.Fatal(err)
		}
		fs.set(func(c call) error {
			if underTemp(c, "write") {
				written.Store(true)
			}
			if written.Load() && underTemp(c, "sync") {
				return syscall.EIO
			}
			return nil
		})
		l.opt.Logger = nil
		add(t, l, "", "second", Written)
		_, _, _ = tryAdd(l, "", "third", Synced)
		select {}
	},
	"caller": func(t *testing.T) {
		fs := newFaultFS(vfs.NewMem(), nil)
		l, _, _ := openLog(t, Options{FS: fs}, 0)
		l.opt.Logger = nil
		fs.set(func(call) error { return syscall.EIO })
		func() {
			defer func() { _ = recover() }() // as net/http does
			_, _, _ = tryAdd(l, "", "first", Synced)
		}()
		t.Error("the caller goes on with a broken log")
	},
	"flusher": func(t *testing.T) {
		fs := newFaultFS(vfs.NewMem(), nil)
		l, _, _ := openLog(t, Options{FS: fs}, 0)
		l.opt.Logger = nil
		fs.set(func(call) error { return syscall.EIO })
		add(t, l, "", "first", Memory)
		select {}
	},
}

// A panic in the log is printed and ends the process, though it happens with
// the lock held and though whoever called may recover.
func TestAPanicInTheLogEndsTheProcess(t *testing.T) {
	if name := os.Getenv("WAL_TEST_PANIC"); name != "" {
		panics[name](t)
		return
	}
	for name := range panics {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			cmd := exec.Command(os.Args[0], "-test.run", "^TestAPanicInTheLogEndsTheProcess$", "-test.timeout", "5m")
			cmd.Env = append(os.Environ(), "WAL_TEST_PANIC="+name)
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case <-ended:
			case <-time.After(3 * time.Minute): // with the race detector it takes seconds of processor time
				_ = cmd.Process.Kill()
				<-ended
				t.Fatalf("the process goes on:\n%s", out.String())
			}
			if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(out.String(), "nil pointer") ||
				!strings.Contains(out.String(), "failLocked") {
				t.Errorf("exit code %d, output:\n%s", code, out.String())
			}
		})
	}
}
