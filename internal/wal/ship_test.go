package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/tests/bubble"
)

// shipment is a copy made of the pieces of a tail.
type shipment struct {
	files map[uint32][]byte
	last  uint64
}

// take ships what there is, in at most so many pieces of at most so many bytes.
func (c *shipment) take(t testing.TB, tail *Tail, size, pieces int) {
	t.Helper()
	for range pieces {
		p, ok, err := tail.Next(make([]byte, size))
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return
		}
		f := c.files[p.Segment]
		if end := p.Offset + int64(len(p.Bytes)); end > int64(len(f)) {
			f = append(f, make([]byte, end-int64(len(f)))...)
		}
		copy(f[p.Offset:], p.Bytes)
		c.files[p.Segment] = f
		if p.Last < c.last {
			t.Fatalf("a piece ends at %d behind one that ends at %d", p.Last, c.last)
		}
		c.last = p.Last
		tail.Stored(p.Last, int64(len(p.Bytes)))
	}
}

// open reads the copy as a log and returns what is in it.
func (c *shipment) open(t testing.TB) state {
	t.Helper()
	l, st, _ := openLog(t, Options{FS: c.machine(t), Dir: "copy", SegmentBytes: 8 << 10, MaxSealed: 1 << 20}, 0)
	mustClose(t, l)
	return st
}

// machine returns another machine, which has the copy in the directory "copy".
func (c *shipment) machine(t testing.TB) vfs.FS {
	t.Helper()
	fs := vfs.NewMem()
	if err := fs.MkdirAll("copy", 0o700); err != nil {
		t.Fatal(err)
	}
	for number, b := range c.files {
		f, err := fs.Create("copy/"+segName(number), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		size := max(len(b), segHeaderSize)
		if h, ok, _ := decodeSegHeader(b); ok {
			size = max(size, int(h.size))
		}
		if _, err := f.Write(append(bytes.Clone(b), make([]byte, size-len(b))...)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return fs
}

// The disk fails now and then, segments are released and used again, pieces cut
// groups: the copy is a log at every moment, which never has what failed, and in
// the end everything that was acknowledged.
func TestTheCopyIsTheLogThroughFailuresAndRecycling(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 7))
		fs := newFaultFS(vfs.NewMem(), nil)
		opt := Options{FS: fs, SegmentBytes: 8 << 10, Ship: true, RetryEvery: time.Millisecond, MaxSealed: 1 << 20}
		l, _, _ := openLog(t, opt, 0)
		b, c := newLedger(), shipment{files: map[uint32][]byte{}}
		for i := range 120 {
			fails := rng.IntN(12) == 0
			if fails {
				kind := []string{"write", "sync"}[rng.IntN(2)]
				var failed atomic.Bool
				fs.set(func(c call) error {
					if c.kind == kind && !failed.Swap(true) {
						return syscall.EIO
					}
					return nil
				})
			}
			_ = b.burst(l, rng, "a")
			if rng.IntN(3) == 0 {
				c.take(t, l.Tail(), 1+rng.IntN(3000), 1+rng.IntN(10))
			}
			if s, ok := l.OldestSealed(); ok && rng.IntN(2) == 0 {
				if err := l.Release(s.Number); err != nil {
					t.Fatal(err)
				}
			}
			if i%8 == 7 {
				c.check(t, b)
			}
		}
		fs.set(nil)
		for l.Sync() != nil {
			time.Sleep(time.Millisecond)
		}
		c.take(t, l.Tail(), 700, 1<<20)
		if got := c.check(t, b); len(got) < len(b.acked) {
			t.Errorf("seed %d: %d of %d acknowledged operations", seed, len(got), len(b.acked))
		}
		l.mu.Lock()
		for _, s := range l.mu.segs {
			is := make([]byte, len(c.files[s.number]))
			if _, err := s.file.Load().ReadAt(is, 0); err != nil || !bytes.Equal(is, c.files[s.number]) {
				t.Errorf("seed %d: segment %d differs in the copy, %v", seed, s.number, err)
			}
		}
		l.mu.Unlock()
		if lag := l.Tail().Lag(); lag != 0 || l.Shipped() != l.Synced() {
			t.Errorf("seed %d: %d bytes behind, shipped %d of %d", seed, lag, l.Shipped(), l.Synced())
		}
		mustClose(t, l)
		if t.Failed() {
			return
		}
	}
}

// check opens the copy and returns the acknowledged operations in it.
func (c *shipment) check(t *testing.T, b *ledger) map[string]bool {
	t.Helper()
	st, got := c.open(t), map[string]bool{}
	if st.last < c.last {
		t.Errorf("the copy is said to be whole up to %d and ends at %d", c.last, st.last)
	}
	for lsn, op := range st.ops {
		if b.failed[op.data] {
			t.Errorf("operation %d failed and is in the copy", lsn)
		}
		if _, ok := b.acked[op.data]; ok {
			got[op.data] = true
		}
	}
	return got
}

