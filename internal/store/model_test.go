package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

// model is what a correct engine would know after the operations it made up.
type model struct {
	choose func(n int) int // a number from 0 to n-1
	topics map[uint64]*modelTopic
	next   uint64
	lsn    uint64
	ops    []Op // of the segment being filled

	sessions map[op.WatchID]op.Watch
}

type modelTopic struct {
	st     op.State
	live   map[uint64]modelRecord
	leases map[uint64]Lease
	keys   map[op.KeyHash]Key
	routes map[uint64]op.Route // routers that this topic is the source of
}

type modelRecord struct {
	data []byte
	tag  string
	ts   int64
}

func newModel(choose func(n int) int) *model {
	return &model{choose: choose, topics: make(map[uint64]*modelTopic), sessions: make(map[op.WatchID]op.Watch)}
}

func (m *model) clone() *model {
	c := *m
	c.ops = nil
	c.sessions = maps.Clone(m.sessions)
	c.topics = make(map[uint64]*modelTopic)
	for id, t := range m.topics {
		n := &modelTopic{live: maps.Clone(t.live), leases: maps.Clone(t.leases), keys: maps.Clone(t.keys), routes: maps.Clone(t.routes)}
		st, err := op.DecodeState(t.st.EncodeState(nil))
		if err != nil {
			panic(err)
		}
		t.st.Holes.Pages(func(idx uint64, b []byte) { st.Holes.SetPage(idx, b) })
		n.st = *st
		c.topics[id] = n
	}
	return &c
}

// operation logs parts as one operation and applies them.
func (m *model) operation(frames []byte, parts ...*op.Part) {
	m.lsn++
	var b []byte
	for _, p := range parts {
		b = p.Encode(b)
	}
	m.ops = append(m.ops, Op{LSN: m.lsn, Payload: append(b, frames...)})
	for _, p := range parts {
		m.apply(p, frames)
	}
}

func (m *model) apply(p *op.Part, frames []byte) {
	if op.OfWatch(p.Kind) {
		m.applyWatch(p)
		return
	}
	switch p.Kind {
	case op.KindCreate:
		m.topics[p.Topic] = &modelTopic{live: map[uint64]modelRecord{}, leases: map[uint64]Lease{}, keys: map[op.KeyHash]Key{}, routes: map[uint64]op.Route{}}
	case op.KindDrop:
		delete(m.topics, p.Topic)
		return
	}
	t := m.topics[p.Topic]
	t.st.Apply(p)
	evict := func(to uint64) {
		for seq := range t.live {
			if seq <= to {
				delete(t.live, seq)
			}
		}
	}
	switch p.Kind {
	case op.KindAppend:
		sum := op.SumOf(wal.Checksum(frames))
		var r api.Record
		for seq := p.First; len(frames) > 0; seq++ {
			frames, _ = op.ReadFrame(frames, &r)
			t.live[seq] = modelRecord{data: bytes.Clone(r.Data), tag: string(r.Tag), ts: p.TS}
		}
		if p.HasKey {
			t.keys[p.Key] = Key{Topic: p.Topic, Hash: p.Key, First: p.First, N: p.N, At: p.TS, Sum: sum}
		}
		evict(p.EvictTo)
	case op.KindDelete:
		for _, r := range p.Ranges {
			for seq := r.From; seq <= r.To; seq++ {
				delete(t.live, seq)
			}
		}
	case op.KindEvict:
		evict(p.To)
	case op.KindLease, op.KindRelease:
		for _, l := range p.Leases {
			t.leases[l.Seq] = Lease{Topic: p.Topic, Node: p.Node, Lease: l, Released: p.Kind == op.KindRelease}
		}
	case op.KindRouter:
		t.routes[p.Router] = *p.Route
	case op.KindCursor:
		if r, ok := t.routes[p.Router]; ok {
			r.Apply(p)
			t.routes[p.Router] = r
		}
	case op.KindRouterDrop:
		delete(t.routes, p.Router)
	}
	for seq := range t.leases {
		if _, ok := t.live[seq]; !ok {
			delete(t.leases, seq)
		}
	}
}

func (m *model) pick() *modelTopic {
	if len(m.topics) == 0 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(m.topics))
	return m.topics[ids[m.choose(len(ids))]]
}

func (t *modelTopic) seqs() []uint64 { return slices.Sorted(maps.Keys(t.live)) }

// upTo sums what is live up to a number.
func (t *modelTopic) upTo(to uint64) (n, size uint64) {
	for seq, r := range t.live {
		if seq <= to {
			n++
			size += uint64(len(r.data))
		}
	}
	return n, size
}

