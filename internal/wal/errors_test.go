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
	mem := vfs.NewCrashableMem()
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
	fs.set(func(c call) error {
		if c.n < base+n || left == 0 {
			return nil
		}
		if !hit {
			kind = c.kind + " " + c.path
		}
		hit = true
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
		var we *WriteError
		if err != nil && !errors.Is(err, ErrReadOnly) && !errors.Is(err, ErrStale) && !errors.As(err, &we) {
			return hit, fmt.Errorf("%s: unexpected %w", kind, err)
		}
		if we != nil && !errors.Is(we, inj.err) {
			return hit, fmt.Errorf("%s: cause is not told: %w", kind, err)
		}
	}
	fs.mu.Lock()
	left = 0
	fs.mu.Unlock()
	if err := resumed(l); err != nil {
		return hit, fmt.Errorf("%s: %w", kind, err)
	}
	if b.burst(l, rng, "b") != nil {
		return hit, fmt.Errorf("%s: failed again", kind)
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
	for start := time.Now(); time.Since(start) < 5*time.Second; time.Sleep(time.Millisecond) {
		if err = l.Sync(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("writes did not resume: %w", err)
}
