package redis_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/stall"
)

// late is how much later than its context a call may end.
const late = 50 * time.Millisecond

// outlasts starts to measure for how long a call outlasts its context. What it returns says by how
// much that is too long, without what this machine stalled; 0: not at all. Where the processors
// were busy meanwhile, with other tests, four times as long counts only.
func outlasts() (tooLong func(since time.Time) time.Duration) {
	stalled, contended := stall.Watch(), stall.Contended()
	return func(since time.Time) time.Duration {
		over := time.Since(since)
		over -= stalled()
		if over <= late || over <= 4*late && over <= late+contended() {
			return 0
		}
		return over
	}
}

// Every call ends with its context though the server is stopped, be it a
// deadline or a cancellation, and says that what was sent may have been done.
func TestCallsEndWithTheirContextWhileTheServerIsFrozen(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	b := open(t, s.Addr(), "stream=jobs")
	publish(t, b, 1)
	d := claim(t, b, backend.ClaimRequest{Max: 1}).Deliveries[0]
	calls := map[string]func(ctx context.Context) error{
		"append": func(ctx context.Context) error {
			_, err := b.Append(ctx, []backend.Message{{Data: []byte("x")}})
			return err
		},
		"claim": func(ctx context.Context) error {
			_, err := b.Claim(ctx, backend.ClaimRequest{Consumer: "c", Max: 1, Block: 10 * time.Second, ReclaimAfter: time.Minute})
			return err
		},
		"ack": func(ctx context.Context) error {
			_, err := b.Ack(ctx, []backend.Lease{d.Lease})
			return err
		},
		"extend": func(ctx context.Context) error {
			_, err := b.Extend(ctx, []backend.Lease{d.Lease}, time.Second)
			return err
		},
		"stats": func(ctx context.Context) error {
			_, err := b.Stats(ctx)
			return err
		},
	}
	for name, call := range calls {
		s.Pause()
		check(t, name+" with a deadline", call, func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 60*time.Millisecond)
		})
		check(t, name+" that is cancelled", call, func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(60*time.Millisecond, cancel)
			return ctx, cancel
		})
		s.Resume()
		wait(t, "the server answers again", func() bool { _, err := b.Stats(t.Context()); return err == nil })
	}
}

// check makes a call with a context that ends. On a busy machine one may be late
// for want of a processor; not several in a row.
func check(t *testing.T, what string, call func(ctx context.Context) error, begin func() (context.Context, context.CancelFunc)) {
	t.Helper()
	for try := 1; ; try++ {
		ctx, cancel := begin()
		ended := make(chan time.Time, 1)
		context.AfterFunc(ctx, func() { ended <- time.Now() })
		stalled := stall.Watch()
		err := call(ctx)
		took := time.Since(<-ended) - stalled()
		cancel()
		if !errors.Is(err, backend.ErrOutcomeUnknown) && !errors.Is(err, ctx.Err()) {
			t.Errorf("%s: %v", what, err)
		}
		if took <= late {
			return
		}
		if try == 5 {
			t.Errorf("%s ended %s after its context", what, took)
			return
		}
	}
}

// What has changed nothing has no outcome that is unknown, be it answered or not.
func TestAReadingWithoutAnAnswerIsNotAvailable(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	lent := lend(t, goredis.NewClient(&goredis.Options{Addr: s.Addr()}), redis.Options{Stream: "jobs"})
	for kind, b := range map[string]*redis.Backend{"url": open(t, s.Addr(), "stream=jobs"), "lent": lent} {
		publish(t, b, 1)
		for name, call := range map[string]func(ctx context.Context) (any, error){
			"stats":   func(ctx context.Context) (any, error) { return b.Stats(ctx) },
			"signal":  func(ctx context.Context) (any, error) { return b.Signal(ctx, 10) },
			"spent":   func(ctx context.Context) (any, error) { return b.Spent(ctx, "all", "jobs") },
			"observe": func(ctx context.Context) (any, error) { return b.Observe(ctx, 1) },
			"ping":    func(ctx context.Context) (any, error) { return b.Ping(ctx) },
			"list":    func(ctx context.Context) (any, error) { return b.List(ctx, "", "", 1) },
			"others":  func(ctx context.Context) (any, error) { return b.Others(ctx, "", "weir") },
			"read":    func(ctx context.Context) (any, error) { return b.Read(ctx, backend.ReadRequest{Max: 1}) },
		} {
			if _, err := call(t.Context()); err != nil {
				t.Fatalf("%s, %s: %v", kind, name, err)
			}
			s.Pause()
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
			_, err := call(ctx)
			cancel()
			s.Resume()
			if err == nil || errors.Is(err, backend.ErrOutcomeUnknown) {
				t.Errorf("%s, %s: %v", kind, name, err)
			}
			wait(t, "the server answers again", func() bool { _, err := b.Stats(t.Context()); return err == nil })
		}
	}
}

