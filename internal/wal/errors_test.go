package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/tests/crashfs"
)

// A ledger tells acknowledged operations from failed ones by their content,
// since the LSN of a failed operation is given again.
type ledger struct {
	sync.Mutex
	acked  map[string]stored // data: Pos
	lsns   map[uint64]string
	failed map[string]bool
	n      int
}

func newLedger() *ledger {
	return &ledger{acked: map[string]stored{}, lsns: map[uint64]string{}, failed: map[string]bool{}}
}

// burst appends a few operations of mixed classes and then waits for each.
func (b *ledger) burst(l *Log, rng *rand.Rand, name string) (failed error) {
	type op struct {
		data  string
		lsn   uint64
		pos   Pos
		gen   uint64
		class Class
	}
	var ops []op
	for range 1 + rng.IntN(5) {
		b.Lock()
		b.n++
		o := op{data: fmt.Sprintf("%s-%d-%s", name, b.n, payload(rng, rng.IntN(200))), gen: l.Gen(), class: Class(rng.IntN(3))}
		b.Unlock()
		var err error
		if o.lsn, o.pos, err = l.AppendUnslotted(o.gen, nil, []byte(o.data), Checksum([]byte(o.data)), o.class); err != nil {
			b.Lock()
			b.failed[o.data] = true
			b.Unlock()
			failed = err
			continue
		}
		ops = append(ops, o)
	}
	for _, o := range ops {
		err := l.Wait(o.lsn, o.gen, o.class)
		b.Lock()
		if err != nil {
			b.failed[o.data] = true
			failed = err
		} else {
			b.acked[o.data] = stored{o.pos, o.data}
		}
		b.Unlock()
	}
	return failed
}

