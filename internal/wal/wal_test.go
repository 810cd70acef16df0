package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/tests/crashfs"
)

type stored struct {
	pos  Pos
	data string
}

// state is what a replay showed, by LSN.
type state struct {
	ops  map[uint64]stored
	last uint64
}

func openLog(t testing.TB, opt Options, after uint64) (*Log, state, Recovery) {
	t.Helper()
	l, st, rec, err := tryOpen(opt, after)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return l, st, rec
}

func tryOpen(opt Options, after uint64) (*Log, state, Recovery, error) {
	st := state{ops: map[uint64]stored{}, last: after}
	if opt.Dir == "" {
		opt.Dir = "wal"
	}
	if opt.SegmentBytes == 0 {
		opt.SegmentBytes = 4 << 20 // zeroing 64 MiB takes the race detector 15 s
	}
	var order error
	l, rec, err := Open(opt, after, func(op Op) error {
		if op.LSN <= st.last {
			order = fmt.Errorf("LSN %d came after %d", op.LSN, st.last)
		}
		st.last = op.LSN
		st.ops[op.LSN] = stored{op.Pos, string(op.Payload)}
		return nil
	})
	return l, st, rec, errors.Join(order, err)
}

func add(t testing.TB, l *Log, head, body string, class Class) (uint64, Pos) {
	t.Helper()
	lsn, pos, err := tryAdd(l, head, body, class)
	if err != nil {
		t.Fatal(err)
	}
	return lsn, pos
}

func tryAdd(l *Log, head, body string, class Class) (uint64, Pos, error) {
	gen := l.Gen()
	if err := l.Reserve(context.Background(), 10*time.Second); err != nil {
		return 0, Pos{}, err
	}
	lsn, pos, err := l.Append(gen, []byte(head), []byte(body), Checksum([]byte(body)), class)
	if err != nil {
		return 0, Pos{}, err
	}
	return lsn, pos, l.Wait(lsn, gen, class)
}

