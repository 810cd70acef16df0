package wal

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/tests/crashfs"
)

// An oracle remembers what was tried and what was acknowledged, by LSN.
type oracle struct {
	sync.Mutex
	tried   map[uint64]string
	acked   map[uint64]Class
	applied uint64
}

func newOracle() *oracle {
	return &oracle{tried: map[uint64]string{}, acked: map[uint64]Class{}}
}

type claim struct {
	acked   map[uint64]Class
	applied uint64
}

func (o *oracle) claim() claim {
	o.Lock()
	defer o.Unlock()
	c := claim{acked: map[uint64]Class{}, applied: o.applied}
	for lsn, class := range o.acked {
		c.acked[lsn] = class
	}
	return c
}

// put appends one operation whose payload is its own name.
func (o *oracle) put(l *Log, rng *rand.Rand, class Class) error {
	gen := l.Gen()
	body := payload(rng, rng.IntN(600))
	o.Lock()
	lsn, _, err := l.AppendUnslotted(gen, []byte("head"), []byte(body), Checksum([]byte(body)), class)
	if err == nil {
		o.tried[lsn] = "head" + body
	}
	o.Unlock()
	if err == nil {
		err = l.Wait(lsn, gen, class)
	}
	if err == nil {
		o.Lock()
		o.acked[lsn] = class
		o.Unlock()
	}
	return err
}

// takeOver releases all sealed segments, as the store does.
func (o *oracle) takeOver(l *Log) error {
	for {
		s, ok := l.OldestSealed()
		if !ok {
			return nil
		}
		if err := l.Scan(s.Number, func(Op) error { return nil }); err != nil {
			return err
		}
		o.Lock()
		o.applied = s.LastLSN
		o.Unlock()
		if err := l.Release(s.Number); err != nil {
			return err
		}
	}
}

// check opens what is left after a crash and compares it with what was
// acknowledged before it.
func (o *oracle) check(fs vfs.FS, opt Options, c claim, killed bool) error {
	opt.FS, opt.SameBoot = fs, killed
	l, st, rec, err := tryOpen(opt, c.applied)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	o.Lock()
	defer o.Unlock()
	for lsn := c.applied + 1; lsn <= rec.Last; lsn++ {
		if got, ok := st.ops[lsn]; !ok || got.data != o.tried[lsn] {
			return fmt.Errorf("operation %d of %d is missing or differs", lsn, rec.Last)
		}
	}
	for lsn, class := range c.acked {
		if lsn > rec.Last && lsn > c.applied && (class == Synced || class == Written && killed) {
			return fmt.Errorf("operation %d of class %d was acknowledged, the log ends at %d", lsn, class, rec.Last)
		}
	}
	// It goes on, and what it held before stays.
	gen := l.Gen()
	lsn, _, err := l.AppendUnslotted(gen, nil, []byte("next"), Checksum([]byte("next")), Synced)
	if err == nil {
		err = l.Wait(lsn, gen, Synced)
	}
	if err != nil {
		return err
	}
	if err := l.Close(); err != nil {
		return err
	}
	l, again, _, err := tryOpen(opt, c.applied)
	if err != nil {
		return fmt.Errorf("second open: %w", err)
	}
	if len(again.ops) != len(st.ops)+1 || again.ops[lsn].data != "next" {
		return fmt.Errorf("second open shows %d operations, first showed %d", len(again.ops), len(st.ops))
	}
	for lsn, op := range st.ops {
		if again.ops[lsn] != op {
			return fmt.Errorf("operation %d differs at the second open", lsn)
		}
	}
	return l.Close()
}

var sweepOptions = Options{SegmentBytes: 16 << 10, FlushEvery: 3 * time.Millisecond, HotBytes: 32 << 10, FlushBytes: 8 << 10}

// At every change of the file system the machine may stop, with none, some or
// all of what was not synced on disk, and a write may be cut in half.
func TestCrashAtEveryCallKeepsWhatWasAcknowledged(t *testing.T) {
	points := 0
	for seed := range uint64(2) {
		points += sweep(t, seed)
	}
	t.Logf("%d crash points", points)
	if points < 1000 {
		t.Errorf("only %d crash points were reached", points)
	}
}

func sweep(t *testing.T, seed uint64) (points int) {
	mem := crashfs.New()
	o := newOracle()
	rng := rand.New(rand.NewPCG(seed, 7))
	var mu sync.Mutex
	point := func(what string, c claim, keep int) {
		crashed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keep, RNG: rng})
		points++
		if err := o.check(crashed, sweepOptions, c, keep == 100 && points%2 == 0); err != nil {
			t.Errorf("seed %d, crash before %s, %d %% kept: %v", seed, what, keep, err)
		}
	}
	fs := newFaultFS(mem, nil)
	fs.set(func(c call) error {
		mu.Lock()
		defer mu.Unlock()
		what := fmt.Sprintf("call %d (%s %s)", c.n, c.kind, c.path)
		known := o.claim()
		if seg, isSeg := parseSegName(fs.PathBase(c.path)); !isSeg && c.kind == "write" && c.size > 4096 && seg == 0 {
			return nil // zeros of a file that has no name yet
		}
		for _, keep := range []int{0, 30, 70, 100} {
			point(what, known, keep)
		}
		if c.kind == "write" && c.size > 1 {
			c.part(1 + rng.IntN(c.size-1))
			point("the end of "+what, known, 100)
			point("the end of "+what, known, 60)
		}
		return nil
	})
	opt := sweepOptions
	opt.FS = fs
	l, _, _ := openLog(t, opt, 0)
	load := rand.New(rand.NewPCG(seed, 9))
	for i := range 160 {
		if err := o.put(l, load, Class(load.IntN(3))); err != nil {
			t.Fatal(err)
		}
		if i%40 == 39 {
			if err := o.takeOver(l); err != nil {
				t.Fatal(err)
			}
		}
		if i == 100 {
			if err := l.Rotate(); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustClose(t, l)
	return points
}
