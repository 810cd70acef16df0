package sim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/tests/bubble"
	"github.com/weirmq/weir/tests/crashfs"
)

var (
	seedsFlag = flag.Int("seeds", 80, "how many seeds to run")
	seedFlag  = flag.Uint64("seed", 0, "replay this seed alone")
	firstFlag = flag.Uint64("first", 1, "the first of the seeds")
	opsFlag   = flag.Int("ops", 2000, "steps of a seed")
	longFlag  = flag.Duration("for", 0, "go on with new seeds for this long, instead of -seeds")
)

var bg = context.Background()

// sim is one seed's run.
type sim struct {
	seed uint64
	rng  *rand.Rand
	disk *disk
	e    *engine.Engine
	boot int

	wall    wall
	last    atomic.Int64 // the server's clock as it was last seen, Unix ms
	lease   int64        // the lease clock at start
	start   time.Time
	stepped time.Time // the wall clock was moved then at last
	noted   time.Time // the last such move that the log has for sure
	synced  time.Time // a fault of the disk ended then at the latest
	faulty  bool

	topics    world
	journal   journal
	expired   map[string][]noted
	serial    int
	lifes     int // of topics
	listeners []*listener
	steps     int
	era       int             // of idempotency keys: a restart may leave open which it knows
	keysFrom  time.Time       // since when the log says how old they are, unless the clock was stepped
	keysAhead bool            // or time stamps were ahead of the wall clock then, or it has stood still
	lives     map[string]bool // lease ids given out

	hash  hash.Hash64
	trace []string
	keep  int // lines of the trace
	count map[string]int
}

// noted is an expiry that an answer relied on.
type noted struct {
	to uint64
	at time.Time
}

// wall is the server's wall clock: it jumps and it freezes.
type wall struct {
	offset atomic.Int64
	frozen atomic.Int64 // Unix ns; 0: it runs
}

func (w *wall) now() time.Time {
	if f := w.frozen.Load(); f != 0 {
		return time.Unix(0, f)
	}
	return time.Now().Add(time.Duration(w.offset.Load()))
}

// violation is what a step panics with when the engine breaks a promise.
type violation struct{ error }

func (s *sim) fail(format string, args ...any) {
	panic(violation{fmt.Errorf(format, args...)})
}

// tell adds a line to the history.
func (s *sim) tell(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	_, _ = s.hash.Write([]byte(line))
	if len(s.trace) >= s.keep {
		s.trace = slices.Delete(s.trace, 0, 1)
	}
	s.trace = append(s.trace, fmt.Sprintf("%v %s", time.Since(epoch), line))
}

// epoch is when a bubble's clock starts.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// result is what one seed came to.
type result struct {
	seed  uint64
	hash  uint64
	steps int
	count map[string]int
	err   error
	trace []string
}

// traceLines is how much of its history a broken seed shows.
const traceLines = 30

// run runs one seed in a bubble of its own.
func run(t *testing.T, seed uint64, steps, keep int) (r result) {
	bubble.Run(t, func(t *testing.T) {
		s := &sim{seed: seed, rng: rand.New(rand.NewPCG(seed, 0x5eed)), topics: world{}, journal: journal{base: world{}},
			expired: map[string][]noted{}, lives: map[string]bool{}, hash: fnv.New64a(), keep: keep, count: map[string]int{}}
		s.disk = newDisk(crashfs.New())
		func() {
			defer func() {
				switch v := recover().(type) {
				case nil:
				case violation:
					r.err = v.error
				default:
					stack := make([]byte, 8<<10)
					r.err = fmt.Errorf("panic: %v\n%s", v, stack[:runtime.Stack(stack, false)])
				}
			}()
			s.create()
			for r.steps = 0; r.steps < steps; r.steps++ {
				s.step()
			}
			s.restart(closed)
		}()
		s.disk.set(nil)
		if s.e != nil {
			_ = s.e.Close()
		}
		r.seed, r.hash, r.count, r.trace = seed, s.hash.Sum64(), s.count, s.trace
	})
	return r
}

