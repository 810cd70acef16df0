package engine

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/tests/bubble"
	"github.com/weirmq/weir/tests/crashfs"
)

// However the wall clock is stepped, and whatever is sealed, closed and killed in between, leases,
// delays, watch sessions and idempotency keys last as long as they were to. WEIRTEST_SEEDS says how
// many histories are tried.
func TestWhateverTheWallClockDoesNothingEndsEarlyOrLate(t *testing.T) {
	seeds := uint64(12)
	if n, err := strconv.ParseUint(os.Getenv("WEIRTEST_SEEDS"), 10, 64); err == nil {
		seeds = n
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				s := &clockSim{t: t, rng: rand.New(rand.NewPCG(seed, 1)), fs: crashfs.New(), logged: []time.Time{time.Now()}, early: 5 * time.Millisecond,
					jobs: map[uint64]clockJob{}, keys: map[string]time.Time{}, sessions: map[string]time.Time{}}
				s.open()
				put(t, s.e, "t", configOf(api.Fsync, func(c *api.Config) { c.IdempotencyWindowMS = uint64(clockWindow.Milliseconds()) }))
				put(t, s.e, "q", configOf(api.Fsync, queueConfig, func(c *api.Config) { c.LeasesDurable = true }))
				for range 80 {
					s.step()
					s.check()
				}
				s.e.Close()
			})
		})
	}
}

// clockWindow is the idempotency window; a session has as long.
const clockWindow = api.SessionTTLMS * time.Millisecond

// clockNoted is so long after a step that a kill no longer loses its note.
const clockNoted = 3100 * time.Millisecond

// clockJob is a job that is delayed or leased.
type clockJob struct {
	until time.Time
	node  string
}

// clockSim is an engine under a wall clock that steps, and what it has to keep. The time of the
// bubble is the true one.
type clockSim struct {
	t    *testing.T
	rng  *rand.Rand
	fs   *crashfs.FS
	wall wall
	e    *Engine

	jobs     map[uint64]clockJob
	keys     map[string]time.Time // when they were used
	sessions map[string]time.Time // when they began

	opened, stepped time.Time
	logged          []time.Time   // when something was
	early, late     time.Duration // by which what runs may end so far
	trace           []string
}

func (s *clockSim) open() {
	s.e = openOn(s.t, s.fs, "a", s.wall.set, func(o *Options) { o.DiskFlush = time.Second })
	s.opened = time.Now()
}