// step does one random call.
func (m *model) step() {
	t := m.pick()
	kind := m.choose(20)
	if t == nil || (kind == 0 && len(m.topics) < 6) {
		m.next++
		cfg := api.DefaultConfig()
		m.operation(nil, &op.Part{Kind: op.KindCreate, Topic: m.next, Name: fmt.Sprint("topic-", m.next), TS: int64(m.lsn), Config: cfg})
		return
	}
	id := t.st.ID
	switch kind {
	case 0, 1, 2:
		m.delete(t, nil)
	case 3:
		if seqs := t.seqs(); len(seqs) > 0 {
			to := seqs[m.choose(len(seqs))]
			n, size := t.upTo(to)
			m.operation(nil, &op.Part{Kind: op.KindEvict, Topic: id, To: to, Cause: op.CauseTTL, N: n, Bytes: size, TS: int64(m.lsn)})
		}
	case 4:
		from := t.st.Head + 1
		m.operation(nil, &op.Part{Kind: op.KindLose, Topic: id, From: from, To: from + uint64(m.choose(50)), Cause: op.CauseCrash})
	case 5:
		m.operation(nil, &op.Part{Kind: op.KindSkip, Topic: id, To: t.st.Head + uint64(m.choose(9000))})
	case 6:
		m.operation(nil, &op.Part{Kind: op.KindReserve, Topic: id, To: t.st.Head + uint64(m.choose(100))})
	case 7:
		cfg := t.st.Config
		cfg.CapRecords = uint64(m.choose(1000))
		m.operation(nil, &op.Part{Kind: op.KindConfig, Topic: id, Config: cfg})
	case 8, 9:
		if seqs := t.seqs(); len(seqs) > 0 {
			k := op.KindLease
			if m.choose(3) == 0 {
				k = op.KindRelease
			}
			m.operation(nil, &op.Part{Kind: k, Topic: id, Node: "worker", Leases: []op.Lease{
				{Seq: seqs[m.choose(len(seqs))], ID: m.lsn, Deadline: int64(m.lsn) * 10, Deliveries: uint64(m.choose(5))}}})
		}
	case 10:
		if m.choose(4) == 0 {
			m.operation(nil, &op.Part{Kind: op.KindDrop, Topic: id})
		}
	case 11:
		// A dead letter: gone here, appended there, in one operation.
		if other := m.pick(); other != t {
			if seqs := t.seqs(); len(seqs) > 0 {
				m.delete(t, other)
			}
		}
	case 12:
		m.route(t)
	case 13:
		m.watch()
	default:
		m.append(t, nil)
	}
}

// route makes, moves or ends one of a few routers, which may not exist.
func (m *model) route(t *modelTopic) {
	p := &op.Part{Kind: op.KindCursor, Topic: t.st.ID, Router: uint64(1 + m.choose(3)), To: t.st.Head, Count: m.lsn}
	switch m.choose(4) {
	case 0, 1:
		p.Kind = op.KindRouter
		p.Route = &op.Route{ID: p.Router, Source: t.st.ID, Dest: m.pick().st.ID, Name: fmt.Sprint("router-", m.lsn), Pos: t.st.Head}
	case 2:
		p.Kind = op.KindRouterDrop
	}
	m.operation(nil, p)
}

// watch makes, moves, ends or forgets one of a few watch sessions, which may not
// exist. One whose time is over goes without a word in the log.
func (m *model) watch() {
	id := op.WatchID{byte(m.choose(4))}
	switch m.choose(5) {
	case 0, 1:
		m.operation(nil, &op.Part{Kind: op.KindWatch, Watch: &op.Watch{ID: id, Since: int64(m.lsn), Topics: []op.WatchPlace{{Name: "a", Life: 1, Seq: m.lsn}}}})
	case 2:
		m.operation(nil, &op.Part{Kind: op.KindWatchMove, Session: id, Move: &op.WatchMove{Places: []op.MovedPlace{{Life: 2, Seq: m.lsn}}}})
	case 3:
		m.operation(nil, &op.Part{Kind: op.KindWatchEnd, Session: id})
	default:
		delete(m.sessions, id)
	}
}

// applyWatch applies a part of a session.
func (m *model) applyWatch(p *op.Part) {
	switch p.Kind {
	case op.KindWatch:
		m.sessions[p.Watch.ID] = *p.Watch
	case op.KindWatchMove:
		if w, ok := m.sessions[p.Session]; ok {
			w.Topics = slices.Clone(w.Topics)
			w.Move(p.Move)
			m.sessions[p.Session] = w
		}
	case op.KindWatchEnd:
		delete(m.sessions, p.Session)
	}
}

func (m *model) Watching(id op.WatchID) bool { _, ok := m.sessions[id]; return ok }

