package op

import (
	"math/bits"
	"slices"
)

const (
	pageBits = 12
	pageSeqs = 1 << pageBits // sequence numbers in a page
	// PageBytes is the size of a page's bitmap.
	PageBytes = pageSeqs / 8
)

type page struct {
	words [pageSeqs / 64]uint64
	n     int
}

// find returns the lowest place from there on that is set or, if flip is all ones, that is not.
func (p *page) find(from, flip uint64) (place uint64, ok bool) {
	word := from / 64
	found := (p.words[word] ^ flip) &^ (1<<(from%64) - 1)
	for found == 0 {
		if word++; word == pageSeqs/64 {
			return 0, false
		}
		found = p.words[word] ^ flip
	}
	return word*64 + uint64(bits.TrailingZeros64(found)), true
}

// fullPage stands for every page whose numbers are all set.
var fullPage = &page{n: pageSeqs}

// Holes is a set of sequence numbers: the deleted ones above a topic's start.
// It takes at most one bit per number between its lowest and highest page, and
// one map entry for a page that is full. The zero value is an empty set.
type Holes struct {
	pages map[uint64]*page
	low   uint64 // no page below this one
}

// Add puts seq into the set and reports whether it was new.
func (h *Holes) Add(seq uint64) bool {
	return h.addWithin(seq>>pageBits, seq%pageSeqs, seq%pageSeqs) > 0
}

// AddRange puts from…to into the set.
func (h *Holes) AddRange(from, to uint64) {
	if from > to {
		return
	}
	for idx := from >> pageBits; idx <= to>>pageBits; idx++ {
		first, last := uint64(0), uint64(pageSeqs-1)
		if idx == from>>pageBits {
			first = from % pageSeqs
		}
		if idx == to>>pageBits {
			last = to % pageSeqs
		}
		h.addWithin(idx, first, last)
	}
}

// addWithin puts the places first…last of a page into the set and returns how many were new.
func (h *Holes) addWithin(idx, first, last uint64) (added int) {
	p := h.pages[idx]
	if p == fullPage {
		return 0
	}
	if p == nil {
		if h.pages == nil {
			h.pages = make(map[uint64]*page)
		}
		if len(h.pages) == 0 || idx < h.low {
			h.low = idx
		}
		if last-first == pageSeqs-1 {
			h.pages[idx] = fullPage
			return pageSeqs
		}
		p = new(page)
		h.pages[idx] = p
	}
	for w := first / 64; w <= last/64; w++ {
		mask := ^uint64(0)
		if w == first/64 {
			mask <<= first % 64
		}
		if w == last/64 {
			mask &= ^uint64(0) >> (63 - last%64)
		}
		added += bits.OnesCount64(mask &^ p.words[w])
		p.words[w] |= mask
	}
	if p.n += added; p.n == pageSeqs {
		h.pages[idx] = fullPage
	}
	return added
}

// Has reports whether seq is in the set.
func (h *Holes) Has(seq uint64) bool {
	p := h.pages[seq>>pageBits]
	return p != nil && (p == fullPage || p.words[(seq%pageSeqs)/64]&(1<<(seq%64)) != 0)
}

// NextFree returns the lowest number ≥ seq that is not in the set.
func (h *Holes) NextFree(seq uint64) uint64 {
	for len(h.pages) > 0 {
		p := h.pages[seq>>pageBits]
		if p == nil {
			return seq
		}
		base := seq &^ (pageSeqs - 1)
		if p != fullPage {
			if place, ok := p.find(seq%pageSeqs, ^uint64(0)); ok {
				return base + place
			}
		}
		seq = base + pageSeqs
	}
	return seq
}

// Next returns the lowest number from…to that is in the set, and whether there is one.
func (h *Holes) Next(from, to uint64) (seq uint64, ok bool) {
	for from <= to && len(h.pages) > 0 {
		p := h.pages[from>>pageBits]
		if p == fullPage {
			return from, true
		}
		base := from &^ (pageSeqs - 1)
		if p != nil {
			if place, ok := p.find(from%pageSeqs, 0); ok {
				return base + place, base+place <= to
			}
		}
		if to-base < pageSeqs {
			break // the next page may begin beyond the largest number
		}
		from = base + pageSeqs
	}
	return 0, false
}

