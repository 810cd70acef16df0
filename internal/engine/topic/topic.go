// Package topic is one topic in memory: its durable state, the changes that
// the log has taken but not yet acknowledged, where its records lie, and its
// idempotency window. It plans and applies; it does no I/O, knows no clock and
// takes no lock: the engine holds the topic's lock around every call.
package topic

import (
	"sync"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
)

// Topic is one topic. State is what readers see; the planned numbers include
// what is staged, which the next plan builds on.
type Topic struct {
	op.State
	Index Index
	Keys  Keys

	plan   plan
	staged *[]Staged // nil if there are none: a topic at rest keeps no room for them
}

// spare are lists of staged changes that no topic needs just now.
var spare = sync.Pool{New: func() any { return new([]Staged) }}

// mostSpare is how many changes a list that is kept has room for.
const mostSpare = 64

// changes are the staged ones.
func (t *Topic) changes() []Staged {
	if t.staged == nil {
		return nil
	}
	return *t.staged
}

// keep lets n staged changes stay, which are in front, and forgets the others.
func (t *Topic) keep(n int) {
	if t.staged == nil {
		return
	}
	clear((*t.staged)[n:])
	if *t.staged = (*t.staged)[:n]; n > 0 {
		return
	}
	if cap(*t.staged) <= mostSpare {
		spare.Put(t.staged)
	}
	t.staged = nil
}

// plan is the state as it will be once everything staged has been applied.
type plan struct {
	head, start, count, bytes uint64
	lastTS                    int64
	doomed                    op.Holes // numbers that a staged delete takes
}

// Staged is a change that is in the log and waits for its class.
type Staged struct {
	LSN, Gen uint64
	Need     uint8 // the log's class that has to hold for LSN

	// An append; N is 0 for any other change.
	First, N, Bytes             uint64
	TS                          int64
	EvictTo, EvictN, EvictBytes uint64 // what the caps take with it
	HasKey                      bool
	Key                         op.KeyHash
	Sum                         uint32 // of the records that came with the key
	Ref                         Ref
	Sizes                       []uint32  // of the records; nil unless a cap may need them before they are visible
	Flows                       []op.Span // of the records of a queue; nil if all are plain

	// Parts are what any other change does. The log may know less of it: of
	// records that it does not hold it is told nothing.
	Parts []op.Part

	// Then is what goes with the change but concerns no restart; Undo takes back
	// what planning it marked elsewhere, when the log has failed it. Either may be nil.
	Then func()
	Undo func()

	burnFrom, burnTo uint64 // numbers above the planned head that hold no record; burnTo 0 is none
}

// Append is the append of a change that is one.
func (s *Staged) Append() op.Part {
	return op.Part{Kind: op.KindAppend, First: s.First, N: s.N, Bytes: s.Bytes, TS: s.TS, HasKey: s.HasKey, Key: s.Key, Sum: s.Sum,
		EvictTo: s.EvictTo, EvictN: s.EvictN, EvictBytes: s.EvictBytes, Flows: s.Flows}
}

// Init makes the plan equal to the state; after recovery and creation.
func (t *Topic) Init() { t.resetPlan() }

func (t *Topic) resetPlan() {
	t.plan = plan{head: t.Head, start: t.Start, count: t.Count, bytes: t.Bytes, lastTS: t.LastTS}
}

// PlannedHead is the last number given out, visible or not.
func (t *Topic) PlannedHead() uint64 { return t.plan.head }

// PlannedCount is the number of live records once everything staged is applied.
func (t *Topic) PlannedCount() uint64 { return t.plan.count }

// PlannedBytes is their size.
func (t *Topic) PlannedBytes() uint64 { return t.plan.bytes }

// PlannedTS is the last time stamp given out.
func (t *Topic) PlannedTS() int64 { return t.plan.lastTS }

// Idle reports whether nothing is staged.
func (t *Topic) Idle() bool { return t.staged == nil }

// Pending returns where the last staged change stands in the log, and what it
// needs there; zeros if nothing is staged.
func (t *Topic) Pending() (lsn, gen uint64, need uint8) {
	if list := t.changes(); len(list) > 0 {
		s := &list[len(list)-1]
		return s.LSN, s.Gen, s.Need
	}
	return 0, 0, 0
}

// Stage queues a change behind the earlier ones. A change never becomes
// visible before an earlier one, so it needs at least what that one needs. The
// result says what to wait for.
func (t *Topic) Stage(s Staged) (lsn, gen uint64, need uint8) {
	if list := t.changes(); len(list) > 0 {
		last := &list[len(list)-1]
		s.Need = max(s.Need, last.Need)
		if s.LSN == 0 {
			s.LSN, s.Gen = last.LSN, last.Gen
		}
	}
	if s.N > 0 {
		t.plan.head = s.First + s.N - 1
		t.plan.count += s.N
		t.plan.bytes += s.Bytes
		t.plan.lastTS = max(t.plan.lastTS, s.TS)
	}
	if s.EvictTo > 0 {
		t.planEvict(s.EvictTo, s.EvictN, s.EvictBytes)
	}
	for i := range s.Parts {
		switch p := &s.Parts[i]; p.Kind {
		case op.KindDelete:
			for _, r := range p.Ranges {
				t.plan.doomed.AddRange(r.From, r.To)
			}
			t.uncount(p.N, p.Bytes)
		case op.KindEvict:
			t.planEvict(p.To, p.N, p.Bytes)
		case op.KindLose:
			if p.From > t.plan.head {
				t.plan.head = p.To
				s.burnFrom, s.burnTo = p.From, p.To
			} else {
				t.plan.doomed.AddRange(p.From, p.To)
			}
		}
	}
	if t.staged == nil {
		t.staged = spare.Get().(*[]Staged)
	}
	*t.staged = append(*t.staged, s)
	return s.LSN, s.Gen, s.Need
}

