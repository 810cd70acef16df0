package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/leak"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/stall"
)

// scene is one server under attack. The workload reaches it through the proxy if
// that is what is disturbed, the attacker directly.
type scene struct {
	t      *testing.T
	rig    *rig
	server *redistest.Server
	proxy  *redistest.Proxy
	direct *goredis.Client
}

func (s *scene) do(args ...any) {
	s.t.Helper()
	if err := s.direct.Do(context.Background(), args...).Err(); err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
}

// hold lets a fault last.
func hold(d time.Duration) { time.Sleep(d) }

// holdUntil lets a fault last until a publish has been told such an error, too.
func (s *scene) holdUntil(d time.Duration, told func(err error) bool) {
	s.t.Helper()
	hold(d)
	wait(s.t, "a publish is told of the fault", func() bool { return s.rig.told(told) })
}

// untilTold repeats a fault until a publish has been told such an error: a machine that stands still for as long
// as the fault lasts keeps it from the producers.
func (s *scene) untilTold(told func(err error) bool, fault func()) {
	stall.Until(rigPatience, func() bool {
		fault()
		return s.rig.told(told)
	})
}

func isAny(error) bool { return true }

func is(target error) func(err error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func isFull(err error) bool {
	var full *backend.FullError
	return errors.As(err, &full)
}

// faults are the attacks. Each returns once it is over; afterwards everything has
// to work again by itself.
var faults = []struct {
	name   string
	attack func(s *scene)
	verdict
}{
	{"kill -9 and restart", func(s *scene) {
		s.server.Kill()
		s.holdUntil(500*time.Millisecond, isAny)
		s.server.Restart()
	}, verdict{fails: true}},
	{"frozen for 5 s", func(s *scene) {
		s.server.Pause()
		s.holdUntil(5*time.Second, is(backend.ErrOutcomeUnknown))
		s.server.Resume()
	}, verdict{sees: backend.ErrOutcomeUnknown}},
	{"CLIENT PAUSE for writes", func(s *scene) {
		s.untilTold(is(backend.ErrOutcomeUnknown), func() {
			s.do("CLIENT", "PAUSE", 1000, "WRITE")
			hold(time.Second)
		})
	}, verdict{sees: backend.ErrOutcomeUnknown}},
	{"CLIENT KILL of all", func(s *scene) {
		for range 20 {
			s.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			hold(20 * time.Millisecond)
		}
	}, verdict{}},
	{"DEBUG SLEEP", func(s *scene) {
		s.untilTold(is(backend.ErrOutcomeUnknown), func() { s.do("DEBUG", "SLEEP", "1.5") })
	}, verdict{sees: backend.ErrOutcomeUnknown}},
	{"DEBUG RELOAD", func(s *scene) { s.do("DEBUG", "RELOAD") }, verdict{}},
	{"SCRIPT FLUSH", func(s *scene) {
		for range 20 {
			s.do("SCRIPT", "FLUSH")
			hold(10 * time.Millisecond)
		}
	}, verdict{}},
	{"XGROUP DESTROY", func(s *scene) { s.do("XGROUP", "DESTROY", "jobs", "weir") }, verdict{logs: []string{"was gone and has been created again"}}},
	{"DEL of the stream", func(s *scene) { s.do("DEL", "jobs") }, verdict{loses: true, logs: []string{"was gone and has been created again"}}},
	{"FLUSHALL", func(s *scene) { s.do("FLUSHALL") }, verdict{loses: true, logs: []string{"was gone and has been created again"}}},
	{"out of memory", func(s *scene) {
		s.do("CONFIG", "SET", "maxmemory", "1mb")
		s.holdUntil(500*time.Millisecond, isFull)
		s.do("CONFIG", "SET", "maxmemory", "0")
	}, verdict{full: true}},
	{"made a read-only replica", func(s *scene) {
		other := redistest.Start(s.t, redistest.Options{})
		host, port, _ := strings.Cut(other.Addr(), ":")
		other.Pause() // so that nothing is replaced by its data
		s.do("REPLICAOF", host, port)
		s.holdUntil(500*time.Millisecond, is(backend.ErrUnavailable))
		s.do("REPLICAOF", "NO", "ONE")
	}, verdict{sees: backend.ErrUnavailable}},
	{"cut before the answer", func(s *scene) {
		s.proxy.Set(redistest.Fault{HoldDown: true})
		s.untilTold(is(backend.ErrOutcomeUnknown), func() {
			hold(100 * time.Millisecond)
			s.proxy.Cut()
		})
		s.proxy.Heal()
	}, verdict{proxied: true, sees: backend.ErrOutcomeUnknown}},
	{"cut amid requests", func(s *scene) {
		s.proxy.Set(redistest.Fault{Rate: 2000, Slice: 7})
		for range 5 {
			hold(100 * time.Millisecond)
			s.proxy.Cut()
		}
		s.proxy.Heal()
	}, verdict{proxied: true}},
	{"reset", func(s *scene) {
		for range 10 {
			s.proxy.Reset()
			hold(20 * time.Millisecond)
		}
	}, verdict{proxied: true}},
	{"refused", func(s *scene) {
		s.proxy.Refuse()
		hold(500 * time.Millisecond)
		s.proxy.Heal()
	}, verdict{proxied: true}},
	{"latency of 100 ms", func(s *scene) {
		s.proxy.Set(redistest.Fault{Latency: 100 * time.Millisecond})
		hold(1500 * time.Millisecond)
		s.proxy.Heal()
	}, verdict{proxied: true}},
	{"10 KB a second", func(s *scene) {
		s.proxy.Set(redistest.Fault{Rate: 10_000})
		hold(1500 * time.Millisecond)
		s.proxy.Heal()
	}, verdict{proxied: true}},
	{"slices of 3 bytes", func(s *scene) {
		s.proxy.Set(redistest.Fault{Slice: 3})
		hold(500 * time.Millisecond)
		s.proxy.Heal()
	}, verdict{proxied: true}},
	{"black hole for 2 s", func(s *scene) {
		s.proxy.Set(redistest.Blackhole)
		s.holdUntil(2*time.Second, is(backend.ErrOutcomeUnknown))
		s.proxy.Heal()
	}, verdict{proxied: true, sees: backend.ErrOutcomeUnknown}},
	{"half-open for 2 s", func(s *scene) {
		s.proxy.Set(redistest.Fault{HoldDown: true})
		s.holdUntil(2*time.Second, is(backend.ErrOutcomeUnknown))
		s.proxy.Heal()
	}, verdict{proxied: true, sees: backend.ErrOutcomeUnknown}},
}

// TestFaults: producers and a pool go through every fault. No publish outlasts
// its context by more than 50 ms; what was acknowledged is stored and handled;
// what was refused is never found; with an idempotency key nothing is stored
// twice; nothing stays pending; no goroutine is left.
func TestFaults(t *testing.T) {
	leak.Check(t, 30*time.Second, func() {
		t.Run("each", eachFault)
	})
}

func eachFault(t *testing.T) {
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			s := &scene{t: t, server: redistest.Start(t, redistest.Options{Args: []string{
				"--appendonly", "yes", "--appendfsync", "always", "--enable-debug-command", "local",
			}})}
			s.proxy = redistest.NewProxy(t, s.server.Addr())
			s.direct = s.server.Client()
			address := s.server.URL()
			if fault.proxied {
				address = s.proxy.URL()
			}
			s.rig = startRig(t, address+"?stream=jobs&durability=fsync")
			s.rig.until(50)
			fault.attack(s)
			begin := time.Now()
			s.rig.until(1)
			t.Logf("works again %v after the fault", time.Since(begin).Round(time.Millisecond))
			s.rig.finish(s.direct, fault.verdict)
		})
	}
}

// TestPublishEndsWithACancelledContext: a cancel, unlike a deadline, is not known
// to the connection beforehand.
func TestPublishEndsWithACancelledContext(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	b := open(t, s.Addr(), "stream=jobs")
	publish(t, b, 1)
	s.Pause()
	for i := range 3 {
		ctx, stop := withCancelIn(t, 50*time.Millisecond)
		ended := make(chan time.Time, 1)
		release := context.AfterFunc(ctx, func() { ended <- time.Now() })
		tooLong := outlasts()
		_, err := b.Append(ctx, []backend.Message{{Data: fmt.Append(nil, i)}})
		if over := tooLong(<-ended); err == nil || over > 0 {
			t.Errorf("returned %v after the cancel with %v", over, err)
		}
		release()
		stop()
	}
	s.Resume()
}
