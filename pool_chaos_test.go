package weir

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// history is what handlers did.
type history struct {
	mu   sync.Mutex
	runs map[string]int  // handlers begun, by ID
	good map[string]bool // a handler returned nil
}

func (h *history) begin(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs[id]++
}

func (h *history) succeed(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.good[id] = true
}

// TestEveryMessageIsDoneOrDead runs pools on a backend that delays, refuses,
// hangs, loses answers and hands out messages that are held, with handlers that fail,
// panic, run too long and are cut off by stops.
func TestEveryMessageIsDoneOrDead(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) { chaos(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

const chaosMessages = 300

func chaos(t *testing.T, random *rand.Rand) {
	f := backendtest.NewFake(backendtest.FakeOptions{})
	h := &history{runs: map[string]int{}, good: map[string]bool{}}
	var pools []*testPool
	start := func() {
		c := PoolConfig{
			Workers: 1 + random.IntN(5), Batch: 1 + random.IntN(20), ReclaimAfter: 5 * time.Second, Block: time.Second,
			HandlerTimeout: 3 * time.Second, DrainTimeout: time.Second, RetryBase: 100 * time.Millisecond, RetryMax: 10 * time.Second,
			Consumer: fmt.Sprint("pool-", len(pools)),
		}
		pools = append(pools, startPool(t, f.Again(), h.handler(rand.New(rand.NewPCG(random.Uint64(), 2))), c))
	}
	for range 3 {
		start()
	}
	for range 60 {
		if sent, _ := f.Stats(t.Context()); sent.XLen < chaosMessages {
			publish(t, f, 10)
		}
		time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
		p := pools[random.IntN(len(pools))]
		p.fake.Inject(randomFault(random))
		switch random.IntN(20) {
		case 0:
			p.end()
			start()
		case 1:
			p.Cancel()
			start()
		}
	}
	for _, p := range pools { // whatever hangs is let go
		p.end()
		<-p.done // an outage may leave messages unsettled: others get them
	}
	last := startPool(t, f.Again(), h.handler(nil), PoolConfig{ReclaimAfter: 5 * time.Second, UntilEmpty: 20 * time.Second})
	if err := <-last.done; err != nil {
		t.Error(err)
	}
	h.check(t, f)
}

// handler does well most of the time; without random, always.
func (h *history) handler(random *rand.Rand) Handler {
	var mu sync.Mutex
	return func(ctx context.Context, d *Delivery) error {
		h.begin(d.ID)
		choice, busy := 99, 0
		if random != nil {
			mu.Lock()
			choice, busy = random.IntN(100), random.IntN(300)
			mu.Unlock()
		}
		time.Sleep(time.Duration(busy) * time.Millisecond)
		switch {
		case choice < 10:
			return errors.New("failed")
		case choice < 13:
			return Poison(errors.New("poison"))
		case choice < 15:
			panic("panicked")
		case choice < 17:
			<-ctx.Done()
			return context.Cause(ctx)
		case choice < 18:
			time.Sleep(8 * time.Second) // deaf for longer than it is waited for
			return nil
		case choice < 20:
			return RetryIn(7*time.Second, errors.New("later"))
		}
		h.succeed(d.ID)
		return nil
	}
}

func randomFault(random *rand.Rand) (backendtest.Op, backendtest.Fault) {
	ops := []backendtest.Op{
		backendtest.OpClaim, backendtest.OpClaim, backendtest.OpAck, backendtest.OpNack, backendtest.OpExtend,
		backendtest.OpDeadLetter, backendtest.OpPublishSignal,
	}
	fault := backendtest.Fault{Times: 1 + random.IntN(5), Skip: random.IntN(3)}
	switch random.IntN(6) {
	case 0:
		fault.Delay = time.Duration(random.IntN(4000)) * time.Millisecond
	case 1:
		fault.Err = fmt.Errorf("away: %w", backend.ErrUnavailable)
	case 2:
		fault.LoseAnswer = true
	case 3:
		fault.Hang = true
	case 4:
		fault.Err = backendtest.Full(backend.ReasonQueueFull, time.Second)
	default:
		fault.Repeat, fault.Times = true, 1
		return backendtest.OpClaim, fault
	}
	return ops[random.IntN(len(ops))], fault
}

func (h *history) check(t *testing.T, f *backendtest.Fake) {
	t.Helper()
	h.mu.Lock() // a handler that was given up may still run
	defer h.mu.Unlock()
	letters, err := f.List(context.Background(), "", "", 10*chaosMessages)
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]int{}
	for _, id := range f.Acked() {
		ends[id]++
		if !h.good[id] {
			t.Errorf("message %s was acked, and no handler did it", id)
		}
	}
	for _, l := range letters {
		ends[l.OriginID]++
		if l.Reason == backend.ReasonMaxDeliveries && l.Attempts < 3 {
			t.Errorf("message %s is dead after %d deliveries", l.OriginID, l.Attempts)
		}
	}
	stats, _ := f.Stats(context.Background())
	if stats.XLen < chaosMessages || len(ends) != int(stats.XLen) || stats.Pending != 0 || len(letters) == 0 {
		t.Errorf("%d messages: %d ended, %d of them dead, %d pending", stats.XLen, len(ends), len(letters), stats.Pending)
	}
	for id, n := range ends {
		if n != 1 || h.runs[id] > 3 {
			t.Errorf("message %s ended %d times and was begun %d times", id, n, h.runs[id])
		}
	}
}
