package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// frame is one event of a server-sent stream.
type frame struct {
	id    string // empty if it has none
	event string
	data  []byte // valid until the next call of next
}

// frameReader splits a stream into frames. Its memory is bounded by max, the most bytes
// of one frame.
type frameReader struct {
	lines *bufio.Reader
	max   int
	retry time.Duration // the latest hint; 0 before there is one
	line  []byte
	data  []byte
}

func newFrameReader(r io.Reader, most int) *frameReader {
	return &frameReader{lines: bufio.NewReaderSize(r, 32<<10), max: most}
}

// errFrameTooLarge is final: retrying would yield the same frame.
var errFrameTooLarge = errors.New("a frame of the stream is too large")

// next returns the next frame that has data. A frame cut off by the end of the stream
// is dropped; the error is then the reader's.
func (r *frameReader) next() (frame, error) {
	f := frame{}
	r.data = r.data[:0]
	some := false
	for {
		line, err := r.readLine()
		if err != nil {
			return frame{}, err
		}
		if len(line) == 0 {
			if some {
				f.data = r.data
				return f, nil
			}
			f = frame{}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			f.event = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				f.id = string(value)
			}
		case "retry":
			r.setRetry(string(value))
		case "data":
			if len(r.data)+len(value) >= r.max {
				return frame{}, fmt.Errorf("%w: over %d bytes", errFrameTooLarge, r.max)
			}
			if some {
				r.data = append(r.data, '\n')
			}
			some = true
			r.data = append(r.data, value...)
		}
	}
}

// The bounds of the hint: a server can neither make the client spin nor send it away
// for good.
const (
	minRetry = 50 * time.Millisecond
	maxRetry = time.Minute
)

func (r *frameReader) setRetry(text string) {
	if ms, err := strconv.ParseUint(text, 10, 31); err == nil {
		r.retry = min(max(time.Duration(ms)*time.Millisecond, minRetry), maxRetry)
	}
}

// readLine returns the next line without its \n or \r\n.
func (r *frameReader) readLine() ([]byte, error) {
	r.line = r.line[:0]
	for {
		part, err := r.lines.ReadSlice('\n')
		if len(r.line)+len(part) > r.max {
			return nil, fmt.Errorf("%w: over %d bytes", errFrameTooLarge, r.max)
		}
		if err == nil && len(r.line) == 0 {
			return bytes.TrimSuffix(part[:len(part)-1], []byte("\r")), nil
		}
		r.line = append(r.line, part...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(r.line[:len(r.line)-1], []byte("\r")), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
