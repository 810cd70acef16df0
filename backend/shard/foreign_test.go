package shard_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/backend/shard"
	"github.com/weirmq/weir/tests/bubble"
)

// IDs come from users, and from processes that know of more shards: one that is of no shard here is lost, or not found, and
// the others of the same call are done.
func TestAnIDOfNoShardStopsNothing(t *testing.T) {
	for _, id := range []string{"2:1", "64:1", "-1:1", "one:1", "1", ""} {
		b, _ := inMemory(t, 2)
		letters := b.(backend.DeadLetters)
		claim := func() *backend.Delivery {
			t.Helper()
			if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}}); err != nil {
				t.Fatal(err)
			}
			got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 1, ReclaimAfter: time.Hour})
			if err != nil || len(got.Deliveries) != 1 {
				t.Fatalf("%+v, %v", got, err)
			}
			return got.Deliveries[0]
		}
		stranger := backend.Lease{ID: id, Consumer: "c", Attempt: 1}
		for what, call := range map[string]func(backend.Lease) ([]string, error){
			"extend": func(own backend.Lease) ([]string, error) {
				return b.Extend(t.Context(), []backend.Lease{stranger, own}, time.Hour)
			},
			"ack": func(own backend.Lease) ([]string, error) {
				return b.Ack(t.Context(), []backend.Lease{stranger, own})
			},
			"nack": func(own backend.Lease) ([]string, error) {
				return b.Nack(t.Context(), []backend.Return{{Lease: stranger}, {Lease: own, Delay: time.Hour}})
			},
		} {
			if lost, err := call(claim().Lease); err != nil || !slices.Equal(lost, []string{id}) {
				t.Errorf("%s of %q and another one: lost %q, %v", what, id, lost, err)
			}
		}
		if err := b.DeadLetter(t.Context(), &backend.Delivery{Lease: stranger}, "", backend.Cause{}); !errors.Is(err, backend.ErrLeaseLost) {
			t.Errorf("dead letter of %q: %v", id, err)
		}
		if err := b.DeadLetter(t.Context(), claim(), "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
			t.Fatal(err)
		}
		if list, err := letters.List(t.Context(), "", id, 10); id != "" && !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("list after %q: %+v, %v", id, list, err)
		}
		list, err := letters.List(t.Context(), "", "", 10)
		if err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		unknown := list[0]
		unknown.ID = id
		if err := letters.Redrive(t.Context(), "", unknown); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("redrive of %q: %v", id, err)
		}
		if n, err := letters.Purge(t.Context(), "", []string{id, list[0].ID}); n != 1 || err != nil {
			t.Errorf("purge of %q and another one: %d, %v", id, n, err)
		}
	}
}

// A producer that may write and not read the load lets a stream grow as well: who may not read whether it is paused may not
// pause it either.
func TestAStreamGrowsForAProducerThatMayOnlyWrite(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		c := &cellar{}
		fill(t, c.open(t, 2))
		b := c.openWith(t, 4, func(_ int, f *backendtest.Fake) {
			f.Inject(backendtest.OpStats, backendtest.Fault{Err: backend.ErrForbidden})
		})
		if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}}); err != nil {
			t.Error(err)
		}
	})
}

// plain is a shard without rules for the names of dead letters.
type plain struct{ backend.Backend }

// The rules for names are those of the shards, which each have a name of their own.
func TestTheRulesForNamesAreThoseOfTheShards(t *testing.T) {
	open := func(wrap func(*backendtest.Fake) backend.Backend) backend.DeadLetterNames {
		return over(t, 3, func(_ int, f *backendtest.Fake) backend.Backend { return wrap(f) }).(backend.DeadLetterNames)
	}
	ruled := open(func(f *backendtest.Fake) backend.Backend { return f })
	if err := ruled.CheckDeadLetter("jobs"); err == nil {
		t.Error("the dead letters of shard 0 would be shard 0 itself")
	}
	for _, name := range []string{"", "jobs.dlq", "letters"} {
		if err := ruled.CheckDeadLetter(name); err != nil {
			t.Error(err)
		}
		if err := open(func(f *backendtest.Fake) backend.Backend { return plain{f} }).CheckDeadLetter(name); err != nil {
			t.Error(err)
		}
	}
}

// shelf is a shard whose dead letters are of two streams.
type shelf struct {
	*backendtest.Fake
	sent *[]backend.DeadLetter
}

func (s shelf) List(context.Context, string, string, int) ([]backend.DeadLetter, error) {
	return []backend.DeadLetter{{ID: "1", OriginID: "7", Stream: s.Info().Stream}, {ID: "2", OriginID: "8", Stream: "invoices"}}, nil
}

func (s shelf) Redrive(_ context.Context, _ string, letter backend.DeadLetter) error {
	*s.sent = append(*s.sent, letter)
	return nil
}

func (s shelf) Purge(context.Context, string, []string) (int, error) { return 1, errors.New("refused") }

// Dead letters of several streams may be kept in one place: each has the name of its own stream, and is sent back there.
func TestALetterOfAnotherStreamStaysOne(t *testing.T) {
	var sent []backend.DeadLetter
	b, err := shard.Open(t.Context(), shard.Options{Name: "jobs", Shards: 1, Open: func(context.Context, int) (backend.Backend, error) {
		return shelf{backendtest.NewFake(backendtest.FakeOptions{Stream: "jobs.0"}), &sent}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	letters := b.(backend.DeadLetters)
	list, err := letters.List(t.Context(), "", "", 10)
	if err != nil || len(list) != 2 || list[0].Stream != "jobs" || list[1].Stream != "invoices" {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, l := range list {
		if err := letters.Redrive(t.Context(), "", l); err != nil {
			t.Fatal(err)
		}
	}
	if len(sent) != 2 || sent[0].Stream != "jobs.0" || sent[0].ID != "1" || sent[0].OriginID != "7" || sent[1].Stream != "invoices" {
		t.Errorf("%+v", sent)
	}
	if n, err := letters.Purge(t.Context(), "", []string{"0:1"}); n != 1 || err == nil {
		t.Errorf("a purge that was refused in the middle: %d, %v", n, err)
	}
}

// Keys are spread as the stream began from the first append on, also by who opens it when it has all its shards.
func TestAKeyIsADuplicateForWhoOpensTheStreamAgain(t *testing.T) {
	c := &cellar{}
	var msgs []backend.Message
	for key := 'a'; key <= 'p'; key++ {
		msgs = append(msgs, backend.Message{Data: []byte("x"), IdempotencyKey: string(key)})
	}
	if _, err := c.open(t, 3).Append(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
	for _, shards := range []int{1, 3, 5} {
		again, err := c.open(t, shards).Append(t.Context(), msgs)
		if err != nil {
			t.Fatal(err)
		}
		for i := range again {
			if !again[i].Deduped {
				t.Errorf("with shards=%d key %s is new", shards, msgs[i].IdempotencyKey)
			}
		}
	}
}