func TestWithASynchronousCopySyncedWaitsForIt(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		fs := newFaultFS(vfs.NewMem(), nil)
		l, _, _ := openLog(t, Options{FS: fs, Ship: true, ShipSync: true, FlushBytes: 4 << 10}, 0)
		c := shipment{files: map[uint32][]byte{}}
		gen := l.Gen()
		lsn, _, err := l.AppendUnslotted(gen, nil, []byte("a"), Checksum([]byte("a")), Synced)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		wait := func() { done <- l.Wait(lsn, gen, Synced) }
		go wait()
		time.Sleep(time.Second)
		if ok, failed := l.Check(lsn, gen, Synced); ok || failed || l.Durable(lsn) != Written || len(done) > 0 || l.Synced() < lsn {
			t.Errorf("synced here alone: ok %v, failed %v, class %d, %d waits over", ok, failed, l.Durable(lsn), len(done))
		}
		if err := l.Sync(); err != nil { // what the log does for itself does not wait
			t.Error(err)
		}
		// A failure of what comes behind does not change its fate.
		fs.set(func(c call) error {
			if c.kind == "sync" {
				return syscall.EIO
			}
			return nil
		})
		if _, _, err := tryAdd(l, "", "b", Synced); err == nil {
			t.Error("a failed sync was reported as none")
		}
		fs.set(nil)
		time.Sleep(2 * time.Second)
		if ok, failed := l.Check(lsn, gen, Synced); ok || failed || len(done) > 0 {
			t.Errorf("after a failure: ok %v, failed %v, %d waits over", ok, failed, len(done))
		}
		c.take(t, l.Tail(), 1<<20, 10)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if ok, _ := l.Check(lsn, gen, Synced); !ok {
			t.Error("the copy has it, and it does not count as synced")
		}
		room(t, l, &c)
		lsn, _, err = l.AppendUnslotted(l.Gen(), nil, []byte("c"), Checksum([]byte("c")), Synced)
		if err != nil {
			t.Fatal(err)
		}
		gen = l.Gen()
		go wait()
		time.Sleep(time.Second)
		l.StopShipping()
		if err := <-done; !errors.Is(err, ErrUnshipped) {
			t.Errorf("the copy ended: %v", err)
		}
		mustClose(t, l)
	})
}

// room checks that no more than FlushBytes get ahead of the copy.
func room(t *testing.T, l *Log, c *shipment) {
	t.Helper()
	n := 0
	for ; n < 100; n++ {
		if err := l.Reserve(context.Background(), 10*time.Second); err != nil {
			break
		}
		body := make([]byte, 200)
		lsn, _, err := l.Append(l.Gen(), nil, body, Checksum(body), Written)
		if err == nil {
			err = l.Wait(lsn, l.Gen(), Written)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if n < 10 || n > 20 {
		t.Errorf("%d operations of 200 bytes were taken with 4 KiB as the limit of what the copy may lack", n)
	}
	c.take(t, l.Tail(), 1<<20, 10)
	if err := l.Reserve(context.Background(), 0); err != nil {
		t.Errorf("the copy has everything: %v", err)
	}
	l.Unreserve()
}

// What Jump leaves out is nobody's any more: its files are used again, and nothing
// comes before Resume.
func TestATailThatJumpsLetsGoOfItsSegments(t *testing.T) {
	l, _, _ := openLog(t, Options{FS: vfs.NewMem(), SegmentBytes: 8 << 10, Ship: true, MaxSealed: 1 << 20}, 0)
	defer mustClose(t, l)
	tail, body := l.Tail(), string(make([]byte, 1000))
	for range 100 {
		add(t, l, "", body, Synced)
	}
	for s, ok := l.OldestSealed(); ok; s, ok = l.OldestSealed() {
		if err := l.Release(s.Number); err != nil {
			t.Fatal(err)
		}
	}
	if n := tail.Lag(); n < 100_000 {
		t.Errorf("%d bytes are kept", n)
	}
	at := tail.Jump()
	if at != l.Synced() || tail.Lag() != 0 || len(tail.segs) != 1 {
		t.Errorf("after a jump to %d of %d: %d bytes, %d segments", at, l.Synced(), tail.Lag(), len(tail.segs))
	}
	lsn, _ := add(t, l, "", body, Synced)
	if _, ok, err := tail.Next(make([]byte, 1<<20)); ok || err != nil {
		t.Errorf("before Resume: %v, %v", ok, err)
	}
	if tail.Resume(at - 1) {
		t.Error("it goes on, and an operation is missing")
	}
	if !tail.Resume(at) {
		t.Error("it does not go on")
	}
	if p, ok, err := tail.Next(make([]byte, 1<<20)); !ok || err != nil || p.Last != lsn || p.Offset == 0 {
		t.Errorf("%d at %d, %v, %v", p.Last, p.Offset, ok, err)
	}
}

// Writers that wait for the copy go on when the copy is to get all that in another way.
func TestATailThatJumpsLetsWritersGoOn(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		l, _, _ := openLog(t, Options{FS: vfs.NewMem(), Ship: true, ShipSync: true, FlushBytes: 4 << 10}, 0)
		defer mustClose(t, l)
		var err error
		for err == nil {
			if err = l.Reserve(t.Context(), 10*time.Second); err != nil {
				break
			}
			var lsn uint64
			if lsn, _, err = l.Append(l.Gen(), nil, make([]byte, 200), Checksum(make([]byte, 200)), Written); err == nil {
				err = l.Wait(lsn, l.Gen(), Written)
			}
		}
		if !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
		if err := l.Sync(); err != nil {
			t.Fatal(err)
		}
		l.Tail().Jump()
		if err := l.Reserve(t.Context(), time.Second); err != nil {
			t.Errorf("after the jump: %v", err)
		}
		l.Unreserve()
	})
}

