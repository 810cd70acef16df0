package shard_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
)

// gauge is a shard that reads what it is told.
type gauge struct {
	*backendtest.Fake
	stats  backend.Stats
	signal backend.Signal
}

func (g gauge) Stats(context.Context) (backend.Stats, error) { return g.stats, nil }

func (g gauge) Signal(context.Context, int64) (backend.Signal, error) { return g.signal, nil }

func gauges(t *testing.T, all []gauge) backend.Backend {
	t.Helper()
	return over(t, len(all), func(number int, f *backendtest.Fake) backend.Backend {
		g := all[number]
		g.Fake = f
		return g
	})
}

// The age of a stream is that of the oldest message in any shard. Where a shard does not know its own it may be older.
func TestTheAgeOfShardsIsThatOfTheOldestMessage(t *testing.T) {
	type age = backend.Stats
	none, unknown := age{OldestSource: backend.AgeNone}, age{OldestSource: backend.AgeUnknown}
	young := age{OldestSource: backend.AgeBacklog, OldestAge: time.Second}
	old := age{OldestSource: backend.AgePending, OldestAge: time.Minute}
	about := age{OldestSource: backend.AgePending, OldestAge: time.Hour, Approx: true}
	atLeast := old
	atLeast.Approx = true
	for _, c := range []struct {
		of   []age
		want age
	}{
		{[]age{none, none}, none},
		{[]age{none, young}, young},
		{[]age{young, old}, old},
		{[]age{young, old, about}, about},
		{[]age{unknown, none}, unknown},
		{[]age{unknown, old, young}, atLeast},
	} {
		for _, backwards := range []bool{false, true} {
			var all []gauge
			for _, one := range c.of {
				all = append(all, gauge{stats: one})
			}
			if backwards {
				slices.Reverse(all)
			}
			got, err := gauges(t, all).Stats(t.Context())
			if err != nil || got.OldestSource != c.want.OldestSource || got.OldestAge != c.want.OldestAge || got.Approx != c.want.Approx {
				t.Errorf("%+v, backwards %v: %s %s, approx %v, want %s %s, approx %v; %v", c.of, backwards,
					got.OldestSource, got.OldestAge, got.Approx, c.want.OldestSource, c.want.OldestAge, c.want.Approx, err)
			}
		}
	}
}

// A number that a shard does not know is unknown of the whole stream, unless that shard is empty: it is never 0 for what is
// unknown, nor unknown because nothing has come to a shard yet.
func TestANumberOfShardsIsKnownIfEveryShardWithMessagesKnowsIt(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	known := backend.Signal{XLen: 7, Pending: 2, Lag: number(5), Workers: number(3), Finished: number(10)}
	for _, c := range []struct {
		name   string
		of     []backend.Signal
		lag    *int64
		behind int64
	}{
		{"all know it", []backend.Signal{known, known}, number(10), 0},
		{"one is empty", []backend.Signal{known, {}}, number(5), 0},
		{"all are empty", []backend.Signal{{}, {}}, nil, 0},
		{"one that holds messages does not", []backend.Signal{known, {XLen: 4, Behind: 4}}, nil, 9},
		{"one whose messages are all handed out does not", []backend.Signal{known, {Pending: 4}}, nil, 5},
	} {
		var all []gauge
		for _, one := range c.of {
			all = append(all, gauge{signal: one, stats: backend.Stats{XLen: one.XLen, Pending: one.Pending, Lag: one.Lag, Behind: one.Behind}})
		}
		b := gauges(t, all)
		sig, err := b.(backend.Signaler).Signal(t.Context(), 100)
		if err != nil || !same(sig.Lag, c.lag) || sig.Behind != c.behind || (sig.Workers == nil) != (c.lag == nil) || (sig.Finished == nil) != (c.lag == nil) {
			t.Errorf("%s: %+v, %v", c.name, sig, err)
		}
		stats, err := b.Stats(t.Context())
		if err != nil || !same(stats.Lag, c.lag) || stats.Behind != c.behind {
			t.Errorf("%s: %+v, %v", c.name, stats, err)
		}
	}
}

func same(a, b *int64) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