func (r *result) report(t *testing.T) {
	t.Helper()
	t.Errorf("seed %d, step %d: %v\nlast steps:\n  %s\nreplay: go test ./tests/sim -seed %d -ops %d", r.seed, r.steps, r.err, strings.Join(r.trace, "\n  "), r.seed, *opsFlag)
}

func TestSimulation(t *testing.T) {
	if *seedFlag != 0 {
		if r := run(t, *seedFlag, *opsFlag, traceLines); r.err != nil {
			r.report(t)
		} else {
			t.Logf("seed %d: %d steps, hash %016x, %v", r.seed, r.steps, r.hash, r.count)
		}
		return
	}
	begin := time.Now()
	more := func(done int) bool {
		if *longFlag > 0 {
			return time.Since(begin) < *longFlag
		}
		return done < *seedsFlag
	}
	var seeds, bad int
	count := map[string]int{}
	for ; more(seeds); seeds++ {
		r := run(t, *firstFlag+uint64(seeds), *opsFlag, traceLines)
		for k, n := range r.count {
			count[k] += n
		}
		if r.err != nil {
			if bad++; bad <= 3 {
				r.report(t)
			}
		}
	}
	fmt.Printf("sim: %d seeds from %d on × %d ops, %d violations\n", seeds, *firstFlag, *opsFlag, bad)
	for _, k := range slices.Sorted(maps.Keys(count)) {
		t.Logf("%8d %s", count[k], k)
	}
	if seeds < 10 || *opsFlag < 1000 {
		return // too few to meet everything
	}
	for _, k := range coverage {
		if count[k] == 0 {
			t.Errorf("nothing met %q: the simulation does not attack what it says", k)
		}
	}
}

func TestASeedRepeatsItself(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		a, b := run(t, seed, 600, 1<<20), run(t, seed, 600, 1<<20)
		if a.hash != b.hash {
			i := 0
			for i < min(len(a.trace), len(b.trace)) && a.trace[i] == b.trace[i] {
				i++
			}
			from, to := max(0, i-5), i+3
			t.Errorf("seed %d makes two histories, %016x and %016x; one:\n  %s\nthe other:\n  %s", seed, a.hash, b.hash,
				strings.Join(a.trace[from:min(to, len(a.trace))], "\n  "), strings.Join(b.trace[from:min(to, len(b.trace))], "\n  "))
		}
	}
}

// open starts the engine and learns its clocks.
func (s *sim) open() {
	e, err := engine.Open(bg, s.options("/data", s.disk))
	if err != nil {
		s.fail("the engine does not open: %v", err)
	}
	s.e, s.start = e, time.Now()
	st, err := e.Topic(probe, true)
	if err != nil {
		s.fail("the probe: %v", err)
	}
	if wall, last := s.wall.now().UnixMilli(), s.last.Load(); st.LastReadTS < wall || st.LastReadTS > max(wall, last) {
		s.fail("the server's clock is %d after the start, the wall clock %d, before the start it was %d", st.LastReadTS, wall, last)
	}
	s.lease = e.Metrics().Clock.Lease - time.Since(s.start).Milliseconds()
	s.last.Store(st.LastReadTS)
}

// create makes the directory and the probe.
func (s *sim) create() {
	e, err := engine.Open(bg, s.options("/data", s.disk))
	if err != nil {
		s.fail("the engine does not open: %v", err)
	}
	cfg := api.DefaultConfig()
	cfg.Durability = api.Fsync
	if _, err := e.PutTopic(bg, probe, cfg); err != nil {
		s.fail("the probe: %v", err)
	}
	s.createRoutes(e)
	must(e.Close())
	s.topics[probe] = newTopic(cfg)
	s.journal.base[probe] = s.topics[probe]
	s.open()
}

// probe is a topic whose only use is to tell the server's clock.
const probe = "probe"

func (s *sim) options(dir string, fs vfs.FS) engine.Options {
	return engine.Options{Dir: dir, FS: fs, Now: s.wall.now, BootID: fmt.Sprint("boot", s.boot), SegmentBytes: 64 << 10, DiskFlush: diskFlush}
}

const diskFlush = time.Second

func codeOf(err error) api.Code {
	var e *api.Error
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &e):
		return e.Code
	}
	return api.Code(err.Error())
}
