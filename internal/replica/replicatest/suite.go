// Package replicatest is what every replica.Log and every replica.Files has to do,
// as tests.
package replicatest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/replica"
)

// Fault is what goes wrong with calls to a store that change something.
type Fault string

const (
	LoseAnswer Fault = "the answer is lost" // what was asked is done
	LoseCall   Fault = "the call is lost"
	Busy       Fault = "the store is busy" // and says so
	Hold       Fault = "the call is held"  // until the fault is removed; then it gets there
)

// Inject makes the next calls that change something suffer a fault; times 0: all
// until it is removed.
type Inject func(f Fault, times int) (remove func())

// Harness is what the suite has to know about a store. Handles are closed by the
// suite.
type Harness struct {
	// Log opens a handle on a log; a new name is an empty log. Trim must not wait for
	// entries to grow old.
	Log func(t testing.TB, name string) replica.Log
	// Faulty opens one that suffers faults; nil: that cannot be done.
	Faulty func(t testing.TB, name string) (replica.Log, Inject)
	// Files opens a handle on files; nil: the store keeps none.
	Files func(t testing.TB, name string) replica.Files
	// Keeps is how many entries Trim may leave that it was told to remove.
	Keeps int
	// Large is the size of the largest entry, and eight times that of the largest file; 64 MiB if it is 0.
	Large int
}

// patience is how long the suite waits for what has to happen.
const patience = 30 * time.Second

// Run puts a store through every case.
func Run(t *testing.T, h Harness) {
	if h.Large == 0 {
		h.Large = 64 << 20
	}
	cases := slices.Concat(order, leaders, trims)
	if h.Faulty != nil {
		cases = append(cases, faults...)
	}
	if h.Files != nil {
		cases = append(cases, files...)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
			defer cancel()
			c.run(&run{T: t, ctx: ctx, h: h, name: fmt.Sprintf("log%d", time.Now().UnixNano())})
		})
	}
}

// check is one case.
type check struct {
	name string
	run  func(*run)
}

// run is a case that runs, on a log of its own.
type run struct {
	*testing.T
	ctx  context.Context
	h    Harness
	name string
}

// open opens a handle.
func (r *run) open() *handle {
	r.Helper()
	log := r.h.Log(r, r.name)
	r.Cleanup(func() { log.Close() })
	return &handle{Log: log, r: r}
}

// faulty opens a handle that suffers faults.
func (r *run) faulty() (*handle, Inject) {
	r.Helper()
	log, inject := r.h.Faulty(r, r.name)
	r.Cleanup(func() { log.Close() })
	return &handle{Log: log, r: r}, inject
}

// handle is a log and what was appended to it here.
type handle struct {
	replica.Log
	r *run

	mu      sync.Mutex
	taken   int // by Append, without an error
	results []result
	changed chan struct{}
}

// result is what stored was told.
type result struct {
	data string
	pos  uint64
	err  error
}

func (h *handle) lead() replica.Lead {
	h.r.Helper()
	lead, err := h.Lead(h.r.ctx, "node")
	if err != nil {
		h.r.Fatalf("Lead: %v", err)
	}
	return lead
}

// begin appends an entry and does not wait until it is stored.
func (h *handle) begin(ctx context.Context, data string) error {
	h.mu.Lock()
	h.taken++
	h.mu.Unlock()
	err := h.Append(ctx, []byte(data), func(pos uint64, err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.results = append(h.results, result{data, pos, err})
		if h.changed != nil {
			close(h.changed)
			h.changed = nil
		}
	})
	if err != nil {
		h.mu.Lock()
		h.taken--
		h.mu.Unlock()
	}
	return err
}

// all waits until everything that was taken on has been told of.
func (h *handle) all() []result {
	h.r.Helper()
	h.mu.Lock()
	n := h.taken
	h.mu.Unlock()
	return h.told(n)
}

// told waits until n entries have been told of, and returns them.
func (h *handle) told(n int) []result {
	h.r.Helper()
	deadline := time.After(patience)
	for {
		h.mu.Lock()
		got, changed := slices.Clone(h.results), h.changed
		if changed == nil {
			changed = make(chan struct{})
			h.changed = changed
		}
		h.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-changed:
		case <-deadline:
			h.r.Fatalf("stored was called for %d entries of %d", len(got), n)
		}
	}
}

// add appends entries and returns what the last ones were told.
func (h *handle) add(datas ...string) []result {
	h.r.Helper()
	before := len(h.all())
	for _, d := range datas {
		if err := h.begin(h.r.ctx, d); err != nil {
			h.r.Fatalf("Append: %v", err)
		}
	}
	return h.all()[before:]
}

// must appends entries that count.
func (h *handle) must(datas ...string) (positions []uint64) {
	h.r.Helper()
	for _, got := range h.add(datas...) {
		if got.err != nil {
			h.r.Fatalf("entry %q: %v", got.data, got.err)
		}
		positions = append(positions, got.pos)
	}
	return positions
}

// rejected appends an entry that may not count.
func (h *handle) rejected(data string) {
	h.r.Helper()
	err := h.begin(h.r.ctx, data)
	if got := h.all(); err == nil {
		err = got[len(got)-1].err
	}
	if !errors.Is(err, replica.ErrFenced) {
		h.r.Errorf("entry %q of an old leader: %v, want ErrFenced", data, err)
	}
}

// entries reads everything behind after.
func (h *handle) entries(after uint64) (all []replica.Entry) {
	h.r.Helper()
	for {
		e, err := h.Read(h.r.ctx, after)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			h.r.Fatalf("Read behind %d: %v", after, err)
		}
		if e.Pos <= after {
			h.r.Fatalf("Read behind %d returned position %d", after, e.Pos)
		}
		after, all = e.Pos, append(all, e)
	}
}

// texts are what entries hold, but those that begin a term.
func texts(entries []replica.Entry) (all []string) {
	for _, e := range entries {
		if len(e.Data) > 0 {
			all = append(all, string(e.Data))
		}
	}
	return all
}

// expect reads with a new handle, and compares.
func (r *run) expect(want ...string) {
	r.Helper()
	if got := texts(r.open().entries(0)); !slices.Equal(got, want) {
		r.Errorf("the log holds %s, want %s", short(got), short(want))
	}
}

// numbered returns n texts.
func numbered(what string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s %d", what, i))
	}
	return all
}
