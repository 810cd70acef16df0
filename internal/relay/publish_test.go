package relay_test

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/relay"
)

// front returns a relay of an upstream that is not asked about topics.
func front(t *testing.T, upstream http.HandlerFunc) (*relay.Relay, *httptest.Server) {
	t.Helper()
	s := httptest.NewServer(upstream)
	t.Cleanup(s.Close)
	r, err := relay.New(relay.Options{Upstream: s.URL, OpenToAll: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return r, s
}

// A 503 of the relay would say that nothing was stored, and have a write sent again.
func TestAWriteWhoseAnswerIsLostIsNotAnswered(t *testing.T) {
	r, upstream := front(t, func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		panic(http.ErrAbortHandler)
	})
	s := httptest.NewServer(r)
	defer s.Close()
	ask := func(method string) (int, error) {
		req, err := http.NewRequestWithContext(t.Context(), method, s.URL+"/v0/topics/a", strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		return resp.StatusCode, nil
	}
	if status, err := ask(http.MethodPost); err == nil {
		t.Errorf("a write whose answer is lost: %d", status)
	}
	if status, err := ask(http.MethodGet); status != http.StatusServiceUnavailable {
		t.Errorf("a read whose answer is lost: %d, %v", status, err)
	}
	upstream.Close()
	if status, err := ask(http.MethodPost); status != http.StatusServiceUnavailable {
		t.Errorf("a write that was not sent: %d, %v", status, err)
	}
}

// An upstream whose certificate is not trusted has got nothing of a write.
func TestAWriteThatNoConnectionWasGoodForIsAnswered(t *testing.T) {
	upstream := httptest.NewUnstartedServer(http.NotFoundHandler())
	upstream.Config.ErrorLog = log.New(io.Discard, "", 0)
	upstream.StartTLS()
	defer upstream.Close()
	r, err := relay.New(relay.Options{Upstream: upstream.URL, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(r)
	defer s.Close()
	resp, err := http.Post(s.URL+"/v0/topics/a", "application/json", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a write that was not sent: %d", resp.StatusCode)
	}
}

// An upstream that refuses the connection is there, and says why.
func TestAPublishThatTheUpstreamHasNoPlaceForSaysSo(t *testing.T) {
	refusal := `{"error":{"code":"throttled","message":"the cap is reached","detail":{"limit":"max_sse_connections_per_key"}}}`
	r, upstream := front(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, refusal)
	})
	p := r.NewPublisher(relay.Caller{}, false)
	defer p.Close()
	_, err := p.Publish(t.Context(), []byte("{}"))
	e, ok := errors.AsType[*api.Error](err)
	if !ok || e.Code != api.CodeThrottled || e.Detail["limit"] != "max_sse_connections_per_key" || e.RetryAfter != 7*time.Second {
		t.Errorf("a publish that is refused: %v", err)
	}
	refusal = "<html>"
	if _, err := p.Publish(t.Context(), []byte("{}")); !api.IsCode(err, api.CodeNotReady) {
		t.Errorf("a publish that something else refuses: %v", err)
	}
	upstream.Close()
	if _, err := p.Publish(t.Context(), []byte("{}")); !api.IsCode(err, api.CodeNotReady) {
		t.Errorf("a publish while the upstream is away: %v", err)
	}
}

// ended waits until the connection of a publisher has ended.
func ended(t *testing.T, p *relay.Publisher) {
	t.Helper()
	over := make(chan struct{})
	go func() { p.Ended(); close(over) }()
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Fatal("the connection goes on")
	}
}

// Each message gets its own answer, whatever became of the ones before it.
func TestAPublishGetsItsOwnAnswer(t *testing.T) {
	late, came := make(chan struct{}), make(chan struct{})
	r, _ := front(t, func(w http.ResponseWriter, req *http.Request) {
		conn, err := websocket.Accept(w, req, nil)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		for {
			_, msg, err := conn.Read(req.Context())
			if err != nil {
				return
			}
			switch string(msg) {
			case "lost":
				return
			case "late":
				close(came)
				<-late
			}
			_ = conn.Write(req.Context(), websocket.MessageText, append([]byte("answer to "), msg...))
			switch string(msg) {
			case "last":
				return
			case "stops":
				_ = conn.Write(req.Context(), websocket.MessageText, []byte(`{"op":"error","code":"server_shutting_down"}`))
			}
		}
	})
	p := r.NewPublisher(relay.Caller{}, false)
	defer p.Close()
	publish := func(ctx context.Context, msg string) {
		t.Helper()
		if answer, err := p.Publish(ctx, []byte(msg)); err != nil || string(answer) != "answer to "+msg {
			t.Errorf("%s: %q, %v", msg, answer, err)
		}
	}
	publish(t.Context(), "first")
	if answer, err := p.Publish(t.Context(), []byte("lost")); err == nil || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("a publish whose answer is lost: %q, %v", answer, err)
	}
	publish(t.Context(), "after a lost one")
	short, cancel := context.WithCancel(t.Context())
	go func() {
		<-came
		cancel()
	}()
	if answer, err := p.Publish(short, []byte("late")); err == nil || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("a publish without an answer in time: %q, %v", answer, err)
	}
	close(late)
	publish(t.Context(), "after a late one")
	for _, msg := range []string{"last", "stops"} {
		publish(t.Context(), msg)
		ended(t, p)
		publish(t.Context(), "after one that "+msg)
	}
}

// What the relay asks for itself has a small answer; one without end takes neither its memory nor its time.
func TestAnAnswerWithoutEndIsGivenUp(t *testing.T) {
	sent := make(chan int, 1)
	r, _ := front(t, func(w http.ResponseWriter, _ *http.Request) {
		n, piece := 0, make([]byte, 64<<10)
		for {
			got, err := w.Write(piece)
			n += got
			if err != nil || n > 128<<20 {
				sent <- n
				return
			}
		}
	})
	if err := r.MayScrape(t.Context(), relay.Caller{}); err == nil {
		t.Error("an answer without end gives leave")
	}
	if n := <-sent; n > 64<<20 {
		t.Errorf("%d bytes of it were read", n)
	}
}
