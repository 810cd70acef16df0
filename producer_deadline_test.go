package weir_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

func TestAMessagePastItsDeadlineIsRefused(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{LoadSheddingMaxRequests: 1})
		late := weir.Message{Deadline: time.Now().Add(-3 * time.Second)}
		for name, publish := range map[string]func(context.Context, weir.Message) error{"Publish": g.Publish, "TryPublish": g.TryPublish} {
			err := publish(t.Context(), late)
			if !errors.Is(err, weir.ErrExpired) || !strings.Contains(err.Error(), "field Deadline") || !strings.Contains(err.Error(), "3s ago: nothing is stored") {
				t.Errorf("%s: %v, want ErrExpired with the field", name, err)
			}
		}
		if g.fake.Calls(backendtest.OpAppend) != 0 || g.attempts != 2 || g.failed["expired"] != 2 {
			t.Errorf("attempts %d, failed %v", g.attempts, g.failed)
		}
		if err := g.Publish(t.Context(), weir.Message{Deadline: time.Now().Add(time.Millisecond)}); err != nil {
			t.Errorf("they took the window's only request: %v", err)
		}
	})
}

func TestAPublishThatWaitsEndsAtTheDeadlineOfItsMessage(t *testing.T) {
	whileWaiting(t, func(t *testing.T, g *guarded, want string) {
		before := g.stored
		began := time.Now()
		err := g.Publish(t.Context(), weir.Message{Deadline: began.Add(20 * time.Millisecond)})
		if took := time.Since(began); took != 20*time.Millisecond {
			t.Errorf("it ended after %s, its deadline was 20 ms away", took)
		}
		if !errors.Is(err, weir.ErrExpired) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) || g.failed["expired"] != 1 {
			t.Errorf("%v, counted %v: want ErrExpired and %q", err, g.failed, want)
		}
		if n := g.entries(t); n != int64(before) {
			t.Errorf("%d messages are stored", n)
		}
	})
}

func TestTheCallersContextEndsAPublishBeforeItsDeadline(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.pretend(201, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		err := g.Publish(ctx, weir.Message{Deadline: time.Now().Add(time.Second)})
		if errors.Is(err, weir.ErrExpired) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
	})
}

// The second message expires while the first has its sleep, the fourth while the third has;
// both have none left to wait for.
// A batch waits as long as any of its messages is worth it.
func TestABatchWaitsForItsLastDeadline(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.pretend(1000, 0)
		time.AfterFunc(5*time.Second, func() { g.pretend(0, 0) })
		now := time.Now()
		err := g.PublishBatch(t.Context(), []weir.Message{
			{Data: []byte("a"), Deadline: now.Add(time.Minute)}, {Data: []byte("b"), Deadline: now.Add(time.Second)},
		})
		var batch *weir.BatchError
		if !errors.As(err, &batch) || batch.Errs[0] != nil || !errors.Is(batch.Errs[1], weir.ErrExpired) {
			t.Errorf("got %v, want that the second alone has expired", err)
		}
	})
}

func TestEachMessageOfABatchHasItsDeadline(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.pretend(60, 0) // a sleep of 500 ms before each
		now := time.Now()
		err := g.PublishBatch(t.Context(), []weir.Message{
			{Data: []byte("a")}, {Data: []byte("b"), Deadline: now.Add(600 * time.Millisecond)}, {Data: []byte("c")},
			{Data: []byte("d"), Deadline: now.Add(-time.Second)}, {Data: []byte("e"), Deadline: now.Add(time.Minute)},
		})
		var batch *weir.BatchError
		if !errors.As(err, &batch) || len(batch.Errs) != 5 {
			t.Fatalf("got %v", err)
		}
		for i, stored := range []bool{true, false, true, false, true} {
			if got := batch.Errs[i]; stored != (got == nil) || !stored && !errors.Is(got, weir.ErrExpired) {
				t.Errorf("message %d: %v", i, got)
			}
		}
		g.fake.Pretend(nil)
		records, err := g.fake.Read(t.Context(), backend.ReadRequest{Max: 10})
		var text string
		for _, r := range records.Records {
			text += string(r.Data)
		}
		if err != nil || text != "ace" || g.stored != 3 || g.failed["expired"] != 2 {
			t.Errorf("stored %q, told of %d stored and %v failed, %v", text, g.stored, g.failed, err)
		}
	})
}

