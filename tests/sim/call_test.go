package sim

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
)

// call is one operation: what the engine is asked, and what it must answer.
type call struct {
	name   string
	topics []string // that it may change
	// do asks the engine and keeps the answer for check.
	do func(e *engine.Engine) error
	// plan says what must come of it, by the clocks at which it was asked.
	plan func(c *call) plan

	at, lease, wall int64 // clocks when it was asked: server's, leases', wall, ms
	until           int64 // wall clock when it was answered
	err             error
	done            chan struct{}
}

// plan is what the model expects of a call.
type plan struct {
	code  api.Code // "ok", or how it is refused
	after map[string]*topic
	class api.Durability
	// first is what it has synced before the rest of it.
	first map[string]*topic
	// silent changes are not in the log: leases that are not durable.
	silent bool
	// check compares the answer.
	check func() error
	// failed is what is left when the disk refused the call.
	failed map[string]*topic
}

const ok api.Code = "ok"

// clock is the server's clock: the highest time that it has seen.
func (s *sim) clock() int64 {
	now := s.wall.now().UnixMilli()
	for {
		last := s.last.Load()
		if now <= last {
			return last
		}
		if s.last.CompareAndSwap(last, now) {
			return now
		}
	}
}

func (s *sim) leaseClock() int64 { return s.lease + time.Since(s.start).Milliseconds() }

func (s *sim) begin(c *call) {
	c.at, c.lease, c.wall = s.clock(), s.leaseClock(), s.wall.now().UnixMilli()
}

// do makes one call and judges the answer.
func (s *sim) do(c *call) {
	s.guard()
	s.begin(c)
	c.err = c.do(s.e)
	c.until = s.wall.now().UnixMilli()
	s.judge(c)
	for _, name := range c.topics {
		s.verify(name)
	}
}

// judge compares an answer with the model and lets the model follow.
func (s *sim) judge(c *call) {
	code := codeOf(c.err)
	s.tell("%s: %s", c.name, code)
	p := c.plan(c)
	if code == api.CodeInternal && s.faulty {
		if err := storageDetail(c.err); err != nil {
			s.fail("%s: %v", c.name, err)
		}
		s.count["refused by a failing disk"]++
		s.adopt(c, p.failed)
		if p.code == ok && !p.silent {
			s.journal.add(change{name: c.name, class: p.class, at: time.Now(), after: maps.Clone(p.after), failed: true})
		}
		return
	}
	if code != p.code {
		s.fail("%s: answered %v, want %s", c.name, c.err, p.code)
	}
	if code != ok {
		s.count["answer "+string(code)]++
		return
	}
	if p.check != nil {
		if err := p.check(); err != nil {
			s.fail("%s: %v", c.name, err)
		}
	}
	s.adopt(c, p.after)
	s.note(c, p, time.Now(), false)
}

// note puts what a call has done into the journal.
func (s *sim) note(c *call, p plan, at time.Time, open bool) {
	if p.first != nil {
		s.journal.add(change{name: c.name, class: api.Fsync, at: at, after: p.first, open: open})
	}
	if !p.silent {
		s.journal.add(change{name: c.name, class: p.class, at: at, after: maps.Clone(p.after), open: open})
	}
}

// adopt makes the model follow, and learns the times the server gave.
func (s *sim) adopt(c *call, after map[string]*topic) {
	for name, t := range after {
		if t == nil {
			delete(s.topics, name)
			delete(s.expired, name)
			continue
		}
		s.learn(c, name, t)
		s.topics[name] = t
	}
}

func (s *sim) learn(c *call, name string, t *topic) {
	i := slices.IndexFunc(t.recs, func(r rec) bool { return r.ts == unknownTS })
	if i < 0 {
		return
	}
	_, err := s.e.Diff(bg, name, &api.DiffRequest{FromSeq: t.recs[i].seq - 1, Limit: 1000, MaxBatchBytes: api.MaxDiffBytes}, func(r *api.Record) {
		if k := t.find(r.Seq); k >= 0 && t.recs[k].ts == unknownTS {
			if r.TS < c.at || r.TS > s.clock() {
				s.fail("%s: record %d has the time %d, the call was made at %d", c.name, r.Seq, r.TS, c.at)
			}
			t.recs[k].ts = r.TS
		}
	})
	if err != nil {
		s.fail("%s: the records cannot be read: %v", c.name, err)
	}
}

func storageDetail(err error) error {
	e := err.(*api.Error)
	d, has := e.Detail["storage"].(map[string]any)
	if !has || d["operation"] == nil || d["error"] == nil {
		return fmt.Errorf("the failing disk is not named: %v %v", err, e.Detail)
	}
	return nil
}

const (
	// ticked is how long after the engine's tick, once a second, what that logs is surely in the file.
	ticked = 25 * time.Millisecond
	// tickAhead is longer than calls that are cut short last.
	tickAhead = 3 * time.Millisecond
)

// guard lets time pass until nothing ends while a call is under way, so that
// the model need not know how long a call takes.
func (s *sim) guard() {
	ahead := int64(10)
	if s.faulty {
		ahead = 3000
	}
	for range 50 {
		// The engine's tick appends to the log's buffer at the very moment at which the log may be
		// flushing it: which comes first is open, so nothing happens until the next flush.
		if since := (time.Since(s.start) + tickAhead) % time.Second; since < tickAhead+ticked {
			time.Sleep(tickAhead + ticked - since)
		}
		now, lease := s.clock(), s.leaseClock()
		near := func(at, now int64) bool { return at >= now-4 && at <= now+ahead }
		close := false
		for _, t := range s.topics {
			for _, r := range t.recs {
				close = close || t.cfg.TTLMS > 0 && near(r.ts+int64(t.cfg.TTLMS), now)
			}
			for _, j := range t.jobs {
				close = close || j.state != ready && near(j.until, lease)
			}
			for _, k := range t.keys {
				close = close || near(k.at+int64(t.cfg.IdempotencyWindowMS), lease)
			}
		}
		if !close {
			return
		}
		if s.wall.frozen.Load() != 0 {
			s.thaw()
		}
		time.Sleep(time.Duration(ahead/2+3) * time.Millisecond)
	}
}