func (t *Topic) planEvict(to, n, bytes uint64) {
	t.plan.start = max(t.plan.start, to)
	t.uncount(n, bytes)
}

// uncount takes records from the planned totals, as op.State does later.
func (t *Topic) uncount(n, bytes uint64) {
	t.plan.count -= min(n, t.plan.count)
	if t.plan.bytes -= min(bytes, t.plan.bytes); t.plan.count == 0 {
		t.plan.bytes = 0
	}
}

// Free reports whether the number is live and no staged change takes it.
func (t *Topic) Free(seq uint64) bool {
	return seq > t.plan.start && t.Live(seq) && !t.plan.doomed.Has(seq)
}

// NextFree returns the lowest number above seq that is live, visible or
// staged, and that no staged change takes; PlannedHead+1 if there is none.
func (t *Topic) NextFree(seq uint64) uint64 {
	seq = max(seq, t.plan.start)
	for {
		if seq >= t.Head {
			return t.afterBurnt(seq + 1)
		}
		if seq = t.NextLive(seq); seq > t.Head {
			return t.afterBurnt(seq)
		} else if !t.plan.doomed.Has(seq) {
			return seq
		}
	}
}

// FreeRange returns the first visible number above pos that no staged change takes, and the last
// one, at most end, up to which all are that; from > to if there is none.
func (t *Topic) FreeRange(pos, end uint64) (from, to uint64) {
	end = min(end, t.Head)
	if from = t.NextFree(pos); from > end {
		return from, end
	}
	_, to = t.LiveRange(from-1, end)
	if doomed, ok := t.plan.doomed.Next(from, to); ok {
		to = doomed - 1
	}
	return from, to
}

// afterBurnt returns the first number from seq on that no staged change burns.
func (t *Topic) afterBurnt(seq uint64) uint64 {
	list := t.changes()
	for i := range list {
		if s := &list[i]; seq >= s.burnFrom && seq <= s.burnTo {
			seq = s.burnTo + 1
		}
	}
	return seq
}

// StagedBatch returns the staged append that holds the number, nil if none
// does. It is valid until the next change is staged or applied.
func (t *Topic) StagedBatch(seq uint64) *Staged {
	list := t.changes()
	for i := range list {
		if s := &list[i]; s.N > 0 && seq >= s.First && seq < s.First+s.N {
			return s
		}
	}
	return nil
}

// Advance hands, in order, the staged changes that done accepts to apply, and
// drops the rest if the log has failed them.
func (t *Topic) Advance(done func(*Staged) (ok, failed bool), apply func(*Staged)) (undone bool) {
	n := 0
	for n < len(t.changes()) {
		s := &t.changes()[n]
		ok, failed := done(s)
		if failed {
			t.undo(n)
			undone = true
			break
		}
		if !ok {
			break
		}
		n++
		apply(s)
	}
	if list := t.changes(); n >= len(list) {
		t.keep(0)
		t.resetPlan()
	} else if n > 0 {
		t.keep(copy(list, list[n:]))
		t.plan.doomed.DropBelow(t.Start)
	}
	return undone
}

// Apply lets a part of an operation take effect on the topic, of a change that
// was staged as of one that a restart finds in the log. ref says where the
// records of an append lie.
func (t *Topic) Apply(p *op.Part, ref Ref) {
	if p.Kind == op.KindAppend {
		t.Index.Add(ref)
		if p.HasKey {
			t.Keys.Publish(p.Key, Key{First: p.First, N: uint32(p.N), At: p.At, Sum: p.Sum})
		}
	}
	t.State.Apply(p)
	t.Index.Trim(t.Start)
	if p.Kind == op.KindDelete {
		t.Index.Sweep(p.N, func(first, last uint64) bool { return t.NextLive(first-1) <= last })
	}
}

// undo forgets the staged changes from number i on, last first.
func (t *Topic) undo(i int) {
	list := t.changes()
	for k := len(list) - 1; k >= i; k-- {
		s := &list[k]
		if s.HasKey {
			t.Keys.Forget(s.Key)
		}
		if s.Ref.Segment == InMemory {
			t.Index.Drop(s.Ref)
		}
		if s.Undo != nil {
			s.Undo()
		}
	}
	t.keep(i)
}

// Eviction is what caps or the time to live take: everything up to To, N live
// records with Bytes in all, of which LoggedN and LoggedBytes are in the log.
// To 0 is nothing.
type Eviction struct {
	To, N, Bytes                   uint64
	LoggedTo, LoggedN, LoggedBytes uint64
}

// Take adds one live record to the eviction.
func (e *Eviction) Take(seq uint64, size uint32, logged bool) {
	e.To = seq
	e.N++
	e.Bytes += uint64(size)
	if logged {
		e.LoggedTo = seq
		e.LoggedN++
		e.LoggedBytes += uint64(size)
	}
}

// OverCap reports whether a topic of this configuration, holding count records
// of bytes in all, is above a cap.
func OverCap(c *api.Config, count, bytes uint64) bool {
	return c.CapRecords > 0 && count > c.CapRecords || c.CapBytes > 0 && bytes > c.CapBytes
}
