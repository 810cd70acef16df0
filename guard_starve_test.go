package weir_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
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
	for try := 1; ; try++ {
		began, used := time.Now(), processorTime(t)
		lost := refusedPublishes(t)
		if lost == "" {
			return
		}
		// The callers never wait: what they did not use this process did not have.
		if without := time.Since(began) - (processorTime(t) - used); without < time.Second/2 || try == 10 {
			t.Fatalf("%s; the process was without a processor for %s", lost, without)
		}
	}
}

// processorTime is how much of it this process has used.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// refusedPublishes says what went wrong within five readings: the load is not known any more, or a publish passes.
func refusedPublishes(t *testing.T) (lost string) {
	fake := backendtest.NewFake(backendtest.FakeOptions{})
	fake.Pretend(&backend.Signal{Lag: new(int64(500))})
	var readings atomic.Int64
	var unknown, over atomic.Bool
	var passed atomic.Value
	p, err := weir.NewProducer(weir.New(slowlyRead{fake}), weir.ProducerConfig{
		MaxDepth: 500, LagCache: time.Minute, WaitSLO: time.Second, Logger: quiet(),
		Hooks: weir.Hooks{
			Measured: func(weir.StreamName, weir.Measurement) { over.Store(readings.Add(1) == 5 || over.Load()) },
			SignalKnown: func(_ weir.StreamName, known bool) {
				if !known {
					unknown.Store(true)
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
					passed.Store(fmt.Sprintf("got %v, want a refusal", err))
					over.Store(true)
				}
			}
		})
	}
	callers.Wait()
	if text, some := passed.Load().(string); some {
		lost = text
	}
	if unknown.Load() {
		lost = fmt.Sprintf("the load was not known any more after %d readings", readings.Load())
	}
	return lost
}
