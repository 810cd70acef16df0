package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/internal/queue"
	"github.com/weirmq/weir/internal/api"
)

// cutOff is a service of before many writes in one request, whose first caller leaves while
// it writes.
type cutOff struct {
	queue.Service
	leave func()
}

func (c cutOff) Topic(context.Context, string) (api.TopicState, error) { return api.TopicState{}, nil }

func (c cutOff) WriteEach(context.Context, string, []api.WriteRequest) ([]api.WriteOutcome, error) {
	return nil, errors.ErrUnsupported
}

func (c cutOff) Write(ctx context.Context, _ string, _ *api.WriteRequest) (api.WriteResult, error) {
	c.leave()
	return api.WriteResult{}, fmt.Errorf("%w: %w", backend.ErrOutcomeUnknown, ctx.Err())
}

// What a batch has not sent yet when its context ends fails by that, and not because the
// backend is away.
func TestABatchWhoseContextEndsSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b, err := queue.New(t.Context(), cutOff{leave: cancel}, queue.Options{Topic: "q", Limits: api.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	out, _ := b.Append(ctx, append(keyedMessages(0, 3), backend.Message{Data: []byte("plain")}))
	if !errors.Is(out[0].Err, backend.ErrOutcomeUnknown) {
		t.Errorf("what was being sent: %v", out[0].Err)
	}
	for i, r := range out[1:] {
		if !errors.Is(r.Err, context.Canceled) || errors.Is(r.Err, backend.ErrUnavailable) || errors.Is(r.Err, backend.ErrOutcomeUnknown) {
			t.Errorf("message %d: %v", i+1, r.Err)
		}
	}
}

// Headers that a queue has no room for are named as what the caller gave, and nothing is stored.
func TestHeadersThatDoNotFitAreNamed(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		many := map[string]string{}
		for i := range 53 {
			many[fmt.Sprint("h", i)] = ""
		}
		for _, headers := range []map[string]string{many, {"long": strings.Repeat("x", 13<<10)}} {
			_, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x"), Headers: headers}})
			if !errors.Is(err, backend.ErrTooLarge) || !strings.Contains(err.Error(), "field Headers") {
				t.Errorf("%d headers: %v", len(headers), err)
			}
		}
		delete(many, "h0")
		if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x"), Headers: many}}); err != nil {
			t.Error(err)
		}
	})
}

// Who opens several streams reads in an error which one it is about.
func TestTheEndOfAStreamNamesIt(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		name := fresh()
		b := h.open(name)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Stats(t.Context()); !errors.Is(err, backend.ErrClosed) || !strings.Contains(err.Error(), name) {
			t.Errorf("after Close: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := openURL(ctx, h.url(name)); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), h.addr) {
			t.Errorf("not opened: %v", err)
		}
	})
}

// onLog is a service whose topic is a log.
type onLog struct{ queue.Service }

var errLog = api.Errorf(api.CodeNotAQueue, "topic %q is a log", "events")

func (onLog) Topic(context.Context, string) (api.TopicState, error) { return api.TopicState{}, nil }

func (onLog) WriteEach(_ context.Context, _ string, reqs []api.WriteRequest) ([]api.WriteOutcome, error) {
	out := make([]api.WriteOutcome, len(reqs))
	for i := range out {
		out[i].Err = errLog
	}
	return out, nil
}

func (onLog) Write(context.Context, string, *api.WriteRequest) (api.WriteResult, error) {
	return api.WriteResult{}, errLog
}

// A log keeps nothing back. That is no group that lacks, which could still come.
func TestADelayOnALogIsUnsupported(t *testing.T) {
	b, err := queue.New(t.Context(), onLog{}, queue.Options{Topic: "events", Limits: api.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	plain := []backend.Message{{Data: []byte("1"), Delay: time.Second}, {Data: []byte("2"), Delay: time.Second}}
	keyed := keyedMessages(0, 2)
	for i := range keyed {
		keyed[i].Delay = time.Second
	}
	for _, msgs := range [][]backend.Message{plain, keyed} {
		out, err := b.Append(t.Context(), msgs)
		for _, err := range []error{err, out[0].Err, out[1].Err} {
			if !errors.Is(err, backend.ErrUnsupported) || errors.Is(err, backend.ErrGroupNotFound) || !strings.Contains(err.Error(), `"events" is a log`) {
				t.Errorf("%v", err)
			}
		}
	}
}
