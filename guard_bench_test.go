package weir_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
)

// stub stores nothing, as fast as can be.
type stub struct {
	backend.Backend
	signal atomic.Pointer[backend.Signal] // nil: nothing waits
}

func (s *stub) Info() backend.Info { return backend.Info{Kind: "stub", Stream: "jobs", Group: "weir"} }

func (s *stub) Append(context.Context, []backend.Message) ([]backend.Appended, error) {
	return nil, nil
}

func (s *stub) Signal(context.Context, int64) (backend.Signal, error) {
	if sig := s.signal.Load(); sig != nil {
		return *sig, nil
	}
	return backend.Signal{Lag: new(int64)}, nil
}

func (s *stub) PublishSignal(context.Context, time.Duration) error { return nil }

func (s *stub) load(waiting, working, finished int64) {
	s.signal.Store(&backend.Signal{Workers: &working, Pending: working, Lag: &waiting, Finished: &finished})
}

// free is a configuration under which nothing is limited at any speed.
var free = weir.ProducerConfig{LoadSheddingMaxRequests: 1 << 30, MaxDepth: 1 << 40, ShedConcurrency: 1 << 20, Logger: quiet()}

// modes are the guards that are compared side by side.
var modes = []weir.GuardMode{weir.GuardStatic, weir.GuardAdaptive}

func unlimited(t testing.TB, mode weir.GuardMode) *weir.Producer {
	t.Helper()
	c := free
	c.Guard = mode
	p, err := weir.NewProducer(weir.New(&stub{}), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func BenchmarkGuardNothingLimited(b *testing.B) {
	m := weir.Message{Data: []byte("payload"), Headers: map[string]string{"kind": "order"}, FairKey: "tenant 17"}
	for _, mode := range modes {
		p := unlimited(b, mode)
		b.Run(string(mode)+"/goroutines=1", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Publish(b.Context(), m); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(string(mode)+"/goroutines=16", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := p.Publish(context.Background(), m); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// BenchmarkGuardRefusal is what a refusal by the cut costs.
func BenchmarkGuardRefusal(b *testing.B) {
	s := &stub{}
	c := free
	c.Guard, c.WaitSLO = weir.GuardAdaptive, time.Second
	p, err := weir.NewProducer(weir.New(s), c)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	low, ctx := weir.Message{Priority: weir.Low, FairKey: "tenant 17"}, context.Background()
	for begin := time.Now(); time.Since(begin) < time.Second; { // 500 wait, and 100 a second are finished
		s.load(500, 20, int64(time.Since(begin)/(10*time.Millisecond)))
		_ = p.Publish(ctx, low)
		time.Sleep(time.Millisecond)
	}
	refused := 0
	b.ReportAllocs()
	for b.Loop() {
		if p.Publish(ctx, low) != nil {
			refused++
		}
	}
	b.ReportMetric(100*float64(refused)/float64(b.N), "%refused")
}

func TestGuardThatLimitsNothingAllocatesNothing(t *testing.T) {
	for _, mode := range modes {
		p, ctx, m := unlimited(t, mode), context.Background(), weir.Message{Data: []byte("payload"), FairKey: "tenant 17"}
		if n := testing.AllocsPerRun(2000, func() { _ = p.Publish(ctx, m) }); n != 0 {
			t.Errorf("%s: %v allocations for a publish", mode, n)
		}
	}
}
