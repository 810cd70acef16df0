package wal

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func TestLogEndsAtAnyOperation(t *testing.T) {
	fs := vfs.NewMem()
	opt := Options{FS: fs, Dir: "wal", SegmentBytes: 4 << 10, MaxSealed: 1 << 20}
	l, _, _ := openLog(t, opt, 0)
	var last uint64
	data := map[uint64]string{}
	for i := 0; last < 300; i++ {
		// Of several operations to a group.
		gen, n := l.Gen(), 1+i%7
		for j := range n {
			body := fmt.Sprintf("operation %d of %d %0*d", j, i, i%50, 0)
			if err := l.Reserve(t.Context(), time.Second); err != nil {
				t.Fatal(err)
			}
			lsn, _, err := l.Append(gen, nil, []byte(body), Checksum([]byte(body)), Synced)
			if err != nil {
				t.Fatal(err)
			}
			last, data[lsn] = lsn, body
		}
		if err := l.Wait(last, gen, Synced); err != nil {
			t.Fatal(err)
		}
	}
	s, err := l.Snapshot(0)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Files) < 3 {
		t.Fatalf("%d segments are too few", len(s.Files))
	}
	for end := range last + 1 {
		at := opt
		at.Dir = fmt.Sprintf("cut-%d", end)
		copyFiles(t, fs, at.Dir, s)
		if err := EndAt(at, end); err != nil {
			t.Fatalf("end at %d: %v", end, err)
		}
		if _, last, err := Ends(at); err != nil || last != end {
			t.Fatalf("end at %d: it ends at %d, %v", end, last, err)
		}
		cut, st, rec := openLog(t, at, 0)
		if rec.Last != end || rec.Torn || len(st.ops) != int(end) {
			t.Fatalf("end at %d: the log ends at %d (torn: %v) with %d operations", end, rec.Last, rec.Torn, len(st.ops))
		}
		for lsn, op := range st.ops {
			if op.data != data[lsn] {
				t.Fatalf("end at %d: operation %d is %q, want %q", end, lsn, op.data, data[lsn])
			}
		}
		if lsn, _ := add(t, cut, "", "goes on", Synced); lsn != end+1 {
			t.Fatalf("end at %d: the log goes on at %d", end, lsn)
		}
		mustClose(t, cut)
		if again, st, _ := openLog(t, at, 0); st.ops[end+1].data != "goes on" || len(st.ops) != int(end)+1 {
			t.Fatalf("end at %d: what was written behind is not there", end)
		} else {
			mustClose(t, again)
		}
	}
	beyond := opt
	beyond.Dir = "beyond"
	copyFiles(t, fs, beyond.Dir, s)
	if err := EndAt(beyond, last+1); err == nil {
		t.Errorf("a log of %d operations was ended at %d", last, last+1)
	}
	s.Close()
	mustClose(t, l)
}

func copyFiles(t *testing.T, fs vfs.FS, dir string, s *Snapshot) {
	t.Helper()
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range s.Files {
		w, err := fs.Create(fs.PathJoin(dir, s.Files[i].Name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, s.Files[i].Size)
		if _, err := s.Files[i].Open().Read(b[:HeaderSize]); err != nil {
			t.Fatal(err)
		}
		if s.Files[i].rest != nil {
			if _, err := s.Files[i].rest.ReadAt(b[HeaderSize:], HeaderSize); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		w.Close()
	}
}
