package wal

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// sealedLog is a log with one sealed segment of groups of several operations.
func sealedLog(t *testing.T, fs vfs.FS) (l *Log, seg SegmentInfo, want map[uint64]string) {
	t.Helper()
	l, _, _ = openLog(t, Options{FS: fs, SegmentBytes: 64 << 10}, 0)
	t.Cleanup(func() { mustClose(t, l) })
	want = map[uint64]string{}
	for i := range 12 {
		body := fmt.Sprintf("operation %d of the log", i)
		var lsn uint64
		if i%4 == 3 {
			lsn, _ = add(t, l, "head", body, Synced)
		} else {
			var err error
			if lsn, _, err = l.AppendUnslotted(l.Gen(), []byte("head"), []byte(body), Checksum([]byte(body)), Memory); err != nil {
				t.Fatal(err)
			}
		}
		want[lsn] = "head" + body
	}
	if err := l.Rotate(); err != nil {
		t.Fatal(err)
	}
	seg, ok := l.OldestSealed()
	if !ok {
		t.Fatal("no segment is sealed")
	}
	return l, seg, want
}

// Every operation of a damaged segment is shown as it was or told as lost, and
// of each damaged byte one is lost at most.
func TestAScanOverDamageLosesOneOperationAtMost(t *testing.T) {
	fs := vfs.NewMem()
	l, seg, want := sealedLog(t, fs)
	path := "wal/" + segName(seg.Number)
	file, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	put := func(at int64, b byte) {
		t.Helper()
		if _, err := file.WriteAt([]byte{b}, at); err != nil {
			t.Fatal(err)
		}
	}
	data := make([]byte, seg.Bytes)
	if _, err := file.ReadAt(data, 0); err != nil {
		t.Fatal(err)
	}
	for at := int64(segHeaderSize); at < seg.Bytes; at++ {
		put(at, data[at]^1<<(at%8))
		next, lost := seg.FirstLSN, uint64(0)
		err := l.ScanDamaged(seg.Number, func(o Op) error {
			if o.LSN != next || want[o.LSN] != string(o.Payload) || string(data[o.Pos.Offset:o.Pos.Offset+o.Pos.Len]) != want[o.LSN] {
				t.Errorf("byte %d: operation %d is shown as %d %q at %+v", at, next, o.LSN, o.Payload, o.Pos)
			}
			next = o.LSN + 1
			return nil
		}, func(d *CorruptError, from, to uint64) error {
			if from != next || to < from || d.File != path {
				t.Errorf("byte %d: %d to %d are lost in %s, not from %d on", at, from, to, d.File, next)
			}
			lost += to - from + 1
			next = to + 1
			return nil
		})
		if err != nil || next != seg.LastLSN+1 || lost > 1 {
			t.Fatalf("byte %d: %d operations are lost, the end is %d of %d: %v", at, lost, next-1, seg.LastLSN, err)
		}
		var bad *CorruptError
		if err := l.Scan(seg.Number, func(Op) error { return nil }); !errors.As(err, &bad) {
			t.Fatalf("byte %d: a scan that knows of no damage ends with %v", at, err)
		}
		put(at, data[at])
	}
}

// A readFS calls hook before each call of one kind, open or read, of a file
// that is opened to be read alone.
type readFS struct {
	vfs.FS
	mu   sync.Mutex
	kind string
	hook func() error
}

func (f *readFS) on(kind string, hook func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kind, f.hook = kind, hook
}

func (f *readFS) at(kind string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kind != f.kind {
		return nil
	}
	return f.hook()
}

func (f *readFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := f.at("open"); err != nil {
		return nil, err
	}
	file, err := f.FS.Open(name, opts...)
	if err != nil {
		return nil, err
	}
	return &readFile{file, f}, nil
}

type readFile struct {
	vfs.File
	fs *readFS
}

func (f *readFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.fs.at("read"); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, off)
}

// What only a cache had wrong is not damage; a disk that fails to read has
// lost nothing.
func TestAScanTakesOnlyWhatFailsTwiceForDamage(t *testing.T) {
	fs := &readFS{FS: vfs.NewMem()}
	l, seg, want := sealedLog(t, fs)
	file, err := fs.OpenReadWrite("wal/"+segName(seg.Number), vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	at := []byte{0}
	if _, err := file.ReadAt(at, segHeaderSize+groupHeaderSize+opHeaderSize); err != nil {
		t.Fatal(err)
	}
	put := func(b byte) {
		if _, err := file.WriteAt([]byte{b}, segHeaderSize+groupHeaderSize+opHeaderSize); err != nil {
			t.Error(err)
		}
	}
	scan := func() (shown int, lost uint64, err error) {
		err = l.ScanDamaged(seg.Number, func(Op) error { shown++; return nil },
			func(_ *CorruptError, from, to uint64) error { lost += to - from + 1; return nil })
		return shown, lost, err
	}
	put(at[0] ^ 1)
	fs.on("open", func() error { // the second reading opens the file
		put(at[0])
		return nil
	})
	if shown, lost, err := scan(); shown != len(want) || lost > 0 || err != nil {
		t.Fatalf("a second reading is good: %d shown, %d lost, %v", shown, lost, err)
	}
	put(at[0] ^ 1)
	for _, kind := range []string{"open", "read"} {
		fs.on(kind, func() error { return syscall.EIO })
		if _, lost, err := scan(); !errors.Is(err, syscall.EIO) || lost > 0 {
			t.Fatalf("the disk fails: %d lost, %v", lost, err)
		}
	}
	fs.on("", nil)
	if shown, lost, err := scan(); shown != len(want)-1 || lost != 1 || err != nil {
		t.Fatalf("damaged: %d shown, %d lost, %v", shown, lost, err)
	}
}
