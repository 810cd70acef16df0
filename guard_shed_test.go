package weir_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

func TestRequest1001OfAWindowIsRefused(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{MaxDepth: 1 << 30})
		time.Sleep(700 * time.Millisecond) // the window begins with its first request, whenever that is
		for i := range 1000 {
			if err := g.Publish(t.Context(), weir.Message{}); err != nil {
				t.Fatalf("request %d: %v", i+1, err)
			}
			if i == 499 {
				time.Sleep(600 * time.Millisecond)
			}
		}
		for range 500 {
			took, err := g.timed(t.Context())
			full := refusedFor(t, err, weir.LoadShedding)
			if took != 0 || full.RetryAfter != 400*time.Millisecond || full.MaxDepth != 1<<30 {
				t.Fatalf("refused after %s with %+v, want at once, to come back in 400ms", took, full)
			}
		}
		time.Sleep(399 * time.Millisecond)
		refusedFor(t, g.Publish(t.Context(), weir.Message{}), weir.LoadShedding)
		time.Sleep(time.Millisecond)
		if err := g.Publish(t.Context(), weir.Message{}); err != nil {
			t.Errorf("in the next window: %v", err)
		}
		if g.attempts != 1502 || g.stored != 1001 || g.failed["load_shedding"] != 501 {
			t.Errorf("told of %d attempts, %d stored, %v failed", g.attempts, g.stored, g.failed)
		}
		if n := g.fake.Calls(backendtest.OpAppend); n != 1001 {
			t.Errorf("%d appends", n)
		}
	})
}

func TestWindowRefusesBeforeTheLagIsLookedAt(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{LoadSheddingMaxRequests: 1, ShedWindow: time.Minute})
		g.pretend(201, 9000)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Publish(ctx, weir.Message{}); ctx.Err() == nil {
			t.Fatalf("not paused: %v", err)
		}
		took, err := g.timed(t.Context())
		if full := refusedFor(t, err, weir.LoadShedding); took != 0 || full.Depth != 9201 {
			t.Errorf("got %+v after %s, want at once with the depth read last", full, took)
		}
	})
}

func TestBatchIsOneRequestOfTheWindow(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{LoadSheddingMaxRequests: 2})
		for range 2 {
			if err := g.PublishBatch(t.Context(), make([]weir.Message, 100)); err != nil {
				t.Fatal(err)
			}
		}
		refusedFor(t, g.PublishBatch(t.Context(), make([]weir.Message, 1)), weir.LoadShedding)
		if g.stored != 200 || g.failed["load_shedding"] != 1 {
			t.Errorf("stored %d, failed %v", g.stored, g.failed)
		}
	})
}

func TestWaitingPublishKeepsItsPlaceInTheGate(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{ShedConcurrency: 2})
		g.pretend(201, 0)
		paused := several(t, 2, g.Producer)
		synctest.Wait()
		time.Sleep(30 * time.Second)
		took, err := g.timed(t.Context())
		if refusedFor(t, err, weir.LoadShedding); took != 0 {
			t.Errorf("refused after %s", took)
		}
		g.pretend(0, 0)
		paused.Wait()
		if err := g.Publish(t.Context(), weir.Message{}); err != nil {
			t.Errorf("with the places free again: %v", err)
		}
	})
}

