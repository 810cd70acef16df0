package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

// socketServer answers the n-th publish with script(n); "" ends the connection.
func socketServer(t *testing.T, script func(n int) string) *Client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.CloseNow()
		for n := 0; ; n++ {
			_, text, err := conn.Read(context.Background())
			if err != nil {
				return
			}
			var m struct {
				Op, Topic string
				RequestID int               `json:"request_id"`
				Records   []json.RawMessage `json:"records"`
			}
			if err := json.Unmarshal(text, &m); err != nil || m.Op != "publish" || m.Topic != "jobs" || len(m.Records) != 1 {
				t.Errorf("message %s: %v", text, err)
			}
			said := script(n)
			if said == "" {
				return
			}
			if err := conn.Write(context.Background(), websocket.MessageText, []byte(said)); err != nil {
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	return New(s.URL, "")
}

func ack(n int) string {
	return fmt.Sprintf(`{"op":"ack","request_id":%d,"topic":"jobs","first_seq":%d,"last_seq":%d,"seqs":null,"count":1,"deduped":%v}`, n, n+1, n+1, n == 1)
}

func writes(n int) []api.WriteRequest {
	out := make([]api.WriteRequest, n)
	for i := range out {
		out[i] = api.WriteRequest{Records: []api.Record{{Data: []byte("1")}}, IdempotencyKey: fmt.Append(nil, i), HasIdempotencyKey: true}
	}
	return out
}

func TestEachOfManyWritesHasItsOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		script func(n int) string
		stored int
		then   func(err error) bool // of the first write that is not stored
		rest   error                // of those behind it: this, or not sent
	}{
		"all": {script: ack, stored: 20},
		"the connection breaks": {
			script: func(n int) string {
				if n == 5 {
					return ""
				}
				return ack(n)
			},
			stored: 5, then: func(err error) bool { return errors.Is(err, backend.ErrOutcomeUnknown) }, rest: backend.ErrOutcomeUnknown,
		},
		"overload": {
			script: func(n int) string {
				if n >= 5 {
					return fmt.Sprintf(`{"op":"error","request_id":%d,"code":"throttled","message":"m","detail":{"retry_after_ms":250}}`, n)
				}
				return ack(n)
			},
			stored: 5, then: func(err error) bool {
				return api.IsCode(err, api.CodeThrottled) && RetryAfter(err).Milliseconds() == 250
			},
		},
		"shutdown": {
			script: func(n int) string {
				if n == 5 {
					return `{"op":"error","request_id":null,"code":"server_shutting_down","message":"m"}`
				}
				return ack(n)
			},
			stored: 5, then: func(err error) bool {
				return errors.Is(err, backend.ErrOutcomeUnknown) && !api.IsCode(err, "server_shutting_down")
			}, rest: backend.ErrOutcomeUnknown,
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := socketServer(t, c.script).WriteEach(t.Context(), "jobs", writes(20))
			if err != nil || len(out) != 20 {
				t.Fatalf("%d outcomes, %v", len(out), err)
			}
			for i, o := range out {
				switch {
				case i < c.stored:
					if o.Err != nil || o.FirstSeq != uint64(i+1) || o.Deduped != (i == 1) {
						t.Errorf("write %d: %+v", i, o)
					}
				case i == c.stored:
					if !c.then(o.Err) {
						t.Errorf("write %d: %v", i, o.Err)
					}
				case c.rest != nil && !errors.Is(o.Err, c.rest) && !errors.Is(o.Err, errNotSent), c.rest == nil && !Retryable(o.Err):
					t.Errorf("write %d: %v", i, o.Err)
				}
			}
		})
	}
}

func TestWithoutASocketNothingIsSent(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, c := range map[string]*Client{
		"refused":     answering(t, 429, "1", `{"error":{"code":"throttled","message":"m"}}`),
		"no upgrade":  answering(t, 200, "", `{}`),
		"unreachable": New(gone.URL, ""),
	} {
		if out, err := c.WriteEach(t.Context(), "jobs", writes(5)); !errors.Is(err, errors.ErrUnsupported) || out != nil {
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
}

// A server that refuses one write may still have taken those that were on their way,
// which are few.
func TestBehindARefusedWriteLittleIsSent(t *testing.T) {
	c := socketServer(t, func(n int) string {
		if n == 5 {
			return `{"op":"error","request_id":5,"code":"throttled","message":"m"}`
		}
		return ack(n)
	})
	out, err := c.WriteEach(t.Context(), "jobs", writes(500))
	if err != nil {
		t.Fatal(err)
	}
	stored := 0
	for i, o := range out[6:] {
		if o.Err == nil {
			stored++
		} else if !errors.Is(o.Err, errNotSent) {
			t.Errorf("write %d: %v", i+6, o.Err)
		}
	}
	if stored >= maxUnderway {
		t.Errorf("%d writes are stored behind the one that was refused, want fewer than %d", stored, maxUnderway)
	}
}
