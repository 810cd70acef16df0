package weir_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/open"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/stall"
	"github.com/weirmq/weir/tests/weirtest"
)

// mortal is a backend that can be cut off from its pool: what the pool does then
// reaches nobody, as if its process had been killed.
type mortal struct {
	backend.Backend
	dead atomic.Bool
}

func (m *mortal) end() error {
	if m.dead.Load() {
		return backend.ErrClosed
	}
	return nil
}

func (m *mortal) Claim(ctx context.Context, req backend.ClaimRequest) (backend.Claimed, error) {
	if err := m.end(); err != nil {
		return backend.Claimed{}, err
	}
	got, err := m.Backend.Claim(ctx, req)
	if m.end() != nil {
		return backend.Claimed{}, m.end()
	}
	return got, err
}

func (m *mortal) Extend(ctx context.Context, leases []backend.Lease, d time.Duration) ([]string, error) {
	if err := m.end(); err != nil {
		return nil, err
	}
	return m.Backend.Extend(ctx, leases, d)
}

func (m *mortal) Ack(ctx context.Context, leases []backend.Lease) ([]string, error) {
	if err := m.end(); err != nil {
		return nil, err
	}
	return m.Backend.Ack(ctx, leases)
}

func (m *mortal) Nack(ctx context.Context, returns []backend.Return) ([]string, error) {
	if err := m.end(); err != nil {
		return nil, err
	}
	return m.Backend.Nack(ctx, returns)
}

func TestPoolsTakeOverFromDeadOnes(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	for name, url := range map[string]string{
		"mem":   "mem://healing",
		"redis": redis.URL() + "?stream=healing",
	} {
		t.Run(name, func(t *testing.T) { takeOver(t, url) })
	}
}

// takeOver runs five pools, of which two die with messages in their hands.
func takeOver(t *testing.T, url string) {
	const messages, pools, dying = 400, 5, 2
	const reclaim, block = time.Second, 100 * time.Millisecond
	publisher := openStream(t, url)
	work := make([]weir.Message, messages)
	for i := range work {
		work[i].Data = fmt.Appendf(nil, "%d", i)
	}
	if _, err := publisher.Backend().Append(t.Context(), work); err != nil {
		t.Fatal(err)
	}

	var mu sync.Mutex
	done, again := map[string]int{}, 0
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	mortals := make([]*mortal, pools)
	for i := range pools {
		m := &mortal{Backend: openStream(t, url).Backend()}
		mortals[i] = m
		p, err := weir.NewPool(weir.New(m), func(_ context.Context, d *weir.Delivery) error {
			time.Sleep(20 * time.Millisecond)
			if m.end() == nil {
				mu.Lock()
				defer mu.Unlock()
				if done[string(d.Data)]++; d.Attempt > 1 {
					again++
				}
			}
			return nil
		}, weir.PoolConfig{
			Workers: 4, ReclaimAfter: reclaim, Block: block, MaxDeliveries: -1, Consumer: fmt.Sprint("pool-", i),
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := p.Run(ctx); err != nil && m.end() == nil {
				t.Errorf("a pool that lives ended with %v", err)
			}
		})
	}
	handled := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(done)
	}
	late := stall.Watch()
	waitFor(t, "a fifth is done", func() bool { return handled() > messages/5 })
	for _, m := range mortals[:dying] {
		m.dead.Store(true)
	}
	died, stalled := time.Now(), stall.Watch()
	waitFor(t, "all is done", func() bool {
		s, err := publisher.Pressure(t.Context())
		return err == nil && s.Pending == 0 && handled() == messages
	})
	// The work that is left takes 3 pools about half a second.
	if took := time.Since(died); took > reclaim+block+3*time.Second+stalled() {
		t.Errorf("all was done %s after two pools died", took)
	}
	stop()
	running.Wait()
	slow := late() > reclaim/2
	mu.Lock()
	defer mu.Unlock()
	if again == 0 {
		t.Error("the dead pools left nothing to take over: nothing was tested")
	}
	for data, n := range done {
		// One that was handled just before its pool died may be handled again; on a machine that
		// stands still for as long as a lease any may.
		if n > 2 && !slow {
			t.Errorf("message %s was handled %d times", data, n)
		}
	}
}

