package engine

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
)

var eventID = regexp.MustCompile(`(?m)^id: .*\n`)

// untilCaughtUp returns what a stream sends, without its ids, until it has nothing left.
func untilCaughtUp(t *testing.T, s *Stream) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(bg, 10*time.Second)
	defer cancel()
	var all []byte
	for !strings.Contains(string(all), "caught") {
		b, err := s.Next(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 0 {
			s.Sent()
			all = append(append(all, bytes.TrimRight(b, "\n")...), "\n\n"...)
			continue
		}
		select {
		case <-s.Ready():
		case <-ctx.Done():
			t.Fatalf("it ends behind %q", all)
		}
	}
	return eventID.ReplaceAllString(string(all), "")
}

// Streams that ask for the same share their frames, and only those: whatever a stream has asked
// for, what is pushed to it beside all the others is what it would have read by itself.
func TestEveryStreamIsPushedWhatItAskedFor(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "b")
	put(t, e, "a", configOf(api.Disk, func(c *api.Config) { c.DedupeNode = true }))
	asked := []func(*api.WatchOptions){
		func(*api.WatchOptions) {},
		func(o *api.WatchOptions) { o.Nodes = []string{"n"} },
		func(o *api.WatchOptions) { o.Nodes = []string{"m"} },
		func(o *api.WatchOptions) { o.Limit = 1 },
		func(o *api.WatchOptions) { o.MaxBatchBytes = 1 },
		func(o *api.WatchOptions) { o.IncludeMeta = false },
		func(o *api.WatchOptions) { o.IncludeTags = true },
		func(o *api.WatchOptions) { o.IncludeData = false },
		func(o *api.WatchOptions) { o.Relay = true },
	}
	// open opens an event stream and a socket of each kind.
	open := func(topic api.WatchTopic) (all []*Stream) {
		for _, ask := range asked {
			req := api.WatchRequest{Topics: []api.WatchTopic{topic}, WatchOptions: watchOptions()}
			ask(&req.WatchOptions)
			res, err := e.OpenSession(&req, Owner{})
			if err != nil {
				t.Fatal(err)
			}
			socket := e.NewSocket()
			t.Cleanup(socket.Close)
			if _, err := socket.Subscribe(bg, &req); err != nil {
				t.Fatal(err)
			}
			all = append(all, openStream(t, e, res.WID, ""), socket)
		}
		return all
	}
	pushed := open(api.WatchTopic{Topic: "a", Tail: true})
	for _, s := range pushed {
		untilCaughtUp(t, s)
	}
	var req api.WriteRequest
	for _, node := range []string{"n", "m", "n"} {
		req.Records = append(req.Records, api.Record{
			Data: []byte(`"d"`), Meta: []byte(`{"k":1}`), HasTag: true, Tag: []byte("t"), HasNode: true, Node: []byte(node),
		})
	}
	if _, err := e.Write(bg, "a", &req); err != nil {
		t.Fatal(err)
	}
	for i, s := range open(api.WatchTopic{Topic: "a"}) {
		if got, want := untilCaughtUp(t, pushed[i]), untilCaughtUp(t, s); got != want {
			t.Errorf("stream %d was pushed %s\nwant %s", i, got, want)
		}
	}
}
