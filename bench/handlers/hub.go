package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// hub is the least that can serve a topic: POST makes a frame of the one record
// in the body and puts it into the channel of every open GET. The bytes are
// those that weir sends for such a write to a reader that waits for it.
type hub struct {
	mu      sync.Mutex
	seq     uint64
	streams map[*subscriber]struct{}
}

type subscriber struct {
	frames chan []byte
	gone   chan struct{} // closed when the connection has ended
}

// hubQueue is how many frames wait for one connection; a full queue holds up
// the write.
const hubQueue = 1024

func newHub() http.Handler { return &hub{streams: map[*subscriber]struct{}{}} }

// ServeHTTP is a stream for GET and a write for everything else.
func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		h.stream(w, r)
		return
	}
	withBody(w, r, h.publish)
}

func (h *hub) stream(w http.ResponseWriter, r *http.Request) {
	s := &subscriber{frames: make(chan []byte, hubQueue), gone: make(chan struct{})}
	h.mu.Lock()
	h.streams[s] = struct{}{}
	h.mu.Unlock()
	defer func() {
		close(s.gone)
		h.mu.Lock()
		delete(h.streams, s)
		h.mu.Unlock()
	}()
	flush := openEvents(w)
	for {
		select {
		case frame := <-s.frames:
			w.Write(frame)
			for range len(s.frames) {
				w.Write(<-s.frames)
			}
			if flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// openEvents sends the head and the first block of a stream and returns what
// flushes the rest.
func openEvents(w http.ResponseWriter) (flush func() error) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	w.Write([]byte("retry: 2000\n\n"))
	c := http.NewResponseController(w)
	c.Flush()
	return c.Flush
}

func (h *hub) publish(body []byte) error {
	data := bytes.TrimSuffix(bytes.TrimPrefix(body, []byte(`{"records":[{"data":`)), []byte(`}]}`))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	frame := hubFrame(h.seq, data)
	for s := range h.streams {
		select {
		case s.frames <- frame:
		case <-s.gone:
		}
	}
	return nil
}

func hubFrame(seq uint64, data []byte) []byte {
	id := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"writes":%d}`, seq))
	f := fmt.Appendf(nil, "id: %s\nevent: record\n", id)
	f = fmt.Appendf(f, `data: {"topic":"writes","from_seq":%d,"head_seq":%d,"records":[{"$seq":%d,"$ts":%d,"data":`,
		seq-1, seq, seq, time.Now().UnixMilli())
	f = append(f, data...)
	f = fmt.Appendf(f, "}],\"to_seq\":%d}\n\n", seq)
	return fmt.Appendf(f, "id: %s\nevent: caught-up\ndata: {\"topic\":\"writes\",\"head_seq\":%d}\n\n", id, seq)
}

// idle opens a stream on which nothing ever happens.
func idle(w http.ResponseWriter, r *http.Request) {
	openEvents(w)
	<-r.Context().Done()
}
