package client

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

func TestRequestsGoToTheServerThatLeads(t *testing.T) {
	var leads, calls atomic.Int32
	serve := func(number int32) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
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
		if err := c.call(t.Context(), callTimeout, http.MethodPost, "/v0/topics/t", []byte(`{}`), &got); err != nil || !got.Deleted {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if calls.Load() != 10 {
		t.Errorf("%d calls were answered, want 10", calls.Load())
	}
	leads.Store(0)
	if err := c.call(t.Context(), callTimeout, http.MethodPost, "/v0/topics/t", []byte(`{}`), nil); !IsStatus(err, http.StatusServiceUnavailable) && err == nil {
		t.Errorf("without a leader: %v", err)
	}
}

func TestStandbysOfAURLAreHosts(t *testing.T) {
	for _, list := range []string{"b:4000,", "http://b:4000", "b:4000/x", ":4000"} {
		if _, err := ParseTopicURL("http://a:4000/t?standby=" + list); err == nil {
			t.Errorf("%q was taken", list)
		}
	}
}
