package api

import (
	"errors"
	"strconv"
)

// WritesRequest is the body of many writes to one topic, each of which has its own key
// and its own outcome.
type WritesRequest struct {
	Writes              []WriteRequest
	Create              *bool // whether an absent topic is created
	DisableBackpressure bool

	create  bool
	scratch []byte
}

// Reset empties the request, as WriteRequest.Reset does.
func (w *WritesRequest) Reset() {
	writes, scratch := w.Writes, w.scratch
	for i := range writes {
		if writes[i].Reset(); cap(writes[i].Records) > keepEach {
			writes[i].Records = nil
		}
	}
	if cap(writes) > keepWrites {
		writes = nil
	}
	if cap(scratch) > keepScratch {
		scratch = nil
	}
	*w = WritesRequest{Writes: writes[:0], scratch: scratch[:0]}
}

// What a WritesRequest keeps across a Reset: writes, and the records of each.
const (
	keepWrites = 128
	keepEach   = 8
)

var (
	writesFields   = []string{"writes", "create", "disable_backpressure"}
	oneWriteFields = []string{"records", "node", "idempotency_key"}
)

const (
	writesWrites = 1 << iota
	writesCreate
	writesBackpressure
)

// DecodeWrites reads the body of many writes into w, which it resets first, as DecodeWrite
// reads that of one. Of more records than lim allows in all it keeps a few.
func DecodeWrites(body []byte, lim *Limits, w *WritesRequest, warn *Warnings) error {
	w.Reset()
	// The two levels around each write do not count.
	s := scanner{b: body, index: -1, depth: -2, scratch: w.scratch, warnings: warn}
	var seen uint32
	s.body(writesFields, func(name []byte) bool {
		switch string(name) {
		case "writes":
			if s.once(&seen, writesWrites, "writes") {
				s.writes(lim, w)
			}
		case "create":
			if s.once(&seen, writesCreate, "create") && !s.null() {
				w.create = s.bool("create")
				w.Create = &w.create
			}
		case "disable_backpressure":
			if s.once(&seen, writesBackpressure, "disable_backpressure") {
				w.DisableBackpressure = s.bool("disable_backpressure")
			}
		default:
			return false
		}
		return true
	})
	if seen&writesWrites == 0 {
		s.missing("writes", "an array of writes")
	}
	err := s.finish()
	w.scratch = s.scratch
	for i := range w.Writes {
		w.Writes[i].Create, w.Writes[i].DisableBackpressure = w.Create, w.DisableBackpressure
	}
	return err
}

func (s *scanner) writes(lim *Limits, w *WritesRequest) {
	if !s.open('[') {
		s.wrong("writes", "an array of writes")
		return
	}
	var extra WriteRequest
	left := lim.MaxBatchRecords
	for i := 0; s.element(); i++ {
		s.prefix = "writes[" + strconv.Itoa(i) + "]."
		one := &extra
		if left >= 0 { // one too many is kept, for CheckWrites
			if len(w.Writes) < cap(w.Writes) {
				w.Writes = w.Writes[:len(w.Writes)+1]
			} else {
				w.Writes = append(w.Writes, WriteRequest{})
			}
			one = &w.Writes[len(w.Writes)-1]
		}
		one.Reset()
		if s.i >= len(s.b) || s.b[s.i] != '{' {
			s.err = Errorf(CodeInvalidRequest, "field \"writes[%d]\" must be an object with records (at byte %d)", i, s.i)
			return
		}
		s.write(max(left, 0), one, oneWriteFields, false)
		left -= max(1, len(one.Records))
	}
	s.prefix = ""
}

// CheckWrites checks how many writes and records there are in all; CheckWrite checks each.
func CheckWrites(w *WritesRequest, lim *Limits) error {
	if len(w.Writes) == 0 {
		return Errorf(CodeInvalidRequest, "field \"writes\" is empty; send at least one write")
	}
	n := 0
	for i := range w.Writes {
		n += max(1, len(w.Writes[i].Records))
	}
	if n > lim.MaxBatchRecords {
		return Errorf(CodeBatchTooLarge, "field \"writes\" holds more than %d records in all; send fewer at once", lim.MaxBatchRecords)
	}
	return nil
}

// AppendWriteOutcomes appends the answer to many writes. Errors are *Error.
func AppendWriteOutcomes(dst []byte, topic string, out []WriteOutcome, totalMS float64) []byte {
	dst = append(appendTopic(dst, topic), `,"results":[`...)
	for i := range out {
		r := &out[i]
		dst = appendComma(dst)
		if r.Err != nil {
			e, ok := errors.AsType[*Error](r.Err)
			if !ok {
				e = &Error{Code: CodeInternal}
			}
			dst = AppendError(dst, e)
			continue
		}
		dst = append(dst, `{"first_seq":`...)
		dst = appendUint(dst, r.FirstSeq)
		dst = appendNamed(dst, "last_seq", r.LastSeq)
		dst = appendNamed(dst, "head_seq", r.HeadSeq)
		dst = appendNamed(dst, "count", uint64(r.Count))
		dst = appendNamedBool(dst, "created", r.Created)
		dst = append(appendNamedBool(dst, "deduped", r.Deduped), '}')
	}
	return appendEnd(append(dst, ']'), &Performance{TotalMS: totalMS})
}
