package queue_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirmq/weir/backend"
)

// counted puts a proxy in front of the host's server that counts requests; older says
// that the server does not know the call for many writes.
func (h *host) counted(t *testing.T, older bool) (front *host, requests *atomic.Int64) {
	t.Helper()
	requests = new(atomic.Int64)
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: h.addr})
	return behind(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if older && strings.HasSuffix(r.URL.Path, "/writes") {
			r.URL.Path += "/unknown"
		}
		forward.ServeHTTP(w, r)
	})), requests
}

// behind is the host that a proxy stands in front of, as its callers see it.
func behind(t *testing.T, proxy http.Handler) *host {
	t.Helper()
	s := httptest.NewServer(proxy)
	t.Cleanup(s.Close)
	return &host{t: t, kind: "http", addr: s.Listener.Addr().String()}
}

func keyedMessages(from, to int) (msgs []backend.Message) {
	for i := from; i < to; i++ {
		msgs = append(msgs, backend.Message{Data: fmt.Append(nil, "m", i), IdempotencyKey: fmt.Sprint("key ", i)})
	}
	return msgs
}

func TestABatchWithKeysIsOneRequest(t *testing.T) {
	t.Setenv("WEIR_TEST_PRESSURE", "0")
	h := &host{t: t, kind: "http"}
	h.serve("")
	for _, c := range []struct {
		older bool
		most  int64
	}{{false, 1}, {true, 101}} { // one finds out
		front, requests := h.counted(t, c.older)
		b := front.open(fresh())
		if _, err := b.Append(t.Context(), append(keyedMessages(0, 1), keyedMessages(50, 52)...)); err != nil {
			t.Fatal(err)
		}
		requests.Store(0)
		got, err := b.Append(t.Context(), keyedMessages(0, 100))
		if err != nil || requests.Load() > c.most {
			t.Errorf("100 messages with keys took %d requests, want at most %d; %v", requests.Load(), c.most, err)
		}
		for i, r := range got {
			if known := i == 0 || i == 50 || i == 51; r.Deduped != known || r.Err != nil || r.ID == "" {
				t.Errorf("message %d: %+v", i, r)
			}
		}
		s, err := b.Stats(t.Context())
		if err != nil || s.XLen != 100 {
			t.Errorf("%d messages are stored, want 100; %v", s.XLen, err)
		}
	}
}

// Messages of both kinds in one batch keep their order, invalid ones are left out,
// and a topic that is not there is made.
func TestABatchMayHaveKeysForSomeMessages(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		var msgs []backend.Message
		for i := range 40 {
			m := backend.Message{Data: fmt.Append(nil, i)}
			if i%20 >= 7 {
				m.IdempotencyKey = fmt.Sprint(i)
			}
			msgs = append(msgs, m)
		}
		msgs[12].Priority = 99
		got, err := b.Append(t.Context(), msgs)
		if err == nil || got[12].Err == nil {
			t.Fatalf("the invalid message: %+v, %v", got[12], err)
		}
		claimed := take(t, b, func(r *backend.ClaimRequest) { r.Max = 50 }).Deliveries
		if len(claimed) != 39 {
			t.Fatalf("%d messages are stored, want 39", len(claimed))
		}
		for n, d := range claimed {
			if n >= 12 {
				n++
			}
			if string(d.Data) != fmt.Sprint(n) || d.ID != got[n].ID {
				t.Fatalf("message %d is %q with the ID %s, want the ID %s", n, d.Data, d.ID, got[n].ID)
			}
		}
	})
}

// What is one message alone is one among others, too, however deep its JSON is.
func TestNoMessageOfABatchIsTooDeepForTheOthers(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		for deep := 120; deep < 130; deep++ {
			msgs := keyedMessages(10*deep, 10*deep+3)
			msgs[1].Data = []byte(strings.Repeat("[", deep) + strings.Repeat("]", deep))
			if _, err := b.Append(t.Context(), msgs); err != nil {
				t.Fatalf("a batch with a message of %d levels: %v", deep, err)
			}
			for i, d := range take(t, b, func(r *backend.ClaimRequest) { r.Max = 3 }).Deliveries {
				if string(d.Data) != string(msgs[i].Data) {
					t.Errorf("%d levels: message %d is %q", deep, i, d.Data)
				}
			}
		}
	})
}
