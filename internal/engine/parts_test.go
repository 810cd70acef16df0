package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/wal"
	"github.com/weirmq/weir/tests/crashfs"
)

// without returns the image without a file, or without a folder.
func (im image) without(name string) image {
	less := image{}
	for p, b := range im {
		if p != name && !strings.HasPrefix(p, name+"/") {
			less[p] = b
		}
	}
	return less
}

// killedInUse makes a directory as a kill leaves it: several sealed segments,
// several in the log, and the log's file in preparation.
func killedInUse(t *testing.T) image {
	t.Helper()
	fs := crashfs.New()
	e, err := Open(bg, rotOptions(fs))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	put(t, e, "log", configOf(api.Fsync))
	write(t, e, "log", `"sealed"`)
	sealNow(t, e)
	e.sealing.Lock() // what follows stays in the log
	defer e.sealing.Unlock()
	for range 9 {
		write(t, e, "log", `"`+strings.Repeat("x", 5<<10)+`"`)
	}
	// The mark follows the log within moments.
	for {
		mark, err := readFile(fs, "/data/wal/mark")
		if err != nil {
			t.Fatal(err)
		}
		if at := binary.LittleEndian.Uint64(mark[16:]); e.log.Durable(at+1) != wal.Synced {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return imageOf(t, fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}), "/data")
}

// A used directory that lacks any part of it (a mount is not there, a copy was
// made with an exclude) is refused or has everything, and is never begun anew.
func TestAUsedDirectoryThatLacksAPartIsRefused(t *testing.T) {
	closed, _ := rotting(t)
	for kind, im := range map[string]image{"closed": closed, "killed": killedInUse(t)} {
		want := im.mustAnswer(t)
		parts := append(slices.Sorted(maps.Keys(im)), "/data/wal", "/data/kv", "/data/stage")
		refused := 0
		for _, part := range parts {
			less := im.without(part)
			for _, emptied := range []bool{false, true} {
				fs, err := less.with("", nil)
				if err != nil {
					t.Fatal(err)
				}
				if emptied && path.Ext(part) == "" {
					if err := fs.MkdirAll(part, 0o700); err != nil && !im.isFile(part) {
						t.Fatal(err)
					}
				}
				got, err := answersOf(fs)
				var no *refusal
				switch {
				case err == nil:
					if err := sameAnswers(want, got); err != nil {
						t.Errorf("%s, without %s: %v", kind, part, err)
					}
				case !errors.As(err, &no):
					t.Errorf("%s, without %s: %v", kind, part, err)
				default:
					refused++
					if err := less.sameFiles(fs, "", nil); err != nil {
						t.Errorf("%s, without %s: the start was refused (%v), but %v", kind, part, no, err)
					}
					if n, err := Repair(bg, rotOptions(fs), false, &strings.Builder{}); n == 0 && err == nil {
						t.Errorf("%s, without %s: the start says %v, repair that nothing is damaged", kind, part, no)
					}
				}
			}
		}
		t.Logf("%s: %d parts, %d refusals", kind, len(parts), refused)
		if refused < 8 {
			t.Error("hardly any part is missed")
		}
	}
}

// A part that was put back from another time, or from another server, is refused or is
// what belongs there: a log that ends in front of what was sealed from it would give its
// numbers out again.
func TestAPartOfAnotherTimeOrServerIsRefused(t *testing.T) {
	grown := func(im image, parts int) image {
		t.Helper()
		fs, err := im.with("", nil)
		if err != nil {
			t.Fatal(err)
		}
		e, err := Open(bg, rotOptions(fs))
		if err != nil {
			t.Fatal(err)
		}
		put(t, e, "log", configOf(api.Fsync))
		for i := range parts {
			write(t, e, "log", fmt.Sprintf(`"sealed %d"`, i), fmt.Sprintf(`"too, %d"`, i))
			sealNow(t, e)
		}
		write(t, e, "log", `"last"`)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		return imageOf(t, fs, "/data")
	}
	older := grown(image{}, 2)
	newer, other := grown(older, 3), grown(image{}, 1)
	for _, c := range []struct {
		name     string
		of, from image
	}{
		{"of an earlier time", newer, older},
		{"of a later time", older, newer},
		{"of another server", newer, other},
	} {
		for _, part := range []string{"/data/wal", "/data/kv"} {
			mixed := c.of.without(part)
			for name, content := range c.from {
				if strings.HasPrefix(name, part+"/") {
					mixed[name] = content
				}
			}
			fs, err := mixed.with("", nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = answersOf(fs)
			var no *refusal
			if !errors.As(err, &no) || !strings.Contains(err.Error(), "/data") || !strings.Contains(err.Error(), "restore a backup") {
				t.Errorf("%s %s: the start says %v", part, c.name, err)
				continue
			}
			if err := mixed.sameFiles(fs, "", nil); err != nil {
				t.Errorf("%s %s: the start was refused, but %v", part, c.name, err)
			}
			for _, mark := range []bool{false, true} {
				if n, err := Repair(bg, rotOptions(fs), mark, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), "restore a backup") {
					t.Errorf("%s %s: repair says %d, %v", part, c.name, n, err)
				}
			}
			if _, err := answersOf(fs); err == nil {
				t.Errorf("%s %s: it starts after repair --mark", part, c.name)
			}
		}
	}
}

