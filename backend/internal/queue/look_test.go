package queue_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirmq/weir/backend"
)

// measured puts a proxy in front of the host's server that counts the bytes of its answers.
func (h *host) measured(t *testing.T) (front *host, answered *atomic.Int64) {
	t.Helper()
	answered = new(atomic.Int64)
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: h.addr})
	forward.ModifyResponse = func(res *http.Response) error {
		text, err := io.ReadAll(res.Body)
		answered.Add(int64(len(text)))
		res.Body = io.NopCloser(bytes.NewReader(text))
		return err
	}
	return behind(t, forward), answered
}

// What is asked about a queue fetches no payload.
func TestLookingAtAQueueFetchesNoPayload(t *testing.T) {
	h := &host{t: t, kind: "http"}
	h.serve("")
	front, answered := h.measured(t)
	name := fresh()
	b := front.open(name)
	publish(t, b, strings.Repeat("x", 500<<10))
	for what, look := range map[string]func() error{
		"stats": func() error {
			s, err := b.Stats(t.Context())
			if err == nil && s.OldestSource == backend.AgeNone {
				err = fmt.Errorf("no age: %+v", s)
			}
			return err
		},
		"signal":  func() error { _, err := b.Signal(t.Context(), 10); return err },
		"examine": func() error { _, err := b.Examine(t.Context()); return err },
	} {
		before := answered.Load()
		if err := look(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n := answered.Load() - before; n > 20<<10 {
			t.Errorf("%s fetched %d bytes", what, n)
		}
	}
}