func (m *model) delete(t, to *modelTopic) {
	seqs := t.seqs()
	if len(seqs) == 0 {
		return
	}
	p := &op.Part{Kind: op.KindDelete, Topic: t.st.ID}
	for i := m.choose(len(seqs)); i < len(seqs); i += 1 + m.choose(5) {
		j := min(i+m.choose(20), len(seqs)-1)
		p.Ranges = append(p.Ranges, op.Range{From: seqs[i], To: seqs[j]})
		i = j
		if m.choose(4) == 0 {
			break
		}
	}
	for seq, r := range t.live {
		for _, g := range p.Ranges {
			if g.From <= seq && seq <= g.To {
				p.N++
				p.Bytes += uint64(len(r.data))
			}
		}
	}
	if to == nil {
		m.operation(nil, p)
		return
	}
	m.append(to, p)
}

func (m *model) append(t *modelTopic, before *op.Part) {
	n := 1 + m.choose(8)
	p := &op.Part{Kind: op.KindAppend, Topic: t.st.ID, First: t.st.Head + 1, N: uint64(n), TS: 1000 + int64(m.lsn)}
	var frames []byte
	for i := range n {
		size := 2 + m.choose(300)
		if m.choose(60) == 0 {
			size = 40_000 + m.choose(200_000)
		}
		r := api.Record{Data: make([]byte, size)}
		for j := range r.Data {
			r.Data[j] = byte('a' + (int(p.First)+i+j)%26)
		}
		if m.choose(4) == 0 {
			r.HasTag, r.Tag = true, fmt.Append(nil, "tag", i)
		}
		p.Bytes += uint64(r.Size())
		frames = op.AppendFrame(frames, &r)
	}
	if m.choose(4) == 0 {
		p.HasKey = true
		binary.LittleEndian.PutUint64(p.Key[:], uint64(m.choose(10)))
	}
	if seqs := t.seqs(); m.choose(6) == 0 && len(seqs) > 0 {
		p.EvictTo = seqs[m.choose(len(seqs))]
		p.EvictN, p.EvictBytes = t.upTo(p.EvictTo)
	}
	if before == nil {
		m.operation(frames, p)
		return
	}
	m.operation(frames, before, p)
}

// cut ends the segment and returns its operations as a scan.
func (m *model) cut() (lastLSN uint64, scan func(func(Op) error) error) {
	ops := m.ops
	m.ops = nil
	return m.lsn, func(fn func(Op) error) error {
		var buf []byte // reused, as the log does
		for _, o := range ops {
			buf = append(buf[:0], o.Payload...)
			o.Payload = buf
			if err := fn(o); err != nil {
				return err
			}
		}
		return nil
	}
}

// Snapshot and Sync make the model a View.
func (m *model) Recovered(uint64) (string, bool) { return "", false }

func (m *model) Snapshot(topic uint64) func(uint64) bool {
	t := m.topics[topic]
	return func(seq uint64) bool {
		if t == nil {
			return true
		}
		_, ok := t.live[seq]
		return !ok && seq <= t.st.Head
	}
}

// KeyAt has forgotten what another append has taken the key for.
func (m *model) KeyAt(topic uint64, key op.KeyHash, first uint64) (int64, bool) {
	if m.topics[topic] == nil {
		return 0, false
	}
	k := m.topics[topic].keys[key]
	return k.At, k.First == first
}

func (m *model) Sync() error { return nil }

var _ View = (*model)(nil)

func (m *model) seal(s *Store, segment uint32, view View) error {
	last, scan := m.cut()
	_, _, err := s.Seal(context.Background(), segment, last, scan, view, nil)
	return err
}

func holes(st *op.State) map[uint64]string {
	pages := make(map[uint64]string)
	st.Holes.Pages(func(idx uint64, b []byte) { pages[idx] = string(b) })
	return pages
}

