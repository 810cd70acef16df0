package library

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

// site is one stream on a server of its own, and a client that looks at it.
type site struct {
	*redistest.Server
	t      *testing.T
	client *redis.Client
	url    string // of the stream, for weir
	stream string
	group  string
	record string // file to which handlers append "ID ATTEMPT LINE"
}

func newSite(t *testing.T, stream, group string) *site {
	t.Helper()
	weirtest.Binary(t) // built before anything is timed
	srv := redistest.Start(t, redistest.Options{})
	return &site{
		Server: srv, t: t, client: srv.Client(), stream: stream, group: group,
		url:    fmt.Sprintf("%s?stream=%s&group=%s", srv.URL(), stream, group),
		record: filepath.Join(t.TempDir(), "record"),
	}
}

// recordLine is a command for weir work that appends its message to $RECORD.
const recordLine = `line=$(cat); printf '%s %s %s\n' "$WEIR_ID" "$WEIR_ATTEMPT" "$line" >> "$RECORD"`

// work starts a weir worker of that name whose command is a shell script.
func (s *site) work(name, script string, flags ...string) *weirtest.Process {
	s.t.Helper()
	args := append([]string{"work", s.url, "--consumer", name}, flags...)
	return weirtest.Go(s.t, []string{"RECORD=" + s.record}, append(args, "--", "sh", "-c", script)...)
}

// publish sends lines with weir publish.
func (s *site) publish(lines ...string) {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "lines")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	weirtest.Must(s.t, "publish", s.url, path)
}

// handled is one line of the record.
type handled struct{ id, attempt, line string }

func (s *site) handled() (all []handled) {
	text, _ := os.ReadFile(s.record) // absent at first
	for entry := range strings.Lines(string(text)) {
		id, rest, _ := strings.Cut(strings.TrimSuffix(entry, "\n"), " ")
		attempt, line, _ := strings.Cut(rest, " ")
		all = append(all, handled{id, attempt, line})
	}
	return all
}

// pendingOf is how many messages each consumer of the group holds.
func (s *site) pendingOf() map[string]int64 {
	held := map[string]int64{}
	consumers, err := s.client.XInfoConsumers(s.t.Context(), s.stream, s.group).Result()
	if err != nil {
		return held // the group is not there yet
	}
	for _, c := range consumers {
		held[c.Name] = c.Pending
	}
	return held
}

// left is what the group has not finished: pending, and not delivered.
func (s *site) left() (pending, lag int64) {
	s.t.Helper()
	groups, err := s.client.XInfoGroups(s.t.Context(), s.stream).Result()
	if err != nil || len(groups) == 0 {
		return 0, -1
	}
	for _, g := range groups {
		if g.Name == s.group {
			pending, lag = g.Pending, g.Lag
		}
	}
	return pending, lag
}

// drained reports whether the group has nothing left to do.
func (s *site) drained() bool {
	pending, lag := s.left()
	return pending == 0 && lag == 0
}

func (s *site) eventually(what string, ok func() bool) {
	s.t.Helper()
	weirtest.Eventually(s.t, what, ok)
}

// since waits for a condition and returns how long that took from start.
func (s *site) since(start time.Time, what string, ok func() bool) time.Duration {
	s.t.Helper()
	s.eventually(what, ok)
	return time.Since(start)
}

// numbered are n lines that start with prefix.
func numbered(prefix string, n int) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return lines
}

// count is how often each line was handled.
func count(all []handled) map[string]int {
	n := map[string]int{}
	for _, h := range all {
		n[h.line]++
	}
	return n
}
