package weir

import (
	"context"
	"runtime"
	"testing"

	"github.com/weirmq/weir/backend/backendtest"
)

// allocations is how many a pool makes for one message, those of its backend included.
func allocations(t *testing.T, c PoolConfig) float64 {
	t.Helper()
	const messages = 20_000
	e := &endless{Fake: backendtest.NewFake(backendtest.FakeOptions{}), done: make(chan struct{})}
	e.left.Store(messages)
	c.Workers, c.Batch = 4, 100
	p, err := NewPool(New(e), nothing, quiet(c))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	go func() { ended <- p.Run(ctx) }()
	<-e.done
	runtime.ReadMemStats(&after)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return float64(after.Mallocs-before.Mallocs) / messages
}

// Two of a message are the fake backend's: the delivery and its ID.
func TestAPoolThatIsNotTracedAllocatesNothingForIt(t *testing.T) {
	if n := allocations(t, PoolConfig{}); n > 2.5 {
		t.Errorf("%.2f allocations for a message, want at most 2.5", n)
	}
	traced := PoolConfig{Tracing: Tracing{Settled: func(context.Context, StreamName, Ending) {}}}
	if n := allocations(t, traced); n <= 2.5 {
		t.Errorf("%.2f allocations for a traced message: the test does not see any", n)
	}
}
