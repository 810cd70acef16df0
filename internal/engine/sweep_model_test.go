package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirmq/weir/internal/api"
)

// world is what a script of calls should have left behind: the oracle of the
// sweep. A step makes a new one, so that both sides of a call are at hand.
type world map[string]*modelTopic

// modelTopic is one life of a topic.
type modelTopic struct {
	cfg     api.Config
	head    uint64
	all     map[uint64]string // every record ever written
	live    map[uint64]bool
	lost    map[uint64]bool // taken by a cap or by time
	batches [][2]uint64
	key     string // an idempotency key that was used
	keySeq  uint64

	held   bool   // its leases outlive a restart
	feeds  []feed // routers that read it
	copies uint64 // that its router has made; of a router
	router bool   // not a topic
}

// feed is a router of the model.
type feed struct {
	router, dest string
	only         string // part of the data that it copies; "" is all
}

// routerName is where a router stands in a world: no topic can have the name.
func routerName(router string) string { return "router " + router }

// route makes a router between two topics that are there.
func (w world) route(source string, f feed) {
	w[source].feeds = append(w[source].feeds, f)
	w[routerName(f.router)] = &modelTopic{router: true}
}

// drop takes a topic away, with its routers.
func (w world) drop(name string) {
	for _, m := range w {
		m.feeds = slices.DeleteFunc(m.feeds, func(f feed) bool {
			if m == w[name] || f.dest == name {
				delete(w, routerName(f.router))
				return true
			}
			return false
		})
	}
	delete(w, name)
}

// appendTo appends to a topic, and what its routers copy behind it.
func (w world) appendTo(name string, data ...string) {
	w[name].append(data...)
	for _, f := range w[name].feeds {
		for _, d := range data {
			if strings.Contains(d, f.only) && w.takes(f.dest) {
				w.appendTo(f.dest, d)
				w[routerName(f.router)].copies++
			}
		}
	}
}

// takes says whether a topic has room for one more.
func (w world) takes(name string) bool {
	m := w[name]
	return m.cfg.Discard != api.DiscardReject || uint64(len(m.live)) < m.cfg.CapRecords
}

func (w world) clone() world {
	c := maps.Clone(w)
	for name, m := range c {
		k := *m
		k.all, k.live, k.lost = maps.Clone(m.all), maps.Clone(m.live), maps.Clone(m.lost)
		k.batches, k.feeds = slices.Clone(m.batches), slices.Clone(m.feeds)
		c[name] = &k
	}
	return c
}

func (w world) create(name string, cfg api.Config) {
	w[name] = &modelTopic{cfg: cfg, all: map[uint64]string{}, live: map[uint64]bool{}, lost: map[uint64]bool{}}
}

func (m *modelTopic) append(data ...string) {
	m.batches = append(m.batches, [2]uint64{m.head + 1, m.head + uint64(len(data))})
	for _, d := range data {
		m.head++
		m.all[m.head], m.live[m.head] = d, true
	}
	m.cap()
}

func (m *modelTopic) cap() {
	if m.cfg.Discard == api.DiscardOld {
		for n := uint64(1); m.over(); n++ {
			m.lose(n)
		}
	}
}

func (m *modelTopic) over() bool {
	bytes := uint64(0)
	for n := range m.live {
		bytes += uint64(len(m.all[n]))
	}
	return m.cfg.CapRecords > 0 && uint64(len(m.live)) > m.cfg.CapRecords || m.cfg.CapBytes > 0 && bytes > m.cfg.CapBytes
}

func (m *modelTopic) lose(n uint64) {
	if m.live[n] {
		delete(m.live, n)
		m.lost[n] = true
	}
}

func (m *modelTopic) liveSeqs() []uint64 { return slices.Sorted(maps.Keys(m.live)) }

// answer is what a recovered engine says about one topic.
type answer struct {
	state   api.TopicState
	records map[uint64]string
	bytes   uint64
	gaps    map[uint64]bool
	text    string // all of it, times included
}

func ask(e *Engine, name string) (*answer, error) {
	s, err := e.Topic(name, false)
	if err != nil {
		return nil, err
	}
	a := &answer{state: s, records: map[uint64]string{}, gaps: map[uint64]bool{}}
	var b strings.Builder
	s.EffectivePriority = 0 // depends on what is queued for routers
	fmt.Fprintf(&b, "%+v\n", s)
	for from := uint64(0); ; {
		res, err := e.Diff(bg, name, &api.DiffRequest{FromSeq: from, Limit: 13, MaxBatchBytes: 8 << 20}, func(r *api.Record) {
			a.records[r.Seq] = string(r.Data)
			a.bytes += uint64(r.Size())
			fmt.Fprintf(&b, "%d %d %s %s %s\n", r.Seq, r.TS, r.Data, r.Meta, r.Tag)
		})
		if err != nil {
			return nil, fmt.Errorf("read of %s at %d: %w: %v", name, from, err, errors.Unwrap(err))
		}
		if g := res.Tombstone; g != nil {
			fmt.Fprintf(&b, "%+v\n", *g)
			for n := g.GapFrom; n <= g.GapTo; n++ {
				a.gaps[n] = true
			}
		}
		if res.CaughtUp() {
			break
		}
		if res.NextFromSeq <= from {
			return nil, fmt.Errorf("read of %s stands still at %d", name, from)
		}
		from = res.NextFromSeq
	}
	a.text = b.String()
	return a, nil
}

