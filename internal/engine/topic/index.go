package topic

import (
	"cmp"
	"maps"
	"slices"
	"sort"
)

// InMemory is the segment number of a batch that lies in no segment: the
// records of an ephemeral topic.
const InMemory = ^uint32(0)

// Ref says where one batch of records lies in the log that is not sealed yet.
type Ref struct {
	First   uint64
	TS      int64
	N       uint32
	Segment uint32
	Offset  uint32
	Len     uint32
}

// Last is the batch's last number.
func (r *Ref) Last() uint64 { return r.First + uint64(r.N) - 1 }

// Run says which of the topic's numbers a sealed segment holds. Live is the
// number of its records that were live when it was built or last looked at.
type Run struct {
	Segment     uint32
	First, Last uint64
	N           uint64 // records stored
	Bytes       uint64 // their data plus meta
	Disk        uint64 // bytes they take in the store
}

// Index finds a topic's records: sealed runs first, then batches of the log
// and batches held in memory, all ascending by number.
type Index struct {
	runs   []Run
	refs   []Ref
	memory *memory // nil if it never had any
	hold   uint64  // the lowest number that Trim keeps; 0: none
}

// memory is the batches that are held in memory.
type memory struct {
	frames map[uint64][]byte // by first number
	gone   uint64            // records that were deleted since the last Sweep
}

// sweepFrom is the least number of deleted records after which it is worth looking for batches
// of which nothing is left.
const sweepFrom = 16

// Add puts a batch behind all others.
func (x *Index) Add(r Ref) { x.refs = append(x.refs, r) }

// Keep holds the frames of a batch in memory.
func (x *Index) Keep(first uint64, frames []byte) {
	if x.memory == nil {
		x.memory = &memory{frames: make(map[uint64][]byte)}
	}
	x.memory.frames[first] = frames
}

// Frames returns the frames of a batch held in memory.
func (x *Index) Frames(first uint64) []byte {
	if x.memory == nil {
		return nil
	}
	return x.memory.frames[first]
}

// Drop forgets a batch held in memory.
func (x *Index) Drop(r Ref) { delete(x.memory.frames, r.First) }

// Sweep notes that records were deleted, and now and then forgets the batches held in memory of
// which nothing lives: Trim comes to them only once nothing in front of them lives either.
func (x *Index) Sweep(deleted uint64, live func(first, last uint64) bool) {
	m := x.memory
	if m == nil {
		return
	}
	if m.gone += deleted; m.gone < max(sweepFrom, uint64(len(x.refs)/2)) {
		return
	}
	var kept []Ref
	for _, r := range x.refs {
		if r.Segment == InMemory && (x.hold == 0 || r.Last() < x.hold) && !live(r.First, r.Last()) {
			delete(m.frames, r.First)
		} else {
			kept = append(kept, r)
		}
	}
	frames := make(map[uint64][]byte, len(m.frames)) // a map does not shrink
	maps.Copy(frames, m.frames)
	x.refs, x.memory = kept, &memory{frames: frames}
}

// AddRun takes in a sealed run. Runs ascend by segment as by number, since the
// log has both in its order.
func (x *Index) AddRun(r Run) {
	i, _ := x.place(r.Segment)
	x.runs = slices.Insert(x.runs, i, r)
}

// place returns where the run of a segment is or would be, and whether it is.
func (x *Index) place(segment uint32) (int, bool) {
	return slices.BinarySearchFunc(x.runs, segment, func(r Run, segment uint32) int { return cmp.Compare(r.Segment, segment) })
}

// RunIn returns the run of a segment, and whether there is one.
func (x *Index) RunIn(segment uint32) (Run, bool) {
	if i, ok := x.place(segment); ok {
		return x.runs[i], true
	}
	return Run{}, false
}