func (s *clockSim) tell(format string, args ...any) {
	s.trace = append(s.trace, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (s *clockSim) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\n%s", strings.Join(s.trace, "\n"), fmt.Sprintf(format, args...))
}

func (s *clockSim) pick(d ...time.Duration) time.Duration { return d[s.rng.IntN(len(d))] }

func (s *clockSim) step() {
	ms := uint64(1000 + s.rng.IntN(600_000))
	until := time.Now().Add(time.Duration(ms) * time.Millisecond)
	switch s.rng.IntN(12) {
	case 0, 1:
		res, err := s.e.Write(bg, "q", &api.WriteRequest{Records: []api.Record{later("1", ms)}})
		if err != nil {
			s.fail("%v", err)
		}
		s.jobs[res.FirstSeq] = clockJob{until: until}
		s.tell("job %d is delayed by %d ms", res.FirstSeq, ms)
	case 2, 3:
		write(s.t, s.e, "q", "1")
		if _, err := s.e.Claim(bg, "q", &api.ClaimRequest{Node: "w", Max: 1, HasLease: true, LeaseMS: ms}, func(j *api.Job) {
			s.jobs[j.Seq] = clockJob{until, "w"}
			s.tell("job %d is leased for %d ms", j.Seq, ms)
		}); err != nil {
			s.fail("%v", err)
		}
	case 4, 5:
		key := fmt.Sprint("key", len(s.keys))
		if _, err := keyed(s.e, "t", key); err != nil {
			s.fail("%v", err)
		}
		s.keys[key] = time.Now()
		s.tell("%s", key)
	case 6:
		wid := newSession(s.t, s.e, api.WatchTopic{Topic: "t", Tail: true})
		s.sessions[wid] = time.Now()
		s.tell("%s", wid)
		time.Sleep(clockNoted) // sessions are of class disk
	case 7:
		by := s.pick(time.Hour, -time.Hour, 24*time.Hour, -24*time.Hour, 300*time.Millisecond, -300*time.Millisecond, 40*time.Millisecond, -2*time.Second)
		s.wall.jump(by)
		s.stepped = time.Now()
		s.tell("the clock is stepped by %v", by)
		return
	case 8:
		sealNow(s.t, s.e)
		s.tell("sealed")
		return
	case 9:
		s.restart()
		return
	default:
		time.Sleep(time.Duration(s.rng.Int64N(int64(s.pick(time.Second, time.Minute, 3*time.Minute)))))
		return
	}
	s.logged = append(s.logged, time.Now())
}

// restart closes or kills the engine. A clock that is set back while it is down costs what passed since
// the clocks were noted last; see docs/decisions/0005-lease-clock.md.
func (s *clockSim) restart() {
	if time.Since(s.stepped) < clockNoted || time.Since(s.opened) < clockNoted {
		time.Sleep(clockNoted)
	}
	kill, last := s.rng.IntN(2) == 0, s.logged[0]
	for _, at := range s.logged {
		if time.Since(at) > clockNoted {
			last = at
		}
	}
	if kill {
		s.fs = s.fs.CrashClone(vfs.CrashCloneCfg{})
	}
	if err := s.e.Close(); err != nil {
		s.fail("%v", err)
	}
	down, back := s.pick(0, time.Second, time.Minute, 10*time.Minute), time.Duration(0)
	time.Sleep(down)
	if s.rng.IntN(3) == 0 {
		back = s.pick(time.Second, time.Hour, 24*time.Hour)
		s.wall.jump(-back)
		if kill {
			down = time.Since(last)
		}
		s.late += min(back, down+61*time.Second)
	}
	s.open()
	s.early += 2 * clockStep * time.Millisecond
	s.tell("restarted, killed %v, after %v, the clock set back by %v", kill, down, back)
}

func (s *clockSim) check() {
	t, now, err := s.e.lockQueue("q")
	if err != nil {
		s.fail("%v", err)
	}
	is := map[uint64]clockJob{}
	t.jobs.q.Each(func(seq uint64, node string, _ uint64, deadline int64, _ uint64) {
		if deadline > 0 {
			is[seq] = clockJob{time.Now().Add(time.Duration(deadline-now) * time.Millisecond), node}
		}
	})
	t.mu.Unlock()
	for seq, want := range s.jobs {
		got, runs := is[seq]
		switch left, off := time.Until(want.until), got.until.Sub(want.until); {
		case left > s.early && (!runs || got.node != want.node || off < -s.early || off > s.early+s.late), left < -s.early-s.late && runs:
			s.fail("job %d is %+v, want %+v", seq, got, want)
		}
	}
	if t, err = s.e.lock("t"); err != nil {
		s.fail("%v", err)
	}
	defer t.mu.Unlock()
	for key, at := range s.keys {
		sum := sha256.Sum256([]byte(key))
		_, known := t.Keys.Get(op.KeyHash(sum[:]), s.e.leaseClock(), t.Config.IdempotencyWindowMS)
		// In the second behind a step nothing says how old a key is; and where time stamps stand
		// still a restart does not know it.
		age, least := time.Since(at), min(time.Since(at), time.Since(s.opened))
		if !known && age < clockWindow-1100*time.Millisecond-s.early || known && least > clockWindow+s.early+s.late {
			s.fail("%s is known after %v: %v", key, age, known)
		}
	}
	for wid, at := range s.sessions {
		if _, err := s.e.SessionOwner(wid); err != nil && time.Since(at) < clockWindow-s.early {
			s.fail("%s after %v: %v", wid, time.Since(at), err)
		}
	}
}
