package slots_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/slots"
	"github.com/weirmq/weir/tests/bubble"
)

// kept is a leader in memory with some entries, and what its log is told.
type kept struct {
	*slots.Log
	objects *memory
	mu      sync.Mutex
	told    []string
}

func leads(t *testing.T, objects *memory) *kept {
	t.Helper()
	k := &kept{objects: objects}
	k.Log = slots.New(objects, slots.Options{Trouble: func(err error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.told = append(k.told, err.Error())
	}})
	t.Cleanup(func() { k.Close() })
	if _, err := k.Lead(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := add(t.Context(), k.Log, "1", "2", "3"); err != nil {
		t.Fatal(err)
	}
	return k
}

// remove takes away the objects whose names begin so.
func (k *kept) remove(t *testing.T, prefixes ...string) {
	t.Helper()
	for _, prefix := range prefixes {
		files, err := k.objects.ListAfter(t.Context(), prefix, "", 1000)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", prefix, files, err)
		}
		for _, f := range files {
			if err := k.objects.Delete(t.Context(), f.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A store that was emptied takes further entries, of which nothing can be restored: a leader must not
// go on saying that they are safe.
func TestALeaderStopsIfTheStoreHasLostWhatItConfirmed(t *testing.T) {
	for _, entries := range []int{1, 30, 300} {
		bubble.Run(t, func(t *testing.T) { emptied(t, entries) })
	}
}

// emptied has a store be emptied beneath a leader with so many entries.
func emptied(t *testing.T, entries int) {
	k := leads(t, &memory{all: map[string][]byte{}})
	time.Sleep(time.Minute)
	for range entries {
		if _, err := add(t.Context(), k.Log, "4"); err != nil {
			t.Errorf("nothing is missing, and it is told %v", err)
		}
	}
	k.remove(t, "log/", "term/", "FORMAT")
	var failed error
	for end := time.Now().Add(10 * time.Second); failed == nil && time.Now().Before(end); time.Sleep(time.Second) {
		_, failed = add(t.Context(), k.Log, "void")
	}
	if !errors.Is(failed, replica.ErrFenced) || !errors.Is(failed, replica.ErrLost) {
		t.Errorf("after ten seconds the leader is told %v", failed)
	}
	// What it has left there keeps nobody from beginning anew.
	next := slots.New(k.objects, slots.Options{})
	defer next.Close()
	if lead, err := next.Lead(t.Context(), "b"); err != nil || lead.Term < 2 {
		t.Errorf("the next leader: %+v, %v", lead, err)
	}
	if _, err := add(t.Context(), next, "new"); err != nil {
		t.Errorf("the next leader is told %v", err)
	}
}

// A rule that removes what is old takes FORMAT first: without it there is "no copy", on the day on which
// it is needed.
func TestALeaderPutsBackWhatMakesACopyOfIt(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		objects := &memory{all: map[string][]byte{}}
		k := leads(t, objects)
		id, err := k.ID(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		k.remove(t, "term/", "FORMAT")
		for range 10 {
			if _, err := add(t.Context(), k.Log, "x"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		other := slots.New(objects, slots.Options{})
		defer other.Close()
		if now, err := other.ID(t.Context()); err != nil || now != id {
			t.Errorf("the copy is %q, %v; it was %q", now, err, id)
		}
		if newest, err := other.Newest(t.Context()); err != nil || newest.Number != 1 || newest.Node != "a" {
			t.Errorf("the newest term is %+v, %v", newest, err)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if len(k.told) != 2 || !strings.Contains(strings.Join(k.told, "\n"), "FORMAT was not there any more") {
			t.Errorf("the log is told %q", k.told)
		}
	})
}

// The objects of terms may be gone while nobody leads. A leader of a lower term than the log's, or
// of the same, would be no one to whoever reads it.
func TestTermsThatAreGoneKeepNobodyFromLeading(t *testing.T) {
	for led := range 3 {
		objects := &memory{all: map[string][]byte{}}
		var want []string
		var k *kept
		for n := range led + 2 {
			if k != nil {
				k.Close()
			}
			k = leads(t, objects)
			want = append(want, fmt.Sprintf("%d:", n+1), fmt.Sprintf("%d:1", n+1), fmt.Sprintf("%d:2", n+1), fmt.Sprintf("%d:3", n+1))
		}
		k.remove(t, "term/")
		next := slots.New(objects, slots.Options{})
		defer next.Close()
		lead, err := next.Lead(t.Context(), "b")
		if err != nil || lead.Term != uint64(led+3) {
			t.Errorf("after %d terms that are gone: led %+v, %v", led+2, lead, err)
		}
		want = append(want, fmt.Sprintf("%d:", led+3))
		if got := contents(context.Background(), t, slots.New(objects, slots.Options{}), 0); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("read %q, want %q", got, want)
		}
		if _, err := add(t.Context(), k.Log, "void"); !errors.Is(err, replica.ErrFenced) {
			t.Errorf("who led before is told %v", err)
		}
	}
}

// An idle leader appends nothing, beside which it could look.
func TestAnIdleLeaderLooksWhenItIsAsked(t *testing.T) {
	k := leads(t, &memory{all: map[string][]byte{}})
	k.remove(t, "term/", "FORMAT")
	if err := k.Kept(t.Context(), 0); err != nil {
		t.Errorf("without FORMAT and its term it is told %v", err)
	}
	for _, name := range []string{"FORMAT", "term/0000000001"} {
		if _, err := k.objects.Get(t.Context(), name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	k.remove(t, "log/")
	if err := k.Kept(t.Context(), 0); !errors.Is(err, replica.ErrLost) || !errors.Is(err, replica.ErrFenced) {
		t.Errorf("without its entries it is told %v", err)
	}
	if err := slots.New(k.objects, slots.Options{}).Kept(t.Context(), 0); err != nil {
		t.Errorf("who does not lead is told %v", err)
	}
}

// unlisted is a store that cannot list what was trimmed.
type unlisted struct {
	*memory
	fails bool
}

func (u *unlisted) ListAfter(ctx context.Context, prefix, after string, most int) ([]replica.File, error) {
	if u.fails && prefix == "trim/" {
		return nil, errors.New("the store is away")
	}
	return u.memory.ListAfter(ctx, prefix, after, most)
}

// A leader that was asleep may have created an entry where the log was trimmed since, which nobody reads. For as
// long as it cannot find out it does not say that the entry is stored.
func TestAnEntryIsNotStoredUnlessItIsKnownNotToBeTrimmed(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		store := &unlisted{memory: &memory{all: map[string][]byte{}}}
		l := slots.New(store, slots.Options{})
		defer l.Close()
		if _, err := l.Lead(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if _, err := add(t.Context(), l, "1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		store.fails = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		told := make(chan error, 1)
		if err := l.Append(ctx, []byte("2"), func(_ uint64, err error) { told <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-told; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it is told %v", err)
		}
	})
}

// What was removed in the middle a restore would not get past, while the leader goes on behind it.
func TestALeaderLooksForAllBehindItsBase(t *testing.T) {
	const at = "log/%020d"
	for what, c := range map[string]struct {
		term int      // of the leader
		ours []uint64 // the positions that are removed
		left []uint64 // what an older leader has left in the way, which does not count
		trim uint64   // up to where another leader has trimmed
		from uint64   // position of its base
		gone uint64   // what it is told of; 0: nothing
	}{
		"nothing":                       {term: 1, from: 1},
		"nothing, and there is no base": {term: 1, ours: []uint64{6}},
		"the first":                     {term: 1, ours: []uint64{5}, from: 1, gone: 5},
		"one in the middle":             {term: 1, ours: []uint64{7}, from: 1, gone: 7},
		"the one behind the base":       {term: 1, ours: []uint64{7}, from: 6, gone: 7},
		"the one that a base is of":     {term: 1, ours: []uint64{7}, from: 7},
		"one in front of the base":      {term: 1, ours: []uint64{6}, from: 7},
		"several":                       {term: 1, ours: []uint64{6, 7, 8}, from: 1, gone: 6},
		"another's, which do not count": {term: 2, left: []uint64{10, 11, 12}, from: 9},
		"the first, and not another's":  {term: 2, ours: []uint64{13}, left: []uint64{10, 11, 12}, from: 9, gone: 13},
		"one of an earlier term":        {term: 2, ours: []uint64{6}, from: 5},
		"what another leader trimmed":   {term: 1, ours: []uint64{6}, trim: 6, from: 1},
		"and one behind that":           {term: 1, ours: []uint64{7}, trim: 6, from: 1, gone: 7},
	} {
		t.Run(what, func(t *testing.T) {
			objects := &memory{all: map[string][]byte{}}
			var k *kept
			for range c.term {
				k = leads(t, objects) // its term begins at 1 or 9 and its entries are 5, 6, 7 or 13, 14, 15
				if _, err := add(t.Context(), k.Log, "4"); err != nil {
					t.Fatal(err)
				}
			}
			for _, pos := range c.left {
				objects.all[fmt.Sprintf(at, pos)] = []byte("void")
			}
			if _, err := add(t.Context(), k.Log, "5"); err != nil {
				t.Fatal(err)
			}
			for _, pos := range c.ours {
				k.remove(t, fmt.Sprintf(at, pos))
			}
			if c.trim > 0 {
				objects.all[fmt.Sprintf("trim/%020d-%010d-%020d", c.trim, 1, c.trim+1)] = nil
			}
			for range 2 { // it goes on, and is told again
				err := k.Kept(t.Context(), c.from)
				if told := errors.Is(err, replica.ErrDamaged); told != (c.gone > 0) || !told && err != nil || told && !strings.Contains(err.Error(), fmt.Sprintf(at, c.gone)) {
					t.Errorf("it is told %v, want of position %d", err, c.gone)
				}
				if _, err := add(t.Context(), k.Log, "6"); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A busy leader has more behind its base than it may look at each minute, and comes to all of it, also while it writes.
func TestALeaderComesToAllOfALongLog(t *testing.T) {
	objects := &memory{all: map[string][]byte{}}
	k := leads(t, objects)
	last, err := add(t.Context(), k.Log, make([]string, 25_000)...)
	if err != nil {
		t.Fatal(err)
	}
	for gone, first := range map[uint64]bool{last - 1: false, 12_000: false, 10_001: true, 5: true} {
		if err := k.Kept(t.Context(), last); err != nil { // from here on it begins at the base
			t.Errorf("without a loss it is told %v", err)
		}
		name := fmt.Sprintf("log/%020d", gone)
		data := objects.all[name]
		k.remove(t, name)
		var told error
		for look := range 5 {
			if told = k.Kept(t.Context(), 1); told != nil {
				if first != (look == 0) {
					t.Errorf("it is told of %s by look %d", name, look+1)
				}
				break
			}
			if _, err := add(t.Context(), k.Log, "x"); err != nil {
				t.Fatal(err)
			}
		}
		if !errors.Is(told, replica.ErrDamaged) || !strings.Contains(told.Error(), name) {
			t.Errorf("without %s it is told %v", name, told)
		}
		objects.all[name] = data
	}
}

// shortlisted is a store whose lists lack an object that is there.
type shortlisted struct {
	*memory
	lacks string
}

func (s shortlisted) ListAfter(ctx context.Context, prefix, after string, most int) ([]replica.File, error) {
	all, err := s.memory.ListAfter(ctx, prefix, after, most)
	return slices.DeleteFunc(all, func(f replica.File) bool { return f.Name == s.lacks }), err
}

// A list alone does not say that something is gone.
func TestWhatOnlyAListLacksIsThere(t *testing.T) {
	objects := shortlisted{&memory{all: map[string][]byte{}}, fmt.Sprintf("log/%020d", 6)}
	l := slots.New(objects, slots.Options{})
	defer l.Close()
	if _, err := l.Lead(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := add(t.Context(), l, "1", "2", "3", "4"); err != nil {
		t.Fatal(err)
	}
	if err := l.Kept(t.Context(), 1); err != nil {
		t.Errorf("it is told %v", err)
	}
}
