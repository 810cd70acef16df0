package store

import (
	"fmt"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
)

// dead tells which numbers of a topic need no place in a table.
type dead struct {
	state *op.State // may be nil
	gone  func(seq uint64) bool
}

func (d *dead) has(seq uint64) bool {
	if d.state != nil && (seq <= d.state.Start || d.state.Holes.Has(seq)) {
		return true
	}
	return d.gone != nil && d.gone(seq)
}

// dataWriter writes the records of one segment, topic by topic in ascending
// order, into tables of chunks. Frames are copied once, into the chunk.
type dataWriter struct {
	tb      *table
	limit   int // bytes of a table
	segment uint32
	run     Run
	b       chunkBuilder
	disk    uint64
	key     []byte
	flows   []op.Span // of the run

	// The span: live frames that follow each other and are not in the chunk yet.
	span      []byte
	spanFirst uint64
	spanN     uint64
	spanTS    int64
}

func (w *dataWriter) begin(topic uint64) {
	w.run, w.flows = Run{Topic: topic, Segment: w.segment}, w.flows[:0]
}

// append takes in the frames of records whose numbers follow each other from
// first, except the dead ones, and returns how many frames there were.
func (w *dataWriter) append(first uint64, ts int64, frames []byte, d *dead) (n uint64, err error) {
	if w.run.N > 0 && first <= w.run.Last {
		return 0, fmt.Errorf("numbers of topic %d go back from %d to %d", w.run.Topic, w.run.Last, first)
	}
	var r api.Record
	w.span, w.spanTS = frames[:0], ts
	size := 0
	for seq := first; len(frames) > 0; seq++ {
		rest, err := op.ReadFrame(frames, &r)
		if err != nil {
			return n, err
		}
		length := len(frames) - len(rest)
		n++
		if d.has(seq) {
			w.endSpan()
			w.span = rest[:0]
			frames = rest
			continue
		}
		if w.spanN == 0 {
			size = w.b.room()
		}
		if len(w.span)+length > size {
			w.endSpan()
			if !w.b.empty() {
				if err := w.endChunk(); err != nil {
					return n, err
				}
			}
			w.span, size = frames[:0], w.b.room()
		}
		if w.spanN == 0 {
			w.spanFirst = seq
		}
		w.span = w.span[:len(w.span)+length]
		w.spanN++
		if w.run.N == 0 {
			w.run.First = seq
		}
		w.run.Last = seq
		w.run.N++
		w.run.Bytes += uint64(r.Size())
		w.flows = op.AppendSpan(w.flows, seq, &r)
		frames = rest
	}
	w.endSpan()
	return n, nil
}

func (w *dataWriter) endSpan() {
	if w.spanN > 0 {
		w.b.add(w.spanFirst, w.spanN, w.spanTS, w.span)
		w.spanN = 0
	}
}

func (w *dataWriter) endChunk() error {
	last := w.b.last
	chunk := w.b.finish()
	w.key = dataKey(w.key[:0], w.segment, w.run.Topic, last)
	if w.tb.w != nil && w.tb.bytes >= w.limit {
		if err := w.tb.close(); err != nil {
			return err
		}
	}
	w.run.Disk += uint64(len(w.key) + len(chunk))
	return w.tb.set(w.key, chunk)
}

// end finishes the topic and returns what the segment holds of it.
func (w *dataWriter) end() (Run, error) {
	if !w.b.empty() {
		if err := w.endChunk(); err != nil {
			return Run{}, err
		}
	}
	w.disk += w.run.Disk
	w.run.Flows = op.EncodeSpans(nil, w.flows)
	clear(w.flows)
	return w.run, nil
}
