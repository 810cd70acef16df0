package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/tests/crashfs"
)

// crashes takes a picture of a file system, as a power cut would leave it, in
// front of every call that changes it.
type crashes struct {
	mem     *crashfs.FS
	percent int
	rng     *rand.Rand

	mu     sync.Mutex
	armed  bool
	clones []*crashfs.FS
}

func (c *crashes) MaybeError(o errorfs.Op) error {
	if o.Kind.ReadOrWrite() == errorfs.OpIsWrite {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.armed {
			c.clones = append(c.clones, c.clone())
		}
	}
	return nil
}

func (c *crashes) String() string { return "crashes" }

func (c *crashes) clone() *crashfs.FS {
	return c.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: c.percent, RNG: c.rng})
}

// during returns the pictures taken while fn ran and one from after it.
func (c *crashes) during(fn func()) []*crashfs.FS {
	set := func(armed bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.armed = armed
	}
	c.clones = nil
	set(true)
	fn()
	set(false)
	return append(c.clones, c.clone())
}

// oneOf checks that the picture holds exactly one of the models.
func oneOf(t *testing.T, fs *crashfs.FS, models ...*model) {
	t.Helper()
	s, err := Open(Options{FS: fs, Dir: "/data"})
	if err != nil {
		t.Fatalf("after a power cut: %v", err)
	}
	defer s.Close()
	var bad error
	for _, m := range models {
		if s.Applied() == m.lsn {
			if err := m.check(s); err == nil {
				return
			} else {
				bad = errors.Join(bad, err)
			}
		}
	}
	t.Fatalf("after a power cut the store at %d is none of the expected: %v", s.Applied(), bad)
}

func TestPowerCutAtAnyCallLeavesTheOldOrTheNewStore(t *testing.T) {
	for _, percent := range []int{0, 50, 100} {
		t.Run(fmt.Sprintf("%d%%", percent), func(t *testing.T) {
			t.Parallel()
			powerCuts(t, percent)
		})
	}
}

func powerCuts(t *testing.T, percent int) {
	rng := rand.New(rand.NewPCG(uint64(percent), 7))
	c := &crashes{mem: crashfs.New(), percent: percent, rng: rng}
	if err := makeDir(c.mem, "/data"); err != nil {
		t.Fatal(err)
	}
	m := newModel(rng.IntN)
	s := openStore(t, Options{FS: errorfs.Wrap(c.mem, c), Dir: "/data"})
	defer s.Close()
	cuts := 0
	try := func(fn func() error, old *model) {
		t.Helper()
		clones := c.during(func() {
			if err := fn(); err != nil {
				t.Fatal(err)
			}
		})
		cuts += len(clones)
		for i, fs := range clones {
			if i == len(clones)-1 {
				old = m
			}
			oneOf(t, fs, old, m)
		}
	}
	for segment := range uint32(6) {
		old := m.clone()
		for range 60 {
			m.step()
		}
		try(func() error { return m.seal(s, segment, nil) }, old)
		if segment == 2 {
			try(func() error { _, err := s.Rewrite(context.Background(), 0, m, nil); return err }, m)
		}
		if segment == 4 {
			old = m.clone()
			m.emptySegment(t, s, 1)
			try(func() error { return m.seal(s, 100, nil) }, old)
			try(func() error { return s.DropSegment(1) }, m)
		}
	}
	t.Logf("%d power cuts", cuts)
}

// emptySegment logs the deletion of all that is live in a segment.
func (m *model) emptySegment(t *testing.T, s *Store, segment uint32) {
	for _, run := range m.runs(t, s) {
		if run.Segment == segment {
			m.deleteRange(m.topics[run.Topic], run.First, run.Last)
		}
	}
}

// makeDir makes a directory below the root that survives a power cut.
func makeDir(fs vfs.FS, name string) error {
	if err := fs.MkdirAll(name, 0o755); err != nil {
		return err
	}
	d, err := fs.OpenDir("/")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
