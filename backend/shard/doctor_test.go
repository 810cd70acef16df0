package shard_test

import (
	"strings"
	"testing"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
)

// What is found about a shard comes with the command for that shard.
func TestACommandIsForTheShardThatTheFindingIsAbout(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	b := openURL(t, s.URL()+"?stream=orders&shards=3")
	fill(t, b)
	for _, letters := range []string{"{orders.1}:dlq", "{orders.2}:dlq"} {
		if err := s.Client().Set(t.Context(), letters, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	d, err := weir.New(b).Examine(t.Context(), weir.Exam{})
	if err != nil {
		t.Fatal(err)
	}
	about, ofServer := map[string]string{}, map[string]int{}
	for _, f := range d.Findings {
		if f.Concern == backend.OfServer {
			ofServer[f.Code]++
		}
		if f.Code == "dead_letter_type" {
			shard, _, _ := strings.Cut(f.Problem, ":")
			about[shard] = f.Command
		}
	}
	for _, shard := range []string{"orders.1", "orders.2"} {
		if !strings.HasSuffix(about[shard], " TYPE '{"+shard+"}:dlq'") {
			t.Errorf("for %s: %q", shard, about[shard])
		}
	}
	for code, times := range ofServer {
		if times > 1 {
			t.Errorf("%s of the server is said %d times", code, times)
		}
	}
	if len(ofServer) == 0 {
		t.Error("nothing is found about a server that keeps nothing on a disk")
	}
	if len(about) != 2 {
		t.Errorf("findings about %v", about)
	}
}
