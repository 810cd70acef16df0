package replicatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/replica"
)

// flaw is what a Memory does wrong; "" is nothing. The tests of this package plant them.
type flaw string

// Memory is a copy in memory. Its handles are those of one process each.
type Memory struct {
	mu      sync.Mutex
	terms   []replica.Term
	began   uint64 // the term of the last entry
	entries []replica.Entry
	last    uint64 // position
	trimmed uint64
	written map[string]uint64 // positions of what a leader has appended, by its own count
	files   map[string]file
}

type file struct {
	content []byte
	changed time.Time
}

// Handle is a handle on a Memory.
type Handle struct {
	Plan
	memory *Memory
	flaw   flaw
	closed context.Context
	close  context.CancelFunc

	mu   sync.Mutex
	lead *tenure
	seen map[uint64]bool // ends that were read
}

// tenure is the time of a leader.
type tenure struct {
	term   uint64
	room   chan struct{}
	mu     sync.Mutex
	count  int
	turn   chan struct{} // closed when the entry before has been told
	failed error
}

// NewMemory returns an empty copy.
func NewMemory() *Memory { return &Memory{written: map[string]uint64{}, files: map[string]file{}} }

// Open opens a handle.
func (m *Memory) Open() *Handle { return m.open("") }

func (m *Memory) open(f flaw) *Handle {
	closed, cancel := context.WithCancel(context.Background())
	return &Handle{memory: m, flaw: f, closed: closed, close: cancel, seen: map[uint64]bool{}}
}

// Close ends what waits.
func (h *Handle) Close() error {
	if h.flaw != "closing does nothing" {
		h.close()
	}
	return nil
}

// again calls until the call comes through.
func (h *Handle) again(ctx context.Context, call func() error) error {
	for {
		if err := h.alive(ctx); err != nil {
			return err
		}
		err := h.Through(ctx, call)
		switch {
		case h.flaw == "a busy store is an error" && errors.Is(err, ErrBusy):
			return err
		case h.flaw == "a lost call is called done" && errors.Is(err, ErrLost):
			return nil
		case h.flaw == "a lost answer is an error" && errors.Is(err, ErrLost):
			return err
		case !errors.Is(err, ErrLost) && !errors.Is(err, ErrBusy):
			return err
		}
	}
}

func (h *Handle) alive(ctx context.Context) error {
	if h.flaw == "contexts are not looked at" {
		return nil
	}
	return errors.Join(ctx.Err(), h.closed.Err())
}

// Newest returns the newest term.
func (h *Handle) Newest(ctx context.Context) (replica.Term, error) {
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	if len(h.memory.terms) == 0 {
		return replica.Term{}, h.alive(ctx)
	}
	if h.flaw == "the oldest term is called the newest" {
		return h.memory.terms[0], nil
	}
	return h.memory.terms[len(h.memory.terms)-1], h.alive(ctx)
}

// Lead takes the next term.
func (h *Handle) Lead(ctx context.Context, node string) (replica.Lead, error) {
	if err := h.alive(ctx); err != nil {
		return replica.Lead{}, err
	}
	var lead replica.Lead
	err := h.again(ctx, func() error {
		m := h.memory
		m.mu.Lock()
		defer m.mu.Unlock()
		lead.Term = uint64(len(m.terms)) + 1
		if h.flaw == "a term is given twice" {
			lead.Term = max(1, lead.Term-1)
		}
		m.terms = append(m.terms, replica.Term{Number: lead.Term, Node: node, Started: time.Now()})
		if h.flaw == "a leader drops the last entry" && len(m.entries) > 0 {
			m.entries = m.entries[:len(m.entries)-1]
		}
		if h.flaw == "old terms are accepted" || h.flaw == "a new leader does not fence until it writes" {
			lead.End = m.last + 1
			m.last++
			m.entries = append(m.entries, replica.Entry{Pos: m.last, Term: lead.Term})
			return nil
		}
		m.began = lead.Term
		m.last++
		lead.End = m.last
		first := replica.Entry{Pos: m.last, Term: lead.Term}
		if h.flaw == "a term begins with something in it" {
			first.Data = []byte("term")
		}
		m.entries = append(m.entries, first)
		return nil
	})
	turn := make(chan struct{})
	close(turn)
	h.mu.Lock()
	h.lead = &tenure{term: lead.Term, room: make(chan struct{}, h.window()), turn: turn}
	h.mu.Unlock()
	return lead, err
}

func (h *Handle) window() int {
	if h.flaw == "there is no window" {
		return 1000
	}
	return replica.Window
}

