package relay

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/push"
)

// reads are the reads upstream of what listeners have missed. Listeners that miss the same
// share one, unless it was asked for before one of them subscribed: then it may not show what that
// one knows of.
type reads struct {
	relay *Relay
	slots chan struct{}

	mu      sync.Mutex
	running map[string]*flight
}

// flight is a read under way, and the one behind it.
type flight struct{ now, next *read }

// read is one of them.
type read struct {
	asked time.Time     // zero: not yet; guarded by reads.mu
	done  chan struct{} // closed when what follows is set
	got   *stretch
	err   error
}

// diff is the answer to a diff.
type diff struct {
	Records     []record   `json:"records"`
	NextFromSeq uint64     `json:"next_from_seq"`
	HeadSeq     uint64     `json:"head_seq"`
	EarliestSeq uint64     `json:"earliest_seq"`
	Tombstone   *tombstone `json:"tombstone"`
	Life        uint64     `json:"life"`
}

func (s *reads) init(r *Relay) {
	s.relay, s.slots, s.running = r, make(chan struct{}, mostReads), make(map[string]*flight)
}

// fetch reads one frame upstream. Whatever prevents it, the stream tries again.
func (m *mirror) fetch(ctx context.Context, life, cursor uint64, rd *push.Reading) error {
	if st := m.stretch(cursor, rd); st != nil {
		st.fill(m.name, cursor, rd)
		return nil
	}
	st, err := m.relay.reads.get(ctx, m, cursor, rd)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch {
	case api.IsCode(err, api.CodeTopicNotFound), err == nil && st.life != life:
		m.relay.ended(m) // the subscription will say so, too
		return push.ErrLater
	case err != nil:
		m.relay.log.Debug("missed records could not be read upstream", "topic", m.name, "error", err)
		m.again.Store(true)
		return push.ErrLater
	}
	st.fill(m.name, cursor, rd)
	return nil
}

// get reads upstream, or waits for somebody who reads the same.
func (s *reads) get(ctx context.Context, m *mirror, cursor uint64, rd *push.Reading) (*stretch, error) {
	r := s.join(m, cursor, rd)
	select {
	case <-r.done:
		return r.got, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// join returns a read of that kind which is new enough.
func (s *reads) join(m *mirror, cursor uint64, rd *push.Reading) *read {
	body := s.relay.diffBody(cursor, rd.Opt.Nodes)
	key := m.name + " " + string(body)
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.running[key]; f != nil {
		if f.now.asked.IsZero() || f.now.asked.After(rd.Since) {
			return f.now
		}
		if f.next == nil {
			f.next = newRead()
		}
		return f.next
	}
	f := &flight{now: newRead()}
	r := f.now
	if !s.relay.start(func(ctx context.Context) { s.fly(ctx, f, key, m, body, stretch{from: cursor, nodes: rd.Opt.Nodes}) }) {
		r.err = context.Canceled
		close(r.done)
		return r
	}
	s.running[key] = f
	return r
}

func newRead() *read { return &read{done: make(chan struct{})} }

// fly makes one read after the other until nobody waits for another.
func (s *reads) fly(ctx context.Context, f *flight, key string, m *mirror, body []byte, what stretch) {
	for r := f.now; r != nil; {
		if r.got, r.err = s.make(ctx, r, m.name, body, what); r.err == nil {
			m.keep(r.got)
		}
		close(r.done)
		s.mu.Lock()
		if f.now, f.next = f.next, nil; f.now == nil {
			delete(s.running, key)
		}
		r = f.now
		s.mu.Unlock()
	}
}

// make reads a stretch, of which it is known where it begins and what it leaves out.
func (s *reads) make(ctx context.Context, r *read, topic string, body []byte, what stretch) (*stretch, error) {
	if err := s.slot(ctx); err != nil {
		return nil, err
	}
	defer func() { <-s.slots }()
	what.asked = time.Now()
	s.mu.Lock()
	r.asked = what.asked
	s.mu.Unlock()
	s.relay.counts.reads.Add(1)
	a, err := s.relay.ask(ctx, http.MethodPost, "/v0/topics/"+url.PathEscape(topic)+"/diff", s.relay.own(), body, maxRecords)
	if err == nil && a.status != http.StatusOK {
		err = a.error()
	}
	if err != nil {
		return nil, err
	}
	var d diff
	if err := json.Unmarshal(a.body, &d); err != nil {
		return nil, err
	}
	return &what, what.of(&d)
}

// slot takes a place among the reads that may run at once.
func (s *reads) slot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Relay) diffBody(cursor uint64, nodes []string) []byte {
	b := strconv.AppendUint([]byte(`{"relay":true,"include_tags":true,"from_seq":`), cursor, 10)
	b = strconv.AppendInt(append(b, `,"limit":`...), int64(r.opt.Limits.MaxLimit), 10)
	b = strconv.AppendInt(append(b, `,"max_batch_bytes":`...), min(mostStretch, max(1, r.opt.BufferBytes/4)), 10)
	if len(nodes) > 0 {
		text, _ := json.Marshal(nodes) // strings cannot fail
		b = append(append(b, `,"node":`...), text...)
	}
	return append(b, '}')
}

// record is a record on the wire.
type record struct {
	Seq     uint64          `json:"$seq"`
	TS      int64           `json:"$ts"`
	Node    *string         `json:"$node"`
	Tag     *string         `json:"$tag"`
	Tier    string          `json:"$priority"`
	FairKey string          `json:"$fair_key"`
	Data    json.RawMessage `json:"data"`
	Meta    json.RawMessage `json:"meta"`
}

var errRecord = errors.New("a record of the upstream is not what /v0 says")

func itemsOf(records []record, plain bool) ([]item, error) {
	items := make([]item, len(records))
	for i := range records {
		r := &records[i]
		rec := api.Record{Seq: r.Seq, TS: r.TS, FairKey: []byte(r.FairKey), Data: r.Data, Meta: r.Meta}
		if r.Node != nil {
			rec.HasNode, rec.Node = true, []byte(*r.Node)
		}
		if r.Tag != nil {
			rec.HasTag, rec.Tag = true, []byte(*r.Tag)
		}
		if r.Tier != "" {
			var ok bool
			if rec.Tier, ok = api.ParseTier(r.Tier); !ok {
				return nil, errRecord
			}
		}
		if r.Seq == 0 || len(r.Data) == 0 || i > 0 && r.Seq <= records[i-1].Seq {
			return nil, errRecord
		}
		items[i] = item{last: r.Seq, rec: rec, plain: plain}
	}
	return items, nil
}

// tombstone is one on the wire.
type tombstone struct {
	Reason      api.TombstoneReason `json:"reason"`
	GapFrom     uint64              `json:"gap_from"`
	GapTo       uint64              `json:"gap_to"`
	EarliestSeq uint64              `json:"earliest_seq"`
	HeadSeq     uint64              `json:"head_seq"`
}

func (t *tombstone) noun() *api.Tombstone {
	return &api.Tombstone{
		GapFrom: t.GapFrom, GapTo: t.GapTo, Reason: t.Reason, EarliestSeq: t.EarliestSeq, HeadSeq: t.HeadSeq,
		MissedEstimate: t.GapTo + 1 - t.GapFrom,
	}
}

// names joins the names of topics, which are sorted, for a key of a map.
func names(topics []string) string { return strings.Join(topics, " ") }
