package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/internal/queue"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// uncounted is a service that does not count.
type uncounted struct {
	queue.Service
	err   error
	asked int
}

func (u *uncounted) Topic(context.Context, string) (api.TopicState, error) {
	return api.TopicState{}, nil
}

func (u *uncounted) Tally(context.Context, string, []uint32) (api.TallyResult, error) {
	u.asked++
	return api.TallyResult{}, u.err
}

// A server that does not count is asked now and then, in case that it is another one by then; one that
// cannot be reached, at every reading. Nobody need count what goes to a log.
func TestAServerThatDoesNotCountIsAskedOnceAMinute(t *testing.T) {
	for name, c := range map[string]struct {
		says, told error
		asked      int // in two minutes, each second
	}{
		"a log":         {api.Errorf(api.CodeNotAQueue, "a log"), nil, 2},
		"a key without": {api.Errorf(api.CodeForbidden, "no"), backend.ErrForbidden, 2},
		"nobody there":  {backend.ErrUnavailable, backend.ErrUnavailable, 120},
	} {
		bubble.Run(t, func(t *testing.T) {
			u := &uncounted{err: c.says}
			b, err := queue.New(t.Context(), u, queue.Options{Topic: "q", Limits: api.DefaultLimits()})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			for range 120 {
				if sums, sig, err := b.Tally(t.Context(), []uint32{1}); sums != nil || sig != nil || !errors.Is(err, c.told) || c.told == nil && err != nil {
					t.Fatalf("%s: %v, %v, %v", name, sums, sig, err)
				}
				time.Sleep(time.Second)
			}
			if u.asked != c.asked {
				t.Errorf("%s: it was asked %d times, want %d", name, u.asked, c.asked)
			}
		})
	}
}
