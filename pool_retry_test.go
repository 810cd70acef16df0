package weir

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// A message given back comes again in its time, whatever the claim that runs beside its
// handler is doing just then: also a backend that wakes no claim for it is asked in time.
func TestPoolClaimsWhatItGaveBackWhenItIsDue(t *testing.T) {
	for _, delay := range []time.Duration{0, 100 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				const messages = 2000
				f := backendtest.NewFake(backendtest.FakeOptions{})
				handled := make(chan int)
				p := startPool(t, f, func(_ context.Context, d *Delivery) error {
					handled <- d.Attempt
					if d.Attempt == 1 {
						return RetryIn(delay, errors.New("not yet"))
					}
					return nil
				}, PoolConfig{Workers: 1, Block: 20 * time.Second, ReclaimAfter: 5 * time.Minute})
				late := 0
				for range messages {
					publish(t, f, 1)
					<-handled
					given := time.Now()
					<-handled
					if time.Since(given) > delay+time.Second {
						late++
					}
				}
				if late > 0 {
					t.Errorf("%d of %d messages came again later than asked for", late, messages)
				}
				p.finish()
			})
		})
	}
}

// What is handled and waits to be acknowledged together with others is not given to another
// pool meanwhile, however short the leases are.
func TestAPoolThatGathersItsAcksKeepsWhatItHasHandled(t *testing.T) {
	for _, lease := range []time.Duration{100 * time.Millisecond, time.Second} {
		t.Run(lease.String(), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				f := backendtest.NewFake(backendtest.FakeOptions{})
				var runs atomic.Int64
				handle := func(context.Context, *Delivery) error { runs.Add(1); return nil }
				c := PoolConfig{Workers: 1, Batch: 1, ReclaimAfter: lease, AckLinger: time.Second, Block: 10 * time.Millisecond}
				one := startPool(t, f, handle, c)
				c.Consumer = "other"
				other := startPool(t, f.Again(), handle, c)
				for range 20 {
					publish(t, f, 1)
					time.Sleep(1300 * time.Millisecond)
				}
				one.finish()
				other.finish()
				if n := runs.Load(); n != 20 {
					t.Errorf("20 messages were handled %d times", n)
				}
			})
		})
	}
}

// Whatever makes a message a dead letter, it goes where the pool says, with the deliveries
// that count.
func TestEveryDeadLetterOfAPoolGoesWhereItSays(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		s := New(f)
		producer, err := NewProducer(s, ProducerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer producer.Close()
		for _, m := range []Message{
			{Data: []byte("claimed for the last time")},
			{Data: []byte("past its own limit"), MaxDeliveries: 1},
			{Data: []byte("poison")},
			{Data: []byte("expired"), Deadline: time.Now().Add(time.Minute)},
			{Data: []byte("fails")},
		} {
			if err := producer.Publish(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if string(m.Data) == "claimed for the last time" {
				claimAll(t, f)
				time.Sleep(31 * time.Second)
			}
			if m.MaxDeliveries > 0 {
				claimAll(t, f) // both: once and twice
			}
		}
		time.Sleep(time.Minute)
		p := startPool(t, f, func(_ context.Context, d *Delivery) error {
			if string(d.Data) == "poison" {
				return Poison(errors.New("no"))
			}
			return errors.New("no")
		}, PoolConfig{MaxDeliveries: 2, DeadLetter: "elsewhere", RetryBase: time.Second})
		time.Sleep(2 * time.Minute)
		p.finish()
		letters, err := f.List(t.Context(), "elsewhere", "", 10)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]int{"claimed for the last time": 2, "past its own limit": 1, "poison": 1, "expired": 0, "fails": 2}
		for _, l := range letters {
			if n, ok := want[string(l.Data)]; !ok || n != l.Attempts {
				t.Errorf("%q died after %d deliveries, want %d", l.Data, l.Attempts, n)
			}
			delete(want, string(l.Data))
		}
		if len(want) > 0 {
			t.Errorf("not among the letters: %v", want)
		}
	})
}
