package shard_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/shard"
	"github.com/weirmq/weir/tests/bubble"
)

// A server has lost how many shards there are, and a process with more of them has recorded
// its number as the first. While those cannot be opened, keys are spread over those that are.
func TestKeysStayWithTheShardsThatAreOpen(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		c := &cellar{}
		var broken atomic.Bool
		b, err := shard.Open(t.Context(), shard.Options{Name: "jobs", Shards: 2, Open: func(_ context.Context, number int) (backend.Backend, error) {
			if broken.Load() {
				return nil, errors.New("not there yet")
			}
			return keeper{c.fake(number).Again(), c}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		var msgs []backend.Message
		for key := 'a'; key <= 'p'; key++ {
			msgs = append(msgs, backend.Message{Data: []byte("x"), IdempotencyKey: string(key)})
		}
		if _, err := b.Append(t.Context(), msgs); err != nil {
			t.Fatal(err)
		}
		broken.Store(true)
		c.mu.Lock()
		c.number = backend.Shards{First: 4, Now: 4}
		c.mu.Unlock()
		time.Sleep(2 * time.Second)
		again, err := b.Append(t.Context(), msgs)
		if err != nil {
			t.Fatal(err)
		}
		for i := range again {
			if !again[i].Deduped {
				t.Errorf("key %s is in another shard", msgs[i].IdempotencyKey)
			}
		}
	})
}

// Nothing is appended, with a key or without, before it is recorded how many shards there are and all of them are open.
func TestNothingIsAppendedBeforeTheShardsAreKnownAndOpen(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		c := &cellar{}
		c.fail(backend.ErrUnavailable)
		refused := errors.New("not there yet")
		var broken atomic.Bool
		b, err := shard.Open(t.Context(), shard.Options{Name: "jobs", Shards: 2, Open: func(_ context.Context, number int) (backend.Backend, error) {
			if broken.Load() {
				return nil, refused
			}
			return keeper{c.fake(number).Again(), c}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		append := func(want error) {
			t.Helper()
			for _, key := range []string{"", "a", "b", "c", "d"} {
				if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x"), IdempotencyKey: key}}); !errors.Is(err, want) {
					t.Errorf("key %q: %v, want %v", key, err, want)
				}
			}
		}
		append(backend.ErrUnavailable)
		c.fail(nil)
		c.mu.Lock()
		c.number = backend.Shards{First: 4, Now: 4}
		c.mu.Unlock()
		broken.Store(true)
		append(refused)
		broken.Store(false)
		append(nil)
	})
}
