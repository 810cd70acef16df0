package api

import "strconv"

// The members of meta that say where a dead letter was a job.
var letterKeys = []string{"$dead_letter_from", "$dead_letter_deliveries", "$dead_letter_src_seq"}

// AppendLetterMeta appends the meta of a dead letter: the members of the job's meta, a compact
// JSON object or nothing, and where it was a job. What an earlier death said of that is replaced.
func AppendLetterMeta(dst, meta []byte, queue string, deliveries, seq uint64) []byte {
	dst = append(dst, '{')
	if kept, n, _ := membersBut(meta, letterKeys...); n > 0 {
		dst = append(append(dst, kept...), ',')
	}
	dst = append(append(append(dst, '"'), letterKeys[0]...), `":`...)
	dst = AppendString(dst, queue)
	dst = append(append(append(dst, `,"`...), letterKeys[1]...), `":"`...)
	dst = strconv.AppendUint(dst, deliveries, 10)
	dst = append(append(append(dst, `","`...), letterKeys[2]...), `":"`...)
	dst = strconv.AppendUint(dst, seq, 10)
	return append(dst, `"}`...)
}
