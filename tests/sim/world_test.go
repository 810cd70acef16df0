package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
)

// world is every topic by name.
type world map[string]*topic

// change is one operation in the journal: its class and what it made of the
// topics (nil: dropped).
type change struct {
	name  string
	class api.Durability
	at    time.Time // when it was acknowledged
	after map[string]*topic
	// open: no answer had come when the machine stopped, so it happened or not.
	open bool
	// failed: the disk refused it. It has not happened, but while the disk goes
	// on failing a crash may bring it back as a whole.
	failed bool
}

// journal is what may not be on the disk yet: the world as it surely is there,
// and the changes since, in the order of the log.
type journal struct {
	base    world
	changes []change
}

// add puts a change behind the others. One that was synced makes everything
// before it safe, too.
func (j *journal) add(c change) {
	j.changes = append(j.changes, c)
	if c.class == api.Fsync && !c.open && !c.failed {
		j.settle()
	}
}

// settle makes everything safe.
func (j *journal) settle() {
	for _, c := range j.changes {
		if !c.failed {
			j.base.apply(c)
		}
	}
	j.changes = nil
}

func (w world) apply(c change) {
	for name, t := range c.after {
		if t == nil {
			delete(w, name)
		} else {
			w[name] = t
		}
	}
}

// sight is a topic as it answers after a start.
type sight struct {
	state api.TopicState
	recs  []rec
	tombs []span
}

func look(e *engine.Engine) (map[string]*sight, error) {
	seen := map[string]*sight{}
	for _, t := range e.Topics("", "", 1000, false, nil).Topics {
		s := &sight{}
		var err error
		if s.state, err = e.Topic(t.Topic, false); err != nil {
			return nil, err
		}
		for from := uint64(0); ; {
			res, err := e.Diff(bg, t.Topic, &api.DiffRequest{FromSeq: from, Limit: 1 + int(from+t.HeadSeq)%9, MaxBatchBytes: api.MaxDiffBytes}, func(r *api.Record) {
				s.recs = append(s.recs, recOf(r))
			})
			if err != nil {
				return nil, err
			}
			if g := res.Tombstone; g != nil {
				s.tombs = append(s.tombs, span{g.GapFrom, g.GapTo})
			}
			if res.CaughtUp() {
				break
			}
			if res.NextFromSeq <= from {
				return nil, fmt.Errorf("a read of %s at %d goes nowhere: %+v", t.Topic, from, res)
			}
			from = res.NextFromSeq
		}
		seen[t.Topic] = s
	}
	return seen, nil
}

func recOf(r *api.Record) rec {
	return rec{seq: r.Seq, ts: r.TS, data: string(r.Data), meta: string(r.Meta), tag: string(r.Tag), node: string(r.Node),
		hasTag: r.HasTag, hasNode: r.HasNode, size: uint64(r.Size())}
}

// sameRecs compares what a reader sees with the model; a time that the model
// does not know is taken from the reader.
func sameRecs(want, have []rec) error {
	for i := range max(len(want), len(have)) {
		if i >= len(want) {
			return fmt.Errorf("record %d is there and should not be", have[i].seq)
		}
		if i >= len(have) {
			return fmt.Errorf("record %d is missing", want[i].seq)
		}
		w := want[i]
		if w.ts == unknownTS {
			w.ts = have[i].ts
		}
		if w != have[i] {
			return fmt.Errorf("record should be %v, it is %v", w, have[i])
		}
	}
	return nil
}

// stop says how a life ended.
type stop uint8

const (
	closed stop = iota
	killed
	powerCut
)

// aftermath is what is known about a restart.
type aftermath struct {
	how        stop
	before     world // the last world before it, whose heads must hold
	from, till int64 // the server's clock after and before it
	gone       map[string]uint64
}

// loses says whether the head jumps over numbers that may have been given out.
func (a *aftermath) loses(c api.Durability) bool {
	switch {
	case c == api.Fsync:
		return false
	case c == api.Disk:
		return a.how == powerCut
	}
	return a.how != closed || c == api.Ephemeral
}

// after is the topic that t must be after the restart, judged by what is seen.
func (a *aftermath) after(name string, t *topic, s *sight) (*topic, error) {
	head := t.head
	if was := a.before[name]; was != nil {
		head = max(head, was.head)
	}
	if s.state.HeadSeq < head {
		return nil, fmt.Errorf("head went back from %d to %d", head, s.state.HeadSeq)
	}
	t = t.clone()
	for _, r := range s.recs {
		if i := t.find(r.seq); i >= 0 && t.recs[i].ts == unknownTS {
			t.recs[i].ts = r.ts
		}
	}
	n := 0 // records that have expired for sure, and those that may have
	most := 0
	for _, r := range t.recs {
		if t.cfg.TTLMS > 0 && (r.ts != unknownTS && a.from-r.ts > int64(t.cfg.TTLMS) || r.seq <= a.gone[name]) && n == most {
			n++
		}
		if t.cfg.TTLMS > 0 && a.till-r.ts > int64(t.cfg.TTLMS) {
			most++
		}
		most = max(most, n)
	}
	var first error
	for ; n <= most; n++ {
		for logged := n; logged >= 0; logged-- {
			c, err := a.judge(t.clone(), s, logged, n)
			if err == nil {
				return c, nil
			}
			if first == nil {
				first = err
			}
		}
	}
	return nil, first
}

