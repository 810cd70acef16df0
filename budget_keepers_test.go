package weir_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/open"
	"github.com/weirmq/weir/tests/redistest"
)

// drawing is a producer between two of its readings.
type drawing struct {
	stream, producer string
	spent            int64 // as it was asked for; -1: not yet
	share, finished  int64
}

// A process that keeps a budget by itself gives what the script on Redis does, and adds up the
// same: producers notice nothing but that they are alone.
func TestEveryKeeperOfABudgetGivesTheSame(t *testing.T) {
	s, err := open.URL(t.Context(), redistest.Start(t, redistest.Options{}).URL()+"?stream=jobs")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	far := s.Backend().(backend.Budgeter)
	drawn := 0
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 11))
		budget, near := fmt.Sprintf("same-%d", seed), weir.NewLedger()
		all := make([]*drawing, 6)
		for i := range all {
			all[i] = &drawing{stream: fmt.Sprintf("stream %d", i%3), producer: fmt.Sprintf("producer-%d", i), spent: -1, finished: random.Int64N(1000)}
		}
		// Each keeper has a clock of its own, so that what ends a second later may end for one of them only.
		for end := time.Now().Add(700 * time.Millisecond); time.Now().Before(end); {
			d := all[random.IntN(len(all))]
			if d.spent < 0 {
				if d.spent, err = near.Spent(t.Context(), budget, d.stream); err != nil {
					t.Fatal(err)
				}
				if n, err := far.Spent(t.Context(), budget, d.stream); err != nil || n != d.spent {
					t.Fatalf("budget %s: %s has spent %d, %v; want %d", budget, d.stream, n, err, d.spent)
				}
				continue
			}
			req := d.request(random, budget)
			mine, given, err := near.Draw(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			its, got, err := far.Draw(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if time.Now().After(end) {
				break
			}
			if given != got || !reflect.DeepEqual(mine, its) {
				t.Fatalf("budget %s, %+v: %+v and %s, want %+v and %s", budget, req, got, told(its), given, told(mine))
			}
			if drawn++; drawn%200 == 0 {
				break // the budget is full
			}
			d.spent, d.share = -1, req.Kept+given.Given
		}
	}
	if drawn < 200 {
		t.Errorf("%d drawings were compared", drawn)
	}
}

// request is what a producer may say after its last reading: of a stream of any depth, of which
// not everything is known, and of a share that may be over at once.
func (d *drawing) request(random *rand.Rand, budget string) backend.DrawRequest {
	some := func(n int64) *int64 {
		if random.IntN(8) == 0 {
			return nil
		}
		return &n
	}
	n := func(most int64) int64 { return random.Int64N(most) }
	if d.finished += n(5); random.IntN(20) == 0 {
		d.finished = 0 // the stream was made again
	}
	sig := backend.Signal{Pending: n(10), Lag: some(n(20)), Delayed: n(5), Workers: some(n(10)), Finished: some(d.finished), XLen: n(100)}
	if sig.Lag == nil {
		sig.Behind = n(20)
	}
	lifetime := time.Minute
	if random.IntN(4) == 0 {
		lifetime = -time.Millisecond
	}
	return backend.DrawRequest{
		RoomRequest: backend.RoomRequest{Limit: 90, Pause: -1, Need: n(8), Want: n(60), Kept: n(d.share + 1), Lifetime: lifetime},
		Budget:      budget, Stream: d.stream, Producer: d.producer, Spent: d.spent, Signal: sig,
	}
}

func told(s backend.Signal) string {
	number := func(n *int64) string {
		if n == nil {
			return "unknown"
		}
		return fmt.Sprint(*n)
	}
	return fmt.Sprintf("{pending %d lag %s behind %d delayed %d workers %s finished %s stored %d}",
		s.Pending, number(s.Lag), s.Behind, s.Delayed, number(s.Workers), number(s.Finished), s.XLen)
}
