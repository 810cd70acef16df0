package shard_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/backend/shard"
	"github.com/weirmq/weir/tests/bubble"
)

// inMemory opens a stream of n shards in memory.
func inMemory(t *testing.T, n int) (b backend.Backend, fakes []*backendtest.Fake) {
	t.Helper()
	fakes = make([]*backendtest.Fake, n)
	return over(t, n, func(number int, f *backendtest.Fake) backend.Backend {
		fakes[number] = f
		return f
	}), fakes
}

// over opens a stream of shards, each of which wrap makes of one in memory.
func over(t *testing.T, shards int, wrap func(number int, f *backendtest.Fake) backend.Backend) backend.Backend {
	t.Helper()
	b, err := shard.Open(t.Context(), shard.Options{Name: "jobs", Shards: shards, Open: func(_ context.Context, number int) (backend.Backend, error) {
		return wrap(number, backendtest.NewFake(backendtest.FakeOptions{Stream: fmt.Sprint("jobs.", number)})), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// What an append says of its messages is what has become of them: another shard is tried only
// if certainly nothing is stored, and no message of a shard that failed is called stored.
func TestAnAppendThatFailsSaysWhatIsStored(t *testing.T) {
	both := errors.Join(backend.ErrUnavailable, backend.ErrOutcomeUnknown)
	for name, c := range map[string]struct {
		fault  backendtest.Fault
		shards int // that have it, of two
		keys   bool
		stored int64 // of four messages; -1: of some shards
	}{
		"all are away":                 {fault: backendtest.Fault{Err: backend.ErrUnavailable}, shards: 2},
		"a part is stored":             {fault: backendtest.Fault{Err: backend.ErrUnavailable, Stored: 1}, shards: 2, stored: 1},
		"it may be stored":             {fault: backendtest.Fault{Err: both, Times: 1}, shards: 2},
		"it is stored without answer":  {fault: backendtest.Fault{LoseAnswer: true}, shards: 2, stored: 4},
		"one of two is away, for keys": {fault: backendtest.Fault{Err: backend.ErrUnavailable}, shards: 1, keys: true, stored: -1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				b, fakes := inMemory(t, 2)
				for _, f := range fakes[:c.shards] {
					defer f.Inject(backendtest.OpAppend, c.fault)()
				}
				msgs := make([]backend.Message, 4)
				for i := range msgs {
					if msgs[i].Data = fmt.Append(nil, i); c.keys {
						msgs[i].IdempotencyKey = fmt.Sprint("key ", i)
					}
				}
				got, err := b.Append(t.Context(), msgs)
				if err == nil {
					t.Fatalf("it succeeded: %+v", got)
				}
				var stored, told, unknown int64
				for _, f := range fakes {
					s, err := f.Stats(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					stored += s.XLen
				}
				for i := range msgs {
					of := err
					if len(got) > 0 {
						of = got[i].Err
					}
					if of == nil {
						told++
					} else if errors.Is(of, backend.ErrOutcomeUnknown) {
						unknown++
					}
				}
				if told > stored || stored > told+unknown || c.stored >= 0 && stored != c.stored {
					t.Errorf("%d are stored; %d are said to be, and %d may be: %+v, %v", stored, told, unknown, got, err)
				}
			})
		})
	}
}