// evictFirst takes the n oldest records.
func (t *topic) evictFirst(n int) {
	if n > 0 {
		t.evict(t.recs[n-1].seq)
	}
}

// judge makes of c what the restart must have left, if the loss of the oldest
// logged records was in the log and expired of them had expired at the look.
func (a *aftermath) judge(c *topic, s *sight, logged, expired int) (*topic, error) {
	c.evictFirst(logged)
	if c.cfg.Durability == api.Ephemeral {
		c.recs, c.lost, c.jobs, c.keys = nil, nil, map[uint64]job{}, map[string]keyed{}
		c.dead = min(c.dead, s.state.Queue.DeadLettered)
	}
	if a.loses(c.cfg.Durability) {
		c.crash(c.head+1, s.state.HeadSeq)
		if c.cfg.Durability == api.Ephemeral {
			c.loss = c.head
		}
	} else if a.how == killed && c.cfg.Durability == api.Disk {
		c.head = s.state.HeadSeq // a silent jump is allowed
	}
	if len(c.recs) > 0 {
		c.evictFirst(expired - logged)
	}
	if !c.cfg.LeasesDurable {
		for seq, j := range c.jobs { // as if nobody had ever claimed it
			if delete(c.jobs, seq); j.due > 0 {
				c.jobs[seq] = job{state: delayed, until: j.due, due: j.due}
			}
		}
	}
	return c, s.is(c)
}

// is compares a topic with the model: all of it, from cursor 0 on.
func (s *sight) is(c *topic) error {
	if s.state.Config != c.cfg {
		return fmt.Errorf("config should be %+v, it is %+v", c.cfg, s.state.Config)
	}
	var tombs []span
	for from := uint64(0); ; {
		p := c.read(from, 1<<30, nil)
		if p.tomb != nil {
			tombs = append(tombs, *p.tomb)
		}
		if p.next == c.head {
			break
		}
		from = p.next
	}
	if err := sameRecs(c.recs, s.recs); err != nil {
		return err
	}
	for i := range s.recs {
		c.recs[i].ts = s.recs[i].ts
	}
	if !slices.Equal(tombs, s.tombs) {
		return fmt.Errorf("the tombstones should be %v, they are %v (head %d)", tombs, s.tombs, c.head)
	}
	if c.dead != s.state.Queue.DeadLettered {
		return fmt.Errorf("%d dead letters should have been counted, it is %d", c.dead, s.state.Queue.DeadLettered)
	}
	if want, have := c.counters(), s.state.TopicCounters; want != have {
		return fmt.Errorf("counters should be %+v, they are %+v", want, have)
	}
	return nil
}

// find returns the world that a restart left, at a place in the journal from
// least on that explains everything that is seen, and how much was lost.
func (j *journal) find(least int, seen map[string]*sight, a *aftermath) (world, int, error) {
	at := maps.Clone(j.base)
	for _, c := range j.changes[:least] {
		if !c.failed {
			at.apply(c)
		}
	}
	states := []world{maps.Clone(at)}
	for _, c := range j.changes[least:] {
		next := maps.Clone(at)
		next.apply(c)
		states = append(states, maps.Clone(next))
		if !c.failed {
			at = next
		}
	}
	var errs []string
	for i := len(states) - 1; i >= 0; i-- {
		w, err := a.explain(states[i], seen)
		if err == nil {
			return w, len(states) - 1 - i, nil
		}
		if len(errs) < 4 {
			errs = append(errs, fmt.Sprintf("at %d of %d (least %d): %v", least+i, len(j.changes), least, err))
		}
	}
	return nil, 0, fmt.Errorf("no place in the journal explains what is there:\n  %s", strings.Join(errs, "\n  "))
}

// explain holds what is seen against a world.
func (a *aftermath) explain(w world, seen map[string]*sight) (world, error) {
	out := world{}
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if w[name] == nil {
			return nil, fmt.Errorf("topic %s should not be there", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w)) {
		t, err := a.one(name, w[name], seen)
		if err != nil {
			return nil, fmt.Errorf("topic %s (%v): %w", name, w[name].cfg.Durability, err)
		}
		out[name] = t
	}
	return out, nil
}

func (a *aftermath) one(name string, t *topic, seen map[string]*sight) (*topic, error) {
	s := seen[name]
	switch {
	case t == nil && s == nil:
		return nil, nil
	case t == nil:
		return nil, fmt.Errorf("it was dropped and is there")
	case s == nil:
		return nil, fmt.Errorf("it is gone")
	}
	return a.after(name, t, s)
}