// However a publish ends, its place in the gate is free after it.
func TestEveryEndOfAPublishFreesItsPlaceInTheGate(t *testing.T) {
	full := &backend.FullError{Reason: backend.ReasonQueueFull, Err: errors.New("the disk is full")}
	for name, c := range map[string]struct {
		config       weir.ProducerConfig
		workers, lag int64
		fault        error
		before       int // publishes before it
	}{
		"refused by the window":      {config: weir.ProducerConfig{LoadSheddingMaxRequests: 1}, before: 1},
		"ended before a window":      {config: weir.ProducerConfig{LoadSheddingMaxRequests: 1, ShedWait: true, ShedWindow: time.Minute}, before: 1},
		"ended in a pause":           {workers: 201},
		"refused at the depth":       {lag: 8000},
		"refused by the server":      {fault: full},
		"of an unknown outcome":      {fault: backend.ErrOutcomeUnknown},
		"refused, judged by its SLO": {config: weir.ProducerConfig{Guard: weir.GuardAdaptive, LoadSheddingMaxRequests: 1}, before: 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				c.config.ShedConcurrency = 1
				g := guard(t, c.config)
				for range c.before {
					if err := g.Publish(t.Context(), weir.Message{}); err != nil {
						t.Fatal(err)
					}
				}
				g.pretend(c.workers, c.lag)
				heal := func() {}
				if c.fault != nil {
					heal = g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Err: c.fault})
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				if err := g.Publish(ctx, weir.Message{}); err == nil {
					t.Fatal("it was stored")
				}
				heal()
				g.pretend(0, 0)
				time.Sleep(2 * time.Minute)
				if err := g.Publish(t.Context(), weir.Message{}); err != nil {
					t.Errorf("the next one: %v", err)
				}
			})
		})
	}
}

// A shadow counts as refused what the gate would refuse: what it lets pass nevertheless takes no
// place from those that come after it.
func TestAShadowOfTheGateCountsWhatTheGateRefuses(t *testing.T) {
	for _, mode := range []weir.GuardMode{weir.GuardStatic, weir.GuardShadow} {
		t.Run(string(mode), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				g := guard(t, weir.ProducerConfig{Guard: mode, ShedConcurrency: 2})
				g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Delay: time.Second})
				for range 40 {
					go func() { _ = g.Publish(t.Context(), weir.Message{}) }()
					time.Sleep(260 * time.Millisecond)
				}
				time.Sleep(2 * time.Second)
				g.mu.Lock()
				defer g.mu.Unlock()
				if n := g.failed["load_shedding"] + len(g.shadowed); n != 20 {
					t.Errorf("%d of 40 publishes of a second each refused, four a second where two fit; want 20", n)
				}
			})
		})
	}
}

