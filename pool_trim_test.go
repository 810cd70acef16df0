package weir

import (
	"context"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// removing is a backend that removes messages by itself. What it says next is all that it says.
type removing struct {
	*backendtest.Fake
	says chan retained
}

type retained struct {
	backend.Retained
	err error
}

func (r *removing) Retained(_ context.Context, mark bool) (backend.Retained, error) {
	if !mark {
		panic("a pool tells what it is told")
	}
	select {
	case now := <-r.says:
		return now.Retained, now.err
	default:
		return backend.Retained{}, nil
	}
}

// What the backend removes before the group had it is lost: it is counted, each time, and logged with why. That it is about to
// remove more is retained once, until it is so again.
func TestAPoolCountsWhatTheBackendRemoves(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		r := &removing{Fake: backendtest.NewFake(backendtest.FakeOptions{}), says: make(chan retained, 1)}
		log := &logged{}
		counted := 0
		c := quiet(PoolConfig{Workers: 1, Logger: log.logger()})
		c.Hooks.Settled = func(_ StreamName, o Outcome, n int) {
			if o == Lost {
				counted += n
			}
		}
		p, err := NewPool(New(r), nothing, c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		gap := func(reason string, n int64) backend.Gap { return backend.Gap{Reason: reason, Missed: &n} }
		soon := backend.Retained{Limit: "retention.ms", Due: time.Now()}
		for i, say := range []backend.Retained{
			{Gaps: []backend.Gap{gap(backend.GapRemoved, 3), gap(backend.GapLost, 4)}},
			soon, soon, {}, soon,
			{Gaps: []backend.Gap{gap(backend.GapRecreated, 5), gap(backend.GapRemoved, 0)}},
		} {
			r.says <- retained{Retained: say}
			if i == 0 { // it looks at once
				go func() { done <- p.Run(ctx) }()
				time.Sleep(time.Second)
			} else {
				time.Sleep(retentionEvery)
			}
		}
		r.says <- retained{backend.Retained{Gaps: []backend.Gap{gap(backend.GapRemoved, 100)}}, backend.ErrUnavailable}
		time.Sleep(retentionEvery)
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := p.Stats().Lost; n != 12 || counted != 12 {
			t.Errorf("%d are lost, %d were told to the hook", n, counted)
		}
		for text, times := range map[string]int{
			"retention removed them":             2,
			"the server has lost them":           1,
			"was deleted and made again":         1,
			"will soon be removed":               2,
			"limit=retention.ms from=2000-01-01": 2,
		} {
			if n := len(log.Lines(text)); n != times {
				t.Errorf("%q was logged %d times, want %d: %q", text, n, times, log.Lines(""))
			}
		}
	})
}
