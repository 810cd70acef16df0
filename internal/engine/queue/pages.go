package queue

import (
	"iter"
	"math/bits"
	"sync"
)

// pageSeqs is for how many numbers a page has room: a claim or an ack of jobs that follow
// each other finds them in a few pages, and a page for one job alone is half a KiB.
const (
	pageBits = 6
	pageSeqs = 1 << pageBits
)

// page is the entries of numbers that follow each other.
type page struct {
	jobs [pageSeqs]*job
	has  uint64 // bit i: jobs[i] is there
}

// emptyPages are those that queues have let go of.
var emptyPages = sync.Pool{New: func() any { return new(page) }}

// pages are the entries of a queue by number.
type pages struct {
	byNumber map[uint64]*page // by seq >> pageBits; none is empty
	n        int              // entries

	// The page looked at last, nil if there is none under that number.
	last   *page
	lastAt uint64
}

func newPages() pages { return pages{byNumber: make(map[uint64]*page), lastAt: ^uint64(0)} }

// get returns the entry of a number, nil if it has none.
func (p *pages) get(seq uint64) *job {
	if seq>>pageBits != p.lastAt {
		p.turn(seq >> pageBits)
	}
	if p.last == nil {
		return nil
	}
	return p.last.jobs[seq%pageSeqs]
}

// absentTo returns the last number, at most to, up to which none has an entry. from has none.
func (p *pages) absentTo(from, to uint64) uint64 {
	for seq := from; seq <= to; seq = (seq | (pageSeqs - 1)) + 1 {
		if seq>>pageBits != p.lastAt {
			p.turn(seq >> pageBits)
		}
		if p.last == nil {
			continue
		}
		if has := p.last.has >> (seq % pageSeqs); has != 0 {
			return min(to, seq+uint64(bits.TrailingZeros64(has))-1)
		}
	}
	return to
}

// turn looks a page up.
func (p *pages) turn(at uint64) { p.last, p.lastAt = p.byNumber[at], at }

// put makes j the entry of its number.
func (p *pages) put(j *job) {
	at := j.seq >> pageBits
	if at != p.lastAt {
		p.turn(at)
	}
	if p.last == nil {
		p.last = emptyPages.Get().(*page)
		p.byNumber[at] = p.last
	}
	bit := uint64(1) << (j.seq % pageSeqs)
	if p.last.has&bit == 0 {
		p.last.has |= bit
		p.n++
	}
	p.last.jobs[j.seq%pageSeqs] = j
}

// remove takes an entry out.
func (p *pages) remove(j *job) {
	at := j.seq >> pageBits
	if at != p.lastAt {
		p.turn(at)
	}
	p.last.jobs[j.seq%pageSeqs] = nil
	p.n--
	if p.last.has &^= 1 << (j.seq % pageSeqs); p.last.has == 0 {
		delete(p.byNumber, at)
		emptyPages.Put(p.last)
		p.last = nil
	}
}

// in yields the entries from…to, ascending if they are in a few pages. The one that was
// yielded may be removed meanwhile.
func (p *pages) in(from, to uint64) iter.Seq[*job] {
	return func(yield func(*job) bool) {
		if first, last := from>>pageBits, to>>pageBits; last-first < uint64(len(p.byNumber)) {
			for at := first; at <= last; at++ {
				if pg := p.byNumber[at]; pg != nil && !pg.each(at<<pageBits, from, to, yield) {
					return
				}
			}
			return
		}
		for at, pg := range p.byNumber {
			if !pg.each(at<<pageBits, from, to, yield) {
				return
			}
		}
	}
}

// all yields all entries, in no order.
func (p *pages) all() iter.Seq[*job] { return p.in(0, ^uint64(0)) }

// each yields the entries from…to of the page whose numbers begin at base; false if yield
// wants no more.
func (pg *page) each(base, from, to uint64, yield func(*job) bool) bool {
	for left := pg.has; left != 0; left &= left - 1 {
		i := uint64(bits.TrailingZeros64(left))
		if seq := base + i; seq >= from && seq <= to && !yield(pg.jobs[i]) {
			return false
		}
	}
	return true
}
