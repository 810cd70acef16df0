package engine

import (
	"fmt"
	"slices"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

// lost is what a replay knows of the operations that `weir repair` has marked as
// lost. They may have given out numbers of any topic, and begun or ended one.
type lost struct {
	ops, bytes uint64
	announced  uint64 // numbers
	// headKnown are the topics whose head something behind the last gap names,
	// dealtWith those that a start behind it has dealt with.
	headKnown, dealtWith map[*entry]bool
	// touched are the topics whose counters may be wrong since.
	touched map[*entry]bool
	dropped map[uint64]bool // topics whose end was replayed

	recovered []string // names of topics whose creation is lost
}

func (l *lost) gap(from, to uint64, bytes int64) {
	l.ops += to - from + 1
	l.bytes += uint64(bytes)
	l.headKnown, l.dealtWith, l.touched = map[*entry]bool{}, map[*entry]bool{}, map[*entry]bool{}
}

func (l *lost) any() bool { return l.ops > 0 }

// see notes what a part behind a gap says of its topic.
func (l *lost) see(t *entry, p *op.Part) {
	if !l.any() {
		return
	}
	switch p.Kind {
	case op.KindCreate:
		l.headKnown[t], l.dealtWith[t] = true, true
	case op.KindCounters: // only a start behind a gap logs it
		l.headKnown[t], l.dealtWith[t] = true, true
		delete(l.touched, t)
	case op.KindAppend:
		// Of other classes a reservation may be lost too.
		l.headKnown[t] = l.headKnown[t] || t.Config.Durability == api.Fsync
		l.touched[t] = l.touched[t] || p.EvictTo > 0
	case op.KindDelete, op.KindEvict:
		l.touched[t] = true
	}
}

// end notes that a topic has ended, so that what comes behind does not revive it.
func (l *lost) end(topic uint64) {
	if l.dropped == nil {
		l.dropped = map[uint64]bool{}
	}
	l.dropped[topic] = true
}

// revive brings back a topic whose creation was lost, without its name and
// configuration; nil if the part does not need the topic.
func (r *replay) revive(p *op.Part) *entry {
	if !r.lost.any() || !op.Revives(p.Kind) || r.lost.dropped[p.Topic] {
		return nil
	}
	name := fmt.Sprintf("recovered-%d", p.Topic)
	for i := 2; r.e.reg.byName[name] != nil; i++ {
		name = fmt.Sprintf("recovered-%d-%d", p.Topic, i)
	}
	t := &entry{life: life{recovered: true}}
	t.State = op.Recovered(p.Topic, name)
	r.e.adopt(t)
	r.lost.recovered = append(r.lost.recovered, name)
	return t
}

// announceLost announces for every topic the numbers that lost operations may have
// given out, so that they are not given out again, and counts its records anew.
func (e *Engine) announceLost(l *lost) error {
	// The numbers that routers burn in destinations for records their sources
	// lost.
	behind := uint64(0)
	for _, r := range e.routes.recovered {
		if t := e.reg.byID[r.Source]; t != nil && t.Head > r.Pos {
			behind += t.Head - r.Pos
		}
	}
	for _, t := range e.reg.all() {
		if l.dealtWith[t] {
			continue
		}
		if err := e.announceLostOf(t, l, behind); err != nil {
			return err
		}
	}
	for _, t := range e.reg.shadowed {
		part := op.Part{Kind: op.KindDrop, Topic: t.ID}
		if _, _, err := e.log.AppendUnslotted(e.log.Gen(), part.Encode(nil), nil, noFrames, wal.Memory); err != nil {
			return err
		}
	}
	// A lost operation may have begun two topics, or a router.
	begun := 2 * min(l.ops, 1<<20)
	e.nextTopic.Add(begun)
	e.routes.lastID += begun
	return nil
}

// announceLostOf logs the jump and the counters in one operation, which tells the
// next start that the topic has been dealt with.
func (e *Engine) announceLostOf(t *entry, l *lost, behind uint64) error {
	var parts []byte
	if !l.headKnown[t] {
		lose := op.Part{Kind: op.KindLose, Topic: t.ID, From: t.Head + 1, To: max(t.Head, t.Reserved) + l.reach(&t.Config) + behind, Cause: op.CauseCrash}
		parts = lose.Encode(parts)
		t.State.Apply(&lose)
		l.announced += lose.To - lose.From + 1
	}
	count := op.Part{Kind: op.KindCounters, Topic: t.ID, Count: t.CountLive(), Bytes: t.Bytes}
	if l.touched[t] || count.Count != t.Count {
		var err error
		if count.Bytes, err = e.sumLive(t); err != nil {
			return fmt.Errorf("topic %q: %w", t.Name, err)
		}
	}
	t.State.Apply(&count)
	_, _, err := e.log.AppendUnslotted(e.log.Gen(), count.Encode(parts), nil, noFrames, wal.Memory)
	return err
}

// minFrame is the fewest bytes that a record takes in the log.
const minFrame = 3

// reach is the most numbers that the lost operations may have given out, or
// reserved, for a topic.
func (l *lost) reach(c *api.Config) uint64 {
	n := l.bytes/minFrame + 1
	switch c.Durability {
	case api.Fsync:
	case api.Ephemeral: // its records are not in the log: each lost operation may be a reservation
		n += l.ops * 2 * maxReserve
	default:
		n += maxReserve
	}
	return n
}

// sumLive reads the sizes of all live records.
func (e *Engine) sumLive(t *entry) (bytes uint64, err error) {
	for seq := t.NextLive(t.Start); seq <= t.Head; {
		last := seq
		err := e.readBatch(t, seq, func(r *api.Record) bool {
			if r.Seq >= seq && t.Live(r.Seq) {
				bytes += uint64(r.Size())
			}
			last = max(last, r.Seq)
			return true
		})
		if err != nil {
			return 0, err
		}
		seq = t.NextLive(last)
	}
	return bytes, nil
}

// names returns the recovered topics in order, for the report of repair.
func (l *lost) names() []string {
	slices.Sort(l.recovered)
	return l.recovered
}