// A claim that waits holds nothing when its context ends: what is appended right
// then goes to it or stays for others, and nothing has to be reclaimed, unless the
// server was too busy to be told in time.
func TestCancelledClaimsLeaveNothingBehind(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	b, other := open(t, s.Addr(), "stream=jobs"), open(t, s.Addr(), "stream=jobs")
	const rounds, lease = 100, 10 * time.Second
	claim(t, b, backend.ClaimRequest{Max: 1, ReclaimAfter: lease})
	got := map[string]bool{}
	take := func(c backend.Claimed) {
		for _, d := range c.Deliveries {
			got[d.ID] = true
		}
	}
	stalled := stall.Watch()
	for i := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		appended := make(chan struct{})
		go func() {
			defer close(appended)
			time.Sleep(time.Duration(i%20) * 100 * time.Microsecond)
			cancel()
			_, _ = other.Append(t.Context(), []backend.Message{{Data: []byte("x")}})
		}()
		c, err := b.Claim(ctx, backend.ClaimRequest{Consumer: "c", Max: 10, Block: 10 * time.Second, ReclaimAfter: lease})
		if len(c.Deliveries) == 0 && !errors.Is(err, context.Canceled) && !errors.Is(err, backend.ErrUnavailable) {
			t.Fatalf("round %d: %v", i, err)
		}
		take(c)
		<-appended
	}
	begin := time.Now()
	wait(t, "every message is delivered", func() bool {
		take(claim(t, other, backend.ClaimRequest{Max: 100, Consumer: "d", ReclaimAfter: lease}))
		return len(got) == rounds
	})
	if took, lost := time.Since(begin), stalled(); took > lease/2 && lost == 0 {
		t.Errorf("the last message came after %s", took)
	}
	if stats, err := b.Stats(t.Context()); err != nil || stats.Pending != rounds {
		t.Fatalf("%+v %v", stats, err)
	}
}

// A call without a deadline is not repeated for long on connections that nobody answers.
func TestACallWithoutADeadlineEndsWhileTheServerIsFrozen(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	b := open(t, s.Addr(), "stream=jobs")
	publish(t, b, 1)
	s.Pause()
	defer s.Resume()
	for try := range 2 { // only the first has a connection
		begin, stalled := time.Now(), stall.Watch()
		_, err := b.Append(context.Background(), []backend.Message{{Data: []byte("x")}})
		if took := time.Since(begin); err == nil || took > 25*time.Second+stalled() {
			t.Errorf("try %d took %v, %v", try, took, err)
		}
	}
}

// What needs a new connection, and gets one that nobody answers or that is closed at once, as
// by a proxy whose server is away, was not sent.
func TestWhatWaitsForAGreetingIsNotSent(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	link := redistest.NewProxy(t, s.Addr())
	b := openOn(t, link.URL()+"?stream=jobs")
	publish(t, b, 1)
	link.Set(redistest.Blackhole)
	link.Cut()
	try := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := b.Append(ctx, []backend.Message{{Data: []byte("x")}})
		return err
	}
	unsent := func(err error) bool { return err != nil && !errors.Is(err, backend.ErrOutcomeUnknown) }
	// On a busy machine the end of the connection that was there comes after the call.
	wait(t, "the old connection is gone", func() bool { return unsent(try()) })
	for name, closes := range map[string]bool{"silent": false, "closed": true} {
		done := make(chan struct{})
		var cutting sync.WaitGroup
		if closes {
			cutting.Go(func() {
				for {
					link.Cut()
					select {
					case <-done:
						return
					case <-time.After(20 * time.Millisecond):
					}
				}
			})
		}
		if err := try(); !unsent(err) {
			t.Errorf("%s: %v", name, err)
		}
		close(done)
		cutting.Wait()
	}
	link.Heal()
	wait(t, "the link is there again", func() bool {
		_, err := b.Append(t.Context(), []backend.Message{{Data: []byte("y")}})
		return err == nil
	})
}
