package slots_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/slots"
	"github.com/weirmq/weir/tests/bubble"
)

// memory is objects in memory.
type memory struct {
	mu  sync.Mutex
	all map[string][]byte
}

func (m *memory) Create(_ context.Context, name string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.all[name]; ok {
		return slots.ErrExists
	}
	m.all[name] = data
	return nil
}

func (m *memory) Get(_ context.Context, name string) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.all[name]
	if !ok {
		return nil, replica.ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (m *memory) ListAfter(_ context.Context, prefix, after string, most int) (all []replica.File, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.all)) {
		if strings.HasPrefix(name, prefix) && name > after && len(all) < most {
			all = append(all, replica.File{Name: name, Size: int64(len(m.all[name]))})
		}
	}
	return all, nil
}

func (m *memory) Delete(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, name)
	return nil
}

// sleeper is objects whose user falls asleep in front of one call, or behind it.
type sleeper struct {
	slots.Objects
	behind bool
	asleep func() // what happens meanwhile

	mu    sync.Mutex
	calls int // until it falls asleep
}

func (s *sleeper) call(f func()) {
	s.mu.Lock()
	s.calls--
	now := s.calls == 0
	s.mu.Unlock()
	if now && !s.behind {
		s.asleep()
	}
	f()
	if now && s.behind {
		s.asleep()
	}
}

func (s *sleeper) Create(ctx context.Context, name string, data []byte) (err error) {
	s.call(func() { err = s.Objects.Create(ctx, name, data) })
	return err
}

func (s *sleeper) Get(ctx context.Context, name string) (in io.ReadCloser, err error) {
	s.call(func() { in, err = s.Objects.Get(ctx, name) })
	return in, err
}

func (s *sleeper) ListAfter(ctx context.Context, prefix, after string, most int) (all []replica.File, err error) {
	s.call(func() { all, err = s.Objects.ListAfter(ctx, prefix, after, most) })
	return all, err
}

func (s *sleeper) Delete(ctx context.Context, name string) (err error) {
	s.call(func() { err = s.Objects.Delete(ctx, name) })
	return err
}

// TestALeaderThatSleepsAtAnyCall lets a node fall asleep at each call of a life in turn.
// Meanwhile others lead, append and trim. With a short grace it looks at each call whether it
// was trimmed, with a long one only when some time has passed.
func TestALeaderThatSleepsAtAnyCall(t *testing.T) {
	for _, grace := range []time.Duration{time.Nanosecond, time.Minute} {
		for _, behind := range []bool{false, true} {
			for slept, call := true, 1; slept && !t.Failed(); call++ {
				t.Run(fmt.Sprintf("grace=%v behind=%t call=%d", grace, behind, call), func(t *testing.T) {
					bubble.Run(t, func(t *testing.T) { slept = sleepAt(t, grace, behind, call) })
				})
			}
		}
	}
}

func sleepAt(t *testing.T, grace time.Duration, behind bool, call int) (slept bool) {
	ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
	defer cancel()
	store := &memory{all: map[string][]byte{}}
	open := func(objects slots.Objects) *slots.Log {
		log := slots.New(objects, slots.Options{Grace: grace, Keep: 8})
		t.Cleanup(func() { log.Close() })
		return log
	}
	var mu sync.Mutex
	var stored []string // what counts, as its leader was told
	var leads []replica.Lead
	live := func(log *slots.Log, name string) {
		lead, err := log.Lead(ctx, name)
		if err != nil {
			if !errors.Is(err, replica.ErrFenced) {
				t.Errorf("%s: Lead: %v", name, err)
			}
			return
		}
		mu.Lock()
		leads = append(leads, lead)
		awake := !slept
		mu.Unlock()
		for i := range 6 {
			if i%2 == 0 {
				time.Sleep(10 * time.Second)
			}
			mu.Lock()
			late := awake && slept
			mu.Unlock()
			text := fmt.Sprintf("%d:%s %d", lead.Term, name, i)
			last, err := add(ctx, log, text[strings.Index(text, ":")+1:])
			if err != nil {
				if !errors.Is(err, replica.ErrFenced) {
					t.Errorf("%s: Append: %v", name, err)
				}
				return
			}
			if late {
				t.Errorf("%q counts, and others have led since its leader began", text)
			}
			mu.Lock()
			stored = append(stored, text)
			mu.Unlock()
			if i == 3 {
				if err := log.Trim(ctx, last); err != nil {
					t.Errorf("%s: Trim: %v", name, err)
				}
			}
		}
	}
	live(open(store), "first")
	objects := &sleeper{Objects: store, behind: behind, calls: call, asleep: func() {
		time.Sleep(time.Hour)
		for i := range 2 {
			live(open(store), fmt.Sprint("other ", i))
		}
		mu.Lock()
		slept = true
		mu.Unlock()
	}}
	log := open(objects)
	live(log, "sleeper")
	log.Close() // it may have slept while it looked for a later term, beside the rest
	live(open(store), "last")

	var read []string
	last, after := uint64(0), uint64(0)
	reader := open(store)
	for {
		e, err := reader.Read(ctx, after)
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, replica.ErrTrimmed) && len(read) == 0 {
			after++
			continue
		}
		if err != nil {
			t.Fatalf("read behind %d: %v", after, err)
		}
		if e.Term < last {
			t.Errorf("an entry of term %d follows one of term %d", e.Term, last)
		}
		after, last = e.Pos, e.Term
		if len(e.Data) > 0 {
			read = append(read, fmt.Sprintf("%d:%s", e.Term, e.Data))
		}
	}
	slices.SortFunc(leads, func(a, b replica.Lead) int { return cmp.Compare(a.Term, b.Term) })
	for i, lead := range leads[1:] {
		if lead.End <= leads[i].End {
			t.Errorf("%+v follows %+v", lead, leads[i])
		}
	}
	stored = inTerms(stored)
	if len(read) < 6 || !slices.Equal(read, stored[len(stored)-len(read):]) {
		t.Errorf("stored:\n%s\nread:\n%s", strings.Join(stored, "\n"), strings.Join(read, "\n"))
	}
	return slept
}

// inTerms sorts entries by their terms and nothing else.
func inTerms(all []string) []string {
	slices.SortStableFunc(all, func(a, b string) int {
		a, _, _ = strings.Cut(a, ":")
		b, _, _ = strings.Cut(b, ":")
		return strings.Compare(a, b)
	})
	return all
}
