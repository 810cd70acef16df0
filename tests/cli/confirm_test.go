//go:build unix

package cli

import (
	"strings"
	"testing"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

// A question is about what cannot be undone: whatever is not a yes changes nothing.
func TestAnAnswerThatIsNoYesChangesNothing(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_WEBHOOKS=on", "WEIR_WEBHOOK_ALLOW_HTTP=true", "WEIR_WEBHOOK_ALLOW_PRIVATE=127.0.0.1"}})
	url := srv.URL + "/orders"
	bury(t, openStream(t, url), 2, backend.ReasonPoison)
	must(t, "publish", url, writeLines(t, []string{"a", "b", "c"}))
	must(t, "router", "create", "--source", "orders", "--dest", "old", srv.URL+"/archive")
	must(t, "topic", "create", "--type", "queue", srv.URL+"/parcels")
	must(t, "webhook", "create", "--topic", "parcels", "--to", "http://127.0.0.1:1/jobs", srv.URL+"/ship")
	redis := redistest.Start(t, redistest.Options{})
	jobs := redisURL(redis.Addr(), "jobs", "weir")
	bury(t, openStream(t, jobs), 1, backend.ReasonPoison)
	if err := redis.Client().XGroupCreate(t.Context(), "jobs", "audit", "$").Err(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		asks, says string
		args       []string
	}{
		{"Remove 2 dead letters of orders.dlq permanently?", "nothing was removed", []string{"dlq", "purge", url}},
		{"go to audit", "nothing was sent", []string{"dlq", "redrive", "--delay=0", jobs}},
		{"Delete topic orders with 3 records for good?", "nothing was deleted", []string{"topic", "rm", url}},
		{"Remove all of orders, 3 records, for good?", "nothing was removed", []string{"topic", "purge", url}},
		{"Remove the records of orders before 5 for good?", "nothing was removed", []string{"topic", "truncate", "--before", "5", url}},
		{"Change it?", "nothing was changed", []string{"topic", "set", "--cap-records", "1", url}},
		{"Delete router archive", "nothing was deleted", []string{"router", "rm", srv.URL + "/archive"}},
		{"Delete webhook ship", "nothing was deleted", []string{"webhook", "rm", srv.URL + "/ship"}},
	} {
		for _, answer := range []string{"\r", "n\r", "yy\r", "\x04"} {
			x := startTerminal(t, nil, 24, 140, c.args...)
			x.shows(c.asks)
			x.press(answer)
			x.shows(c.says)
			<-x.ended
			if code := x.cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("weir %v, answered %q: exit code %d", c.args, answer, code)
			}
		}
	}
	if n := topicState(t, srv, "orders").Count; n != 3 {
		t.Errorf("%d records are left, want 3", n)
	}
	if left, sent := len(lettersOf(t, url)), len(lettersOf(t, jobs)); left != 2 || sent != 1 {
		t.Errorf("%d and %d dead letters are left, want 2 and 1", left, sent)
	}
	for name, args := range map[string][]string{"archive": {"router", "ls", srv.URL}, "ship": {"webhook", "ls", srv.URL}} {
		if out := must(t, args...); !strings.Contains(out, name) {
			t.Errorf("weir %v: %s", args, out)
		}
	}
	// A yes is one in any spelling.
	x := startTerminal(t, nil, 24, 140, "topic", "truncate", "--before", "5", url)
	x.shows("for good?")
	x.press("YES\r")
	x.shows("removed from orders")
	<-x.ended
	if n := topicState(t, srv, "orders").Count; n != 1 {
		t.Errorf("%d records are left behind a yes, want 1", n)
	}
}
