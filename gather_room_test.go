package weir

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// What a publish has taken of the room below the limits is free again once its append is over, and not
// before, also if the publish has not waited for that. Else there would be less room with each, or too much.
func TestAPublishThatLeavesGivesItsRoomBackOnce(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		fake := backendtest.NewFake(backendtest.FakeOptions{Gathering: backend.Gathering{Appends: 1}})
		p, err := NewProducer(New(fake), ProducerConfig{Guard: GuardStatic, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		fake.Inject(backendtest.OpAppend, backendtest.Fault{Times: 2, Delay: time.Second})
		publish := func(ctx context.Context) <-chan error {
			done := make(chan error, 1)
			go func() { done <- p.Publish(ctx, Message{Data: []byte("x")}) }()
			synctest.Wait()
			return done
		}
		taken := func(want int64, when string) {
			t.Helper()
			synctest.Wait()
			if n := p.guard.signals.flying.Load(); n != want {
				t.Errorf("%s room is taken for %d messages, want %d", when, n, want)
			}
		}
		first := publish(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		leaves, stays := publish(ctx), publish(t.Context())
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		taken(2, "while two are under way")
		cancel()
		if err := <-leaves; !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("the one that leaves is told %v", err)
		}
		taken(2, "when one has left")
		if err := <-stays; err != nil {
			t.Fatal(err)
		}
		taken(0, "when all is over")
	})
}