func TestABatchOfNothingButExpiredMessagesEndsAtOnce(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.pretend(201, 0)
		began := time.Now()
		late := weir.Message{Deadline: began.Add(-time.Second)}
		err := g.PublishBatch(t.Context(), []weir.Message{late, late})
		if n, some := g.PublishSome(t.Context(), []weir.Message{late}); n != 1 || !errors.Is(some, weir.ErrExpired) {
			t.Errorf("PublishSome: %d, %v", n, some)
		}
		if took := time.Since(began); took != 0 || !errors.Is(err, weir.ErrExpired) {
			t.Errorf("%v after %s", err, took)
		}
	})
}

// A server that does not answer holds a publish no longer than its message is worth. What was not
// sent has expired; what was sent may be stored.
func TestADeadlineEndsAPublishWhoseServerDoesNotAnswer(t *testing.T) {
	const worth = 500 * time.Millisecond
	for name, c := range map[string]struct {
		hang    backendtest.Fault
		want    error
		entries int64
	}{
		"before it is sent": {backendtest.Fault{Hang: true}, weir.ErrExpired, 0},
		"after it was sent": {backendtest.Fault{Hang: true, LoseAnswer: true}, weir.ErrOutcomeUnknown, 1},
	} {
		for what, publish := range map[string]func(context.Context, *guarded, weir.Message) error{
			"Publish": func(ctx context.Context, g *guarded, m weir.Message) error { return g.Publish(ctx, m) },
			"PublishBatch": func(ctx context.Context, g *guarded, m weir.Message) error {
				return g.PublishBatch(ctx, []weir.Message{m})
			},
			"PublishSome": func(ctx context.Context, g *guarded, m weir.Message) error {
				_, err := g.PublishSome(ctx, []weir.Message{m})
				return err
			},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				bubble.Run(t, func(t *testing.T) {
					g := guard(t, weir.ProducerConfig{})
					end := g.fake.Inject(backendtest.OpAppend, c.hang)
					defer time.AfterFunc(time.Minute, end).Stop()
					began := time.Now()
					err := publish(t.Context(), g, weir.Message{IdempotencyKey: "k", Deadline: began.Add(worth)})
					if took := time.Since(began); took > worth+50*time.Millisecond {
						t.Errorf("it ended after %s, its deadline was %s away", took, worth)
					}
					if !errors.Is(err, c.want) || errors.Is(err, weir.ErrExpired) != (c.want == weir.ErrExpired) {
						t.Errorf("got %v, want %v alone", err, c.want)
					}
					end()
					if n := g.entries(t); n != c.entries || g.fake.Active(backendtest.OpAppend) != 0 {
						t.Errorf("%d messages are stored, want %d; %d appends go on", n, c.entries, g.fake.Active(backendtest.OpAppend))
					}
				})
			})
		}
	}
}

// What may be stored is not called expired, and is not sent again.
func TestAMessageWhoseAnswerWasLostIsUnknownThoughItExpired(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Hang: true, LoseAnswer: true})
		err := g.Publish(t.Context(), weir.Message{IdempotencyKey: "k", Deadline: time.Now().Add(500 * time.Millisecond)})
		if !errors.Is(err, weir.ErrOutcomeUnknown) || errors.Is(err, weir.ErrExpired) || g.fake.Calls(backendtest.OpAppend) != 1 {
			t.Errorf("%v after %d appends", err, g.fake.Calls(backendtest.OpAppend))
		}
	})
}

// Of two messages whose answer was lost, one expires before it is sent again. What becomes of
// the other is still unknown when that is refused.
func TestAMessageWhoseAnswerWasLostStaysUnknownBesideOneThatExpires(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Err: weir.ErrTooLarge})
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Times: 1, Delay: time.Second, Err: weir.ErrOutcomeUnknown})
		err := g.PublishBatch(t.Context(), []weir.Message{
			{IdempotencyKey: "expires", Deadline: time.Now().Add(500 * time.Millisecond)}, {IdempotencyKey: "is refused"},
		})
		var each *weir.BatchError
		if !errors.As(err, &each) || !errors.Is(each.Errs[0], weir.ErrOutcomeUnknown) || !errors.Is(each.Errs[1], weir.ErrOutcomeUnknown) {
			t.Errorf("%v, want that both are unknown", err)
		}
	})
}

// A server that has no room and may have stored the message is not asked again for one without
// a key.
func TestARefusalOfUnknownOutcomeIsNoRefusal(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Err: errors.Join(weir.ErrOutcomeUnknown, backendtest.Full(backend.ReasonQueueFull, 0))})
		err := g.Publish(t.Context(), weir.Message{})
		if n := g.fake.Calls(backendtest.OpAppend); !errors.Is(err, weir.ErrOutcomeUnknown) || n != 1 {
			t.Errorf("%v after %d appends, want one of unknown outcome", err, n)
		}
	})
}
