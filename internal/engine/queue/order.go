package queue

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
)

// Of how many jobs one is of a lower tier than the highest while both are ready.
const (
	lowerShare = 50
	// agedShare is that of a tier whose next job is older times as old as the highest
	// tier's, counted in numbers given out since. So what an overload has left behind is
	// worked off while the overload lasts, by a fifth of the workers at most (see
	// decision 0010); waiting times in a proportion are Dovrolis's (SIGCOMM 1999).
	agedShare = 5
	older     = 4
)

// sweepFrom is how many spans are kept before it is asked whether they hold any
// live job.
const sweepFrom = 1024

// order is which job comes next while not all ready jobs are plain. The highest
// tier with ready jobs comes first, but for the share of the lower ones (see
// shares). Inside a tier the flows, one for each fair key and one for the jobs
// without, take turns of one job. Inside a flow it is as with plain jobs: those
// handed out before come first, then those never claimed, each in ascending order.
//
// A ready job of a flow takes memory, but jobs whose numbers follow each other
// are one span. Plain jobs take none: they are what is above fresh and in no span.
type order struct {
	flows map[op.Flow]*flow
	plain flow // its jobs are the queue's own
	tiers [api.Tiers]ring
	held  spans // what fresh has to step over
	spans int   // of all flows
	begun bool  // somebody has claimed
}

// flow is the ready jobs of one tier and fair key.
type flow struct {
	op.Flow
	fresh    spans // never claimed
	returned seqHeap
	waits    bool // stands in its tier's ring
}

// name is the job's flow.
func (j *job) name() op.Flow {
	if j.flow == nil {
		return op.Flow{}
	}
	return j.flow.Flow
}

// spans are ascending ranges of numbers, taken from the front.
type spans struct {
	list []op.Range
	at   int // those before are taken
}

func (s *spans) all() []op.Range { return s.list[s.at:] }

// add puts a range behind the others, and reports whether it is a new one.
func (s *spans) add(r op.Range) bool {
	if k := len(s.list) - 1; k >= s.at && s.list[k].To+1 == r.From {
		s.list[k].To = r.To
		return false
	}
	if s.at > 0 && len(s.list) == cap(s.list) && 2*s.at >= len(s.list) {
		s.set(append(s.list[:0], s.all()...))
	}
	s.list = append(s.list, r)
	return true
}

func (s *spans) set(list []op.Range) { s.list, s.at = list, 0 }

// drop takes the first range off.
func (s *spans) drop() {
	if s.at++; s.at == len(s.list) {
		*s = spans{}
	}
}

// ring is the flows of a tier that wait for their turn.
type ring struct {
	flows []*flow
	at    int
}

func (g *ring) len() int { return len(g.flows) - g.at }

func (g *ring) push(f *flow) {
	f.waits = true
	if g.at > 0 && len(g.flows) == cap(g.flows) && 2*g.at >= len(g.flows) {
		n := copy(g.flows, g.flows[g.at:])
		clear(g.flows[n:])
		g.flows, g.at = g.flows[:n], 0
	}
	g.flows = append(g.flows, f)
}

func (g *ring) pushFront(f *flow) {
	f.waits = true
	*g = ring{flows: append([]*flow{f}, g.flows[g.at:]...)}
}

func (g *ring) pop() *flow {
	f := g.flows[g.at]
	g.flows[g.at] = nil
	if g.at++; g.at == len(g.flows) {
		g.flows, g.at = g.flows[:0], 0
	}
	f.waits = false
	return f
}

// shares sees to it that no tier starves. It outlives the order: a plain job
// may wait while single jobs of a higher tier come and go.
type shares struct {
	n     int               // jobs of the highest tier since the last lower one, while a lower one waited
	turns uint64            // turns taken
	last  [api.Tiers]uint64 // each tier's last one
}

// turn returns the tier whose turn it is, -1 if no job is ready, and what shares.n is
// after it. Of the lower tiers, those that are aged first, it is the turn of the one that
// has not had one for the longest time.
func (c *claiming) turn() (tier, n int) {
	s := &c.q.shares
	top, next, every := -1, -1, lowerShare
	var young uint64
	for i := api.Tiers - 1; i >= 0; i-- {
		seq := c.waits(i)
		switch {
		case seq == 0:
		case top < 0:
			top, young = i, older*c.age(seq)
		case every == lowerShare && c.age(seq) > young:
			next, every = i, agedShare
		case every == agedShare && c.age(seq) <= young:
		case next < 0 || s.last[i] < s.last[next]:
			next = i
		}
	}
	switch {
	case next < 0:
		return top, s.n
	case s.n >= every-1:
		return next, 0
	}
	return top, s.n + 1
}

