package queue

import "slices"

// Holder is one connection that jobs are pushed to. It knows which of its jobs
// are still out: a job that is being acknowledged is, until it is deleted.
type Holder struct {
	freed func()
	jobs  map[uint64]*job
}

// NewHolder returns a holder of nothing. freed is called whenever one of its
// jobs is out no more, however that came; it must not call the queue.
func NewHolder(freed func()) *Holder {
	return &Holder{freed: freed, jobs: make(map[uint64]*job)}
}

// Len is the number of jobs that are out; call Expire first.
func (h *Holder) Len() int { return len(h.jobs) }

// Hold says that the picks, just claimed, go to h.
func (q *Queue) Hold(h *Holder, picks []Pick) {
	for _, p := range picks {
		p.job.holder = h
		h.jobs[p.Seq] = p.job
	}
}

// Drop gives back everything h has under a lease: claimable at once, the
// delivery counts stay. An ack on its way goes on. It returns the numbers that
// are claimable now, ascending.
func (q *Queue) Drop(h *Holder) []uint64 {
	var back []uint64
	for seq, j := range h.jobs {
		j.holder = nil
		if j.state == leased {
			q.inFlight--
			q.giveBack(j)
			back = append(back, seq)
		}
		j.was = nil // an ack that fails gives it back, too
	}
	clear(h.jobs)
	slices.Sort(back)
	return back
}

// free takes the job off its holder's list.
func (j *job) free() {
	h := j.holder
	if h == nil {
		return
	}
	j.holder = nil
	delete(h.jobs, j.seq)
	h.freed()
}
