package engine

import (
	"errors"
	"sync"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/topic"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/store"
	"github.com/weirmq/weir/internal/wal"
)

// errMoved says that a record was not where the plan said: its segment was
// sealed or rewritten meanwhile, so the caller plans again.
var errMoved = errors.New("engine: the record moved meanwhile")

// reader reads batches and chunks; it owns the buffer they are read into.
type reader struct {
	buf  []byte
	part op.Part
	rec  api.Record
}

var readers = sync.Pool{New: func() any { return new(reader) }}

func getReader() *reader { return readers.Get().(*reader) }

func (rd *reader) put() {
	if cap(rd.buf) <= maxPooled {
		readers.Put(rd)
	}
}

// batch visits the records of one batch of the log or of memory, as long as
// visit wants more.
func (rd *reader) batch(e *Engine, t *entry, ref topic.Ref, visit func(*api.Record) bool) error {
	if ref.Segment == topic.InMemory {
		return rd.frames(t, t.Index.Frames(ref.First), ref, visit)
	}
	return rd.logged(e, t, ref, visit)
}

// logged visits the records of a batch that lies in the log.
func (rd *reader) logged(e *Engine, t *entry, ref topic.Ref, visit func(*api.Record) bool) error {
	payload, loan, err := e.log.Lend(placeOf(ref), &rd.buf)
	defer loan.Return()
	if errors.Is(err, wal.ErrReleased) {
		return errMoved
	}
	if err != nil {
		return unreadableRef(t, ref, err)
	}
	return rd.operation(t, ref, payload, visit)
}

// held is batch for one that memory holds, and reports whether it does.
func (rd *reader) held(e *Engine, t *entry, ref topic.Ref, visit func(*api.Record) bool) (ok bool, err error) {
	if ref.Segment == topic.InMemory {
		return true, rd.frames(t, t.Index.Frames(ref.First), ref, visit)
	}
	payload, loan, ok := e.log.LendHot(placeOf(ref))
	if !ok {
		return false, nil
	}
	defer loan.Return()
	return true, rd.operation(t, ref, payload, visit)
}

func placeOf(ref topic.Ref) wal.Pos {
	return wal.Pos{Segment: ref.Segment, Offset: ref.Offset, Len: ref.Len}
}

// operation visits the records of a batch in the operation of the log that holds it.
func (rd *reader) operation(t *entry, ref topic.Ref, payload []byte, visit func(*api.Record) bool) error {
	parts := op.NewReader(payload)
	for parts.Next(&rd.part) {
		if rd.part.Kind == op.KindAppend && rd.part.First == ref.First && rd.part.Topic == t.ID {
			return rd.frames(t, parts.Frames, ref, visit)
		}
	}
	return unreadable(t, ref.First, parts.Err())
}

func (rd *reader) frames(t *entry, frames []byte, ref topic.Ref, visit func(*api.Record) bool) error {
	r := &rd.rec
	r.TS = ref.TS
	var err error
	for seq := ref.First; seq <= ref.Last(); seq++ {
		if frames, err = op.ReadFrame(frames, r); err != nil {
			return unreadable(t, seq, err)
		}
		r.Seq = seq
		if !visit(r) {
			return nil
		}
	}
	return nil
}

// chunk visits the records of the sealed chunk that holds seq or comes next.
func (rd *reader) chunk(e *Engine, t *entry, run topic.Run, seq uint64, visit func(*api.Record) bool) error {
	c, err := e.store.Read(run.Segment, t.ID, seq)
	if err != nil {
		return unreadableRun(t, run, seq, err)
	}
	if c == nil {
		return errMoved
	}
	defer c.Release()
	rd.from(c, 0, visit)
	return nil
}

// resident visits every record of the batch or chunk that holds seq, as long as visit wants
// more, if it is in memory, and reports whether it is. The topic's lock is held.
func (rd *reader) resident(e *Engine, t *entry, seq uint64, visit func(*api.Record) bool) (ok bool, err error) {
	ref, run, inLog, sealed := t.Index.Find(seq)
	switch {
	case inLog:
		return rd.held(e, t, ref, visit)
	case sealed:
		c := e.store.Cached(run.Segment, t.ID, seq)
		if c == nil {
			return false, nil
		}
		defer c.Release()
		rd.from(c, 0, visit)
		return true, nil
	}
	return true, unreadable(t, seq, nil)
}

