package cli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

// luaPlace is what a server says of a script that failed, and nobody else understands.
var luaPlace = regexp.MustCompile(`user_script|script: [0-9a-f]{8}|running script`)

// A line that the server never takes ends publish with its place in the input, once
// what stands before it is stored.
func TestPublishNamesTheLineThatIsTooLarge(t *testing.T) {
	t.Parallel()
	lines := []string{"a", "b", strings.Repeat("x", 2<<20), "c"}
	redis := redistest.Start(t, redistest.Options{Args: []string{"--proto-max-bulk-len", "1mb"}})
	for _, url := range []string{
		weirtest.Start(t, weirtest.Options{}).URL + "/jobs",
		"file://" + t.TempDir() + "?topic=jobs",
		redis.URL() + "?stream=jobs",
	} {
		out, stderr, code := weirtest.Run(t, nil, "publish", url, writeLines(t, lines))
		if code != 1 || !strings.Contains(stderr, ":3: ") || !strings.HasPrefix(out, "2 records published") || strings.Contains(stderr, "unknown") {
			t.Errorf("%s: code %d\n%s\n%s", url, code, out, stderr)
		}
	}
}

// A server without memory says so in words, to producers and to workers, and nothing
// is said of the scripts that weir runs there.
func TestAServerWithoutMemorySaysSoInWords(t *testing.T) {
	t.Parallel()
	for _, version := range redistest.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.Options{Version: version})
			url := s.URL() + "?stream=jobs"
			command(t, s.Client(), "CONFIG", "SET", "maxmemory", "1")
			for _, args := range [][]string{
				{"publish", "--give-up", "1s", url, writeLines(t, []string{"a"})},
				{"publish", "--at-least-once", "--give-up", "1s", url, writeLines(t, []string{"a"})},
			} {
				_, stderr, code := weirtest.Run(t, nil, args...)
				if code != 1 || !strings.Contains(stderr, "memory (maxmemory) is full") || luaPlace.MatchString(stderr) {
					t.Errorf("%v: code %d, %s", args, code, stderr)
				}
			}
			w := weirtest.Go(t, nil, "work", url, "--", "true")
			weirtest.Eventually(t, "the worker says what it waits for", func() bool {
				return strings.Contains(w.Stderr.String(), "memory (maxmemory) is full")
			})
			if said := w.Stderr.String(); luaPlace.MatchString(said) || strings.Contains(said, "no such key") {
				t.Error(said)
			}
		})
	}
}

// What SETTINGS.md calls checked is checked by the commands, though nothing uses it yet.
func TestPublishAndWorkCheckSettingsThatHaveNoFlag(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"KAFKA_BUFFER_MEMORY=lots", "KAFKA_MAX_IN_FLIGHT_REQUESTS=0"} {
		name, _, _ := strings.Cut(setting, "=")
		for _, args := range [][]string{
			{"publish", "redis://127.0.0.1:1/0?stream=jobs", "/dev/null"},
			{"work", "redis://127.0.0.1:1/0?stream=jobs", "--", "true"},
		} {
			_, stderr, code := weirtest.Run(t, []string{setting}, args...)
			if code != 2 || !strings.Contains(stderr, "environment variable "+name) {
				t.Errorf("%s %s: code %d, %s", setting, args[0], code, stderr)
			}
		}
	}
}