// age is how many numbers have been given out since seq.
func (c *claiming) age(seq uint64) uint64 { return c.Head - min(seq, c.Head) + 1 }

// waits returns the job of a tier that comes next, 0 if it has none, and takes flows
// without any out of its ring up to that: those of jobs that were leased before a restart.
func (c *claiming) waits(tier int) uint64 {
	o := c.q.order
	for g := &o.tiers[tier]; g.len() > 0; {
		if seq := c.next(g.flows[g.at]); seq > 0 {
			return seq
		}
		if f := g.pop(); f != &o.plain {
			delete(o.flows, f.Flow)
		}
	}
	return 0
}

// took notes that a tier had its turn.
func (s *shares) took(tier, n int) {
	s.turns++
	s.last[tier], s.n = s.turns, n
}

// ordered picks jobs in the order.
func (c *claiming) ordered() {
	q := c.q
	o := q.order
	if !o.plain.waits && c.next(&o.plain) > 0 {
		normal := &o.tiers[api.TierNormal.Rank()]
		if !o.begun {
			// Plain jobs may have waited for long, and would miss their turn
			// whenever the others run out.
			normal.pushFront(&o.plain)
		} else {
			normal.push(&o.plain)
		}
	}
	o.begun = true
	for c.left > 0 {
		tier, n := c.turn()
		if tier < 0 {
			break
		}
		f := o.tiers[tier].pop()
		if c.takeFrom(f) {
			q.shares.took(tier, n)
		}
		if c.next(f) > 0 {
			o.tiers[tier].push(f)
		} else if f != &o.plain {
			delete(o.flows, f.Flow)
		}
	}
	if len(o.flows) == 0 {
		q.order = nil
	}
}

// takeFrom picks the next job of a flow; false if it has none, or only dead
// ones.
func (c *claiming) takeFrom(f *flow) bool {
	if f == &c.q.order.plain {
		return c.takeReturned(&c.q.returned) || c.takePlain()
	}
	if c.takeReturned(&f.returned) {
		return true
	}
	seq := c.nextFresh(f)
	if seq == 0 {
		return false
	}
	c.q.order.take(f, seq)
	c.takeFresh(seq, f)
	return true
}

// next returns the job of a flow that comes next, 0 if it has none.
func (c *claiming) next(f *flow) uint64 {
	plain := f == &c.q.order.plain
	returned := &f.returned
	if plain {
		returned = &c.q.returned
	}
	if j := c.nextReturned(returned); j != nil {
		return j.seq
	}
	if !plain {
		return c.nextFresh(f)
	}
	if seq := c.q.nextPlain(c.Records); seq <= c.Head {
		return seq
	}
	return 0
}

// nextFresh returns the first job of a flow that was never claimed, 0 if there
// is none.
func (c *claiming) nextFresh(f *flow) uint64 {
	o := c.q.order
	for all := f.fresh.all(); len(all) > 0; all = f.fresh.all() {
		s := all[0]
		seq := c.Records.NextFree(s.From - 1)
		if seq > s.From {
			c.q.passOver(f.Flow, op.Range{From: s.From, To: min(seq-1, s.To)}, c.Records)
			o.take(f, min(seq-1, s.To))
		}
		if seq > s.To {
			continue
		}
		if c.q.jobs.get(seq) == nil {
			return seq
		}
		o.take(f, seq) // it is as a recovery has put it back
	}
	return 0
}

// take takes the numbers up to seq from the first span of a flow.
func (o *order) take(f *flow, seq uint64) {
	s := &f.fresh.all()[0]
	if s.From = seq + 1; s.From > s.To {
		f.fresh.drop()
		o.spans--
	}
}

