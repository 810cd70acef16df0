package slots_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/slots"
	"github.com/weirmq/weir/tests/bubble"
)

func nameOf(pos uint64) string { return fmt.Sprintf("log/%020d", pos) }

// succeeded is a log of a leader and of its successor, which has stored n entries, and some that do
// not count behind the successor's first. It returns what is in it and at which positions.
func succeeded(t *testing.T, n, leavings int) (objects *memory, positions []uint64, want []string) {
	t.Helper()
	objects = &memory{all: map[string][]byte{}}
	lead := func(n int) *slots.Log {
		log := slots.New(objects, slots.Options{})
		t.Cleanup(func() { log.Close() })
		lead, err := log.Lead(t.Context(), "node")
		if err != nil {
			t.Fatal(err)
		}
		positions, want = append(positions, lead.End), append(want, fmt.Sprintf("%d:", lead.Term))
		for i := range n {
			pos, err := add(t.Context(), log, fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			positions, want = append(positions, pos), append(want, fmt.Sprintf("%d:%d", lead.Term, i))
		}
		return log
	}
	old, left := lead(60), map[string][]byte{}
	for i := range replica.Window { // the first is not there before the successor's
		pos, err := add(t.Context(), old, "void")
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && i <= leavings {
			left[nameOf(pos)] = objects.all[nameOf(pos)]
		}
		delete(objects.all, nameOf(pos))
	}
	lead(n)
	maps.Copy(objects.all, left)
	return objects, positions, want
}

// Where a log is entered, to find its end or to trim it, there may be the entries of a leader that
// had lost its place, or nothing.
func TestALogIsEnteredNearAChangeOfItsLeader(t *testing.T) {
	for leavings := range replica.Window {
		for n := 20; n < 40; n++ {
			objects, positions, want := succeeded(t, n, leavings)
			for i, pos := range positions[58:66] {
				trimmed := &memory{all: maps.Clone(objects.all)}
				log := slots.New(trimmed, slots.Options{Grace: time.Nanosecond, Keep: 8})
				if err := log.Trim(t.Context(), pos); err != nil {
					t.Fatal(err)
				}
				if got := contents(t.Context(), t, log, pos); !slices.Equal(got, want[59+i:]) {
					t.Fatalf("%d entries and %d void ones, trimmed up to %d: read %q, want %q", n, leavings, pos, got, want[59+i:])
				}
				log.Close()
			}
			trimAtTheChange(t, &memory{all: maps.Clone(objects.all)}, n, positions)
			log := slots.New(objects, slots.Options{})
			if lead, err := log.Lead(t.Context(), "third"); err != nil || lead.End != positions[len(positions)-1]+1 {
				t.Errorf("%d entries and %d void ones: led %+v, %v", n, leavings, lead, err)
			}
			log.Close()
		}
	}
}

// trimAtTheChange trims up to the first entry of the successor, and then further, but what it has stored
// behind that is to stay. What was removed is still known to be.
func trimAtTheChange(t *testing.T, objects *memory, n int, positions []uint64) {
	t.Helper()
	log := slots.New(objects, slots.Options{Grace: time.Nanosecond, Keep: n})
	defer log.Close()
	for _, upTo := range []uint64{positions[61], positions[len(positions)-1]} {
		if err := log.Trim(t.Context(), upTo); err != nil {
			t.Fatal(err)
		}
	}
	if e, err := log.Read(t.Context(), positions[50]); !errors.Is(err, replica.ErrTrimmed) {
		t.Errorf("%d entries: read %+v, %v where all is trimmed", n, e, err)
	}
	third := slots.New(objects, slots.Options{})
	defer third.Close()
	if _, err := third.Lead(t.Context(), "third"); err != nil {
		t.Errorf("%d entries behind what was trimmed: led: %v", n, err)
	}
}

// slow is objects that take a while to be created.
type slow struct {
	slots.Objects
	takes time.Duration
}

func (s slow) Create(ctx context.Context, name string, data []byte) error {
	time.Sleep(s.takes)
	return s.Objects.Create(ctx, name, data)
}

// A leader that is busy leaves no position empty for as long as another one needs to take it.
func TestABusyLeaderMakesRoomForTheNext(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		objects := &memory{all: map[string][]byte{}}
		old, next := slots.New(slow{objects, 20 * time.Millisecond}, slots.Options{}), slots.New(slow{objects, 100 * time.Millisecond}, slots.Options{})
		defer old.Close()
		defer next.Close()
		if _, err := old.Lead(t.Context(), "old"); err != nil {
			t.Fatal(err)
		}
		fenced := make(chan error)
		go func() {
			for {
				err := old.Append(t.Context(), []byte("entry"), func(uint64, error) {})
				if err != nil {
					fenced <- err
					return
				}
			}
		}()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if _, err := next.Lead(ctx, "next"); err != nil {
			t.Errorf("beside a busy leader: %v", err)
			old.Close()
		}
		<-fenced
	})
}

// A leader that slept for long creates what was trimmed once more, also if that was the last that was.
func TestThePlaceOfALeaderThatSleptWasTrimmed(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		objects := &memory{all: map[string][]byte{}}
		old, next := slots.New(objects, slots.Options{}), slots.New(objects, slots.Options{Grace: time.Nanosecond, Keep: 8})
		defer old.Close()
		defer next.Close()
		if _, err := old.Lead(t.Context(), "old"); err != nil {
			t.Fatal(err)
		}
		if _, err := add(t.Context(), old, "1", "2", "3"); err != nil {
			t.Fatal(err)
		}
		lead, err := next.Lead(t.Context(), "next")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := add(t.Context(), next, make([]string, 20)...); err != nil {
			t.Fatal(err)
		}
		if err := next.Trim(t.Context(), lead.End); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if _, err := add(t.Context(), old, "void"); !errors.Is(err, replica.ErrFenced) {
			t.Errorf("the old leader is told %v", err)
		}
	})
}