// now is the topic as it must be at these clocks, for a plan to change.
func (s *sim) now(c *call, name string) *topic {
	t := s.topics[name]
	if t == nil {
		return nil
	}
	t = t.clone()
	s.age(name, t, c.at, c.lease)
	return t
}

func (s *sim) age(name string, t *topic, at, lease int64) {
	loss := t.loss
	t.expire(at)
	t.tick(lease)
	if t.loss != loss && t.cfg.Durability != api.Ephemeral {
		s.expired[name] = append(s.expired[name], noted{t.loss, time.Now()})
		s.count["expired"]++
	}
}

// verify compares a topic with the model: its counters, and one read.
func (s *sim) verify(name string) {
	t := s.topics[name]
	st, err := s.e.Topic(name, false)
	if t == nil {
		if codeOf(err) != api.CodeTopicNotFound {
			s.fail("topic %s is answered with %v, it should be absent", name, err)
		}
		return
	}
	if s.faulty && t.cfg.TTLMS > 0 {
		return // what has expired goes once its loss can be logged
	}
	if err != nil {
		s.fail("topic %s: %v", name, err)
	}
	t = t.clone()
	s.age(name, t, s.clock(), s.leaseClock())
	s.topics[name] = t
	if st.Config != t.cfg {
		s.fail("topic %s: config %+v, want %+v", name, st.Config, t.cfg)
	}
	if want := t.counters(); want != st.TopicCounters {
		s.fail("topic %s (%v): counters %+v, want %+v", name, t.cfg.Durability, st.TopicCounters, want)
	}
	if t.cfg.Type == api.TypeQueue && st.Queue != t.queue() {
		s.fail("topic %s (%v): queue %+v, want %+v", name, t.cfg.Durability, st.Queue, t.queue())
	}
	from := s.cursor(t)
	limit := 1 + s.rng.IntN(20)
	var nodes []string
	if s.rng.IntN(4) == 0 {
		nodes = []string{fmt.Sprint("n", s.rng.IntN(3))}
	}
	if err := s.read(name, t, from, limit, nodes); err != nil {
		s.fail("topic %s (%v): read at %d, limit %d, nodes %v: %v", name, t.cfg.Durability, from, limit, nodes, err)
	}
}

func (s *sim) cursor(t *topic) uint64 {
	switch s.rng.IntN(5) {
	case 0:
		return 0
	case 1:
		return t.head
	case 2:
		return t.head + s.rng.Uint64N(3)
	case 3:
		return t.loss
	}
	return s.rng.Uint64N(t.head + 1)
}

func (s *sim) read(name string, t *topic, from uint64, limit int, nodes []string) error {
	var recs []rec
	res, err := s.e.Diff(bg, name, &api.DiffRequest{FromSeq: from, Limit: limit, Nodes: nodes, MaxBatchBytes: api.MaxDiffBytes}, func(r *api.Record) { recs = append(recs, recOf(r)) })
	if err != nil {
		return err
	}
	want := t.read(from, limit, nodes)
	if err := sameRecs(want.recs, recs); err != nil {
		return err
	}
	switch g := res.Tombstone; {
	case (g == nil) != (want.tomb == nil), g != nil && *want.tomb != (span{g.GapFrom, g.GapTo}):
		return fmt.Errorf("tombstone %+v, want %+v", g, want.tomb)
	case g != nil:
		s.count["tombstone "+string(g.Reason)]++
	}
	if res.NextFromSeq != want.next || res.HeadSeq != t.head || res.EarliestSeq != t.earliest() {
		return fmt.Errorf("next %d, head %d, earliest %d; want %d, %d, %d", res.NextFromSeq, res.HeadSeq, res.EarliestSeq, want.next, t.head, t.earliest())
	}
	return nil
}

// verifyAll compares everything, every topic from cursor 0 on.
func (s *sim) verifyAll() {
	s.guard()
	seen, err := look(s.e)
	if err != nil {
		s.fail("%v", err)
	}
	if len(seen) != len(s.topics) {
		s.fail("the topics are %v, want %v", slices.Sorted(maps.Keys(seen)), slices.Sorted(maps.Keys(s.topics)))
	}
	for _, name := range slices.Sorted(maps.Keys(s.topics)) {
		s.verify(name)
		if seen[name] == nil {
			s.fail("topic %s is not listed", name)
		}
		if err := seen[name].is(s.topics[name].clone()); err != nil {
			s.fail("topic %s (%v): %v", name, s.topics[name].cfg.Durability, err)
		}
	}
}

// burst makes calls that overlap: each begins a moment after the one before.
func (s *sim) burst(calls []*call) *sync.WaitGroup {
	var wg sync.WaitGroup
	e := s.e
	for i, c := range calls {
		c.done = make(chan struct{})
		wg.Go(func() {
			time.Sleep(time.Duration(i+1) * 23 * time.Microsecond)
			s.begin(c)
			c.err = c.do(e)
			c.until = s.wall.now().UnixMilli()
			close(c.done)
		})
	}
	return &wg
}

func (c *call) answered() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}