func TestPoolOutlivesItsServer(t *testing.T) {
	const messages = 1500
	server := redistest.Start(t, redistest.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	s := openStream(t, server.URL()+"?stream=outliving")
	work := make([]weir.Message, messages)
	for i := range work {
		work[i].Data = fmt.Appendf(nil, "%d", i)
	}
	if _, err := s.Backend().Append(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	var acked, runs atomic.Int64
	p, err := weir.NewPool(s, func(context.Context, *weir.Delivery) error {
		runs.Add(1)
		time.Sleep(5 * time.Millisecond)
		return nil
	}, weir.PoolConfig{
		Workers: 4, ReclaimAfter: 2 * time.Second, Block: 200 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Hooks: weir.Hooks{Settled: func(_ weir.StreamName, o weir.Outcome, n int) {
			if o == weir.Acked {
				acked.Add(int64(n))
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	finish := runPool(t, p)

	waitFor(t, "a tenth is done", func() bool { return acked.Load() > messages/10 })
	server.Kill()
	time.Sleep(time.Second / 2) // the outage
	server.Restart()
	back := time.Now()
	had := acked.Load()
	waitFor(t, "acks go on", func() bool { return acked.Load() > had+messages/10 })
	t.Logf("acks went on %s after the restart", time.Since(back))
	server.Pause()
	time.Sleep(time.Second)
	server.Resume()
	waitFor(t, "all is done", func() bool {
		state, err := s.Pressure(t.Context())
		return err == nil && state.Pending == 0 && state.Lag != nil && *state.Lag == 0
	})
	finish()
	// At most what was held when the server died or paused is done twice.
	if n := runs.Load(); n < messages || n > messages+200 {
		t.Errorf("%d messages took %d runs", messages, n)
	}
	if got := p.Stats(); got.Acked+got.Unsettled < messages || got.Dead > 0 {
		t.Errorf("counts: %+v", got)
	}
}

// hangs, by its name in a stack, is a handler that ignores its context.
func hangs(release <-chan struct{}) { <-release }

func TestAMessageWhoseHandlerHangsIsDoneElsewhere(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	for name, url := range map[string]string{
		"mem":   "mem://hanging",
		"redis": redis.URL() + "?stream=hanging",
	} {
		t.Run(name, func(t *testing.T) { hangAndHeal(t, url) })
	}
}

func hangAndHeal(t *testing.T, url string) {
	const timeout, reclaim, block = 300 * time.Millisecond, time.Second, 100 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	release := make(chan struct{})
	began, done := make(chan time.Time, 1), make(chan time.Duration, 1)
	var running sync.WaitGroup
	for i := range 2 {
		p, err := weir.NewPool(openStream(t, url), func(_ context.Context, d *weir.Delivery) error {
			if d.Attempt == 1 {
				began <- time.Now()
				hangs(release)
			} else {
				done <- time.Since(<-began)
			}
			return nil
		}, weir.PoolConfig{
			Workers: 1, HandlerTimeout: timeout, ReclaimAfter: reclaim, Block: block, RetryBase: 10 * time.Millisecond,
			Consumer: fmt.Sprint("pool-", i), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := p.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	stalled := stall.Watch()
	if _, err := openStream(t, url).Backend().Append(t.Context(), []weir.Message{{Data: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	select {
	case took := <-done:
		if took > timeout+reclaim+block+time.Second/2+stalled() {
			t.Errorf("done elsewhere after %s, want handler timeout + ReclaimAfter + one loop", took)
		}
		t.Logf("done elsewhere after %s", took)
	case <-time.After(20 * time.Second):
		t.Error("the message is not done")
	}
	close(release)
	stop()
	running.Wait()
}

// runPool runs a pool; finish ends it and checks that it ended well.
func runPool(t *testing.T, p *weir.Pool) (finish func()) {
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	return func() {
		t.Helper()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func openStream(t *testing.T, url string) *weir.Stream {
	t.Helper()
	s, err := open.URL(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !stall.Until(30*time.Second, ok) {
		t.Fatalf("not within 30 s: %s", what)
	}
}

// Messages that fail once, while others come all the time, over a link that takes a moment:
// nothing that a claim got is lost to its pool, so each is done at its second delivery.
func TestMessagesThatFailOnceAreDoneAtTheSecondDelivery(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	server := weirtest.Start(t, weirtest.Options{})
	for name, url := range map[string]string{
		"mem":   "mem://failing",
		"redis": "redis://" + far(t, redis.Addr()) + "?stream=failing",
		"http":  "http://" + far(t, server.Addr) + "/failing",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failOnce(t, url)
		})
	}
}

// far is a proxy to addr that takes 5 ms each way.
func far(t *testing.T, addr string) string {
	p := redistest.NewProxy(t, addr)
	p.Set(redistest.Fault{Latency: 5 * time.Millisecond})
	return p.Addr()
}

func failOnce(t *testing.T, url string) {
	const messages = 400
	s := openStream(t, url)
	var mu sync.Mutex
	done, late := map[string]bool{}, 0
	p, err := weir.NewPool(s, func(_ context.Context, d *weir.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if d.Attempt == 1 {
			return weir.RetryIn(5*time.Millisecond, errors.New("not yet"))
		}
		if d.Attempt > 2 {
			late++
		}
		done[string(d.Data)] = true
		return nil
	}, weir.PoolConfig{Workers: 5, ReclaimAfter: 20 * time.Second, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	finish := runPool(t, p)
	for i := range messages {
		if _, err := s.Backend().Append(t.Context(), []weir.Message{{Data: fmt.Appendf(nil, "%d", i)}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i%3) * time.Millisecond)
	}
	stalled := stall.Watch()
	began := time.Now()
	waitFor(t, "all is done", func() bool { mu.Lock(); defer mu.Unlock(); return len(done) == messages })
	if took := time.Since(began); took > 5*time.Second+stalled() {
		t.Errorf("all was done %s after the last was published", took)
	}
	finish()
	if late > 0 {
		t.Errorf("%d of %d messages were delivered more than twice", late, messages)
	}
}

// A queue that is deleted under a pool and made again gives its messages the numbers of the
// old ones. None of them is taken for one that was handled, or that a handler still has.
func TestAQueueThatIsMadeAgainHasNewMessages(t *testing.T) {
	const old, fresh = 5, 10
	for _, ends := range []string{"before the new messages", "while they fail", "after they are done"} {
		t.Run("the old handlers end "+ends, func(t *testing.T) {
			server := weirtest.Start(t, weirtest.Options{})
			s := openStream(t, server.URL+"/jobs")
			send := func(kind string, n int) {
				for i := range n {
					if _, err := s.Backend().Append(t.Context(), []weir.Message{{Data: fmt.Appendf(nil, "%s-%d", kind, i)}}); err != nil {
						t.Fatal(err)
					}
				}
			}
			var mu sync.Mutex
			var running, failed, done int
			goOn := make(chan struct{})
			p, err := weir.NewPool(s, func(_ context.Context, d *weir.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				switch kind, _, _ := strings.Cut(string(d.Data), "-"); {
				case kind == "old":
					running++
					mu.Unlock()
					<-goOn
					mu.Lock()
				case d.Attempt == 1:
					failed++
					return weir.RetryIn(100*time.Millisecond, errors.New("not yet"))
				default:
					done++
				}
				return nil
			}, weir.PoolConfig{Workers: old + 2, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
			if err != nil {
				t.Fatal(err)
			}
			finish := runPool(t, p)
			reached := func(what string, n *int, want int) {
				waitFor(t, fmt.Sprintf("%d %s", want, what), func() bool { mu.Lock(); defer mu.Unlock(); return *n >= want })
			}
			send("old", old)
			reached("of the old run", &running, old)
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodDelete, server.URL+"/v0/topics/jobs", nil)
			resp, err := http.DefaultClient.Do(req)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatal(resp, err)
			}
			_ = resp.Body.Close()
			if ends == "before the new messages" {
				close(goOn)
				waitFor(t, "the old are over", func() bool { return p.Stats().Unsettled == old })
			}
			send("new", fresh)
			reached("of the new fail", &failed, fresh)
			if ends == "while they fail" {
				close(goOn)
			}
			reached("of the new are done", &done, fresh)
			if ends == "after they are done" {
				close(goOn)
			}
			finish()
			if failed != fresh || done != fresh {
				t.Errorf("of %d new messages %d failed once and %d were done", fresh, failed, done)
			}
		})
	}
}
