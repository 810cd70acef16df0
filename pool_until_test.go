package weir

import (
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// A pool that works until the stream is empty ends once that was so for all of its time:
// what comes meanwhile, and what cannot be asked, begin it anew.
func TestAPoolUntilEmptyWaitsAllOfItsTime(t *testing.T) {
	away := backendtest.Fault{Err: backend.ErrUnavailable}
	for name, c := range map[string]struct {
		during func(t *testing.T, f *backendtest.Fake)
		acked  uint64
		from   time.Duration // the last thing that happened
	}{
		"a message comes": {func(t *testing.T, f *backendtest.Fake) {
			time.Sleep(2 * time.Second)
			publish(t, f, 1)
			time.Sleep(2 * time.Second)
			publish(t, f, 1)
		}, 2, 4 * time.Second},
		"claims fail": {func(t *testing.T, f *backendtest.Fake) {
			time.Sleep(2 * time.Second)
			heal := f.Inject(backendtest.OpClaim, away)
			time.Sleep(20 * time.Second)
			heal()
			time.Sleep(4400 * time.Millisecond) // the next claim comes after 3 s, and waits for half of the time
			publish(t, f, 1)
		}, 1, 26400 * time.Millisecond},
		"somebody holds a message, and nobody can read it": {func(t *testing.T, f *backendtest.Fake) {
			heal := f.Inject(backendtest.OpStats, away)
			publish(t, f, 1)
			got := claimAll(t, f)
			time.Sleep(20 * time.Second)
			if _, err := f.Again().Nack(t.Context(), []backend.Return{{Lease: got[0].Lease}}); err != nil {
				t.Error(err)
			}
			heal()
		}, 1, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				f := backendtest.NewFake(backendtest.FakeOptions{})
				began := time.Now()
				f.Inject(backendtest.OpClaim, backendtest.Fault{Times: 1, Delay: time.Nanosecond}) // behind what comes first
				p := startPool(t, f, nothing, PoolConfig{UntilEmpty: 3 * time.Second})
				c.during(t, f)
				if err := <-p.done; err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took < c.from+3*time.Second || took > c.from+10*time.Second {
					t.Errorf("it ended after %s, want 3 s after %s", took, c.from)
				}
				if n := p.Stats().Acked; n != c.acked {
					t.Errorf("%d acked, want %d", n, c.acked)
				}
			})
		})
	}
}

// Whoever empties a stream learns of what is not due yet: it stays.
func TestAPoolUntilEmptySaysWhatIsNotDue(t *testing.T) {
	for name, later := range map[string]int{"two are not due": 2, "all is done": 0} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				f := backendtest.NewFake(backendtest.FakeOptions{})
				publish(t, f, 3)
				for range later {
					if _, err := f.Append(t.Context(), []backend.Message{{Delay: time.Hour}}); err != nil {
						t.Fatal(err)
					}
				}
				log := &logged{}
				p := startPool(t, f, nothing, PoolConfig{UntilEmpty: time.Second, Logger: log.logger()})
				if err := <-p.done; err != nil {
					t.Error(err)
				}
				if n := p.Stats().Acked; n != 3 {
					t.Errorf("%d acked", n)
				}
				if said := strings.Contains(log.String(), "not due yet; they stay") && strings.Contains(log.String(), "messages=2"); said != (later > 0) {
					t.Errorf("%d messages stay, and the log says %q", later, log.String())
				}
			})
		})
	}
}