// Append appends an entry when the ones before it have been told.
func (h *Handle) Append(ctx context.Context, data []byte, stored func(uint64, error)) error {
	h.mu.Lock()
	t := h.lead
	h.mu.Unlock()
	if t == nil && h.flaw == "anybody may append" {
		t = &tenure{term: h.memory.began, room: make(chan struct{}, 1), turn: make(chan struct{})}
		close(t.turn)
	}
	if t == nil {
		return errors.New("replica: Append without Lead")
	}
	if err := h.alive(ctx); err != nil {
		return err
	}
	select {
	case t.room <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if h.flaw != "an entry is kept" {
		data = bytes.Clone(data)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed != nil && h.flaw != "a leader goes on behind an error" {
		<-t.room
		return t.failed
	}
	t.count++
	turn, told, count := t.turn, make(chan struct{}), t.count
	t.turn = told
	go h.append(ctx, t, data, count, turn, told, stored)
	return nil
}

func (h *Handle) append(ctx context.Context, t *tenure, data []byte, count int, turn, told chan struct{}, stored func(uint64, error)) {
	defer close(told)
	if h.flaw != "entries overtake each other" {
		<-turn
	}
	if h.flaw == "stored is called out of order" && count%3 == 0 {
		time.Sleep(20 * time.Millisecond)
	}
	t.mu.Lock()
	err := t.failed
	t.mu.Unlock()
	var pos uint64
	if err == nil || h.flaw == "a leader goes on behind an error" {
		err = h.again(ctx, func() (err error) { pos, err = h.memory.add(h.flaw, t.term, count, data); return err })
	}
	if h.flaw == "success is told before it is stored" {
		err = nil
	}
	if err != nil {
		t.mu.Lock()
		t.failed = err
		t.mu.Unlock()
	}
	if h.flaw == "the fenced are told nothing" && errors.Is(err, replica.ErrFenced) {
		err = nil
	}
	<-t.room
	stored(pos, err)
}

// add adds an entry, once.
func (m *Memory) add(f flaw, term uint64, count int, data []byte) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	me := fmt.Sprint(term, "/", count)
	if pos, again := m.written[me]; again && f != "an entry is there twice" {
		return pos, nil
	}
	if term < m.began && f != "old terms are accepted" {
		return 0, replica.ErrFenced
	}
	m.last++
	m.written[me] = m.last
	e := replica.Entry{Pos: m.last, Term: term, Data: data}
	switch {
	case f == "empty entries vanish" && len(data) == 0:
		return m.last, nil
	case f == "large entries are cut" && len(data) > 100_000:
		e.Data = data[:100_000]
	case f == "success is told before it is stored" && count%5 == 0:
		return m.last, nil
	}
	m.entries = append(m.entries, e)
	if f == "positions are off by one" {
		return m.last - 1, nil
	}
	return m.last, nil
}

// Read returns the first entry behind after.
func (h *Handle) Read(ctx context.Context, after uint64) (replica.Entry, error) {
	if err := h.alive(ctx); err != nil {
		return replica.Entry{}, err
	}
	m := h.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if after < m.trimmed && h.flaw != "what was trimmed is skipped" {
		return replica.Entry{}, replica.ErrTrimmed
	}
	all := m.entries
	if h.flaw == "the newest entry cannot be read" {
		all = all[:max(0, len(all)-1)]
	}
	if h.flaw == "the end stays the end" && h.seen[after] {
		return replica.Entry{}, io.EOF
	}
	for _, e := range all {
		if e.Pos > after {
			return e, nil
		}
	}
	h.seen[after] = true
	return replica.Entry{}, io.EOF
}

// End returns the position of the last entry.
func (h *Handle) End(ctx context.Context) (uint64, error) {
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	if h.flaw == "what was trimmed is no end" && len(h.memory.entries) == 0 {
		return 0, h.alive(ctx)
	}
	if h.flaw == "the end is behind the last entry" {
		return h.memory.last + 1, h.alive(ctx)
	}
	return h.memory.last, h.alive(ctx)
}

// Trim removes entries.
func (h *Handle) Trim(ctx context.Context, upTo uint64) error {
	if err := h.alive(ctx); err != nil {
		return err
	}
	m := h.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	switch h.flaw {
	case "trim removes nothing":
		return nil
	case "trim removes one too many":
		upTo++
	}
	m.trimmed = max(m.trimmed, min(upTo, m.last))
	m.entries = slices.DeleteFunc(m.entries, func(e replica.Entry) bool { return e.Pos <= upTo })
	if h.flaw == "positions begin again after a trim" && len(m.entries) == 0 {
		m.last = 0
	}
	return nil
}

// shelves are the files of a handle; Handle's own Close is that of its log.
type shelves struct{ *Handle }

// Files returns the handle as files.
func (h *Handle) Files() replica.Files { return shelves{h} }

// Put puts a file.
func (s shelves) Put(ctx context.Context, name string, size int64, content io.Reader) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := io.ReadAll(content)
	if err == nil && int64(len(b)) != size && s.flaw != "a file of the wrong size is taken" {
		err = errors.New("replica: the size is wrong")
	}
	if err != nil && s.flaw != "a torn file is there" {
		return err
	}
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	if _, there := s.memory.files[name]; !there || s.flaw != "files are not replaced" {
		s.memory.files[name] = file{b, time.Now()}
	}
	return err
}

// Get returns a file.
func (s shelves) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	f, there := s.memory.files[name]
	if !there && s.flaw != "a missing file is empty" {
		return nil, replica.ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(f.content)), ctx.Err()
}

// List lists files.
func (s shelves) List(ctx context.Context, prefix string) (all []replica.File, err error) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	for name, f := range s.memory.files {
		if strings.HasPrefix(name, prefix) || s.flaw == "lists have no prefix" {
			all = append(all, replica.File{Name: name, Size: int64(len(f.content)), Changed: f.changed})
		}
	}
	slices.SortFunc(all, func(a, b replica.File) int { return strings.Compare(a.Name, b.Name) })
	if s.flaw == "lists are out of order" {
		slices.Reverse(all)
	}
	return all, ctx.Err()
}

// Delete deletes a file.
func (s shelves) Delete(ctx context.Context, name string) error {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	if _, there := s.memory.files[name]; !there && s.flaw == "deleting twice is an error" {
		return replica.ErrNotFound
	}
	if s.flaw != "deleting does nothing" {
		delete(s.memory.files, name)
	}
	return ctx.Err()
}