// Find returns the place of the number or, if nothing is stored under it, of
// the first one behind it. Exactly one of the results is valid, none if there
// is nothing.
func (x *Index) Find(seq uint64) (ref Ref, run Run, inLog, sealed bool) {
	if x.InMemory() {
		// The class was changed: a batch in memory may lie between sealed ones.
		j := sort.Search(len(x.refs), func(j int) bool { return x.refs[j].Last() >= seq })
		if j < len(x.refs) && x.refs[j].First <= seq {
			return x.refs[j], Run{}, true, false
		}
	}
	i := sort.Search(len(x.runs), func(i int) bool { return x.runs[i].Last >= seq })
	if i < len(x.runs) {
		return Ref{}, x.runs[i], false, true
	}
	j := sort.Search(len(x.refs), func(j int) bool { return x.refs[j].Last() >= seq })
	if j < len(x.refs) {
		return x.refs[j], Run{}, true, false
	}
	return Ref{}, Run{}, false, false
}

// Refs appends the batches that hold numbers in from…to to dst.
func (x *Index) Refs(dst []Ref, from, to uint64) []Ref {
	j := sort.Search(len(x.refs), func(j int) bool { return x.refs[j].Last() >= from })
	for ; j < len(x.refs) && x.refs[j].First <= to; j++ {
		dst = append(dst, x.refs[j])
	}
	return dst
}

// Runs returns the sealed runs; the slice must not be changed.
func (x *Index) Runs() []Run { return x.runs }

// Trim forgets the batches of the log and of memory whose numbers are all at
// or below start, but for those that Hold keeps. Sealed runs stay until their
// segment is dropped.
func (x *Index) Trim(start uint64) {
	if x.hold > 0 {
		start = min(start, x.hold-1)
	}
	k := 0
	for k < len(x.refs) && x.refs[k].Last() <= start {
		if x.refs[k].Segment == InMemory {
			delete(x.memory.frames, x.refs[k].First)
		}
		k++
	}
	if k == 0 {
		return
	}
	x.refs = x.refs[k:]
	if len(x.refs) == 0 {
		x.refs = nil
	} else if cap(x.refs) > 64 && cap(x.refs) > 4*len(x.refs) {
		x.refs = append([]Ref(nil), x.refs...)
	}
}

// Hold keeps the numbers above pos from being trimmed though they are gone.
func (x *Index) Hold(pos uint64) { x.hold = pos + 1 }

// Unhold lets Trim take everything again.
func (x *Index) Unhold() { x.hold = 0 }

// Seal replaces the batches that lie in a sealed segment by the run that the
// store made of them; run.N 0 means that none of them was live any more.
func (x *Index) Seal(segment uint32, run Run) {
	had := false
	kept := x.refs[:0]
	for _, r := range x.refs {
		if r.Segment == segment {
			had = true
			continue
		}
		kept = append(kept, r)
	}
	if had {
		x.refs = append([]Ref(nil), kept...)
		if len(x.refs) == 0 {
			x.refs = nil
		}
	}
	if run.N > 0 {
		x.AddRun(run)
	}
}

// Swap replaces the run of a segment; a run of no records removes it.
func (x *Index) Swap(segment uint32, run Run) {
	i, ok := x.place(segment)
	switch {
	case ok && run.N > 0:
		x.runs[i] = run
	case ok:
		x.runs = append(x.runs[:i:i], x.runs[i+1:]...)
	}
}

// NextInMemory returns the first number at or above seq that a batch held in
// memory has, and whether there is one.
func (x *Index) NextInMemory(seq uint64) (uint64, bool) {
	if !x.InMemory() {
		return 0, false
	}
	j := sort.Search(len(x.refs), func(j int) bool { return x.refs[j].Last() >= seq })
	for ; j < len(x.refs); j++ {
		if x.refs[j].Segment == InMemory {
			return max(seq, x.refs[j].First), true
		}
	}
	return 0, false
}

// InMemory reports whether any batch is held in memory only.
func (x *Index) InMemory() bool { return x.memory != nil && len(x.memory.frames) > 0 }