func mustClose(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func payload(rng *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return string(b)
}

func TestOperationsComeBackAfterReopen(t *testing.T) {
	fs := crashfs.New()
	opt := Options{FS: fs, SegmentBytes: 64 << 10}
	l, _, _ := openLog(t, opt, 0)
	rng := rand.New(rand.NewPCG(1, 1))
	want := map[uint64]stored{}
	for i := range 2000 {
		head, body := payload(rng, rng.IntN(40)), payload(rng, rng.IntN(300))
		lsn, pos := add(t, l, head, body, Class(i%3))
		want[lsn] = stored{pos, head + body}
		if got, err := l.Read(pos, nil); err != nil || string(got) != head+body {
			t.Fatalf("read %d: %v", lsn, err)
		}
		if s, ok := l.OldestSealed(); ok && i%2 == 0 {
			n := s.FirstLSN
			if err := l.Scan(s.Number, func(op Op) error {
				if op.LSN != n || want[n] != (stored{op.Pos, string(op.Payload)}) {
					t.Fatalf("scan of %d shows %d", n, op.LSN)
				}
				n++
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if n != s.LastLSN+1 {
				t.Fatalf("scan ended at %d of %d", n, s.LastLSN)
			}
			if err := l.Release(s.Number); err != nil {
				t.Fatal(err)
			}
			for lsn := s.FirstLSN; lsn <= s.LastLSN; lsn++ {
				delete(want, lsn)
			}
		}
	}
	after := uint64(2000 - len(want))
	for range 2 {
		mustClose(t, l)
		var st state
		l, st, _ = openLog(t, opt, after)
		if len(st.ops) != len(want) {
			t.Fatalf("%d operations came back, want %d", len(st.ops), len(want))
		}
		for lsn, w := range want {
			if st.ops[lsn] != w {
				t.Fatalf("operation %d differs", lsn)
			}
			if got, err := l.Read(w.pos, nil); err != nil || string(got) != w.data {
				t.Fatalf("read %d: %v", lsn, err)
			}
		}
	}
	mustClose(t, l)
}

func TestGroupLargerThanASegment(t *testing.T) {
	fs := crashfs.New()
	opt := Options{FS: fs, SegmentBytes: 8 << 10}
	l, _, _ := openLog(t, opt, 0)
	rng := rand.New(rand.NewPCG(2, 2))
	big := payload(rng, 700<<10)
	_, small := add(t, l, "h", "small", Synced)
	_, pos := add(t, l, "head", big, Synced)
	_, next := add(t, l, "h", "next", Written)
	check := func() {
		t.Helper()
		for p, want := range map[Pos]string{small: "hsmall", pos: "head" + big, next: "hnext"} {
			if got, err := l.Read(p, []byte("x")); err != nil || string(got) != "x"+want {
				t.Fatalf("read at %v: %v", p, err)
			}
		}
	}
	check()
	mustClose(t, l)
	l, st, _ := openLog(t, opt, 0)
	if len(st.ops) != 3 || !bytes.Equal([]byte(st.ops[2].data), []byte("head"+big)) {
		t.Fatal("the large operation did not come back")
	}
	check()
	mustClose(t, l)
}

func TestManyWritersOfAllClasses(t *testing.T) {
	fs := crashfs.New()
	opt := Options{FS: fs, SegmentBytes: 256 << 10, HotBytes: 64 << 10, Slots: 16}
	var mu sync.Mutex
	want := map[uint64]stored{}
	var l *Log
	released := uint64(0)
	l, _, _ = openLog(t, opt, 0)
	var wg sync.WaitGroup
	for w := range 24 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(3, uint64(w)))
			for i := range 150 {
				body := payload(rng, rng.IntN(400))
				lsn, pos, err := tryAdd(l, "head", body, Class(i%3))
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := l.Read(pos, nil); !errors.Is(err, ErrReleased) && (err != nil || string(got) != "head"+body) {
					t.Errorf("read: %v", err)
				}
				mu.Lock()
				if _, twice := want[lsn]; twice {
					t.Errorf("LSN %d was given twice", lsn)
				}
				want[lsn] = stored{pos, "head" + body}
				if s, ok := l.OldestSealed(); ok {
					released = s.LastLSN
					if err := l.Release(s.Number); err != nil {
						t.Error(err)
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if n := l.Metrics().QueueDepth; n < 0 || n > 16 {
		t.Errorf("queue depth %d", n)
	}
	mustClose(t, l)
	if n := l.Metrics().QueueDepth; n != 0 {
		t.Errorf("%d slots were not given back", n)
	}
	l, st, _ := openLog(t, opt, released)
	for lsn, w := range want {
		if lsn > released && st.ops[lsn] != w {
			t.Fatalf("operation %d differs", lsn)
		}
	}
	mustClose(t, l)
}

// A segment prepared ahead must never take the name of one that is in use: its
// operations would be gone after a restart.
func TestPreparedSegmentNeverReplacesOneInUse(t *testing.T) {
	mem := vfs.NewMem()
	fs := newFaultFS(mem, nil)
	fs.set(func(c call) error {
		if _, err := mem.Stat(c.to); c.kind == "rename" && err == nil {
			t.Errorf("%s takes the place of %s", c.path, c.to)
		}
		return nil
	})
	l, _, _ := openLog(t, Options{FS: fs, SegmentBytes: 1 << 10, MaxSealed: 1 << 20}, 0)
	const n = 3000
	body := string(make([]byte, 300))
	for range n {
		add(t, l, "h", body, Written)
	}
	mustClose(t, l)
	l, st, _ := openLog(t, Options{FS: mem, SegmentBytes: 1 << 10, MaxSealed: 1 << 20}, 0)
	if len(st.ops) != n {
		t.Errorf("%d of %d operations came back", len(st.ops), n)
	}
	mustClose(t, l)
}

func TestLogGoesOnAfterRotateAndReleaseOfEverything(t *testing.T) {
	fs := vfs.NewMem()
	opt := Options{FS: fs, Dir: "wal", SegmentBytes: 64 << 10}
	var after uint64
	for round := range 3 {
		l, _, err := Open(opt, after, func(Op) error { return nil })
		if err != nil {
			t.Fatal(round, err)
		}
		for range 3 {
			lsn, _, err := l.AppendUnslotted(l.Gen(), []byte("head"), nil, Checksum(nil), Written)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Wait(lsn, l.Gen(), Written); err != nil {
				t.Fatal(err)
			}
			if lsn != after+1 {
				t.Fatalf("LSN %d after %d", lsn, after)
			}
			after = lsn
			if err := l.Rotate(); err != nil {
				t.Fatal(err)
			}
			for seg, ok := l.OldestSealed(); ok; seg, ok = l.OldestSealed() {
				if err := l.Release(seg.Number); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A power cut tears one group and keeps a later one; the log goes on in place
// of the torn one. A kill after that must not take the later one for evidence.
func TestWhatATornLogLeftBehindIsNoEvidenceLater(t *testing.T) {
	fs := vfs.NewMem()
	opt := Options{FS: fs, Dir: "wal", SegmentBytes: 64 << 10}
	l, _, err := Open(opt, 0, func(Op) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	var at []Pos
	for range 3 {
		lsn, pos, err := l.AppendUnslotted(l.Gen(), []byte("operation"), nil, Checksum(nil), Written)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Wait(lsn, l.Gen(), Written); err != nil {
			t.Fatal(err)
		}
		at = append(at, pos)
	}
	// What follows is the disk after a power cut: the mark is gone and so is a
	// sector in the middle.
	torn := vfs.NewMem()
	if ok, err := vfs.Clone(fs, torn, "wal", "wal"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	l.Close()
	if err := torn.Remove("wal/" + markName); err != nil {
		t.Fatal(err)
	}
	f, err := torn.OpenReadWrite("wal/"+segName(at[1].Segment), vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff}, int64(at[1].Offset)); err != nil {
		t.Fatal(err)
	}
	f.Close()
	opt.FS = torn
	for range 3 {
		n := 0
		l, was, err := Open(opt, 0, func(Op) error { n++; return nil })
		if err != nil || n != 1 {
			t.Fatal(n, was, err)
		}
		killed := vfs.NewMem()
		if ok, err := vfs.Clone(torn, killed, "wal", "wal"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		l.Close()
		torn, opt.FS, opt.SameBoot = killed, killed, true
	}
}
