package cli

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// What a weir server does not take as JSON, though Go's encoding/json does, is a line that is
// none to publish, too: --invalid says what becomes of it, and the rest is sent.
func TestPublishTakesForJSONWhatTheServerDoes(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	deep := strings.Repeat("[", 125) + strings.Repeat("]", 125)
	lines := writeLines(t, []string{`1`, `{"cut":"\ud83d"}`, `2`, `1e999`, deep, deep[1:249], `{"a":"\ud83d\ude00"}`})
	for how, want := range map[string][]string{
		"skip":    {`1`, `2`, deep[1:249], `{"a":"\ud83d\ude00"}`},
		"replace": {`1`, `{"cut":"\ud83d"}`, `2`, `1e999`, deep, deep[1:249], `{"a":"\ud83d\ude00"}`},
		"base64":  {`1`, `eyJjdXQiOiJcdWQ4M2QifQ==`, `2`, `MWU5OTk=`, base64.StdEncoding.EncodeToString([]byte(deep)), deep[1:249], `{"a":"\ud83d\ude00"}`},
	} {
		url := srv.URL + "/" + how
		if said := must(t, "publish", "--ndjson", "--invalid", how, url, lines); !strings.Contains(said, "3 not JSON") {
			t.Errorf("%s: it says %q", how, said)
		}
		got := strings.Split(strings.TrimSpace(must(t, "tail", "--no-follow", "--from", "0", url)), "\n")
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", how, got, want)
		}
	}
	_, stderr, code := weirtest.Run(t, nil, "publish", "--ndjson", srv.URL+"/fail", lines)
	if code != 1 || !strings.Contains(stderr, ":2: not JSON") || !strings.Contains(stderr, "lone surrogate") || !strings.Contains(stderr, "--invalid") || topicState(t, srv, "fail").HeadSeq != 1 {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
