package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"

	"github.com/weirmq/weir/internal/api"
)

var done = []byte(`{"ok":true}`)

// bodies recycles buffers, so that a handler pays for reading and not for
// garbage.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// withBody reads the whole body and calls use with it; the bytes are valid
// until use returns.
func withBody(w http.ResponseWriter, r *http.Request, use func(body []byte) error) {
	buf := bodies.Get().(*bytes.Buffer)
	defer bodies.Put(buf)
	buf.Reset()
	if _, err := buf.ReadFrom(r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := use(buf.Bytes()); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, done)
}

func answer(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body)
}

func empty(w http.ResponseWriter, r *http.Request) {
	withBody(w, r, func([]byte) error { return nil })
}

func validate(w http.ResponseWriter, r *http.Request) {
	withBody(w, r, api.Validate)
}

// fixed answers every request with body.
func fixed(body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		answer(w, body)
	}
}

// fileSize is how much of the file is written before the first request and
// overwritten in a ring after: the size of one of weir's log segments.
const fileSize = 64 << 20

// syncFile writes every body behind the last one and syncs it.
type syncFile struct {
	file *os.File
	mu   struct {
		sync.Mutex
		offset int64
	}
}

// openSyncFile creates the file at path and fills it, so that a later sync
// finds every block allocated and has no metadata to write.
func openSyncFile(path string) (http.Handler, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("syncfile needs -file to write to: %w", err)
	}
	block := bytes.Repeat([]byte{'.'}, 1<<20)
	for off := int64(0); off < fileSize; off += int64(len(block)) {
		if _, err := f.WriteAt(block, off); err != nil {
			return nil, err
		}
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	return &syncFile{file: f}, nil
}

// ServeHTTP stores the body in the file before it answers.
func (s *syncFile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	withBody(w, r, s.append)
}

func (s *syncFile) append(body []byte) error {
	if _, err := s.file.WriteAt(body, s.reserve(int64(len(body)))); err != nil {
		return err
	}
	return syncData(s.file)
}

// reserve gives n bytes of the ring away.
func (s *syncFile) reserve(n int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.offset+n > fileSize {
		s.mu.offset = 0
	}
	at := s.mu.offset
	s.mu.offset += n
	return at
}
