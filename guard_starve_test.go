package weir_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
)

// slowlyRead is a backend whose readings come to a processor many times, as those of a server do.
type slowlyRead struct{ *backendtest.Fake }

func (f slowlyRead) Signal(ctx context.Context, most int64) (backend.Signal, error) {
	for range 40 {
		if err := ctx.Err(); err != nil {
			return backend.Signal{}, err
		}
		runtime.Gosched()
	}
	return f.Fake.Signal(ctx, most)
}

// Callers who come again at once, whatever RetryAfter says, would be let in by a reading that they
// have kept from a processor for too long.
func TestRefusedPublishesKeepNoReadingFromAProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	fake := backendtest.NewFake(backendtest.FakeOptions{})
	fake.Pretend(&backend.Signal{Lag: new(int64(500))})
	var readings atomic.Int64
	var lost, over atomic.Bool
	p, err := weir.NewProducer(weir.New(slowlyRead{fake}), weir.ProducerConfig{
		MaxDepth: 500, LagCache: time.Minute, WaitSLO: time.Second, Logger: quiet(),
		Hooks: weir.Hooks{
			Measured: func(weir.StreamName, weir.Measurement) { over.Store(readings.Add(1) == 5 || over.Load()) },
			SignalKnown: func(_ weir.StreamName, known bool) {
				if !known {
					lost.Store(true)
					over.Store(true)
				}
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var callers sync.WaitGroup
	for range 12 {
		callers.Go(func() {
			var full *weir.QueueFullError
			for !over.Load() {
				if err := p.Publish(t.Context(), weir.Message{}); !errors.As(err, &full) {
					t.Errorf("got %v, want a refusal", err)
					return
				}
			}
		})
	}
	callers.Wait()
	if lost.Load() {
		t.Errorf("the load was not known any more after %d readings", readings.Load())
	}
}
