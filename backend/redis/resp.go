package redis

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// errReply is a reply that does not match the command.
var errReply = errors.New("redis: unexpected reply")

// replyReader reads a raw reply without copying it. It takes what version 3 of RESP
// answers, as a client given to New may speak it, for what version 2 does: a map for an
// array of its keys and values, its null for either one of version 2.
type replyReader struct{ rest []byte }

// shortestElement is the length of ":0\r\n": no array has more elements than fit.
const shortestElement = 4

// line returns the kind and the text of the next line.
func (r *replyReader) line() (kind byte, text []byte, err error) {
	end := bytes.IndexByte(r.rest, '\n')
	if end < 2 {
		return 0, nil, errReply
	}
	kind, text = r.rest[0], r.rest[1:end-1]
	r.rest = r.rest[end+1:]
	return kind, text, nil
}

// array returns the length of the array that follows, -1 for null.
func (r *replyReader) array() (int, error) {
	kind, text, err := r.line()
	if err != nil {
		return 0, err
	}
	if kind == '_' {
		return -1, nil
	}
	n, err := parseInt(text)
	if kind == '%' {
		kind, n = '*', 2*n
	}
	switch {
	case err != nil:
		return 0, err
	case (kind == '*' || kind == '~') && n <= len(r.rest)/shortestElement, kind == '$' && n < 0:
		return n, nil
	}
	return 0, fmt.Errorf("%w: %q for an array", errReply, kind)
}

// bytes returns the string or number that follows, nil for null. It points into the reply.
func (r *replyReader) bytes() ([]byte, error) {
	kind, text, err := r.line()
	switch {
	case err != nil, kind == '+', kind == ':', kind == ',':
		return text, err
	case kind == '_':
		return nil, nil
	}
	n, err := parseInt(text)
	switch {
	case err != nil:
		return nil, err
	case n < 0:
		return nil, nil
	case kind != '$' || n > len(r.rest)-2:
		return nil, fmt.Errorf("%w: %q for a string", errReply, kind)
	}
	value := r.rest[:n:n]
	r.rest = r.rest[n+2:]
	return value, nil
}

// ofStream reads to the entries of the only stream in an answer, [[stream, entries]] or,
// in version 3, {stream: entries}. n is -1 if there is none.
func (r *replyReader) ofStream() (n int, err error) {
	pairs := len(r.rest) > 0 && r.rest[0] == '*'
	if n, err = r.array(); err != nil || n < 1 {
		return -1, err
	}
	if pairs {
		if _, err = r.array(); err != nil {
			return -1, err
		}
	}
	if _, err = r.bytes(); err != nil {
		return -1, err
	}
	return r.array()
}

func (r *replyReader) text() (string, error) {
	value, err := r.bytes()
	return string(value), err
}

func (r *replyReader) int() (int, error) {
	value, err := r.bytes()
	if err != nil {
		return 0, err
	}
	return parseInt(value)
}

// parseInt reads a decimal number without making a string of it.
func parseInt(text []byte) (int, error) {
	negative := len(text) > 1 && text[0] == '-'
	digits := text
	if negative {
		digits = text[1:]
	}
	if len(digits) == 0 || len(digits) > 18 {
		return 0, fmt.Errorf("%w: number %q", errReply, text)
	}
	n := 0
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%w: number %q", errReply, text)
		}
		n = n*10 + int(c-'0')
	}
	if negative {
		n = -n
	}
	return n, nil
}

// id is the ID of an entry.
type id struct{ ms, seq uint64 }

func parseID(text string) (id, error) {
	ms, seq, both := strings.Cut(text, "-")
	var (
		v   id
		err error
	)
	if v.ms, err = strconv.ParseUint(ms, 10, 64); err != nil {
		return id{}, fmt.Errorf("ID %q is not a stream ID: %w", text, err)
	}
	if both {
		if v.seq, err = strconv.ParseUint(seq, 10, 64); err != nil {
			return id{}, fmt.Errorf("ID %q is not a stream ID: %w", text, err)
		}
	}
	return v, nil
}

func (v id) String() string {
	return strconv.FormatUint(v.ms, 10) + "-" + strconv.FormatUint(v.seq, 10)
}

func (v id) less(w id) bool { return v.ms < w.ms || v.ms == w.ms && v.seq < w.seq }

// next returns the ID after v: before 6.2 a range cannot exclude its start.
func (v id) next() id {
	if v.seq++; v.seq == 0 {
		v.ms++
	}
	return v
}

// previous returns the ID before v.
func (v id) previous() id {
	switch {
	case v.seq > 0:
		v.seq--
	case v.ms > 0:
		v = id{v.ms - 1, 1<<64 - 1}
	}
	return v
}
