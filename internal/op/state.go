package op

import (
	"slices"

	"github.com/weirmq/weir/internal/api"
)

// Range is a span of sequence numbers, both ends included.
type Range struct{ From, To uint64 }

// Cause says what moved a loss floor or made a range.
type Cause uint8

// The causes of a loss.
const (
	CauseCrash Cause = iota
	CauseCap
	CauseTTL
	CauseTrim
)

// LostRange is a range lost above live records, announced to every cursor
// that crosses it.
type LostRange struct {
	Range
	Cause Cause
}

// Life is a number that tells one life of a topic's name from every other, and is larger
// for a later one.
func (s *State) Life() uint64 {
	return uint64(s.CreatedTS)<<lifeBits | s.ID&(1<<lifeBits-1)
}

// lifeBits is how many bits of its id a life has; 42 remain for the time.
const lifeBits = 22

// Created returns when the topic of this life was created.
func Created(life uint64) int64 { return int64(life >> lifeBits) }

// Beyond returns id, or, if the id of the life is larger, one that is not smaller than
// that: a topic that is begun behind it and no earlier has a later life.
func Beyond(id, life uint64) uint64 {
	const mask = 1<<lifeBits - 1
	return max(id, id&^mask|life&mask)
}

// State is what the log decides about one topic. Its methods apply parts and
// expect them in the order of the log.
type State struct {
	ID        uint64
	Name      string
	Config    api.Config
	CreatedTS int64 // Unix ms; with ID it tells one life of a name from another

	Head     uint64 // last assigned number
	Reserved uint64 // numbers up to here may have been shown by a writer that lost them
	Start    uint64 // nothing at or below is live
	Count    uint64 // live records
	Bytes    uint64 // their data plus meta

	Loss   uint64      // loss floor: highest number removed against the reader's will
	CapTo  uint64      // highest number lost to a cap
	TTLTo  uint64      // highest number lost to the time to live
	TrimTo uint64      // highest number lost in a router's source
	Lost   []LostRange // kept ranges above Loss, ascending, disjoint

	LastTS       int64 // Unix ms of the last append
	DeadLettered uint64

	Holes Holes // deleted numbers above Start
}

// Earliest is the first live number, Head+1 if there is none.
func (s *State) Earliest() uint64 { return s.NextLive(s.Start) }

// NextLive returns the lowest live number above seq, Head+1 if there is none.
func (s *State) NextLive(seq uint64) uint64 {
	next := max(seq, s.Start) + 1
	for next <= s.Head {
		free := s.Holes.NextFree(next)
		for _, l := range s.Lost {
			if free >= l.From && free <= l.To {
				free = l.To + 1
			}
		}
		if free == next {
			return next
		}
		next = free
	}
	return s.Head + 1
}

// Live reports whether the number holds a live record.
func (s *State) Live(seq uint64) bool {
	return seq > s.Start && seq <= s.Head && s.NextLive(seq-1) == seq
}

// RangeAt returns the kept range that a cursor at from stands in front of or
// inside of, and whether there is one.
func (s *State) RangeAt(from uint64) (LostRange, bool) {
	for _, l := range s.Lost {
		if l.From-1 <= from && from < l.To {
			return l, true
		}
	}
	return LostRange{}, false
}

// RangeAbove returns the first kept range that begins above from+1.
func (s *State) RangeAbove(from uint64) (LostRange, bool) {
	for _, l := range s.Lost {
		if l.From > from+1 {
			return l, true
		}
	}
	return LostRange{}, false
}

// Append applies an append of n records of bytes in all at number first.
// Numbers between the head and first were records that the log does not hold:
// those of a topic that was ephemeral for a while.
func (s *State) Append(first, n, bytes uint64, ts int64) {
	if first > s.Head+1 {
		s.Lose(s.Head+1, first-1, CauseCrash)
	}
	s.Head = first + n - 1
	s.Count += n
	s.Bytes += bytes
	s.LastTS = max(s.LastTS, ts)
}

// Delete applies a delete: the numbers in ranges are gone, n of them were
// live, with bytes in all.
func (s *State) Delete(ranges []Range, n, bytes uint64) {
	for _, r := range ranges {
		if r.From = max(r.From, s.Start+1); r.From <= r.To {
			if r.From == s.Start+1 {
				s.Start = r.To
				continue
			}
			s.Holes.AddRange(r.From, r.To)
		}
	}
	s.uncount(n, bytes)
	s.closeUp()
}

// Evict applies a loss of everything up to to, of which n records with bytes
// in all were live.
func (s *State) Evict(to uint64, cause Cause, n, bytes uint64) {
	s.mark(to, cause)
	s.Loss = max(s.Loss, to)
	s.Start = max(s.Start, to)
	s.uncount(n, bytes)
	s.closeUp()
}

// uncount takes n records with bytes in all from the totals. The size of what
// cannot be read is a guess, so the last record takes all bytes that are left.
func (s *State) uncount(n, bytes uint64) {
	s.Count -= min(n, s.Count)
	if s.Bytes -= min(bytes, s.Bytes); s.Count == 0 {
		s.Bytes = 0
	}
}