// from visits the records of a chunk from the number seq on, and reports whether visit wants more.
func (rd *reader) from(c *store.Chunk, seq uint64, visit func(*api.Record) bool) bool {
	it := c.Seek(seq)
	for it.Next(&rd.rec) {
		if !visit(&rd.rec) {
			c.Leave(it)
			return false
		}
	}
	return true
}

// place says where some of a topic's numbers lie.
type place struct {
	ref    topic.Ref
	run    topic.Run
	frames []byte // of a batch in memory
	sealed bool
}

// plan is a piece of a topic that can be read without its lock: ranges of live
// numbers and where they lie.
type plan struct {
	ranges []op.Range
	places []place
}

var plans = sync.Pool{New: func() any { return new(plan) }}

// piece plans the reading of up to n live numbers above pos and up to end,
// and returns the last number that is covered.
func (p *plan) piece(t *entry, pos, end uint64, n int) {
	p.ranges, p.places = p.ranges[:0], p.places[:0]
	for n > 0 && pos < end {
		from := t.NextLive(pos)
		if from > end {
			break
		}
		// Looking further than what is wanted would walk over the whole topic.
		from, to := t.LiveRange(pos, min(end, from+uint64(n)-1))
		n -= int(to - from + 1)
		if k := len(p.ranges); k > 0 && p.ranges[k-1].To+1 == from {
			p.ranges[k-1].To = to
		} else {
			p.ranges = append(p.ranges, op.Range{From: from, To: to})
		}
		pos = to
	}
	for _, r := range p.ranges {
		p.locate(t, r)
	}
}

// locate adds the places of one range.
func (p *plan) locate(t *entry, r op.Range) {
	for seq := r.From; seq <= r.To; {
		ref, run, inLog, sealed := t.Index.Find(seq)
		switch {
		case inLog:
			if k := len(p.places); k == 0 || p.places[k-1].sealed || p.places[k-1].ref != ref {
				pl := place{ref: ref}
				if ref.Segment == topic.InMemory {
					pl.frames = t.Index.Frames(ref.First)
				}
				p.places = append(p.places, pl)
			}
			seq = ref.Last() + 1
		case sealed:
			if at, ok := t.Index.NextInMemory(seq); ok && at <= run.Last {
				run.Last = at - 1
			}
			if k := len(p.places); k == 0 || !p.places[k-1].sealed || p.places[k-1].run.Segment != run.Segment {
				p.places = append(p.places, place{run: run, sealed: true})
			}
			seq = run.Last + 1
		default:
			return
		}
	}
}

// read visits the planned records in order, as long as visit wants more. Every
// planned number is visited or the reading fails; errMoved says that what was
// not visited yet has to be planned again.
func (p *plan) read(e *Engine, t *entry, visit func(*api.Record) bool) error {
	rd := getReader()
	defer rd.put()
	ranges := p.ranges
	if len(ranges) == 0 {
		return nil
	}
	want, more := ranges[0].From, true
	take := func(r *api.Record) bool {
		if r.Seq != want {
			return r.Seq < want
		}
		if more = visit(r); !more {
			return false
		}
		if want++; want > ranges[0].To {
			if ranges = ranges[1:]; len(ranges) == 0 {
				return false
			}
			want = ranges[0].From
		}
		return true
	}
	for i := range p.places {
		pl := &p.places[i]
		if err := p.readPlace(e, t, rd, pl, &want, &ranges, take); err != nil {
			return err
		}
		if !more || len(ranges) == 0 {
			return nil
		}
	}
	return errMoved
}

func (p *plan) readPlace(e *Engine, t *entry, rd *reader, pl *place, want *uint64, ranges *[]op.Range, take func(*api.Record) bool) error {
	if !pl.sealed {
		if pl.ref.Segment == topic.InMemory {
			return rd.frames(t, pl.frames, pl.ref, take)
		}
		return rd.logged(e, t, pl.ref, take)
	}
	for len(*ranges) > 0 && *want <= pl.run.Last {
		before := *want
		c, err := e.store.Read(pl.run.Segment, t.ID, *want)
		if err != nil {
			return unreadableRun(t, pl.run, *want, err)
		}
		if c == nil {
			return errMoved
		}
		more := rd.from(c, *want, take)
		c.Release()
		if !more {
			return nil
		}
		if *want == before {
			return errMoved
		}
	}
	return nil
}

// topicRun is a run of the store as the index has it.
func topicRun(r store.Run) topic.Run {
	return topic.Run{Segment: r.Segment, First: r.First, Last: r.Last, N: r.N, Bytes: r.Bytes, Disk: r.Disk}
}
