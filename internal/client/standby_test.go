package client

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

func TestRequestsGoToTheServerThatLeads(t *testing.T) {
	var leads, calls atomic.Int32
	serve := func(number int32) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if own := r.Context().Value(http.LocalAddrContextKey).(net.Addr).String(); r.Host != own { // one that answers for some hosts alone refuses others
				t.Errorf("server %d at %s was asked for the host %s", number, own, r.Host)
			}
			if body, err := io.ReadAll(r.Body); err != nil || r.Method == http.MethodPost && string(body) != `{"a":1}` {
				t.Errorf("server %d: body %q, %v", number, body, err)
			}
			if leads.Load() != number {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = w.Write([]byte(`{"error":{"code":"not_ready","message":"a standby"}}`))
				return
			}
			calls.Add(1)
			_, _ = w.Write([]byte(`{"deleted":true}`))
		}))
		t.Cleanup(s.Close)
		return s
	}
	a, b := serve(1), serve(2)
	gone := httptest.NewServer(nil)
	gone.Close()
	host := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }
	target, err := ParseTopicURL(gone.URL + "/t?standby=" + host(a) + "," + host(b))
	if err != nil {
		t.Fatal(err)
	}
	c := New(target.Base, "")
	defer c.Close()
	for i := range int32(10) {
		leads.Store(1 + i%2)
		var got struct{ Deleted bool }
		method, body := http.MethodPost, []byte(`{"a":1}`)
		if i%4 > 1 {
			method, body = http.MethodDelete, nil
		}
		if err := c.call(t.Context(), callTimeout, method, "/v0/topics/t", body, &got); err != nil || !got.Deleted {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if calls.Load() != 10 {
		t.Errorf("%d calls were answered, want 10", calls.Load())
	}
	leads.Store(0)
	if err := c.call(t.Context(), callTimeout, http.MethodPost, "/v0/topics/t", []byte(`{"a":1}`), nil); !IsStatus(err, http.StatusServiceUnavailable) {
		t.Errorf("without a leader: %v", err)
	}
}

// clientOf returns a client of servers of which one leads.
func clientOf(t *testing.T, handlers ...http.HandlerFunc) *Client {
	t.Helper()
	var hosts []string
	for _, h := range handlers {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		hosts = append(hosts, strings.TrimPrefix(s.URL, "http://"))
	}
	c := New("http://"+strings.Join(hosts, ","), "")
	t.Cleanup(c.Close)
	return c
}

const stored = `{"first_seq":1,"last_seq":1,"head_seq":1,"count":1}`

// What a server may have stored before it went away no other one is asked to store, too.
func TestAWriteThatMayHaveArrivedIsNotSentToTheNextServer(t *testing.T) {
	for name, goesAway := range map[string]http.HandlerFunc{
		"by itself": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"at once": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				err = errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close()) // a reset, as of a process that is killed
			}
			if err != nil {
				t.Error(err)
			}
		},
		"behind a proxy": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, envoyLost+"connection termination")
		},
	} {
		var second atomic.Int32
		c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			goesAway(w, r)
		}, func(w http.ResponseWriter, _ *http.Request) {
			second.Add(1)
			_, _ = io.WriteString(w, stored)
		})
		w := &api.WriteRequest{Records: []api.Record{{Data: []byte("1")}}}
		if _, err := c.Write(t.Context(), "t", w); !errors.Is(err, backend.ErrOutcomeUnknown) || second.Load() != 0 {
			t.Errorf("%s: a write to a server that went away: %v, and %d calls of the next one", name, err, second.Load())
		}
		if _, err := c.Write(t.Context(), "t", w); err != nil {
			t.Errorf("%s: the write behind it: %v", name, err)
		}
	}
}

// A server that answers that it does not lead has done nothing, and nothing was sent to one that cannot
// be reached: whoever is told that may send again what has no key.
func TestAWriteThatNoServerTookIsNotInDoubt(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	standby := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":{"code":"not_ready","message":"a standby"}}`)
	}))
	defer standby.Close()
	for _, hosts := range []string{standby.URL + "," + gone.Listener.Addr().String(), gone.URL + "," + standby.Listener.Addr().String()} {
		c := New(hosts, "")
		_, err := c.Write(t.Context(), "t", &api.WriteRequest{Records: []api.Record{{Data: []byte("1")}}})
		if errors.Is(err, backend.ErrOutcomeUnknown) || !errors.Is(err, backend.ErrUnavailable) && !api.IsCode(err, api.CodeNotReady) {
			t.Errorf("%s: %v", hosts, err)
		}
		c.Close()
	}
}

// Calls that learn together that a server does not lead go to the next one, and not past it.
func TestCallsAtOnceFindTheServerThatLeads(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
		both.Done()
		both.Wait()
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":{"code":"not_ready","message":"a standby"}}`)
	}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, stored) })
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if _, err := c.Write(t.Context(), "t", &api.WriteRequest{Records: []api.Record{{Data: []byte("1")}}}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestStandbysOfAURLAreHosts(t *testing.T) {
	for _, list := range []string{"b:4000,", "http://b:4000", "b:4000/x", ":4000"} {
		if _, err := ParseTopicURL("http://a:4000/t?standby=" + list); err == nil {
			t.Errorf("%q was taken", list)
		}
	}
}
