// Package queue is the leases of one queue topic: which jobs are claimable,
// who holds which, until when. It plans and applies; time is an argument, it
// does no I/O and takes no lock: the engine holds the topic's lock around
// every call.
//
// A job that was never claimed takes no memory here: everything above fresh is
// ready if it is live. A job that was claimed has an entry until it is deleted.
// Ready jobs with a tier or a fair key are the exception: see order.
package queue

import (
	"container/heap"
	"math"
	"slices"

	"github.com/weirmq/weir/internal/op"
)

type state uint8

const (
	ready   state = iota // given back; claimable
	delayed              // claimable later: given back, or not claimed yet
	leased
	settling // an ack or a dead-letter move is on its way to the log
)

type job struct {
	seq        uint64
	id         uint64 // lease id of the current or last delivery
	deliveries uint64
	size       uint32 // data plus meta; 0 = not known
	state      state
	cohort     *cohort
	was        *cohort // settling: the lease it was under; nil if it was claimable
	holder     *Holder // nil unless it was pushed
	flow       *flow   // nil if it is plain
	until      int64   // delayed: from when it is claimable
}

// cohort is the jobs of one claim: they share holder and deadline, so that a
// claim of a hundred jobs is one entry among the deadlines. It knows them by their
// numbers, so that those that have gone take no memory.
type cohort struct {
	node     string
	deadline int64
	seqs     []op.Range // of the jobs that it began with
	one      [1]op.Range
	live     int // jobs still under this lease; at 0 the cohort leaves the heap
	index    int
}

// add makes a job one of the cohort's.
func (c *cohort) add(j *job) {
	j.cohort = c
	c.live++
	if n := len(c.seqs); n > 0 && c.seqs[n-1].To+1 == j.seq {
		c.seqs[n-1].To++
		return
	}
	if c.seqs == nil {
		c.seqs = c.one[:0]
	}
	c.seqs = append(c.seqs, op.Range{From: j.seq, To: j.seq})
}

// Queue is the leases of one queue. The zero value is not usable; see New.
type Queue struct {
	fresh    uint64 // numbers above were never claimed
	jobs     pages
	returned seqHeap
	waiting  delayHeap
	leases   cohortHeap
	inFlight int // leased or settling
	delays   int // delayed
	later    int // of these, never claimed: see scheduled
	counts   Counts

	dead   []uint64 // ready jobs of which a claim has found that they are dead
	deadAt uint64   // by this limit of deliveries

	order  *order // nil while all ready jobs are plain
	shares shares
	passed []op.Span // ready jobs that claims passed over for a change that may fail; see Rewind
}

// New returns a queue in which every live number above start is ready.
func New() *Queue { return &Queue{jobs: newPages()} }

// InFlight is the number of jobs under a lease; call Expire first.
func (q *Queue) InFlight() uint64 { return uint64(q.inFlight) }

// Delayed is the number of jobs that wait out a delay; call Expire first.
func (q *Queue) Delayed() uint64 { return uint64(q.delays) }

// Scheduled is the number of those that were never claimed; call Expire first.
func (q *Queue) Scheduled() uint64 { return uint64(q.later) }

// Finished is the number of jobs that have left the queue since it is in memory because
// they were done, or dead.
func (q *Queue) Finished() int64 { return q.counts.Finished }

// Counts is what has happened to the jobs since the queue is in memory.
type Counts struct {
	Claimed  int64 // deliveries
	Nacked   int64 // deliveries that their worker gave back
	Expired  int64 // deliveries whose lease ran out
	Finished int64 // jobs that are settled and gone: acknowledged, or moved to the dead letters
}

// Counts returns them; call Expire first.
func (q *Queue) Counts() Counts { return q.counts }

// OldestReady returns the first job that can be claimed, and, if it came with a delay, from
// when on it could; call Expire first. It looks at no more than steps jobs and returns false
// if they all are with workers or delayed.
func (q *Queue) OldestReady(records Records, head uint64, steps int) (seq uint64, since int64, ok bool) {
	for range steps {
		if seq = records.NextFree(seq); seq > head {
			break
		}
		j := q.jobs.get(seq)
		if j == nil {
			return seq, 0, true
		}
		if j.state == ready {
			if j.id == 0 {
				since = j.until
			}
			return seq, since, true
		}
	}
	return 0, 0, false
}

