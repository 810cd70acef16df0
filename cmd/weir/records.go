package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"unicode/utf8"

	"github.com/weirmq/weir/internal/api"
)

// maxLineBytes limits the memory for a line of input.
const maxLineBytes = 16 << 20

// byteOrderMark is what some programs put in front of a file in UTF-8. It is no part of the first line.
var byteOrderMark = []byte("\uFEFF")

// inputRecord is one message and the place it came from.
type inputRecord struct {
	data json.RawMessage
	file string
	line int
}

// inputError is an error in a line of the input.
type inputError struct {
	file string
	line int
	err  error
}

func (e *inputError) Error() string { return fmt.Sprintf("%s:%d: %v", e.file, e.line, e.err) }

func (e *inputError) Unwrap() error { return e.err }

// recordReader reads messages from one file after another.
type recordReader struct {
	paths  []string // "-" is stdin
	stdin  io.Reader
	ndjson bool
	strict bool   // a value is for a weir server, which takes less for JSON than encoding/json
	broken string // what is done with lines that are not UTF-8 or not JSON: fail, replace, base64 or skip

	mended atomic.Uint64 // lines that were replaced or encoded
	left   atomic.Uint64 // lines that were skipped

	file   *os.File // nil for stdin
	lines  *bufio.Reader
	name   string
	number int
}

// next returns the next message, io.EOF after the last one. After an error
// nothing more can be read.
func (r *recordReader) next() (inputRecord, error) {
	for {
		if r.lines == nil {
			if err := r.open(); err != nil {
				return inputRecord{}, err
			}
		}
		line, err := r.readLine()
		if errors.Is(err, io.EOF) {
			r.close()
			continue
		}
		if err != nil {
			return inputRecord{}, &inputError{r.name, r.number, err}
		}
		data, err := r.parse(line)
		if err != nil && r.broken != "fail" {
			data, err = r.mend(line)
		}
		if err != nil {
			return inputRecord{}, &inputError{r.name, r.number, err}
		}
		if data == nil {
			continue
		}
		return inputRecord{data: data, file: r.name, line: r.number}, nil
	}
}

func (r *recordReader) open() error {
	if len(r.paths) == 0 {
		return io.EOF
	}
	path := r.paths[0]
	r.paths = r.paths[1:]
	r.number = 0
	if path == "-" {
		r.name = "stdin"
		r.lines = bufio.NewReaderSize(r.stdin, 64<<10)
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	r.file, r.name = f, path
	r.lines = bufio.NewReaderSize(f, 64<<10)
	return nil
}

// close closes the current file; next opens the next one.
func (r *recordReader) close() {
	if r.file != nil {
		r.file.Close()
	}
	r.file, r.lines = nil, nil
}

// readLine returns the next line without its end, \n or \r\n, which the last line
// may lack, and without a byte order mark in front of the file.
func (r *recordReader) readLine() ([]byte, error) {
	var line []byte
	r.number++
	for {
		part, err := r.lines.ReadSlice('\n')
		if r.number == 1 && len(line) == 0 {
			part = bytes.TrimPrefix(part, byteOrderMark)
		}
		line = append(line, part...)
		if len(line) > maxLineBytes {
			return nil, fmt.Errorf("the line is longer than %d bytes", maxLineBytes)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if errors.Is(err, io.EOF) && len(line) > 0 {
			return line, nil
		}
		if err != nil {
			return nil, err
		}
		return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
	}
}

// parse turns a line into a JSON value; nil without an error means that the
// line is empty.
func (r *recordReader) parse(line []byte) (json.RawMessage, error) {
	if !utf8.Valid(line) {
		return nil, errors.New("the line is not valid UTF-8; convert the file (iconv -t UTF-8), or see --invalid")
	}
	if !r.ndjson {
		return quote(string(line))
	}
	value := bytes.TrimSpace(line)
	if len(value) == 0 {
		return nil, nil
	}
	var raw json.RawMessage
	if err := json.Unmarshal(value, &raw); err != nil {
		return nil, fmt.Errorf("not a JSON value (see --invalid): %w", err)
	}
	if r.strict {
		if _, err := api.DecodeLine(bytes.Clone(value), new(api.WriteRequest)); err != nil {
			return nil, fmt.Errorf("not JSON that a weir server takes (see --invalid): %s", api.Sentence(err))
		}
	}
	return value, nil
}

// form is what a line has to be.
func (r *recordReader) form() string {
	if r.ndjson {
		return "JSON"
	}
	return "UTF-8"
}

// mend makes a message of a line that is none, as broken says; nil means that it is skipped.
func (r *recordReader) mend(line []byte) (json.RawMessage, error) {
	switch r.broken {
	case "base64":
		r.mended.Add(1)
		return quote(base64.StdEncoding.EncodeToString(line))
	case "replace":
		r.mended.Add(1)
		line = bytes.ToValidUTF8(line, []byte("\uFFFD"))
		if data, err := r.parse(line); err == nil {
			return data, nil
		}
		return quote(string(line))
	default:
		r.left.Add(1)
		return nil, nil
	}
}

// quote returns the JSON string of s, without HTML escapes.
func quote(s string) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// fedRecord is a record from the reader, or why there are no more.
type fedRecord struct {
	inputRecord
	err error
}

// feedAhead is how many records are read ahead; then the reader waits.
const feedAhead = 256

// feedRecords reads until the first error, io.EOF included, or until ctx ends.
// A read of stdin cannot be interrupted: it ends with the process.
func feedRecords(ctx context.Context, in *recordReader, out chan<- fedRecord) {
	defer in.close()
	for {
		r, err := in.next()
		select {
		case out <- fedRecord{r, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}
