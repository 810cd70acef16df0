package redis

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
)

// lateContext is past its deadline and has not noticed.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

func TestADeadlineThatTheConnectionNoticesFirstIsTheContexts(t *testing.T) {
	b := &Backend{closing: context.Background()}
	for _, err := range []error{os.ErrDeadlineExceeded, errors.New("EOF")} {
		if got := b.explain(lateContext{t.Context()}, err); !errors.Is(got, context.DeadlineExceeded) || !errors.Is(got, backend.ErrOutcomeUnknown) {
			t.Errorf("%v", got)
		}
		if got := b.explain(t.Context(), err); errors.Is(got, context.DeadlineExceeded) {
			t.Errorf("before its deadline: %v", got)
		}
	}
}
