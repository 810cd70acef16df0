package op

import (
	"encoding/binary"
	"errors"

	"github.com/weirmq/weir/internal/api"
)

// Flow names the jobs of one tier and one fair key. The zero value is the plain
// flow, of the jobs that have neither.
type Flow struct {
	Tier api.Tier
	Key  string
}

// FlowOf returns the flow of a record.
func FlowOf(r *api.Record) Flow { return Flow{r.Tier, string(r.FairKey)} }

// Plain reports whether it is the plain flow.
func (f Flow) Plain() bool { return f == Flow{} }

// Span is numbers of one flow that follow each other.
type Span struct {
	Range
	Flow
}

// AppendSpan adds the number of a record to the spans of those before it; a
// plain record is in none.
func AppendSpan(spans []Span, seq uint64, r *api.Record) []Span {
	if r.Tier == api.TierNormal && len(r.FairKey) == 0 {
		return spans
	}
	if k := len(spans) - 1; k >= 0 {
		if s := &spans[k]; s.To+1 == seq && s.Tier == r.Tier && s.Key == string(r.FairKey) {
			s.To = seq
			return spans
		}
	}
	return append(spans, Span{Range{seq, seq}, FlowOf(r)})
}

// FrameSpans returns the spans of frames whose numbers follow each other from
// first, nil if all are plain.
func FrameSpans(first uint64, frames []byte) (spans []Span, err error) {
	for seq := first; len(frames) > 0; seq++ {
		rest, err := SkipFrame(frames)
		if err != nil {
			return nil, err
		}
		if _, w := binary.Uvarint(frames); frames[w]&flagFlow != 0 {
			var r api.Record
			if _, err := ReadFrame(frames, &r); err != nil {
				return nil, err
			}
			spans = AppendSpan(spans, seq, &r)
		}
		frames = rest
	}
	return spans, nil
}

// EncodeSpans appends ascending spans to dst, each flow's name once:
//
//	spans = (uvarint(From − To of the span before) · uvarint(To − From) ·
//	        uvarint(number of its flow) [name])*
//	name  = rank of the tier u8 · uvarint(length) · fair key
//
// Flows are numbered in the order in which they come; the next number stands in
// front of a name.
func EncodeSpans(dst []byte, spans []Span) []byte {
	if len(spans) == 0 {
		return dst
	}
	numbers := make(map[Flow]uint64)
	prev := uint64(0)
	for _, s := range spans {
		n, known := numbers[s.Flow]
		if !known {
			n = uint64(len(numbers))
			numbers[s.Flow] = n
		}
		dst = appendUvarints(dst, s.From-prev, s.To-s.From, n)
		if !known {
			dst = appendString(append(dst, byte(s.Tier.Rank())), s.Key)
		}
		prev = s.To
	}
	return dst
}

// ErrSpans is spans that cannot be decoded.
var ErrSpans = errors.New("op: malformed spans of flows")

// DecodeSpans calls fn for what EncodeSpans wrote.
func DecodeSpans(b []byte, fn func(Span)) error {
	d := decoder{b: b}
	var flows []Flow
	prev := uint64(0)
	for len(d.b) > 0 {
		s := Span{Range: Range{From: prev + d.uvarint()}}
		s.To = s.From + d.uvarint()
		n := d.uvarint()
		if n == uint64(len(flows)) && !d.bad {
			var ok bool
			if rank := d.take(1); len(rank) == 1 {
				s.Tier, ok = api.TierOf(int(rank[0]))
			}
			s.Key = d.string()
			flows = append(flows, s.Flow)
			d.bad = d.bad || !ok || s.Plain()
		}
		if d.bad || n >= uint64(len(flows)) || s.To < s.From || s.From <= prev {
			return ErrSpans
		}
		s.Flow = flows[n]
		prev = s.To
		fn(s)
	}
	return nil
}
