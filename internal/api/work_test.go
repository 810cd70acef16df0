package api

import (
	"net/url"
	"strings"
	"testing"
)

func TestTheQueryOfAWorkStreamIsClampedAndChecked(t *testing.T) {
	lim := DefaultLimits()
	for query, want := range map[string]ClaimRequest{
		"node=w":                               {Node: "w", Max: 1},
		"node=w&max=":                          {Node: "w", Max: 1},
		"node=w&max=0":                         {Node: "w", Max: 1},
		"node=w&max=-3":                        {Node: "w", Max: 1},
		"node=w&max=1000":                      {Node: "w", Max: 1000},
		"node=w&max=1001":                      {Node: "w", Max: 1000},
		"node=w&max=99999999999999999999":      {Node: "w", Max: 1000},
		"node=w&lease_ms=1":                    {Node: "w", Max: 1, HasLease: true, LeaseMS: MinLeaseMS},
		"node=w&lease_ms=99999999999999999999": {Node: "w", Max: 1, HasLease: true, LeaseMS: MaxLeaseMS},
		"node=" + strings.Repeat("n", 128):     {Node: strings.Repeat("n", 128), Max: 1},
	} {
		v, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeWork(v, &lim); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", query, got, err, want)
		}
	}
	for _, query := range []string{"", "node=", "max=2", "node=" + strings.Repeat("n", 129), "node=w&max=x", "node=w&max=1.5", "node=w&lease_ms=x", "node=w&lease_ms=-1"} {
		v, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeWork(v, &lim); !IsCode(err, CodeInvalidRequest) {
			t.Errorf("%s: %v, want invalid_request", query, err)
		}
	}
}

func TestTheFramesOfAWorkStreamAreEventsOfOneLine(t *testing.T) {
	job := &Job{Record: Record{Seq: 7, TS: 5, HasTag: true, Tag: []byte("t"), Data: []byte(`{}`), Meta: []byte(`{"a":1}`)}, LeaseID: 31, Deadline: 9, Deliveries: 1}
	for _, c := range []struct{ got, want string }{
		{string(AppendWorkFrame(nil, "q1", job)), "id: 7\nevent: job\ndata: {\"topic\":\"q1\",\"$seq\":7,\"lease_id\":\"lease_1f\",\"deadline\":9,\"$ts\":5,\"$tag\":\"t\",\"deliveries\":1,\"data\":{},\"meta\":{\"a\":1}}\n\n"},
		{string(AppendWorkEnd(nil, "q1", "gone")), "event: error\ndata: {\"code\":409,\"error\":\"gone\",\"topic\":\"q1\"}\n\n"},
		{string(AppendWorkGoodbye(nil, "q1", "bye")), "event: error\ndata: {\"code\":\"server_shutting_down\",\"error\":\"bye\",\"message\":\"bye\",\"topic\":\"q1\"}\n\n"},
	} {
		if c.got != c.want {
			t.Errorf("got  %q\nwant %q", c.got, c.want)
		}
	}
}
