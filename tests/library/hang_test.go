package library

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/open"
	"github.com/weirmq/weir/tests/capture"
	"github.com/weirmq/weir/tests/stall"
)

func openStream(t *testing.T, url string) *weir.Stream {
	t.Helper()
	s, err := open.URL(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestTheMessageOfAHandlerThatHangsIsDoneElsewhere(t *testing.T) {
	const (
		timeout = time.Second
		reclaim = 1500 * time.Millisecond
		loop    = 300 * time.Millisecond
		slack   = 700 * time.Millisecond
	)
	s := newSite(t, "jobs", "weir")
	cfg := weir.PoolConfig{Workers: 1, HandlerTimeout: timeout, ReclaimAfter: reclaim, Block: loop, RetryBase: 50 * time.Millisecond, DrainTimeout: time.Second}
	logs := &capture.Buffer{}
	cfg.Logger = slog.New(slog.NewTextHandler(logs, nil))

	release := make(chan struct{})
	hung, done := make(chan time.Time, 1), make(chan time.Time, 1)
	hangs := func(_ context.Context, d *weir.Delivery) error {
		if d.Attempt == 1 {
			hung <- time.Now()
			<-release // whatever its context says
			return nil
		}
		done <- time.Now()
		return nil
	}
	first := cfg
	first.Consumer = "hangs"
	ctx, cancel := context.WithCancel(t.Context())
	var pools sync.WaitGroup
	run := func(h weir.Handler, cfg weir.PoolConfig) {
		pool, err := weir.NewPool(openStream(t, s.url), h, cfg)
		if err != nil {
			t.Fatal(err)
		}
		pools.Go(func() { _ = pool.Run(ctx) }) // a handler that still runs is an error
	}
	run(hangs, first)
	p, err := weir.NewProducer(openStream(t, s.url), weir.ProducerConfig{Guard: weir.GuardOff})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(ctx, weir.Message{Data: []byte("the one")}); err != nil {
		t.Fatal(err)
	}
	began, stalled := <-hung, stall.Watch()
	second := cfg
	second.Consumer = "works"
	run(func(context.Context, *weir.Delivery) error { done <- time.Now(); return nil }, second)

	var took time.Duration
	select {
	case at := <-done:
		took = at.Sub(began)
	case <-time.After(20 * time.Second):
		t.Fatalf("the message was not done elsewhere\n%s", logs)
	}
	if limit := timeout + reclaim + loop + slack + stalled(); took > limit {
		t.Errorf("done elsewhere after %s, want at most %s", took, limit)
	}
	s.eventually("it is acknowledged", s.drained)
	s.eventually("the log names the handler that hangs, with its stack", func() bool {
		return strings.Contains(logs.String(), "hang_test.go")
	})
	t.Logf("a handler that ignores its context: its message was done elsewhere %s after it began (handler_timeout %s + reclaim_after %s + one loop of %s)",
		took.Round(time.Millisecond), timeout, reclaim, loop)
	close(release)
	cancel()
	pools.Wait()
}

func TestACommandThatHangsIsKilledAndItsMessageDoneByAnotherWorker(t *testing.T) {
	const timeout = time.Second
	s := newSite(t, "jobs", "weir")
	flags := []string{"--workers", "1", "--handler-timeout", timeout.String(), "--reclaim-after", "1500ms", "--block", "300ms", "--retry-base", "50ms"}
	s.work("w1", `trap '' TERM; [ "$WEIR_ATTEMPT" != 1 ] || { echo hung >> "$RECORD"; sleep 1000; }; `+recordLine, flags...)
	s.publish("the one")
	s.eventually("the command hangs", func() bool { return len(s.handled()) == 1 })
	began, stalled := time.Now(), stall.Busy()
	s.work("w2", recordLine, flags...)
	took := s.since(began, "the message is done", s.drained)
	if limit := timeout + 1500*time.Millisecond + time.Second + stalled(); took > limit {
		t.Errorf("done after %s, want at most %s", took, limit)
	}
	t.Logf("a command that hangs: its message was done %s later", took.Round(time.Millisecond))
}