// DropBelow forgets whole pages below seq.
func (h *Holes) DropBelow(seq uint64) {
	idx := seq >> pageBits
	if idx <= h.low || len(h.pages) == 0 {
		return
	}
	if idx-h.low > uint64(len(h.pages)) {
		for i := range h.pages {
			if i < idx {
				delete(h.pages, i)
			}
		}
	} else {
		for i := h.low; i < idx; i++ {
			delete(h.pages, i)
		}
	}
	h.low = idx
	if len(h.pages) == 0 {
		h.pages = nil
	}
}

// Between counts the members in from…to.
func (h *Holes) Between(from, to uint64) uint64 {
	if len(h.pages) == 0 || from > to {
		return 0
	}
	var n uint64
	for idx := from >> pageBits; idx <= to>>pageBits; idx++ {
		p := h.pages[idx]
		if p == nil {
			continue
		}
		lo, hi := idx<<pageBits, idx<<pageBits+pageSeqs-1
		lo, hi = max(lo, from), min(hi, to)
		if p == fullPage {
			n += hi - lo + 1
			continue
		}
		for s := lo; s <= hi; {
			w := p.words[(s%pageSeqs)/64] >> (s % 64)
			span := min(64-s%64, hi-s+1)
			if span < 64 {
				w &= 1<<span - 1
			}
			n += uint64(bits.OnesCount64(w))
			s += span
		}
	}
	return n
}

// Pages calls fn for every page: its number and its bitmap, little-endian
// words, nil for a full page.
func (h *Holes) Pages(fn func(idx uint64, bitmap []byte)) {
	for idx, p := range h.pages {
		if p == fullPage {
			fn(idx, nil)
			continue
		}
		b := make([]byte, 0, PageBytes)
		for _, w := range p.words {
			b = append(b, byte(w), byte(w>>8), byte(w>>16), byte(w>>24), byte(w>>32), byte(w>>40), byte(w>>48), byte(w>>56))
		}
		fn(idx, b)
	}
}

// SetPage puts a page back as Pages gave it; a bitmap of another length than
// PageBytes, other than an empty one, is refused.
func (h *Holes) SetPage(idx uint64, bitmap []byte) bool {
	if len(bitmap) != 0 && len(bitmap) != PageBytes {
		return false
	}
	if h.pages == nil {
		h.pages = make(map[uint64]*page)
	}
	if len(h.pages) == 0 || idx < h.low {
		h.low = idx
	}
	if len(bitmap) == 0 {
		h.pages[idx] = fullPage
		return true
	}
	p := new(page)
	for i := range p.words {
		for j := 7; j >= 0; j-- {
			p.words[i] = p.words[i]<<8 | uint64(bitmap[i*8+j])
		}
		p.n += bits.OnesCount64(p.words[i])
	}
	h.pages[idx] = p
	if p.n == pageSeqs {
		h.pages[idx] = fullPage
	}
	return true
}

// Ranges calls fn with every span of numbers in the set, ascending.
func (h *Holes) Ranges(fn func(Range)) {
	list := make([]uint64, 0, len(h.pages))
	for idx := range h.pages {
		list = append(list, idx)
	}
	slices.Sort(list)
	var r Range
	open := false
	add := func(from, to uint64) {
		if open && r.To+1 == from {
			r.To = to
			return
		}
		if open {
			fn(r)
		}
		r, open = Range{from, to}, true
	}
	for _, idx := range list {
		first := idx << pageBits
		if h.pages[idx] == fullPage {
			add(first, first+pageSeqs-1)
			continue
		}
		for i := uint64(0); i < pageSeqs; i++ {
			if h.Has(first + i) {
				add(first+i, first+i)
			}
		}
	}
	if open {
		fn(r)
	}
}
