package cli

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

// A pause of what is no stream is an error, and one of a group that nobody has made yet, which may
// be misspelt, says so.
func TestQueuePausesOnlyWhatIsAStream(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	ctx, client := t.Context(), s.Client()
	if err := client.Set(ctx, "text", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.XAdd(ctx, &redis.XAddArgs{Stream: "jobs", Values: []string{"data", "x"}}).Err(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		verb, query string
		code        int
		want        string // on standard error; empty: nothing
	}{
		{"pause", "stream=text", 1, "taken by something else"},
		{"resume", "stream=text", 1, "taken by something else"},
		{"pause", "stream=none", 1, "stream not found"},
		{"pause", "stream=jobs&group=biling&create=never", 1, "group not found"},
		{"pause", "stream=jobs&group=biling", 0, `no group "biling" yet`},
		{"resume", "stream=jobs&group=biling", 0, ""},
	} {
		_, said, code := weirtest.Run(t, nil, "queue", c.verb, s.URL()+"?"+c.query)
		if code != c.code || !strings.Contains(said, c.want) || (said == "") != (c.want == "") {
			t.Errorf("%s of %s ends with %d and says %q", c.verb, c.query, code, said)
		}
	}
	if keys := client.Keys(ctx, "*text*").Val(); len(keys) != 1 {
		t.Errorf("keys %v", keys)
	}
}