// checkLive reads every acknowledged operation through its place and compares
// it with what the sealed segments show.
func (b *ledger) checkLive(l *Log) error {
	for data, s := range b.acked {
		if got, err := l.Read(s.pos, nil); err != nil || string(got) != data {
			return fmt.Errorf("read at %v: %q, %w", s.pos, got, err)
		}
	}
	l.mu.Lock()
	var sealed []SegmentInfo
	for _, s := range l.mu.segs {
		if s.sealed {
			sealed = append(sealed, SegmentInfo{Number: s.number, LastLSN: s.last})
		}
	}
	l.mu.Unlock()
	last := uint64(0)
	shown := map[Pos]bool{}
	for _, info := range sealed {
		err := l.Scan(info.Number, func(op Op) error {
			if op.LSN <= last || op.LSN > info.LastLSN {
				return fmt.Errorf("LSN %d came after %d", op.LSN, last)
			}
			last = op.LSN
			if b.acked[string(op.Payload)].pos != op.Pos {
				return fmt.Errorf("scan of %d shows %q at %v", info.Number, op.Payload, op.Pos)
			}
			shown[op.Pos] = true
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, s := range b.acked {
		if n := len(sealed); n > 0 && s.pos.Segment <= sealed[n-1].Number && !shown[s.pos] {
			return fmt.Errorf("scan misses what is at %v", s.pos)
		}
	}
	return nil
}

func (b *ledger) checkReopened(fs vfs.FS, opt Options) error {
	opt.FS = fs
	l, st, _, err := tryOpen(opt, 0)
	if err != nil {
		return fmt.Errorf("reopen: %w", err)
	}
	got := map[string]bool{}
	for lsn, op := range st.ops {
		if b.failed[op.data] {
			return fmt.Errorf("operation %d failed and came back", lsn)
		}
		if _, ok := b.acked[op.data]; !ok {
			return fmt.Errorf("operation %d is unknown", lsn)
		}
		got[op.data] = true
	}
	if len(got) != len(b.acked) {
		return fmt.Errorf("%d of %d acknowledged operations came back", len(got), len(b.acked))
	}
	return l.Close()
}

type injection struct {
	err   error
	times int  // how many calls fail
	short bool // a write does half before it fails
}

// Every call fails, once or for a while: what fails is told and never seen
// again, what was acknowledged stays, and writes resume by themselves.
func TestEveryCallMayFail(t *testing.T) {
	modes := map[string]injection{
		"EIO once":     {syscall.EIO, 1, false},
		"ENOSPC while": {syscall.ENOSPC, 4, false},
		"short write":  {syscall.ENOSPC, 1, true},
	}
	for name, inj := range modes {
		t.Run(name, func(t *testing.T) {
			fired := 0
			for n := 0; ; n++ {
				hit, err := injectAt(n, inj, uint64(n))
				if err != nil {
					t.Fatalf("call %d: %v", n, err)
				}
				if !hit {
					break
				}
				fired++
			}
			if fired < 100 {
				t.Errorf("only %d calls failed", fired)
			}
		})
	}
}

func injectAt(n int, inj injection, seed uint64) (hit bool, err error) {
	mem := crashfs.New()
	fs := newFaultFS(mem, nil)
	opt := Options{FS: fs, SegmentBytes: 4 << 10, HotBytes: 8 << 10, FlushEvery: 2 * time.Millisecond,
		RetryEvery: time.Millisecond, MaxSealed: 1000}
	l, _, _, err := tryOpen(opt, 0)
	if err != nil {
		return false, err
	}
	base := fs.n
	left := inj.times
	var kind string
	var fired bool
	var mu sync.Mutex
	fs.set(func(c call) error {
		mu.Lock()
		defer mu.Unlock()
		if c.n < base+n || left == 0 {
			return nil
		}
		if !fired {
			kind = c.kind + " " + c.path
		}
		fired = true
		left--
		if inj.short && c.kind == "write" {
			c.part(c.size / 2)
		}
		return inj.err
	})
	b := newLedger()
	rng := rand.New(rand.NewPCG(seed, 5))
	for range 60 {
		err := b.burst(l, rng, "a")
		mu.Lock()
		kind, hit := kind, fired
		mu.Unlock()
		var we *WriteError
		if err != nil && !errors.Is(err, ErrReadOnly) && !errors.Is(err, ErrStale) && !errors.As(err, &we) {
			return hit, fmt.Errorf("%s: unexpected %w", kind, err)
		}
		if we != nil && !errors.Is(we, inj.err) {
			return hit, fmt.Errorf("%s: cause is not told: %w", kind, err)
		}
	}
	mu.Lock()
	left = 0
	hit = fired
	mu.Unlock()
	// A call in the background that was made to fail may not have told the log yet.
	for tries := 1; ; tries++ {
		if err := resumed(l); err != nil {
			return hit, fmt.Errorf("%s: %w", kind, err)
		}
		err := b.burst(l, rng, "b")
		if err == nil {
			break
		}
		if tries == 2 || !errors.Is(err, inj.err) && !errors.Is(err, ErrStale) {
			return hit, fmt.Errorf("%s: failed again: %w", kind, err)
		}
	}
	if err := b.checkLive(l); err != nil {
		return hit, fmt.Errorf("%s: live: %w", kind, err)
	}
	if err := l.Close(); err != nil {
		return hit, fmt.Errorf("%s: close: %w", kind, err)
	}
	for _, keep := range []int{100, 0} {
		crashed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keep, RNG: rng})
		if err := b.checkReopened(crashed, opt); err != nil {
			return hit, fmt.Errorf("%s, %d %% kept: %w", kind, keep, err)
		}
	}
	return hit, nil
}

// resumed waits until the log can be written.
func resumed(l *Log) error {
	var err error
	for start := time.Now(); time.Since(start) < 30*time.Second; time.Sleep(time.Millisecond) {
		if err = l.Sync(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("writes did not resume: %w", err)
}

// While the disk is full writes fail at once with the cause, reads go on, and
// writes resume when space returns.
func TestReadOnlyWhileNoFileCanBeWritten(t *testing.T) {
	mem := crashfs.New()
	fs := newFaultFS(mem, nil)
	l, _, _ := openLog(t, Options{FS: fs, SegmentBytes: 8 << 10, RetryEvery: 5 * time.Millisecond, FlushEvery: time.Hour}, 0)
	_, pos := add(t, l, "h", "kept", Written)
	fs.set(func(c call) error { return syscall.ENOSPC })
	_, _, err := tryAdd(l, "h", "fails", Synced)
	var we *WriteError
	if !errors.As(err, &we) || we.Errno != syscall.ENOSPC || we.Op != "write" {
		t.Fatalf("the failed write says %v", err)
	}
	if !we.Open {
		t.Error("the failed write says that a restart cannot find it, and the file was not replaced")
	}
	for {
		_, _, err := tryAdd(l, "h", "refused", Synced)
		if errors.Is(err, ErrReadOnly) && errors.Is(err, syscall.ENOSPC) {
			break
		}
		if err == nil {
			t.Fatal("a write succeeded on a full disk")
		}
	}
	if !l.Metrics().ReadOnly {
		t.Error("metrics do not say read-only")
	}
	if got, err := l.Read(pos, nil); err != nil || string(got) != "hkept" {
		t.Fatalf("read while read-only: %q, %v", got, err)
	}
	fs.set(nil)
	if err := resumed(l); err != nil {
		t.Fatal(err)
	}
	add(t, l, "h", "again", Synced)
	mustClose(t, l)
	l, st, _ := openLog(t, Options{FS: mem, SegmentBytes: 8 << 10}, 0)
	if len(st.ops) != 2 || st.ops[1].data != "hkept" || st.ops[2].data != "hagain" {
		t.Errorf("reopen shows %v", st.ops)
	}
	mustClose(t, l)
}

// Many writers, and every 25th call of the file system fails.
func TestManyWritersOverManyFailures(t *testing.T) {
	mem := crashfs.New()
	fs := newFaultFS(mem, nil)
	opt := Options{FS: fs, SegmentBytes: 8 << 10, HotBytes: 8 << 10, FlushEvery: time.Millisecond,
		RetryEvery: time.Millisecond, MaxSealed: 1 << 20}
	l, _, _ := openLog(t, opt, 0)
	base := fs.n
	fs.set(func(c call) error {
		if n := c.n - base; n%25 == 24 && n < 2000 {
			return syscall.EIO
		}
		return nil
	})
	b := newLedger()
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(6, uint64(w)))
			for range 120 {
				_ = b.burst(l, rng, fmt.Sprint(w))
			}
		})
	}
	wg.Wait()
	fs.set(nil)
	if err := resumed(l); err != nil {
		t.Fatal(err)
	}
	if n := l.Gen(); n < 3 {
		t.Errorf("the log failed only %d times", n)
	}
	if err := b.checkLive(l); err != nil {
		t.Error(err)
	}
	mustClose(t, l)
	if err := b.checkReopened(mem, opt); err != nil {
		t.Error(err)
	}
}