// Expire notices what time has done: leases whose deadline is past and delays
// that are over. It reports whether a job became claimable.
func (q *Queue) Expire(now int64) (returned bool) {
	for len(q.leases) > 0 && q.leases[0].deadline < now {
		c := heap.Pop(&q.leases).(*cohort)
		c.index = -1
		for _, r := range c.seqs {
			for seq := r.From; seq <= r.To; seq++ {
				if j := q.jobs.get(seq); j != nil && j.cohort == c && j.state == leased {
					q.inFlight--
					q.counts.Expired++
					q.giveBack(j)
					returned = true
				}
			}
		}
	}
	for len(q.waiting) > 0 && q.waiting[0].until <= now {
		d := heap.Pop(&q.waiting).(delay)
		if d.job.state == delayed && d.job.until == d.until {
			q.undelay(d.job)
			q.giveBack(d.job)
			returned = true
		}
	}
	return returned
}

// NextEvent returns when Expire will have something to do, and whether ever.
func (q *Queue) NextEvent() (int64, bool) {
	at := int64(math.MaxInt64)
	if len(q.leases) > 0 {
		at = q.leases[0].deadline + 1
	}
	if len(q.waiting) > 0 {
		at = min(at, q.waiting[0].until)
	}
	return at, at != math.MaxInt64
}

func (q *Queue) giveBack(j *job) {
	q.leave(j)
	j.free()
	j.state, j.was = ready, nil
	if j.flow == nil {
		heap.Push(&q.returned, j.seq)
		return
	}
	j.flow = q.flow(j.flow.Flow) // the old one may have run empty
	heap.Push(&j.flow.returned, j.seq)
}

// leave takes the job out of its cohort.
func (q *Queue) leave(j *job) {
	c := j.cohort
	if c == nil {
		return
	}
	j.cohort = nil
	c.live--
	switch {
	case c.index < 0:
	case c.live == 0:
		heap.Remove(&q.leases, c.index)
	case len(c.seqs) > 16 && c.live < len(c.seqs)/4:
		q.thin(c)
	}
}

// thin lets a cohort forget the numbers of most jobs that have left it.
func (q *Queue) thin(c *cohort) {
	seqs := c.seqs
	c.seqs, c.live = nil, 0
	for _, r := range seqs {
		for seq := r.From; seq <= r.To; seq++ {
			if j := q.jobs.get(seq); j != nil && j.cohort == c {
				c.add(j)
			}
		}
	}
}

// Unclaim takes a claim back that could not be answered: the jobs are
// claimable again and the delivery does not count. It returns the numbers of those
// that were still under this claim's lease.
func (q *Queue) Unclaim(picks []Pick) (back []uint64) {
	for _, p := range picks {
		if j := q.jobs.get(p.Seq); j == p.job && j.state == leased && j.id == p.ID {
			q.inFlight--
			j.deliveries--
			q.giveBack(j)
			back = append(back, p.Seq)
		}
	}
	return back
}

// Held reports whether seq is leased to node and, unless id is 0, under that
// lease; call Expire first.
func (q *Queue) Held(seq uint64, node string, id uint64) bool {
	j := q.jobs.get(seq)
	return j != nil && j.state == leased && j.cohort.node == node && (id == 0 || j.id == id)
}

// Settle marks the job as settling if Held would accept it: it stays in
// flight, its lease does not end, and nobody else can settle it until Forget
// or Abort. size is what SetSize was told, 0 if nothing.
func (q *Queue) Settle(seq uint64, node string, id uint64) (size uint32, ok bool) {
	j := q.jobs.get(seq)
	if j == nil || j.state != leased || j.cohort.node != node || id != 0 && j.id != id {
		return 0, false
	}
	j.was = j.cohort
	q.leave(j)
	j.state = settling
	return j.size, true
}

// SetSize remembers the size of a picked job's record, so that its ack needs
// not look it up.
func (p *Pick) SetSize(size uint32) { p.job.size = size }

// Abort makes a settling job what it was: under the same lease until the same
// deadline, or claimable.
func (q *Queue) Abort(seq uint64) {
	j := q.jobs.get(seq)
	if j == nil || j.state != settling {
		return
	}
	if j.was == nil {
		q.inFlight--
		q.giveBack(j)
		return
	}
	j.state = leased
	q.lease(j, j.was.node, j.was.deadline)
}