// What Streams of one place share ends with the last of them.
func TestTheWindowOfAStreamEndsWithIt(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		open := func() (*weir.Stream, *weir.Producer) {
			s := weir.New(placed{f.Again(), t.Name()})
			p, err := weir.NewProducer(s, weir.ProducerConfig{LoadSheddingMaxRequests: 1, ShedWindow: time.Hour, Logger: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			return s, p
		}
		for range 3 {
			first, p := open()
			second, q := open()
			if err := p.Publish(t.Context(), weir.Message{}); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(p.Close(), first.Close()); err != nil {
				t.Fatal(err)
			}
			refusedFor(t, q.Publish(t.Context(), weir.Message{}), weir.LoadShedding)
			if err := errors.Join(q.Close(), second.Close()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// watcher counts the appends that are under way.
type watcher struct {
	*backendtest.Fake
	now, most, over atomic.Int64
	limit           int64
}

func (w *watcher) Append(ctx context.Context, msgs []backend.Message) ([]backend.Appended, error) {
	n := w.now.Add(1)
	defer w.now.Add(-1)
	if n > w.limit {
		w.over.Add(1)
	}
	for {
		most := w.most.Load()
		if n <= most || w.most.CompareAndSwap(most, n) {
			break
		}
	}
	return w.Fake.Append(ctx, msgs)
}

func TestGateHoldsAtEveryInstant(t *testing.T) {
	w := &watcher{Fake: backendtest.NewFake(backendtest.FakeOptions{}), limit: 4}
	p, err := weir.NewProducer(weir.New(w), weir.ProducerConfig{
		ShedConcurrency: 4, LoadSheddingMaxRequests: 1 << 30, MaxDepth: 1 << 30, Logger: quiet(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	w.Inject(backendtest.OpAppend, backendtest.Fault{Delay: 100 * time.Microsecond})
	var stored, refused atomic.Int64
	var slowest atomic.Int64
	var done sync.WaitGroup
	for range 32 {
		done.Go(func() {
			for range 200 {
				began := time.Now()
				if err := p.Publish(t.Context(), weir.Message{}); err == nil {
					stored.Add(1)
					continue
				}
				refused.Add(1)
				if took := int64(time.Since(began)); took > slowest.Load() {
					slowest.Store(took)
				}
			}
		})
	}
	done.Wait()
	if w.over.Load() > 0 || w.most.Load() != 4 {
		t.Errorf("%d appends began beyond 4, most at once %d", w.over.Load(), w.most.Load())
	}
	if stored.Load() == 0 || refused.Load() == 0 || stored.Load()+refused.Load() != 6400 {
		t.Errorf("%d stored, %d refused of 6400", stored.Load(), refused.Load())
	}
	t.Logf("%d stored, %d refused, slowest refusal %s", stored.Load(), refused.Load(), time.Duration(slowest.Load()))
}

func TestLoadSheddingCanBeSwitchedOffAndOnAgain(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		c := weir.ProducerConfig{LoadSheddingMaxRequests: 1, ShedWindow: time.Hour, ShedConcurrency: 1}
		g := guard(t, c)
		if err := g.Publish(t.Context(), weir.Message{}); err != nil {
			t.Fatal(err)
		}
		refusedFor(t, g.Publish(t.Context(), weir.Message{}), weir.LoadShedding)
		off := c
		off.DisableLoadShedding = true
		if err := g.Reconfigure(off); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if err := g.Publish(t.Context(), weir.Message{}); err != nil {
				t.Fatalf("switched off: %v", err)
			}
		}
		if err := g.Reconfigure(c); err != nil {
			t.Fatal(err)
		}
		refusedFor(t, g.Publish(t.Context(), weir.Message{}), weir.LoadShedding)
	})
}

func TestAllProducersOfAStreamShareItsWindow(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := weir.New(backendtest.NewFake(backendtest.FakeOptions{}))
		var stored, refused int
		for range 4 {
			p, err := weir.NewProducer(s, weir.ProducerConfig{Guard: weir.GuardStatic, LoadSheddingMaxRequests: 100, Logger: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			for i := range 50 {
				publish := p.Publish
				if i%2 == 0 {
					publish = p.TryPublish
				}
				if err := publish(t.Context(), weir.Message{}); err == nil {
					stored++
				} else if refusedFor(t, err, weir.LoadShedding) != nil {
					refused++
				}
			}
		}
		if stored != 100 || refused != 100 {
			t.Errorf("%d stored, %d refused, want 100 of each", stored, refused)
		}
	})
}

func TestAPublishCanWaitForTheNextWindow(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{LoadSheddingMaxRequests: 100, ShedWait: true, MaxDepth: 1 << 30})
		began := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for range 50 {
					if err := g.Publish(t.Context(), weir.Message{}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took != 9*time.Second {
			t.Errorf("1000 requests took %s, want ten windows", took)
		}
		if len(g.failed) > 0 || len(g.slowed[weir.WindowWait]) == 0 || len(g.slowed[weir.WindowWait]) > 200 {
			t.Errorf("failed %v, %d waits", g.failed, len(g.slowed[weir.WindowWait]))
		}
		refusedFor(t, g.TryPublish(t.Context(), weir.Message{}), weir.LoadShedding)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if took, err := g.timed(ctx); !errors.Is(err, context.DeadlineExceeded) || took != 300*time.Millisecond {
			t.Errorf("%v after %s, want the wait to end with its context", err, took)
		}
	})
}

// A server that refuses what its workers cannot do in time has decided: the guard does
// not look again, in any mode.
func TestARefusalByTheServersCutIsImmediate(t *testing.T) {
	for _, mode := range []weir.GuardMode{weir.GuardStatic, weir.GuardProportional, weir.GuardAdaptive, weir.GuardOff, weir.GuardShadow} {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{Guard: mode})
			g.pretend(0, 0)
			g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Err: backendtest.Full(backend.ReasonLoadShedding, 3*time.Second)})
			took, err := g.timed(t.Context())
			if full := refusedFor(t, err, weir.LoadShedding); full.RetryAfter != 3*time.Second || took > 0 || len(g.tries) > 0 {
				t.Errorf("%s: after %s and %d checks: %v", mode, took, len(g.tries), err)
			}
			if n := g.failed["load_shedding"]; n != 1 {
				t.Errorf("%s: counted %d times", mode, n)
			}
		})
	}
}
