package library

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/open"
	"github.com/weirmq/weir/tests/stall"
	"github.com/weirmq/weir/tests/weirtest"
)

// refusing is a proxy that counts the writes which the server answers with 429.
func refusing(t *testing.T, to string) (proxy string, refused *atomic.Int64) {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	refused = &atomic.Int64{}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.ModifyResponse = func(r *http.Response) error {
		if r.StatusCode == http.StatusTooManyRequests {
			refused.Add(1)
		}
		return nil
	}
	s := httptest.NewServer(forward)
	t.Cleanup(s.Close)
	return s.URL, refused
}

// A server that has no room answers 429 and asks to come back in a second. The
// guard waits that long, three times, and nothing else waits on top of it.
func TestServersRefusalIsOneMoreInputOfTheGuard(t *testing.T) {
	server := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_MAX_TOTAL_BYTES=20000"}})
	url, refused := refusing(t, server.URL)
	s, err := open.URL(t.Context(), url+"/jobs")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := weir.NewProducer(s, weir.ProducerConfig{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	m := weir.Message{Data: make([]byte, 1000)}
	var took, lost time.Duration
	for err == nil {
		began, stalled := time.Now(), stall.Watch()
		err = p.Publish(t.Context(), m)
		took, lost = time.Since(began), stalled()
	}
	var full *weir.QueueFullError
	var said *backend.FullError
	if !errors.As(err, &full) || full.Reason != weir.QueueFull || !errors.As(err, &said) || said.RetryAfter != time.Second {
		t.Fatalf("got %v, want a refusal that holds what the server said", err)
	}
	t.Logf("refused after %s and %d answers of 429: %v", took.Round(time.Millisecond), refused.Load(), err)
	if refused.Load() != 4 || took < 3*time.Second || took > 5*time.Second+lost {
		t.Errorf("%d answers of 429 in %s, want 4 with a second between them", refused.Load(), took)
	}

	// A publish that waits is stored as soon as workers have made room.
	ctx, stop := context.WithCancel(t.Context())
	var worked sync.WaitGroup
	defer worked.Wait()
	defer stop()
	pool, err := weir.NewPool(s, func(context.Context, *weir.Delivery) error { return nil }, weir.PoolConfig{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	worked.Go(func() { _ = pool.Run(ctx) })
	if err := p.Publish(t.Context(), m); err != nil {
		t.Errorf("with workers on: %v", err)
	}
	t.Logf("stored %s after the workers began", time.Since(began).Round(time.Millisecond))
}
