package sched

// Bands is how many bands there are; B0, the lowest, has the number 0.
const Bands = 5

const (
	top = Bands - 1

	// Entries of the top band that had been deferred wait apart, so that
	// thousands of them do not delay the others there.
	lateQueue = Bands
	// Of this many visits of the top band one may go to them.
	lateShare = 8
)

// weights says how many visits a band has in one round.
var weights = [Bands]int{1, 1, 2, 4, 8}

// bandOf returns the band of an effective priority.
func bandOf(priority int) int8 {
	switch {
	case priority >= 750:
		return 4
	case priority >= 500:
		return 3
	case priority >= 250:
		return 2
	case priority >= 0:
		return 1
	}
	return 0
}

// robin is the deficit weighted round robin over the bands of one shard: every
// round gives each band its weight in visits, from the top down. A visit costs 1
// and a band that runs empty keeps nothing, so only the band whose turn it is can
// have a deficit.
type robin struct {
	queues  [Bands + 1]fifo
	band    int // whose turn it is
	begun   bool
	deficit int
	since   int // visits of the top band since one went to a deferred entry
}

func newRobin() robin { return robin{band: top, since: lateShare} }

// pick takes out the entry to visit, or returns nil if there is none. Whether a
// band has run empty is judged at the next pick, after the visit.
func (r *robin) pick() *entry {
	for range Bands + 1 {
		if r.waiting(r.band) {
			if !r.begun {
				r.begun, r.deficit = true, weights[r.band]
			}
			if r.deficit > 0 {
				r.deficit--
				return r.oldest(r.band)
			}
		}
		r.begun, r.deficit = false, 0
		r.band = (r.band + top) % Bands
	}
	return nil
}

func (r *robin) waiting(band int) bool {
	return len(r.queues[band]) > 0 || band == top && len(r.queues[lateQueue]) > 0
}

// oldest takes the oldest entry out of the band, in the top band one that had
// been deferred at most every eighth time while others wait.
func (r *robin) oldest(band int) *entry {
	q := &r.queues[band]
	if band != top {
		return q.remove(0)
	}
	late := &r.queues[lateQueue]
	r.since++
	if len(*late) == 0 || len(*q) > 0 && (r.since < lateShare || (*q)[0].before((*late)[0])) {
		return q.remove(0)
	}
	r.since = 0
	return late.remove(0)
}
