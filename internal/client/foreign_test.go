package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

// Whatever stands between a program and its server may answer in its place, and well: a
// success that says nothing about the topic is none.
func TestAnAnswerThatIsNotAboutTheTopicIsNoSuccess(t *testing.T) {
	settle := func(kind api.SettleKind) func(context.Context, *Client) error {
		return func(ctx context.Context, c *Client) error {
			_, err := c.Settle(ctx, "q", &api.Settlement{Kind: kind, Node: "n", Seqs: []uint64{1}, Leases: []string{"a"}, Lease: time.Second})
			return err
		}
	}
	records := api.WriteRequest{Records: []api.Record{{Data: []byte("1")}}}
	calls := map[string]struct {
		changes bool
		call    func(context.Context, *Client) error
	}{
		"topic": {false, func(ctx context.Context, c *Client) error { _, err := c.Topic(ctx, "q"); return err }},
		"info":  {false, func(ctx context.Context, c *Client) error { _, err := c.TopicInfo(ctx, "q"); return err }},
		"put":   {true, func(ctx context.Context, c *Client) error { return c.PutTopic(ctx, "q", api.Config{}) }},
		"write": {true, func(ctx context.Context, c *Client) error { _, err := c.Write(ctx, "q", &records); return err }},
		"writes": {true, func(ctx context.Context, c *Client) error {
			_, err := c.WriteEach(ctx, "q", []api.WriteRequest{records})
			return err
		}},
		"diff": {false, func(ctx context.Context, c *Client) error {
			_, _, err := c.Diff(ctx, "q", &api.DiffRequest{})
			return err
		}},
		"delete": {true, func(ctx context.Context, c *Client) error {
			_, err := c.Delete(ctx, "q", &api.DeleteRequest{HasBefore: true})
			return err
		}},
		"claim": {false, func(ctx context.Context, c *Client) error {
			_, _, err := c.Claim(ctx, "q", &api.ClaimRequest{Node: "n", Max: 1})
			return err
		}},
		"ack":       {true, settle(api.SettleAck)},
		"nack":      {true, settle(api.SettleNack)},
		"extend":    {true, settle(api.SettleExtend)},
		"pause":     {true, func(ctx context.Context, c *Client) error { return c.Pause(ctx, "q", true) }},
		"offered":   {false, func(ctx context.Context, c *Client) error { _, err := c.Tally(ctx, "q", []uint32{1}); return err }},
		"configure": {false, func(ctx context.Context, c *Client) error { _, _, err := c.Configure(ctx, "q", nil); return err }},
		"remove":    {false, func(ctx context.Context, c *Client) error { _, _, err := c.DeleteTopic(ctx, "q", false); return err }},
	}
	for _, answer := range []string{`{}`, `{"status":"ok"}`, `null`} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(answer))
		}))
		defer server.Close()
		for name, test := range calls {
			err := test.call(t.Context(), New(server.URL, ""))
			if err == nil || test.changes && !errors.Is(err, backend.ErrOutcomeUnknown) {
				t.Errorf("%s, answered %s: %v", name, answer, err)
			}
		}
	}
}

// Counters are told by number, and an answer may have others than were asked for.
func TestAnAnswerWithOtherCountersIsAnError(t *testing.T) {
	for answer, good := range map[string]bool{
		`{"topic":"q","bins":[1],"sums":[7]}`:       true,
		`{"topic":"q","bins":[0,1],"sums":[7]}`:     false,
		`{"topic":"q","bins":[2],"sums":[7]}`:       false,
		`{"topic":"q","bins":[-1],"sums":[7]}`:      false,
		`{"topic":"q","bins":[1],"sums":[-7]}`:      false,
		`{"topic":"q","bins":[1],"sums":["seven"]}`: false,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(answer))
		}))
		defer server.Close()
		res, err := New(server.URL, "").Tally(t.Context(), "q", []uint32{0, 3})
		if (err == nil) != good || good && res.Sums[1] != 7 {
			t.Errorf("%s: %+v, %v", answer, res, err)
		}
	}
}

// A proxy sends whoever comes over http on to https, where a program does not follow.
func TestARedirectNamesTheAddressToUse(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://orders.example:8443"+r.URL.RequestURI(), http.StatusMovedPermanently)
	}))
	defer server.Close()
	_, err := New(server.URL, "").Topic(t.Context(), "q")
	if want := "status 301: the server sends requests on to https://orders.example:8443: use that address"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
