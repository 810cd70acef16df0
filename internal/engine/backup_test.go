package engine

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// linked reports whether links of a backup keep space in use.
func linked(fs vfs.FS) bool {
	_, err := fs.Stat("/data/" + snapshotDir)
	return !errors.Is(err, os.ErrNotExist)
}

// A backup that fails, wherever, holds up no other and keeps no space in use; nor does one
// that succeeds.
func TestABackupThatFailsIsInNobodysWay(t *testing.T) {
	fs := newFaults(vfs.NewMem())
	e := openOn(t, fs, "a")
	put(t, e, "t", configOf(api.Disk))
	write(t, e, "t", "1", "2", "3")
	sealNow(t, e)
	write(t, e, "t", "4")
	for _, kind := range []errorfs.OpKind{errorfs.OpMkdirAll, errorfs.OpCreate, errorfs.OpFileSync} {
		fs.set(func(o errorfs.Op, _ int) error {
			if o.Kind == kind && (strings.Contains(o.Path, snapshotDir) || strings.HasPrefix(o.Path, "/failed")) {
				return syscall.EIO
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(bg, 10*time.Second)
		if err := e.Backup(ctx, "/failed"); err == nil {
			t.Fatalf("a backup without call %d is one", kind)
		}
		cancel()
		fs.set(nil)
		if linked(fs) {
			t.Errorf("the links of the backup that failed at call %d stay", kind)
		}
		if err := fs.RemoveAll("/failed"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(bg, 10*time.Second)
	defer cancel()
	if err := e.Backup(ctx, "/backup"); err != nil {
		t.Fatal(err)
	}
	if linked(fs) {
		t.Error("the links of a backup that is done stay")
	}
	e = openOn(t, fs, "b", func(o *Options) { o.Dir = "/backup" })
	wantFull(t, e, "t", "[1=1 2=2 3=3 4=4]", "[5-1024 crash]")
}

// The links of a backup whose process was killed go with the next start: they would keep
// space in use that the data directory gives back.
func TestAStartRemovesTheLinksOfAKilledBackup(t *testing.T) {
	fs := vfs.NewMem()
	e := openOn(t, fs, "a")
	write(t, e, "t", "1")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := writeBackupFile(fs, "/data/"+snapshotDir+"/kv", "000004.sst", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	openOn(t, fs, "a")
	if linked(fs) {
		t.Error("the links are still there")
	}
}

// shortened is a file system on which the files of a snapshot end in the middle.
type shortened struct{ vfs.FS }

type shortFile struct {
	vfs.File
	left int64
}

func (f *shortFile) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	n, err := f.File.Read(p[:min(int64(len(p)), f.left)])
	f.left -= int64(n)
	return n, err
}

func (s shortened) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.FS.Open(name, o...)
	if err != nil || !strings.Contains(name, snapshotDir) {
		return f, err
	}
	info, err := f.Stat()
	return &shortFile{f, info.Size() / 2}, err
}

// A backup that gets less of a file than it has is none.
func TestABackupOfWhatEndsTooSoonFails(t *testing.T) {
	e := openOn(t, shortened{vfs.NewMem()}, "a")
	write(t, e, "t", "1")
	sealNow(t, e)
	if err := e.Backup(bg, "/backup"); err == nil || !strings.Contains(err.Error(), "bytes were read") {
		t.Errorf("half of each table was read: %v", err)
	}
}

// A backup is sent no faster than was asked for, over all its files.
func TestABackupKeepsToItsRate(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, vfs.NewMem(), "a")
		defer e.Close()
		write(t, e, "t", strings.Repeat("1", 1<<20), strings.Repeat("2", 1<<20))
		s, err := e.Snapshot(bg)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		begin, all := time.Now(), int64(0)
		if err := s.Copy(bg, 256<<10, func(_ string, _ int64, content io.Reader) error {
			n, err := io.Copy(io.Discard, content)
			all += n
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin).Seconds(); took < float64(all-paceRead)/(256<<10)-1 || took > float64(all)/(256<<10)+1 {
			t.Errorf("%d bytes at 256 KiB/s took %.1f s", all, took)
		}
	})
}
