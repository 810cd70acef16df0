package load_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/internal/load"
	"github.com/weirmq/weir/tests/bubble"
)

// stall is how long the one append takes that is slow.
const stall = 500 * time.Millisecond

func run(t *testing.T, ctx context.Context, fake *backendtest.Fake, p load.Plan) *load.Figures {
	t.Helper()
	p.Size, p.Batch, p.Guard = load.MinSize, max(p.Batch, 1), weir.GuardOff
	f, err := load.Run(ctx, weir.New(fake), p)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// What is due while the server stands still counts from when it was due: one call of 500 ms at
// 100 a second delays fifty, and not one.
func TestAStallIsPartOfEveryFigureThatItDelays(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		fake := backendtest.NewFake(backendtest.FakeOptions{})
		time.AfterFunc(time.Second, func() {
			fake.Inject(backendtest.OpAppend, backendtest.Fault{Times: 1, Delay: stall})
		})
		f := run(t, t.Context(), fake, load.Plan{Duration: 4 * time.Second, Publishers: 1, Workers: 2, Rate: 100})
		if f.Published != 400 || f.Handled != 400 || f.Unsent+f.Refused+f.Failed+f.Repeated != 0 || f.Lost() != 0 {
			t.Errorf("%+v", f)
		}
		if most := f.Publish.Max(); most < stall || most > stall+stall/10 {
			t.Errorf("the slowest publish took %v, want %v", most, stall)
		}
		// Half of the fifty waited for more than half of the stall: 25 of 400 are beyond 6 %.
		if p95 := f.Publish.Quantile(0.95); p95 < stall/5 {
			t.Errorf("the 95th percentile is %v: what had to wait for its turn is not counted", p95)
		}
		if half := f.Publish.Quantile(0.5); half > stall/10 {
			t.Errorf("the median is %v", half)
		}
	})
}

// What no publisher was free for is said, and not forgotten.
func TestWhatCouldNotBeSentInTimeIsCounted(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		fake := backendtest.NewFake(backendtest.FakeOptions{})
		fake.Inject(backendtest.OpAppend, backendtest.Fault{Times: 1 << 30, Delay: 100 * time.Millisecond})
		f := run(t, t.Context(), fake, load.Plan{Duration: time.Second, Publishers: 1, Workers: 1, Rate: 100})
		if sum := f.Published + f.Unsent; sum != 100 || f.Published > 11 {
			t.Errorf("%d published and %d unsent, of 100", f.Published, f.Unsent)
		}
	})
}

// A stop ends the run at once and leaves nothing running, which the bubble would notice.
func TestARunStopsWithItsContext(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		begin := time.Now()
		f := run(t, ctx, backendtest.NewFake(backendtest.FakeOptions{}), load.Plan{Duration: time.Hour, Publishers: 4, Workers: 2, Rate: 1000, Batch: 10})
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %v", took)
		}
		if f.Published < 200 || f.Published > 310 {
			t.Errorf("%d published in 300 ms at 1,000 a second", f.Published)
		}
	})
}
