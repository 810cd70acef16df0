package queue

import (
	"container/heap"
	"math"
	"slices"

	"github.com/weirmq/weir/internal/op"
)

// Pick is one job picked by Claim.
type Pick struct {
	Seq        uint64
	Deliveries uint64 // deliveries made, this one included
	ID         uint64 // lease id
	job        *job
}

// Claim asks for jobs.
type Claim struct {
	Node     string
	Max      int
	Deadline int64
	Limit    uint64 // jobs that were delivered so often are dead; 0: none are
	Dead     int    // most dead jobs that are wanted; the others are kept for other claims
	FirstID  uint64 // lease id of the first job; the others follow
	Head     uint64 // no higher number is handed out
	Live     uint64 // how many records there are, so that no more memory is taken
	Records  Records
}

// Records are the records of the topic.
type Records interface {
	// Free reports whether a number may be handed out.
	Free(seq uint64) bool
	// NextFree returns the lowest such number above seq, or one above the head.
	NextFree(seq uint64) uint64
	// FreeRange returns the first visible one above pos and the last one, at most end, up to
	// which all may be handed out; from > to if there is none.
	FreeRange(pos, end uint64) (from, to uint64)
	// NextLive is NextFree for numbers that are there, though a change that may
	// still fail takes some of them.
	NextLive(seq uint64) uint64
}

// Claim picks claimable jobs and leases them; it adds them to picks in ascending
// order. Which ones says order; while all are plain, the returned ones come
// first and then those never claimed, both in ascending order. A dead job is
// not leased: it is settling and is added to dead, for Forget or Abort.
func (q *Queue) Claim(picks, dead []Pick, r *Claim) (_, _ []Pick) {
	q.judge(r.Limit)
	start := len(picks)
	picks = slices.Grow(picks, min(r.Max, 128, r.others(q.inFlight+q.delays))) // most claims want no more than 128
	c := claiming{Claim: r, q: q, picks: picks, dead: dead, left: r.Max}
	if q.order != nil {
		c.ordered()
	} else {
		for c.left > 0 && c.takeReturned(&q.returned) {
		}
		for c.left > 0 && c.takeRun() {
		}
	}
	c.takeDead()
	q.leaseAll(c.picks[start:], r)
	return c.picks, c.dead
}

// judge gives back the jobs that were found dead by another limit.
func (q *Queue) judge(limit uint64) {
	found := q.dead
	if limit == q.deadAt {
		return
	}
	q.dead, q.deadAt = nil, limit
	for _, seq := range found {
		if j := q.jobs.get(seq); j != nil && j.state == ready {
			q.giveBack(j)
		}
	}
}

// takeDead takes as many of the dead jobs as are wanted.
func (c *claiming) takeDead() {
	q, most := c.q, len(c.dead)+c.Dead
	for len(q.dead) > 0 && len(c.dead) < most {
		seq := q.dead[0]
		q.dead = q.dead[1:]
		j := q.jobs.get(seq)
		switch {
		case j == nil || j.state != ready:
		case !c.Records.Free(seq):
			q.passOver(j.name(), op.Range{From: seq, To: seq}, c.Records)
		default:
			j.state = settling
			q.inFlight++
			c.dead = append(c.dead, Pick{Seq: j.seq, Deliveries: j.deliveries, job: j})
		}
	}
	if len(q.dead) == 0 {
		q.dead = nil
	}
}

// claiming is a claim that is picking its jobs.
type claiming struct {
	*Claim
	q           *Queue
	picks, dead []Pick
	left        int   // jobs still wanted
	slab        []job // the latest entries of those never claimed, with room for more
}

// slabJobs is how many entries share a piece of memory, which is there until the last of
// them has gone.
const slabJobs = 64

// others is how many records there are beside n of them.
func (r *Claim) others(n int) int { return int(min(r.Live-min(r.Live, uint64(n)), math.MaxInt)) }

// takeReturned picks the first job that was handed out before; false if there
// is none.
func (c *claiming) takeReturned(returned *seqHeap) bool {
	for {
		j := c.nextReturned(returned)
		if j == nil {
			return false
		}
		heap.Pop(returned)
		if c.Limit > 0 && j.deliveries >= c.Limit {
			c.q.dead = append(c.q.dead, j.seq)
			continue
		}
		j.state = leased // a number may stand among the returned ones twice
		c.left--
		c.picks = append(c.picks, Pick{Seq: j.seq, job: j})
		return true
	}
}

// nextReturned returns the first of the returned jobs; nil if there is none.
func (c *claiming) nextReturned(returned *seqHeap) *job {
	for len(*returned) > 0 {
		seq := (*returned)[0]
		j := c.q.jobs.get(seq)
		if j != nil && j.state == ready {
			if c.Records.Free(seq) {
				return j
			}
			c.q.passOver(j.name(), op.Range{From: seq, To: seq}, c.Records)
		}
		heap.Pop(returned)
	}
	return nil
}

// takePlain picks the first plain job that was never claimed; false if there is
// none.
func (c *claiming) takePlain() bool {
	seq := c.q.nextPlain(c.Records)
	if seq > c.Head {
		return false
	}
	c.q.fresh = seq
	c.takeFresh(seq, nil)
	return true
}

// takeRun is takePlain for as many as follow each other, while all jobs are plain.
func (c *claiming) takeRun() bool {
	from := c.q.nextPlain(c.Records)
	if from > c.Head {
		return false
	}
	_, to := c.Records.FreeRange(from-1, min(c.Head, from+uint64(c.left)-1))
	to = c.q.jobs.absentTo(from, to)
	for seq := from; seq <= to; seq++ {
		c.takeFresh(seq, nil)
	}
	c.q.fresh = to
	return true
}

// takeFresh picks a job that was never claimed.
func (c *claiming) takeFresh(seq uint64, f *flow) {
	if len(c.slab) == cap(c.slab) {
		c.slab = make([]job, 0, min(c.left, slabJobs, max(1, c.others(c.q.jobs.n))))
	}
	c.slab = append(c.slab, job{seq: seq, flow: f})
	j := &c.slab[len(c.slab)-1]
	c.q.jobs.put(j)
	c.left--
	c.picks = append(c.picks, Pick{Seq: seq, job: j})
}

// nextPlain returns the first plain number that was never claimed, visible or
// not, or one above the head.
func (q *Queue) nextPlain(records Records) uint64 {
	for {
		seq := records.NextFree(q.fresh)
		if q.order != nil {
			if to := q.order.heldTo(seq); to >= seq {
				q.fresh = to
				continue
			}
		}
		if q.jobs.get(seq) == nil {
			return seq
		}
		q.fresh = seq
	}
}

// leaseAll leases the picks of one claim.
func (q *Queue) leaseAll(picks []Pick, r *Claim) {
	if len(picks) == 0 {
		return
	}
	slices.SortFunc(picks, func(a, b Pick) int {
		if a.Seq < b.Seq {
			return -1
		}
		return 1
	})
	c := &cohort{node: r.Node, deadline: r.Deadline}
	for i := range picks {
		j := picks[i].job
		c.add(j)
		j.state, j.id = leased, r.FirstID+uint64(i)
		j.deliveries++
		picks[i].Deliveries, picks[i].ID = j.deliveries, j.id
	}
	q.inFlight += len(picks)
	q.counts.Claimed += int64(len(picks))
	heap.Push(&q.leases, c)
}