// Lose applies the loss of numbers that hold no record: a crash took them, a
// router burnt them, or the disk has damaged them. The head moves over those
// above it; those at or below it must not be counted any more.
func (s *State) Lose(from, to uint64, cause Cause) {
	if to < from {
		return
	}
	// Not by Count: behind operations that a damaged log lost it may be wrong.
	none := s.NextLive(s.Start) > s.Head
	s.Head = max(s.Head, to)
	if none {
		s.mark(to, cause)
		s.Loss = max(s.Loss, to)
		s.Start = max(s.Start, to)
		s.closeUp()
		return
	}
	if from = max(from, s.Start+1); from <= to {
		s.keep(LostRange{Range{from, to}, cause})
	}
	s.closeUp()
}

// keep adds a range to the kept ones, at its place, and joins it with those of
// the same cause that it meets.
func (s *State) keep(l LostRange) {
	k := len(s.Lost)
	for k > 0 && s.Lost[k-1].From > l.From {
		k--
	}
	if k > 0 && s.Lost[k-1].To+1 >= l.From && s.Lost[k-1].Cause == l.Cause {
		k--
		s.Lost[k].To = max(s.Lost[k].To, l.To)
	} else {
		s.Lost = slices.Insert(s.Lost, k, l)
	}
	for k+1 < len(s.Lost) && s.Lost[k].To+1 >= s.Lost[k+1].From && s.Lost[k].Cause == s.Lost[k+1].Cause {
		s.Lost[k].To = max(s.Lost[k].To, s.Lost[k+1].To)
		s.Lost = slices.Delete(s.Lost, k+1, k+2)
	}
}

// Skip applies a silent jump of the head: the numbers hold no record and
// nothing was lost.
func (s *State) Skip(to uint64) {
	if to <= s.Head {
		return
	}
	if s.Start == s.Head {
		s.Start = to
	} else {
		s.Holes.AddRange(s.Head+1, to)
	}
	s.Head = to
	s.closeUp()
}

// reach makes the head at least seq, which something later in the log names:
// the operations that gave out the numbers up to it were lost.
func (s *State) reach(seq uint64) {
	if seq > s.Head {
		s.Lose(s.Head+1, seq, CauseCrash)
	}
}

// Recovered is the state of a topic whose creation the log lost.
func Recovered(id uint64, name string) State {
	return State{ID: id, Name: name, Config: api.DefaultConfig()}
}

// CountLive counts the live records one by one; Count is the same unless
// operations were lost.
func (s *State) CountLive() (n uint64) {
	for pos := s.Start; ; {
		from, to := s.LiveRange(pos, s.Head)
		if from > to || from > s.Head {
			return n
		}
		n += to - from + 1
		pos = to
	}
}

func (s *State) mark(to uint64, cause Cause) {
	switch cause {
	case CauseCap:
		s.CapTo = max(s.CapTo, to)
	case CauseTTL:
		s.TTLTo = max(s.TTLTo, to)
	case CauseTrim:
		s.TrimTo = max(s.TrimTo, to)
	}
}

// closeUp moves Start over what is not live and lets the loss floor take in the
// ranges it has reached.
func (s *State) closeUp() {
	s.Start = max(s.Start, s.Loss)
	for {
		next := s.Holes.NextFree(s.Start+1) - 1
		for _, l := range s.Lost {
			if l.From <= next+1 && next < l.To {
				next = l.To
			}
		}
		next = min(next, s.Head)
		if next <= s.Start {
			break
		}
		s.Start = next
	}
	for len(s.Lost) > 0 {
		l := s.Lost[0]
		if l.From <= s.Loss+1 && s.Start >= l.From-1 {
			s.mark(l.To, l.Cause)
			s.Loss = max(s.Loss, l.To)
		}
		if s.Loss < l.To {
			break
		}
		s.Lost = s.Lost[1:]
	}
	if len(s.Lost) == 0 {
		s.Lost = nil
	}
	s.Start = max(s.Start, s.Loss)
	s.Holes.DropBelow(s.Start + 1)
}

// Reason names the cause of a tombstone that begins at gapFrom.
func (s *State) Reason(gapFrom uint64) api.TombstoneReason {
	c, t := s.CapTo >= gapFrom, s.TTLTo >= gapFrom
	switch {
	case c && t:
		return api.ReasonMixed
	case t:
		return api.ReasonTTL
	case c:
		return api.ReasonCap
	case s.TrimTo >= gapFrom:
		return api.ReasonSourceTrim
	}
	return api.ReasonCrash
}

// Reason names the cause of a kept range.
func (l LostRange) Reason() api.TombstoneReason {
	switch l.Cause {
	case CauseCap:
		return api.ReasonCap
	case CauseTTL:
		return api.ReasonTTL
	case CauseTrim:
		return api.ReasonSourceTrim
	}
	return api.ReasonCrash
}

// LiveRange returns the first live number above pos and the last one up to
// which all are live, at most end; from > end if there is none.
func (s *State) LiveRange(pos, end uint64) (from, to uint64) {
	end = min(end, s.Head)
	from = s.NextLive(pos)
	if from > end {
		return from, from
	}
	to = end
	if hole, ok := s.Holes.Next(from, to); ok {
		to = hole - 1
	}
	for _, l := range s.Lost {
		if l.From > from && l.From <= to {
			to = l.From - 1
		}
	}
	return from, to
}