// Add says that new records are jobs of these flows; all others are plain. The
// topic has live records now.
func (q *Queue) Add(list []op.Span, live uint64, records Records) {
	for _, s := range list {
		q.hold(s)
	}
	if o := q.order; uint64(o.spans) > 2*live+sweepFrom {
		q.sweep(records)
	}
}

// hold puts numbers into their flow.
func (q *Queue) hold(s op.Span) {
	f := q.flow(s.Flow)
	if f.fresh.add(s.Range) {
		q.order.spans++
	}
	q.order.held.add(s.Range)
}

// flow returns the flow of that name, which waits for its turn.
func (q *Queue) flow(name op.Flow) *flow {
	if q.order == nil {
		q.order = &order{flows: make(map[op.Flow]*flow)}
	}
	f := q.order.flows[name]
	if f == nil {
		f = &flow{Flow: name}
		q.order.flows[name] = f
	}
	if !f.waits {
		q.order.tiers[name.Tier.Rank()].push(f)
	}
	return f
}

// heldTo returns the last number of the span that holds seq, 0 if none does. It
// forgets the spans before seq.
func (o *order) heldTo(seq uint64) uint64 {
	for all := o.held.all(); len(all) > 0; all = o.held.all() {
		if all[0].To >= seq {
			if all[0].From <= seq {
				return all[0].To
			}
			return 0
		}
		o.held.drop()
	}
	return 0
}

// sweep drops what holds no live job: records may go unclaimed.
func (q *Queue) sweep(records Records) {
	o := q.order
	o.spans = 0
	for i := range o.tiers {
		g := &o.tiers[i]
		waiting := g.flows[g.at:]
		*g = ring{}
		for _, f := range waiting {
			f.fresh.keepLive(records)
			o.spans += len(f.fresh.list)
			if f != &o.plain && len(f.returned) == 0 && len(f.fresh.list) == 0 {
				delete(o.flows, f.Flow)
				f.waits = false
				continue
			}
			g.push(f)
		}
	}
	o.held.keepLive(records)
	if len(o.flows) == 0 {
		q.order = nil
	}
}

func (s *spans) keepLive(records Records) {
	s.set(slices.Clone(slices.DeleteFunc(s.all(), func(r op.Range) bool { return records.NextLive(r.From-1) > r.To })))
}

// gather finds anew what fresh has to step over.
func (o *order) gather() {
	var all []op.Range
	for _, f := range o.flows {
		slices.SortFunc(f.fresh.all(), byFrom)
		all = append(all, f.fresh.all()...)
	}
	slices.SortFunc(all, byFrom)
	o.held = spans{}
	for _, r := range all {
		o.held.add(r)
	}
}

func byFrom(a, b op.Range) int { return cmp.Compare(a.From, b.From) }

// Recovered ends a recovery: of the jobs that were put back, those that are in a
// flow are found in its spans.
func (q *Queue) Recovered(records Records) {
	if q.order == nil {
		return
	}
	q.sweep(records)
	if q.order == nil || q.jobs.n == 0 {
		return
	}
	type place struct {
		op.Range
		f *flow
	}
	var all []place
	for _, f := range q.order.flows {
		for _, r := range f.fresh.all() {
			all = append(all, place{r, f})
		}
	}
	slices.SortFunc(all, func(a, b place) int { return byFrom(a.Range, b.Range) })
	q.returned = nil
	for j := range q.jobs.all() {
		seq := j.seq
		i, _ := slices.BinarySearchFunc(all, seq, func(p place, seq uint64) int { return cmp.Compare(p.To, seq) })
		if i < len(all) && all[i].From <= seq {
			j.flow = all[i].f
		}
		if j.state != ready {
			continue
		}
		if j.flow != nil {
			heap.Push(&j.flow.returned, seq)
		} else {
			heap.Push(&q.returned, seq)
		}
	}
}

// ForgetLeases makes all jobs ready that were put back by a recovery, but for those that
// were never claimed and wait for their time. It returns the numbers of the others, whose
// leases the log still has.
func (q *Queue) ForgetLeases() (forgotten []uint64) {
	fresh := New()
	fresh.order = q.order
	for j := range q.jobs.all() {
		if j.scheduled() {
			fresh.Restore(j.seq, "", 0, j.until, 0)
		} else if j.id > 0 {
			forgotten = append(forgotten, j.seq)
		}
	}
	*q = *fresh
	return forgotten
}
