package weir

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
)

// What others have claimed is never taken out: it has to make room for what comes.
func TestMessagesThatNobodyAsksForMakeRoom(t *testing.T) {
	var s messageSet
	numbered := func(n int) message { return message{id: fmt.Sprint(n)} }
	for i := range 5 * maxRemembered {
		s.add(numbered(i))
		if back := max(0, i-maxRemembered/2+1); !s.has(numbered(i)) || !s.has(numbered(back)) {
			t.Fatalf("after %d messages, %d or %d is forgotten", i+1, i, back)
		}
	}
	if n := len(s.young) + len(s.old); n > maxRemembered {
		t.Errorf("%d messages are kept, want at most %d", n, maxRemembered)
	}
	last := numbered(5*maxRemembered - 1)
	if !s.take(last) || s.take(last) || s.has(last) {
		t.Error("a message that was taken is still there, or was not")
	}
}

// With quick handlers each message cost a change of goroutines.
func TestWorkerThatGoesOnWakesOneOtherAtMost(t *testing.T) {
	p, err := NewPool(New(backendtest.NewFake(backendtest.FakeOptions{})), nothing, PoolConfig{Workers: 3})
	if err != nil {
		t.Fatal(err)
	}
	p.work, p.endWork = context.WithCancelCause(t.Context())
	defer p.endWork(nil)
	got := backend.Claimed{}
	for i := range 5 {
		got.Deliveries = append(got.Deliveries, &Delivery{Lease: backend.Lease{ID: fmt.Sprint(i), Attempt: 1, Since: time.Now()}})
	}
	p.mu.live, p.mu.workers = 1, 1 // the worker of this test; no other is started
	p.accept(t.Context(), time.Now(), &got, len(got.Deliveries))
	p.mu.workers, p.mu.idle = 3, 2
	w := worker{pool: p}
	for i := range got.Deliveries {
		if !w.next() {
			t.Fatal("the worker ends")
		}
		w.handle()
		if !p.mu.waking {
			t.Errorf("after message %d it is forgotten that another worker is on its way", i)
		}
	}
}

func TestContextEndsOnceHoweverManyLookAtIt(t *testing.T) {
	for range 1000 {
		c := &jobContext{pool: &Pool{work: context.Background()}}
		var all sync.WaitGroup
		seen := make([]<-chan struct{}, 2)
		for i := range seen {
			all.Go(func() { seen[i] = c.Done() })
		}
		for _, cause := range []error{ErrLeaseLost, context.Canceled} {
			all.Go(func() { c.cancel(cause) })
		}
		all.Wait()
		if <-seen[0]; seen[0] != seen[1] {
			t.Fatal("two that look see different contexts")
		}
		if cause := context.Cause(c); cause != ErrLeaseLost && cause != context.Canceled {
			t.Fatalf("ended because of %v", cause)
		}
	}
}