// check compares everything the store gives with the model.
func (m *model) check(s *Store) error {
	states := make(map[uint64]*op.State)
	runs := make(map[uint64][]Run)
	keys := make(map[uint64]map[op.KeyHash]Key)
	leases := make(map[uint64]map[uint64]Lease)
	err := s.Load(
		func(st *op.State) error { states[st.ID] = st; return nil },
		func(r Run) error { runs[r.Topic] = append(runs[r.Topic], r); return nil },
		func(k Key) error {
			if keys[k.Topic] == nil {
				keys[k.Topic] = make(map[op.KeyHash]Key)
			}
			keys[k.Topic][k.Hash] = k
			return nil
		},
		func(l Lease) error {
			if leases[l.Topic] == nil {
				leases[l.Topic] = make(map[uint64]Lease)
			}
			leases[l.Topic][l.Seq] = l
			return nil
		})
	if err != nil {
		return err
	}
	routes := make(map[uint64]map[uint64]op.Route)
	if err := s.Routes(func(r op.Route) error {
		if routes[r.Source] == nil {
			routes[r.Source] = make(map[uint64]op.Route)
		}
		routes[r.Source][r.ID] = r
		return nil
	}); err != nil {
		return err
	}
	sessions := make(map[op.WatchID]op.Watch)
	if err := s.Watches(func(w *op.Watch) error {
		if m.Watching(w.ID) { // else it was forgotten after the seal
			sessions[w.ID] = *w
		}
		return nil
	}); err != nil {
		return err
	}
	if !reflect.DeepEqual(sessions, m.sessions) {
		return fmt.Errorf("sessions %v, want %v", sessions, m.sessions)
	}
	if len(states) != len(m.topics) {
		return fmt.Errorf("%d topics, want %d", len(states), len(m.topics))
	}
	for id, t := range m.topics {
		st := states[id]
		if st == nil {
			return fmt.Errorf("topic %d is missing", id)
		}
		if got, want := st.EncodeState(nil), t.st.EncodeState(nil); !bytes.Equal(got, want) {
			return fmt.Errorf("topic %d: state %+v, want %+v", id, *st, t.st)
		}
		if !maps.Equal(holes(st), holes(&t.st)) {
			return fmt.Errorf("topic %d: holes differ", id)
		}
		if !maps.Equal(keys[id], t.keys) {
			return fmt.Errorf("topic %d: keys %v, want %v", id, keys[id], t.keys)
		}
		if !maps.Equal(leases[id], t.leases) {
			return fmt.Errorf("topic %d: leases %v, want %v", id, leases[id], t.leases)
		}
		if len(routes[id])+len(t.routes) > 0 && !reflect.DeepEqual(routes[id], t.routes) {
			return fmt.Errorf("topic %d: routers %v, want %v", id, routes[id], t.routes)
		}
		if err := t.checkRecords(s, runs[id]); err != nil {
			return fmt.Errorf("topic %d: %w", id, err)
		}
	}
	return m.checkDropped(s)
}

// checkDropped looks for what topics that are gone have left behind and nobody
// would ever remove: their records go with their segments, all else with them.
func (m *model) checkDropped(s *Store) error {
	for _, prefix := range []byte{prefixTopic, prefixLease, prefixRouter, prefixRun, prefixPage} {
		if err := s.kv.Load().scan([]byte{prefix}, []byte{prefix + 1}, func(k, _ []byte) error {
			if id := binary.BigEndian.Uint64(k[1:]); m.topics[id] == nil {
				return fmt.Errorf("topic %d is gone, the store still has key %q of it", id, k)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// checkRecords reads all records of the topic's runs, as a reader would.
func (t *modelTopic) checkRecords(s *Store, runs []Run) error {
	seen := 0
	last := uint64(0)
	for _, run := range runs {
		if run.First <= last {
			return fmt.Errorf("run %+v begins before %d", run, last)
		}
		var n, size, disk uint64
		for seq := run.First; ; {
			c, err := s.Read(run.Segment, run.Topic, seq)
			if err != nil {
				return err
			}
			if c == nil {
				break
			}
			disk += uint64(c.Size() + dataKeyLen)
			var r api.Record
			for it := c.Seek(seq); it.Next(&r); {
				n++
				size += uint64(r.Size())
				if want, ok := t.live[r.Seq]; ok {
					if !bytes.Equal(r.Data, want.data) || string(r.Tag) != want.tag || r.TS != want.ts {
						return fmt.Errorf("record %d is altered", r.Seq)
					}
					seen++
				}
				last = r.Seq
			}
			seq = c.Last + 1
		}
		if last != run.Last || n != run.N || size != run.Bytes || disk != run.Disk {
			return fmt.Errorf("run %+v: read up to %d: %d records, %d bytes, %d on disk", run, last, n, size, disk)
		}
	}
	if seen != len(t.live) {
		return fmt.Errorf("%d live records found, want %d", seen, len(t.live))
	}
	return nil
}

func openStore(t testing.TB, opt Options) *Store {
	t.Helper()
	s, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// runs lists all runs of the store.
func (m *model) runs(t testing.TB, s *Store) (list []Run) {
	t.Helper()
	err := s.Load(func(*op.State) error { return nil }, func(r Run) error { list = append(list, r); return nil },
		func(Key) error { return nil }, func(Lease) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// deleteRange deletes what is live from from to to.
func (m *model) deleteRange(t *modelTopic, from, to uint64) {
	p := &op.Part{Kind: op.KindDelete, Topic: t.st.ID, Ranges: []op.Range{{From: from, To: to}}}
	for seq, r := range t.live {
		if from <= seq && seq <= to {
			p.N++
			p.Bytes += uint64(len(r.data))
		}
	}
	m.operation(nil, p)
}