// A group or stream is missing only if no shard has it, and of the two the group is what is missing if one has the stream.
func TestWhatNoShardHasIsMissing(t *testing.T) {
	for _, c := range []struct {
		of   []error
		want error
	}{
		{[]error{backend.ErrStreamNotFound, backend.ErrStreamNotFound}, backend.ErrStreamNotFound},
		{[]error{backend.ErrStreamNotFound, backend.ErrGroupNotFound}, backend.ErrGroupNotFound},
		{[]error{backend.ErrStreamNotFound, nil}, nil},
	} {
		for _, backwards := range []bool{false, true} {
			var all []gauge
			for _, one := range c.of {
				all = append(all, gauge{stats: backend.Stats{Missing: one}})
			}
			if backwards {
				slices.Reverse(all)
			}
			if got, err := gauges(t, all).Stats(t.Context()); err != nil || !errors.Is(got.Missing, c.want) {
				t.Errorf("%v, backwards %v: %v, %v", c.of, backwards, got.Missing, err)
			}
		}
	}
}

// What is read of a stream has all of every shard: a sum of each number, and yes if one of them says so.
func TestAReadingOfShardsHasAllOfEveryShard(t *testing.T) {
	highest := map[string]bool{"Stats.Workers": true} // they work for all shards
	left := map[string]bool{                          // in other tests
		"Stats.OldestAge": true, "Stats.Approx": true, "Stats.Behind": true, "Signal.Behind": true,
		"Stats.PendingUnknown": true, // of Kafka, which has partitions instead of shards
	}
	var all [2]gauge
	for i := range all {
		for _, reading := range []any{&all[i].stats, &all[i].signal} {
			v := reflect.ValueOf(reading).Elem()
			for f := range v.NumField() {
				switch field := v.Field(f).Addr().Interface().(type) {
				case *int64:
					*field = int64(10*f + i)
				case **int64:
					*field = new(int64)
					**field = int64(10*f + i)
				case *bool:
					*field = i == f%2
				}
			}
		}
		all[i].stats.At = time.Unix(int64(10-i), 0)
	}
	b := gauges(t, all[:])
	stats, err := b.Stats(t.Context())
	if err != nil || !stats.At.Equal(all[0].stats.At) {
		t.Errorf("%s, %v", stats.At, err)
	}
	signal, err := b.(backend.Signaler).Signal(t.Context(), 100)
	if err != nil {
		t.Error(err)
	}
	for _, reading := range []any{stats, signal} {
		v := reflect.ValueOf(reading)
		for f := range v.NumField() {
			name := v.Type().Name() + "." + v.Type().Field(f).Name
			want := int64(20*f + 1)
			if highest[name] {
				want = int64(10*f + 1)
			}
			switch got := v.Field(f).Interface().(type) {
			case int64:
				if !left[name] && got != want {
					t.Errorf("%s is %d, want %d", name, got, want)
				}
			case *int64:
				if !same(got, &want) {
					t.Errorf("%s is not %d", name, want)
				}
			case bool:
				if !left[name] && !got {
					t.Errorf("%s is not what one shard says", name)
				}
			}
		}
	}
}

// A shard that is not there yet keeps the workers' signal from no other; anything else that goes wrong is told.
func TestASignalIsPublishedToTheShardsThatAreThere(t *testing.T) {
	gone, groupless := backendtest.Fault{Err: backend.ErrStreamNotFound}, backendtest.Fault{Err: backend.ErrGroupNotFound}
	refused := backendtest.Fault{Err: errors.New("refused")}
	for _, c := range []struct {
		faults []backendtest.Fault // of the first shards, of two
		want   error
	}{
		{[]backendtest.Fault{gone}, nil},
		{[]backendtest.Fault{gone, gone}, backend.ErrStreamNotFound},
		{[]backendtest.Fault{groupless}, nil},
		{[]backendtest.Fault{refused}, refused.Err},
	} {
		b, fakes := inMemory(t, 2)
		for i, fault := range c.faults {
			fakes[i].Inject(backendtest.OpPublishSignal, fault)
		}
		if err := b.(backend.Signaler).PublishSignal(t.Context(), time.Minute); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c.faults, err)
		}
	}
}