// exact checks a topic of which nothing acknowledged may be missing.
func (m *modelTopic) exact(a *answer) error {
	if a.state.HeadSeq != m.head {
		return fmt.Errorf("head is %d, want %d", a.state.HeadSeq, m.head)
	}
	for n := range m.live {
		if a.records[n] != m.all[n] {
			return fmt.Errorf("record %d is %q, want %q", n, a.records[n], m.all[n])
		}
	}
	for n := range a.records {
		if !m.live[n] {
			return fmt.Errorf("record %d came back", n)
		}
	}
	for n := range a.gaps {
		if m.live[n] {
			return fmt.Errorf("live record %d is announced as lost", n)
		}
	}
	for n := range m.lost {
		if !a.gaps[n] {
			return fmt.Errorf("lost record %d is not announced", n)
		}
	}
	if a.state.Count != uint64(len(m.live)) || a.state.Bytes != a.bytes {
		return fmt.Errorf("count %d bytes %d, want %d and %d", a.state.Count, a.state.Bytes, len(m.live), a.bytes)
	}
	return nil
}

// restored checks a topic of a backup: nothing may be missing, but numbers that
// may have been given out after it are announced as lost.
func (m *modelTopic) restored(a *answer) error {
	if m.cfg.Durability == api.Ephemeral {
		return nil
	}
	if err := m.lossy(a); err != nil {
		return err
	}
	for n := range m.live {
		if _, ok := a.records[n]; !ok {
			return fmt.Errorf("record %d is missing", n)
		}
	}
	for n := range a.records {
		if !m.live[n] {
			return fmt.Errorf("record %d is there, and is gone", n)
		}
	}
	return nil
}

// lossy checks a topic that may have lost its end: what is there is right, and
// what is missing is announced.
func (m *modelTopic) lossy(a *answer) error {
	if a.state.HeadSeq < m.head {
		return fmt.Errorf("head went back from %d to %d", m.head, a.state.HeadSeq)
	}
	for n, data := range a.records {
		if m.all[n] != data {
			return fmt.Errorf("record %d is %q, want %q", n, data, m.all[n])
		}
		if a.gaps[n] {
			return fmt.Errorf("record %d is there and announced as lost", n)
		}
	}
	for n := uint64(1); n <= m.head; n++ {
		if _, ok := a.records[n]; !ok && m.live[n] && !a.gaps[n] {
			return fmt.Errorf("record %d is missing and not announced", n)
		}
	}
	for _, b := range m.batches {
		there, missing := 0, 0
		for n := b[0]; n <= b[1]; n++ {
			if _, ok := a.records[n]; ok {
				there++
			} else if m.live[n] {
				missing++
			}
		}
		if there > 0 && missing > 0 {
			return fmt.Errorf("of the batch %d-%d only a part is there", b[0], b[1])
		}
	}
	if a.state.Count != uint64(len(a.records)) || a.state.Bytes != a.bytes {
		return fmt.Errorf("count %d bytes %d, but %d records of %d bytes can be read", a.state.Count, a.state.Bytes, len(a.records), a.bytes)
	}
	return nil
}

// check compares a whole recovered engine with one side of a call. killed says
// that the machine did not lose power.
func (w world) check(answers map[string]*answer, killed bool) error {
	for name := range answers {
		if w[name] == nil {
			return fmt.Errorf("topic %s is there", name)
		}
	}
	for name, m := range w {
		a := answers[name]
		if a == nil {
			return fmt.Errorf("topic %s is missing", name)
		}
		if m.router {
			if a.state.Count != m.copies {
				return fmt.Errorf("%s has made %d copies, want %d", name, a.state.Count, m.copies)
			}
			continue
		}
		if a.state.Config != m.cfg {
			return fmt.Errorf("topic %s: config is %+v, want %+v", name, a.state.Config, m.cfg)
		}
		err := m.lossy(a)
		switch {
		case m.cfg.Durability == api.Fsync || m.cfg.Durability == api.Disk && killed:
			err = m.exact(a)
		case m.cfg.Durability == api.Ephemeral && len(a.records) > 0:
			err = fmt.Errorf("%d ephemeral records outlived the process", len(a.records))
		}
		if err != nil {
			return fmt.Errorf("topic %s (%s): %w", name, m.cfg.Durability, err)
		}
	}
	return nil
}