// Who waits for the copy when the log is closed is told.
func TestACloseEndsWaitsForTheCopy(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		l, _, _ := openLog(t, Options{FS: vfs.NewMem(), Ship: true, ShipSync: true}, 0)
		gen := l.Gen()
		lsn, _, err := l.AppendUnslotted(gen, nil, []byte("a"), Checksum([]byte("a")), Synced)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- l.Wait(lsn, gen, Synced) }()
		synctest.Wait()
		mustClose(t, l)
		synctest.Wait()
		select {
		case err := <-done:
			if !errors.Is(err, ErrClosed) {
				t.Errorf("the writer is told %v", err)
			}
		default:
			t.Error("the writer waits for ever")
			l.StopShipping()
		}
	})
}

// A start ships only what the copy does not have, on the same machine or on another one
// that has nothing but the copy, however pieces have cut the last group.
func TestAStartGoesOnShippingWhereTheCopyEnds(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 7))
		opt := Options{FS: vfs.NewMem(), Dir: "copy", SegmentBytes: 8 << 10, Ship: true, MaxSealed: 1 << 20}
		c, in := shipment{files: map[uint32][]byte{}}, map[uint64]string{}
		for round := range 12 {
			opt.ShippedTo = c.last
			l, st, _ := openLog(t, opt, 0)
			if n := l.Tail().Lag(); c.last == st.last && n > segHeaderSize+2*groupHeaderSize {
				t.Errorf("seed %d, round %d: %d bytes are to be shipped, and the copy has everything", seed, round, n)
			}
			if round == 0 { // the base
				c.take(t, l.Tail(), 1<<20, 1)
			}
			clear(in)
			for lsn, op := range st.ops {
				in[lsn] = op.data
			}
			ships := rng.IntN(3) > 0
			for i := range rng.IntN(20) {
				body := fmt.Sprint(seed, round, i, strings.Repeat("x", rng.IntN(600)))
				lsn, _ := add(t, l, "", body, Synced)
				in[lsn] = body
				if ships && rng.IntN(4) == 0 {
					c.take(t, l.Tail(), 1+rng.IntN(900), 1+rng.IntN(4))
				}
			}
			if ships && rng.IntN(3) == 0 {
				c.take(t, l.Tail(), 1<<20, 100)
			}
			got := c.open(t)
			for lsn := uint64(1); lsn <= c.last; lsn++ {
				if got.ops[lsn].data != in[lsn] {
					t.Fatalf("seed %d, round %d: operation %d of %d is not in the copy as it was shipped", seed, round, lsn, c.last)
				}
			}
			mustClose(t, l)
			if rng.IntN(2) == 0 {
				opt.FS = c.machine(t)
			}
		}
	}
}

// A machine that went on from a copy whose last group was cut, and was killed before it
// shipped anything, ships what it wrote in the place of that group.
func TestWhatTakesThePlaceOfACutGroupIsShippedAfterAnotherStart(t *testing.T) {
	opt := Options{FS: vfs.NewMem(), Dir: "copy", SegmentBytes: 8 << 10, Ship: true}
	c := shipment{files: map[uint32][]byte{}}
	l, _, _ := openLog(t, opt, 0)
	add(t, l, "", "whole", Synced)
	c.take(t, l.Tail(), 1<<20, 1)
	add(t, l, "", strings.Repeat("x", 500), Synced)
	c.take(t, l.Tail(), 300, 1)
	mustClose(t, l)
	opt.FS, opt.ShippedTo = c.machine(t), c.last
	l, _, found := openLog(t, opt, 0)
	mustClose(t, l)
	l, _, _ = openLog(t, opt, 0)
	lsn, _ := add(t, l, "", "new", Synced)
	c.take(t, l.Tail(), 1<<20, 10)
	mustClose(t, l)
	if got := c.open(t); !found.Torn || got.ops[lsn].data != "new" {
		t.Errorf("the cut group was seen: %v; operation %d in the copy is %q", found.Torn, lsn, got.ops[lsn].data)
	}
}
