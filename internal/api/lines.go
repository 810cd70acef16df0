package api

import "bytes"

// DecodeLine appends to w a record whose data is the JSON value of a line, and reports
// whether there was one: a line of white space is none. The record points into line, which
// may be compacted in place. Positions in errors count from the start of the line.
func DecodeLine(line []byte, w *WriteRequest) (bool, error) {
	s := scanner{b: line, index: -1, depth: dataDepth}
	if s.peek(); s.i == len(line) {
		return false, nil
	}
	data := s.raw()
	if s.endOfValue(); s.err != nil {
		return false, s.err
	}
	w.Records = append(w.Records, Record{Data: data})
	return true, nil
}

// NextLine returns the first line of b without its end, and how many bytes it takes; false
// if b does not have its end.
func NextLine(b []byte) (line []byte, n int, ok bool) {
	at := bytes.IndexByte(b, '\n')
	if at < 0 {
		return b, len(b), false
	}
	return b[:at], at + 1, true
}

// LinesResult is what an upload of lines has stored.
type LinesResult struct {
	FirstSeq, LastSeq uint64 // of the first and the last record; others may be in between
	HeadSeq           uint64
	Count             int // records, those included that a repeat had stored before
	Deduped           int // of these, the ones that had been stored before
	Batches           int
	Lines             int // all up to this one are stored
	Created           bool
}

// Add counts one more batch, whose last record is on the given line.
func (r *LinesResult) Add(batch *WriteResult, line int) {
	if r.Batches == 0 {
		r.FirstSeq = batch.FirstSeq
	}
	r.LastSeq, r.HeadSeq, r.Lines = batch.LastSeq, max(r.HeadSeq, batch.HeadSeq), line
	r.Count += batch.Count
	r.Batches++
	r.Created = r.Created || batch.Created
	if batch.Deduped {
		r.Deduped += batch.Count
	}
}

// AppendLinesResult appends the answer to an upload of lines.
func AppendLinesResult(dst []byte, topic string, r *LinesResult, totalMS float64) []byte {
	dst = appendTopic(dst, topic)
	dst = appendNamed(dst, "first_seq", r.FirstSeq)
	dst = appendNamed(dst, "last_seq", r.LastSeq)
	dst = appendNamed(dst, "head_seq", r.HeadSeq)
	dst = appendNamed(dst, "count", uint64(r.Count))
	dst = appendNamed(dst, "batches", uint64(r.Batches))
	dst = appendNamedBool(dst, "created", r.Created)
	dst = appendNamedBool(dst, "deduped", r.Deduped == r.Count)
	dst = appendNamed(dst, "deduped_count", uint64(r.Deduped))
	return appendEnd(dst, &Performance{TotalMS: totalMS})
}