// lease puts a leased job into a cohort of its own.
func (q *Queue) lease(j *job, node string, deadline int64) {
	j.was = nil
	c := &cohort{node: node, deadline: deadline}
	c.add(j)
	heap.Push(&q.leases, c)
}

// Release is Nack for a job that is settling; without one it does nothing.
func (q *Queue) Release(seq uint64, now, until int64, notStarted bool) {
	if j := q.jobs.get(seq); j != nil && j.state == settling {
		q.Nack(seq, now, until, notStarted)
	}
}

// Deadline returns until when a job is leased; call Held first.
func (q *Queue) Deadline(seq uint64) int64 { return q.jobs.get(seq).cohort.deadline }

// Unextend takes an Extend of one job to deadline back, unless its lease has
// changed since.
func (q *Queue) Unextend(seq, id uint64, deadline, before int64) {
	j := q.jobs.get(seq)
	if j == nil || j.state != leased || j.id != id || j.cohort.deadline != deadline {
		return
	}
	node := j.cohort.node
	q.leave(j)
	q.lease(j, node, before)
}

// Rewind lets Claim look at the numbers from seq on again, and at all that it
// passed over: a change that would have taken some of them has failed.
func (q *Queue) Rewind(seq uint64) {
	q.fresh = min(q.fresh, seq-1)
	passed := q.passed
	q.passed = nil
	for _, s := range passed {
		j := q.jobs.get(s.From)
		switch {
		case j == nil && s.Plain(): // it is gone, or among those that fresh comes to
		case j == nil || s.From < s.To:
			q.hold(s)
		case j.state == ready:
			q.giveBack(j)
		}
	}
	if q.order != nil {
		q.order.gather()
	}
}

// passOver remembers jobs for Rewind. The numbers are those of one job that was
// claimed before, or of some that were not.
func (q *Queue) passOver(f op.Flow, r op.Range, records Records) {
	if records.NextLive(r.From-1) > r.To {
		return
	}
	if len(q.passed) == cap(q.passed) { // full: most of them are gone by now
		q.passed = slices.DeleteFunc(q.passed, func(s op.Span) bool { return records.NextLive(s.From-1) > s.To })
		q.passed = slices.Grow(q.passed, len(q.passed)+1)
	}
	q.passed = append(q.passed, op.Span{Range: r, Flow: f})
}

// Forget drops what is known of a number that is no longer live.
func (q *Queue) Forget(seq uint64) {
	if j := q.jobs.get(seq); j != nil {
		q.forget(j)
	}
}

func (q *Queue) forget(j *job) {
	switch j.state {
	case settling:
		q.inFlight--
		q.counts.Finished++
	case leased:
		q.inFlight--
	case delayed:
		q.undelay(j)
		defer q.dropDelays()
	}
	q.leave(j)
	j.free()
	j.state = ready
	q.jobs.remove(j)
}

// undelay takes a job out of the numbers of those that wait.
func (q *Queue) undelay(j *job) {
	q.delays--
	if j.scheduled() {
		q.later--
	}
}

// dropDelays takes jobs that are gone out of the heap of those that wait, once they are most of it:
// their time may be far off.
func (q *Queue) dropDelays() {
	if len(q.waiting) < 64 || len(q.waiting) < 2*q.delays {
		return
	}
	left := slices.DeleteFunc(q.waiting, func(d delay) bool { return d.job.state != delayed || d.job.until != d.until })
	q.waiting = append(make(delayHeap, 0, len(left)), left...)
	heap.Init(&q.waiting)
}

// ForgetRange is Forget for from…to.
func (q *Queue) ForgetRange(from, to uint64) {
	for j := range q.jobs.in(from, to) {
		q.forget(j)
	}
}

// Nack gives a held job back: claimable at once, or from until on if that is
// later than now. notStarted takes the delivery back.
func (q *Queue) Nack(seq uint64, now, until int64, notStarted bool) {
	j := q.jobs.get(seq)
	q.inFlight--
	q.counts.Nacked++
	if notStarted && j.deliveries > 0 {
		j.deliveries--
	}
	if until <= now {
		q.giveBack(j)
		return
	}
	q.leave(j)
	j.free()
	j.state, j.until, j.was = delayed, until, nil
	q.delays++
	heap.Push(&q.waiting, delay{until, j})
}

