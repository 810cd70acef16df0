package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/tests/crashfs"
)

// small writes a log of a few segments and returns its files.
func small(t testing.TB, closed bool) (o *oracle, files map[string][]byte) {
	t.Helper()
	mem := crashfs.New()
	o = newOracle()
	l, _, _ := openLog(t, Options{FS: mem, SegmentBytes: 2 << 10}, 0)
	rng := rand.New(rand.NewPCG(4, 4))
	for i := range 24 {
		if err := o.put(l, rng, Class(1+i%2)); err != nil {
			t.Fatal(err)
		}
	}
	if closed {
		mustClose(t, l)
	} else {
		t.Cleanup(func() { mustClose(t, l) })
	}
	files = map[string][]byte{}
	names, err := mem.List("wal")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := mem.UnsafeGetFileDataBuffer("wal/" + name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = append([]byte(nil), b...)
	}
	return o, files
}

func restore(t testing.TB, files map[string][]byte) vfs.FS {
	t.Helper()
	mem := vfs.NewMem()
	if err := mem.MkdirAll("wal", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		f, err := mem.OpenReadWrite("wal/"+name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(data, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return mem
}

// damaged opens a damaged log: it must refuse and name a file, or show exactly
// what was acknowledged.
func (o *oracle) damaged(fs vfs.FS, sameBoot bool) error {
	l, st, _, err := tryOpen(Options{FS: fs, SegmentBytes: 2 << 10, SameBoot: sameBoot}, 0)
	if err != nil {
		var ce *CorruptError
		if !errors.As(err, &ce) || ce.File == "" {
			return fmt.Errorf("refused without naming a file: %w", err)
		}
		return nil
	}
	defer l.Close()
	for lsn := range o.acked {
		if st.ops[lsn].data != o.tried[lsn] {
			return fmt.Errorf("operation %d is gone or changed and nobody was told", lsn)
		}
	}
	if len(st.ops) != len(o.acked) {
		return fmt.Errorf("%d operations of %d", len(st.ops), len(o.acked))
	}
	return nil
}

func TestNoFlippedByteChangesOrHidesAnOperation(t *testing.T) {
	o, files := small(t, true)
	for name, data := range files {
		for at := 0; at < len(data); at += rotEvery {
			data[at] ^= 1 << (at % 8)
			if err := o.damaged(restore(t, files), at%2 == 0); err != nil {
				t.Errorf("%s, byte %d of %d: %v", name, at, len(data), err)
			}
			data[at] ^= 1 << (at % 8)
		}
	}
}

func TestNoTruncationOrZeroedSectorHidesAnOperation(t *testing.T) {
	o, files := small(t, true)
	for name, data := range files {
		for n := 0; n < len(data); n += rotEvery {
			files[name] = data[:n]
			if err := o.damaged(restore(t, files), n%2 == 0); err != nil {
				t.Errorf("%s cut at %d of %d: %v", name, n, len(data), err)
			}
		}
		files[name] = data
		for at := 0; at < len(data); at += 512 {
			zeroed := append([]byte(nil), data...)
			clear(zeroed[at:min(at+512, len(zeroed))])
			files[name] = zeroed
			if err := o.damaged(restore(t, files), false); err != nil {
				t.Errorf("%s, sector at %d zeroed: %v", name, at, err)
			}
		}
		delete(files, name)
		if err := o.damaged(restore(t, files), false); err != nil {
			t.Errorf("%s deleted: %v", name, err)
		}
		files[name] = data
	}
}

// Without the mark file only the last group can be mistaken for a torn one.
func TestDamageIsFoundWithoutTheMark(t *testing.T) {
	o, files := small(t, true)
	delete(files, markName)
	lost := 0
	for name, data := range files {
		for at := 0; at < len(data); at += 3 {
			data[at] ^= 0x10
			l, st, _, err := tryOpen(Options{FS: restore(t, files), SegmentBytes: 2 << 10}, 0)
			data[at] ^= 0x10
			if err != nil {
				continue
			}
			for lsn, op := range st.ops {
				if op.data != o.tried[lsn] {
					t.Fatalf("%s, byte %d: operation %d changed", name, at, lsn)
				}
			}
			lost = max(lost, len(o.acked)-len(st.ops))
			mustClose(t, l)
		}
	}
	// Operations 23 and 24 share the evidence of the one sync that covers them.
	if lost > 2 {
		t.Errorf("%d operations were cut silently", lost)
	}
}

// Each group says what was durable when it was written. So even within one
// segment and without the mark file only the last one can be taken for torn.
func TestEachGroupIsEvidenceForThoseBeforeIt(t *testing.T) {
	mem := crashfs.New()
	opt := Options{FS: mem, SegmentBytes: 64 << 10}
	l, _, _ := openLog(t, opt, 0)
	var at []int64
	for range 8 {
		_, pos := add(t, l, "", "synced before the next is written", Synced)
		at = append(at, int64(pos.Offset))
	}
	mustClose(t, l)
	name := segName(1)
	b, err := mem.UnsafeGetFileDataBuffer("wal/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for i, off := range at {
		data := bytes.Clone(b)
		data[off] ^= 1
		opt.FS = restore(t, map[string][]byte{name: data})
		l, st, _, err := tryOpen(opt, 0)
		if err == nil {
			mustClose(t, l)
		}
		last := i == len(at)-1
		if damaged := new(CorruptError); !last && (!errors.As(err, &damaged) || damaged.LSN != uint64(i+1)) {
			t.Errorf("group %d of %d damaged: %d operations and %v, want a refusal that names the first one that is lost", i+1, len(at), len(st.ops), err)
		} else if last && (err != nil || len(st.ops) != i) {
			t.Errorf("last group damaged: %d operations and %v, want %d", len(st.ops), err, i)
		}
	}
}

// A segment that follows says so, too, though all that it has is a header.
func TestTheNextHeaderIsEvidenceForWhatIsInFrontOfIt(t *testing.T) {
	mem := crashfs.New()
	opt := Options{FS: mem, SegmentBytes: 4 << 10}
	l, _, _ := openLog(t, opt, 0)
	add(t, l, "", "first", Synced)
	_, pos := add(t, l, "", "last of its segment", Synced)
	if err := l.Rotate(); err != nil {
		t.Fatal(err)
	}
	add(t, l, "", "behind it", Written)
	mustClose(t, l)
	files := map[string][]byte{}
	for n := range uint32(2) {
		b, err := mem.UnsafeGetFileDataBuffer("wal/" + segName(n+1))
		if err != nil {
			t.Fatal(err)
		}
		files[segName(n+1)] = bytes.Clone(b)
	}
	clear(files[segName(2)][segHeaderSize:]) // the write of its first group was torn
	opt.FS = restore(t, files)
	l, st, _ := openLog(t, opt, 0)
	mustClose(t, l)
	if len(st.ops) != 2 {
		t.Fatalf("the log opens with %v", st.ops)
	}
	files[segName(1)][pos.Offset] ^= 1
	opt.FS = restore(t, files)
	l, st, _, err := tryOpen(opt, 0)
	if bad := new(CorruptError); !errors.As(err, &bad) || bad.LSN != 2 {
		t.Errorf("operation 2 was synced and is damaged: %v, %v", st.ops, err)
	}
	if err == nil {
		mustClose(t, l)
	}
}

// A log of which a file was removed, or that has one of another log, is refused rather than
// cut where it can be read no further.
func TestALogWithTheWrongFilesIsRefused(t *testing.T) {
	opt := Options{SegmentBytes: 2 << 10}
	_, files := small(t, true)
	_, others := small(t, true)
	delete(files, markName)
	last := uint32(0)
	for name, b := range files {
		number, _ := parseSegName(name)
		if _, used, _ := decodeSegHeader(b); used {
			last = max(last, number)
		}
	}
	if last < 4 {
		t.Fatalf("%d files are too few", last)
	}
	files[segName(last+1)] = make([]byte, 2<<10) // prepared
	for number := uint32(2); number <= last; number++ {
		name := segName(number)
		own := files[name]
		for what, change := range map[string]func(){
			"is missing":        func() { delete(files, name) },
			"is of another log": func() { files[name] = others[name] },
		} {
			change()
			opt.FS = restore(t, files)
			l, st, _, err := tryOpen(opt, 0)
			if bad := new(CorruptError); !errors.As(err, &bad) {
				t.Errorf("file %d of %d %s: the log opens with %d operations, %v", number, last, what, len(st.ops), err)
			}
			if err == nil {
				mustClose(t, l)
			}
			files[name] = own
		}
	}
}

// What a reader is given was verified; damage on the way is an error.
func TestReadNeverReturnsDamagedBytes(t *testing.T) {
	mem := vfs.NewMem()
	opt := Options{FS: mem, SegmentBytes: 32 << 10, HotBytes: 1}
	l, _, _ := openLog(t, opt, 0)
	o := newOracle()
	rng := rand.New(rand.NewPCG(8, 8))
	for range 60 {
		if err := o.put(l, rng, Synced); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, l)
	l, st, _ := openLog(t, opt, 0)
	defer l.Close()
	b, err := mem.UnsafeGetFileDataBuffer("wal/" + segName(1))
	if err != nil {
		t.Fatal(err)
	}
	b[st.ops[7].pos.Offset] ^= 1
	for lsn, op := range st.ops {
		got, err := l.Read(op.pos, nil)
		var ce *CorruptError
		if lsn == 7 && op.pos.Segment == 1 && (!errors.As(err, &ce) || len(got) != 0) {
			t.Errorf("damaged operation: %q, %v", got, err)
		}
		if lsn != 7 && (err != nil || string(got) != op.data) {
			t.Errorf("operation %d: %v", lsn, err)
		}
	}
}

// The mark says how far its own log was durable. That of another one, as of a directory made of two,
// refuses nothing.
func TestTheMarkIsEvidenceForItsOwnLogOnly(t *testing.T) {
	_, files := small(t, true)
	var id uint64
	for _, b := range files {
		if h, ok := ReadHeader(b); ok {
			id = h.Log
		}
	}
	for own, of := range map[bool]uint64{true: id, false: id ^ 2} {
		mark := make([]byte, markSize)
		encodeMark(mark, of, 1<<40)
		files[markName] = mark
		l, _, _, err := tryOpen(Options{FS: restore(t, files), SegmentBytes: 2 << 10}, 0)
		if bad := new(CorruptError); errors.As(err, &bad) != own {
			t.Errorf("the log's own mark %v: %v", own, err)
		}
		if err == nil {
			mustClose(t, l)
		}
	}
}