func (im image) isFile(name string) bool { _, ok := im[name]; return ok }

func TestARestoredDirectoryIsFineWithoutALog(t *testing.T) {
	fs := vfs.NewMem()
	e, err := Open(bg, rotOptions(fs))
	if err != nil {
		t.Fatal(err)
	}
	put(t, e, "log", configOf(api.Fsync))
	write(t, e, "log", `"kept"`)
	if err := errors.Join(e.Backup(bg, "/copy"), e.Close()); err != nil {
		t.Fatal(err)
	}
	opt := rotOptions(fs)
	opt.Dir = "/copy"
	for range 2 {
		var report strings.Builder
		if n, err := Repair(bg, opt, true, &report); n != 0 || err != nil {
			t.Fatal(n, err, report.String())
		}
		e, err := Open(bg, opt)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := read(t, e, "log", 0); len(got) != 1 {
			t.Fatal(got)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := fs.RemoveAll("/copy/wal"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(bg, opt); err == nil || !strings.Contains(err.Error(), "its wal is missing or empty") {
		t.Fatalf("once a server has used it, its log is part of it: %v", err)
	}
}

func TestADirectoryOfSomebodyElseIsRefusedAndLeftAlone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "thesis.tex")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, file} {
		if _, err := Open(bg, Options{Dir: path}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("a server on %s: %v", path, err)
		}
		for _, mark := range []bool{false, true} {
			if n, err := Repair(bg, Options{Dir: path}, mark, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("repair of %s: %d, %v", path, n, err)
			}
		}
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 {
		t.Error(names, err)
	}
	if _, err := Open(bg, Options{Dir: file}); err == nil || !strings.Contains(err.Error(), "is a file: name the directory") {
		t.Errorf("a server on a file: %v", err)
	}
	for _, path := range []string{filepath.Join(dir, "absent"), t.TempDir()} {
		if _, err := Repair(bg, Options{Dir: path}, true, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("repair of %s: %v", path, err)
		}
	}
	for _, name := range []string{".snapshot", "lost+found"} { // what file systems put there
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		open(t, dir).Close()
	}
	for _, name := range []string{"TOKENS", "WEBHOOKS"} { // what a takeover that was killed leaves of a server
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		open(t, dir).Close()
	}
}

// Where a data directory is all that is mounted, people put their backups into it.
func TestAFolderOfBackupsInTheDataDirectoryStays(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "backup", "monday")
	open(t, dir).Close()
	if err := os.MkdirAll(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	e := open(t, dir)
	s, err := e.Snapshot(bg)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), e.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
}

func TestALockThatCannotBeOpenedIsNotHeld(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "LOCK"), 0o700); err != nil { // not even root opens that
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "PID"), []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(bg, Options{Dir: dir})
	if err == nil || errors.Is(err, ErrInUse) || strings.Contains(err.Error(), "stop that process") || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("the start: %v", err)
	}
}

func TestANewerFormatIsNotRepairedAway(t *testing.T) {
	dir := t.TempDir()
	open(t, dir).Close()
	name := filepath.Join(dir, "FORMAT")
	newer := []byte(`{"format":99,"boot":"x","clean":true}`)
	if err := os.WriteFile(name, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Repair(bg, Options{Dir: dir}, true, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), "use a newer weir") {
		t.Error(err)
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != string(newer) {
		t.Error(string(b), err)
	}
}

// The test reaches the directory by another name, as another process would: a
// process does not lock itself out of a file.
func TestASecondServerStaysOutThoughLockIsRemoved(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(t.TempDir(), "other")
	if err := os.Symlink(dir, other); err != nil {
		t.Fatal(err)
	}
	e := open(t, dir)
	if err := os.Remove(filepath.Join(dir, "LOCK")); err != nil {
		t.Fatal(err)
	}
	if second, err := Open(bg, Options{Dir: other}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second server: %v", err)
		if err == nil {
			second.Close()
		}
	}
	if _, err := Repair(bg, Options{Dir: other}, true, &strings.Builder{}); !errors.Is(err, ErrInUse) {
		t.Errorf("repair: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, other)
}
