package weir_test

import (
	"context"
	"testing"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
)

// stub stores nothing, as fast as can be.
type stub struct {
	backend.Backend
	lag int64
}

func (s *stub) Info() backend.Info { return backend.Info{Kind: "stub", Stream: "jobs", Group: "weir"} }

func (s *stub) Append(context.Context, []backend.Message) ([]backend.Appended, error) {
	return nil, nil
}

func (s *stub) Stats(context.Context) (backend.Stats, error) {
	return backend.Stats{Lag: &s.lag, Workers: nil}, nil
}

// free is a configuration under which nothing is limited at any speed.
var free = weir.ProducerConfig{LoadSheddingMaxRequests: 1 << 30, MaxDepth: 1 << 40, ShedConcurrency: 1 << 20, Logger: quiet()}

func BenchmarkGuardNothingLimited(b *testing.B) {
	p, err := weir.NewProducer(weir.New(&stub{}), free)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	m := weir.Message{Data: []byte("payload"), Headers: map[string]string{"kind": "order"}}
	for name, parallel := range map[string]int{"1": 0, "16": 8} {
		b.Run("goroutines="+name, func(b *testing.B) {
			b.ReportAllocs()
			if parallel == 0 {
				for b.Loop() {
					if err := p.Publish(b.Context(), m); err != nil {
						b.Fatal(err)
					}
				}
				return
			}
			b.SetParallelism(parallel)
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

func TestGuardThatLimitsNothingAllocatesNothing(t *testing.T) {
	p, err := weir.NewProducer(weir.New(&stub{}), free)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx := context.Background()
	m := weir.Message{Data: []byte("payload")}
	if n := testing.AllocsPerRun(2000, func() { _ = p.Publish(ctx, m) }); n != 0 {
		t.Errorf("%v allocations for a publish", n)
	}
}
