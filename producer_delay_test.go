package weir_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

func TestAnInvalidDelayIsRefusedWithItsField(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		now := time.Now()
		for want, m := range map[string]weir.Message{
			"fields Delay and NotBefore": {Delay: time.Second, NotBefore: now.Add(time.Second)},
			"field Delay: -1s":           {Delay: -time.Second},
			"field Delay: the message":   {Delay: backend.MaxDelay + 1},
			"field NotBefore":            {NotBefore: now.Add(backend.MaxDelay + time.Hour)},
			"field Deadline":             {Delay: time.Minute, Deadline: now.Add(time.Minute)},
		} {
			if err := g.Publish(t.Context(), m); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
			if err := g.PublishBatch(t.Context(), []weir.Message{{}, m}); err == nil || !strings.Contains(err.Error(), "message 1: "+want) {
				t.Errorf("a batch: %v, want %q", err, want)
			}
		}
		if n := g.fake.Calls(backendtest.OpAppend); n != 0 {
			t.Errorf("%d appends", n)
		}
	})
}

// What waits for its time takes room, but is nothing that workers are behind with.
func TestDelayedMessagesTakeRoomAndAreNoLag(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{MaxDepth: 300})
		g.fake.Pretend(&backend.Signal{Workers: new(int64), Lag: new(int64), Delayed: 239, XLen: 239})
		began := time.Now()
		if err := g.TryPublish(t.Context(), weir.Message{Delay: time.Hour}); err != nil || time.Since(began) > 0 {
			t.Errorf("with 239 of 300 delayed: %v after %s", err, time.Since(began))
		}
		g.fake.Pretend(&backend.Signal{Workers: new(int64), Lag: new(int64), Delayed: 300, XLen: 300})
		time.Sleep(time.Second) // the last reading is too old by now
		var full *weir.QueueFullError
		if err := g.TryPublish(t.Context(), weir.Message{}); !errors.As(err, &full) || full.Reason != weir.QueueFull {
			t.Errorf("with 300 of 300 delayed: %v", err)
		}
	})
}

// prompt is a backend without delays.
type prompt struct{ backend.Backend }

func TestABackendWithoutDelaysSaysSo(t *testing.T) {
	fake := backendtest.NewFake(backendtest.FakeOptions{})
	p, err := weir.NewProducer(weir.New(prompt{fake}), weir.ProducerConfig{Guard: weir.GuardOff})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for field, m := range map[string]weir.Message{"Delay": {Delay: time.Hour}, "NotBefore": {NotBefore: time.Now().Add(time.Hour)}} {
		if err := p.Publish(t.Context(), m); !errors.Is(err, weir.ErrUnsupported) || !strings.Contains(err.Error(), "field "+field) {
			t.Errorf("%s: %v, want ErrUnsupported", field, err)
		}
	}
	if n := fake.Calls(backendtest.OpAppend); n != 0 {
		t.Errorf("%d appends", n)
	}
}