// Extend sets the deadline of the jobs that node holds, under the given lease
// if ids is not empty (0 = any); every other number, and a second mention, is
// appended to skipped.
func (q *Queue) Extend(done, skipped, seqs, ids []uint64, node string, deadline int64) (_, _ []uint64) {
	c := &cohort{node: node, deadline: deadline, index: -1}
	for i, seq := range seqs {
		id := uint64(0)
		if len(ids) > 0 {
			id = ids[i]
		}
		j := q.jobs.get(seq)
		if !q.Held(seq, node, id) || j.cohort == c {
			skipped = append(skipped, seq)
			continue
		}
		q.leave(j)
		c.add(j)
		done = append(done, seq)
	}
	if c.live > 0 {
		heap.Push(&q.leases, c)
	}
	return done, skipped
}

// Delay makes a job that was never claimed claimable from until on.
func (q *Queue) Delay(seq uint64, until int64, f op.Flow) {
	j := &job{seq: seq, state: delayed, until: until}
	if !f.Plain() {
		j.flow = &flow{Flow: f}
	}
	q.jobs.put(j)
	q.delays++
	q.later++
	heap.Push(&q.waiting, delay{until, j})
}

// scheduled reports whether the job was never claimed and waits for its time.
func (j *job) scheduled() bool { return j.state == delayed && j.id == 0 }

// Lease tells what a claimed job's durable lease holds: its id and count.
func (q *Queue) Lease(seq uint64) (id, deliveries uint64) {
	if j := q.jobs.get(seq); j != nil {
		return j.id, j.deliveries
	}
	return 0, 0
}

// Restore puts a durable lease back after a restart: held by node until
// deadline, or, with an empty node, given back and claimable from deadline on.
func (q *Queue) Restore(seq uint64, node string, id uint64, deadline int64, deliveries uint64) {
	q.Forget(seq)
	j := &job{seq: seq, id: id, deliveries: deliveries}
	q.jobs.put(j)
	switch {
	case node != "":
		j.state = leased
		q.inFlight++
		q.lease(j, node, deadline)
	case deadline > 0:
		j.state, j.until = delayed, deadline
		q.delays++
		if j.scheduled() {
			q.later++
		}
		heap.Push(&q.waiting, delay{deadline, j})
	default:
		q.giveBack(j)
	}
}

// Each calls fn with what Restore would need for every job that was claimed
// before, but for those whose holder has settled them: what is on its way to the log
// holds.
func (q *Queue) Each(fn func(seq uint64, node string, id uint64, deadline int64, deliveries uint64)) {
	for j := range q.jobs.all() {
		switch j.state {
		case leased:
			fn(j.seq, j.cohort.node, j.id, j.cohort.deadline, j.deliveries)
		case delayed:
			fn(j.seq, "", j.id, j.until, j.deliveries)
		case settling:
			if j.was == nil { // it is a dead letter, if that can be moved
				fn(j.seq, "", j.id, 0, j.deliveries)
			}
		case ready:
			fn(j.seq, "", j.id, 0, j.deliveries)
		}
	}
}

type seqHeap []uint64

func (h seqHeap) Len() int           { return len(h) }
func (h seqHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h seqHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *seqHeap) Push(x any)        { *h = append(*h, x.(uint64)) }
func (h *seqHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

type delay struct {
	until int64
	job   *job
}

type delayHeap []delay

func (h delayHeap) Len() int           { return len(h) }
func (h delayHeap) Less(i, j int) bool { return h[i].until < h[j].until }
func (h delayHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *delayHeap) Push(x any)        { *h = append(*h, x.(delay)) }
func (h *delayHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = delay{}
	*h = old[:len(old)-1]
	return x
}

type cohortHeap []*cohort

func (h cohortHeap) Len() int           { return len(h) }
func (h cohortHeap) Less(i, j int) bool { return h[i].deadline < h[j].deadline }
func (h cohortHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *cohortHeap) Push(x any) {
	c := x.(*cohort)
	c.index = len(*h)
	*h = append(*h, c)
}
func (h *cohortHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return x
}
