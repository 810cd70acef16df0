package cli

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

// sampleLine is a sample with the fields that a test compares.
type sampleLine struct {
	XLen     int64  `json:"xlen"`
	Pending  int64  `json:"pending"`
	Lag      *int64 `json:"lag"`
	LagValid *bool  `json:"lag_valid"`
	AgeMS    int64  `json:"oldest_age_ms"`
	Source   string `json:"oldest_age_source"`
	Approx   bool   `json:"approx"`
}

func readSample(t *testing.T, line string) (s sampleLine) {
	t.Helper()
	if err := json.Unmarshal([]byte(line), &s); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return s
}

// redisVars are the variables that stand for a URL.
func redisVars(addr, password, stream, group string) []string {
	host, port, _ := net.SplitHostPort(addr)
	return []string{"REDIS_HOST=" + host, "REDIS_PORT=" + port, "REDIS_PASSWORD=" + password, "STREAM_KEY=" + stream, "GROUP=" + group}
}

func redisURL(addr, stream, group string) string {
	return fmt.Sprintf("redis://%s/0?stream=%s&group=%s", addr, stream, group)
}

// command runs one Redis command.
func command(t *testing.T, c *redis.Client, args ...any) any {
	t.Helper()
	v, err := c.Do(t.Context(), args...).Result()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return v
}

// A queue that is idle, then has a backlog of 30 entries published 130 s ago, then
// has 10 of them read: the lines are those of the sampler that others parse.
func TestSampleOfAnIdleABackloggedAndABusyStream(t *testing.T) {
	t.Parallel()
	const password, stream, group = "change_me", "deepoj:jobs", "deepoj:workers"
	server := redistest.Start(t, redistest.Options{Args: []string{"--requirepass", password}})
	c := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: password, Protocol: 2})
	t.Cleanup(func() { _ = c.Close() })
	vars := redisVars(server.Addr(), password, stream, group)
	sample := func() string {
		out, stderr, code := weirtest.Run(t, vars, "sample")
		if code != 0 || stderr != "" {
			t.Fatalf("exit code %d, %s", code, stderr)
		}
		return out
	}

	command(t, c, "XGROUP", "CREATE", stream, group, "0", "MKSTREAM")
	lines := []string{sample()}
	base := time.Now().UnixMilli() - 130_000
	for i := 1; i <= 30; i++ {
		job := fmt.Sprint("bench-job-", i)
		command(t, c, "XADD", stream, "*", "job_id", job, "enqueue_ts", base+int64(i), "payload_ref", "task:payload:"+job, "priority", 0)
	}
	lines = append(lines, sample())
	command(t, c, "XREADGROUP", "GROUP", group, "bench-consumer", "COUNT", 10, "STREAMS", stream, ">")
	lines = append(lines, sample())

	head := `^\{"ts_ms":\d{13},"stream_key":"deepoj:jobs","group":"deepoj:workers",`
	for i, want := range []string{
		head + `"xlen":0,"pending":0,"lag":0,"lag_valid":true,"oldest_age_ms":0,"oldest_age_source":"none","approx":false\}\n$`,
		head + `"xlen":30,"pending":0,"lag":30,"lag_valid":true,"oldest_age_ms":1[34]\d{4},"oldest_age_source":"backlog","approx":true\}\n$`,
		head + `"xlen":30,"pending":10,"lag":20,"lag_valid":true,"oldest_age_ms":1[34]\d{4},"oldest_age_source":"pending","approx":false\}\n$`,
	} {
		if !regexp.MustCompile(want).MatchString(lines[i]) {
			t.Errorf("sample %d is %s", i+1, lines[i])
		}
	}
	older := []string{"JOB_STREAM_KEY=" + stream, "JOB_STREAM_GROUP=" + group}
	out, stderr, code := weirtest.Run(t, append(append([]string{}, vars[:3]...), older...), "sample", "--count=2", "--every=10ms")
	if code != 0 || strings.Count(out, "\n") != 2 {
		t.Errorf("with JOB_STREAM_KEY: exit code %d, %s%s", code, out, stderr)
	}
}

func TestALagThatTheServerDoesNotKnowIsNull(t *testing.T) {
	t.Parallel()
	for _, version := range redistest.Versions() {
		t.Run(version, func(t *testing.T) {
			server := redistest.Start(t, redistest.Options{Version: version})
			c := server.Client()
			command(t, c, "XGROUP", "CREATE", "jobs", "workers", "0", "MKSTREAM")
			var ids []string
			for i := range 5 {
				ids = append(ids, command(t, c, "XADD", "jobs", "*", "n", i).(string))
			}
			url := redisURL(server.Addr(), "jobs", "workers")
			s := readSample(t, must(t, "sample", url))
			hasLag := !strings.HasPrefix(version, "5.") && !strings.HasPrefix(version, "6.")
			if known := s.Lag != nil && *s.Lag == 5; known != hasLag || *s.LagValid != hasLag || s.XLen != 5 {
				t.Errorf("5 unread entries: %+v; the server knows its lag: %v", s, hasLag)
			}
			command(t, c, "XDEL", "jobs", ids[2])
			if s := readSample(t, must(t, "sample", url)); s.Lag != nil || *s.LagValid {
				t.Errorf("after an unread entry was deleted: %+v", s)
			}
			command(t, c, "XREADGROUP", "GROUP", "workers", "c", "COUNT", 1, "STREAMS", "jobs", ">")
			s = readSample(t, must(t, "sample", url))
			if s.Lag != nil || s.Pending != 1 || s.Source != "pending_stream_id" || !s.Approx {
				t.Errorf("after one was read, without enqueue_ts: %+v", s)
			}
		})
	}
}

func TestTheFieldThatTellsAgesCanBeChosen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	c := server.Client()
	command(t, c, "XGROUP", "CREATE", "jobs", "workers", "0", "MKSTREAM")
	command(t, c, "XADD", "jobs", "*", "created_ms", time.Now().Add(-time.Hour).UnixMilli(), "enqueue_ts", "yesterday")
	url := redisURL(server.Addr(), "jobs", "workers")
	if s := readSample(t, must(t, "sample", url)); s.Source != "backlog_stream_id" || s.AgeMS > 60_000 || !s.Approx {
		t.Errorf("an enqueue_ts that is no number: %+v", s)
	}
	out, _, _ := weirtest.Run(t, []string{"WEIR_ENQUEUE_FIELD=created_ms"}, "sample", url)
	if s := readSample(t, out); s.Source != "backlog" || s.AgeMS < 3_600_000 {
		t.Errorf("with the field created_ms: %+v", s)
	}
	if _, stderr, code := weirtest.Run(t, nil, "sample", "--enqueue-field=a", "http://127.0.0.1:1/a"); code != 2 {
		t.Errorf("on a weir server: exit code %d, %s", code, stderr)
	}
}

func TestSampleTellsByItsExitCode(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	c := server.Client()
	command(t, c, "XGROUP", "CREATE", "jobs", "workers", "0", "MKSTREAM")
	command(t, c, "SET", "text", "no stream")
	command(t, c, "CONFIG", "SET", "requirepass", "right")
	host, port, _ := net.SplitHostPort(server.Addr())
	gone := "127.0.0.1:1"
	with := func(password, stream, group string) string {
		return fmt.Sprintf("redis://:%s@%s/0?stream=%s&group=%s", password, net.JoinHostPort(host, port), stream, group)
	}
	cases := []struct {
		name string
		env  []string
		args []string
		code int
		want string
	}{
		{"sampled", nil, []string{with("right", "jobs", "workers")}, 0, ""},
		{"nobody there", nil, []string{redisURL(gone, "jobs", "workers")}, 1, gone},
		{"wrong password", nil, []string{with("wr0ng", "jobs", "workers")}, 1, "does not know the URL's user and password"},
		{"no password", nil, []string{redisURL(server.Addr(), "jobs", "workers")}, 1, "wants a password"},
		{"no stream", nil, []string{with("right", "nothing", "workers")}, 0, `stream not found: "nothing"`},
		{"no group", nil, []string{with("right", "jobs", "nobody")}, 0, `group not found: "nobody"`},
		{"no group, and none to be made", nil, []string{with("right", "jobs", "nobody&create=never")}, 1, `group not found: "nobody"`},
		{"another type", nil, []string{with("right", "text", "workers")}, 1, "WRONGTYPE"},
		{"no directory", nil, []string{"file:///nowhere?topic=a"}, 1, "stream not found"},
		{"no server", nil, []string{"http://" + gone + "/a"}, 1, "no answer from the server"},
		{"nothing said", nil, nil, 2, "STREAM_KEY"},
		{"unknown flag", nil, []string{"--evry=1s"}, 2, "--evry"},
		{"two URLs", nil, []string{"http://127.0.0.1:1/a", "http://127.0.0.1:1/b"}, 2, "accepts at most 1 arg"},
		{"unknown scheme", nil, []string{"amqp://x/y"}, 2, `"amqp"`},
		{"unknown key", nil, []string{"redis://:wr0ng@x?strem=y"}, 2, `"strem"`},
		{"unreadable URL", nil, []string{"redis://:wr0ng%zz@x"}, 2, "percent-encoding"},
		{"memory", nil, []string{"mem://a"}, 2, "weir serve"},
		{"no port", []string{"STREAM_KEY=a", "REDIS_PORT=many"}, nil, 2, "REDIS_PORT"},
		{"bad twin", []string{"WEIR_COUNT=x", "STREAM_KEY=a"}, nil, 2, "WEIR_COUNT"},
		{"count 0", nil, []string{"--count=0", "redis://x?stream=a"}, 2, "--count"},
		{"too often", nil, []string{"--every=1us", "redis://x?stream=a"}, 2, "--every"},
	}
	for _, k := range cases {
		t.Run(k.name, func(t *testing.T) {
			out, stderr, code := weirtest.Run(t, k.env, append([]string{"sample"}, k.args...)...)
			if code != k.code || !strings.Contains(stderr, k.want) || (out != "") != (k.code == 0) {
				t.Errorf("exit code %d, want %d\nstdout %s\nstderr %s", code, k.code, out, stderr)
			}
			if strings.Contains(stderr, "wr0ng") || strings.Contains(stderr, "right") {
				t.Errorf("the password is in %s", stderr)
			}
		})
	}
}

func TestSamplingGoesOnWhenTheServerIsBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	c := server.Client()
	command(t, c, "XGROUP", "CREATE", "jobs", "workers", "0", "MKSTREAM")
	p := run(t, "sample", "--every=20ms", redisURL(server.Addr(), "jobs", "workers"))
	lines := func() int { return strings.Count(p.Stdout.String(), "\n") }
	weirtest.Eventually(t, "two samples", func() bool { return lines() >= 2 })
	server.Kill()
	weirtest.Eventually(t, "word of the outage", func() bool { return strings.Contains(p.Stderr.String(), "waiting: ") })
	server.Restart()
	weirtest.Eventually(t, "word of the end", func() bool { return strings.Contains(p.Stderr.String(), "going on") })
	n := lines()
	weirtest.Eventually(t, "more samples", func() bool { return lines() > n })
	p.Signal(syscall.SIGTERM)
	p.Succeed()
	if n := strings.Count(p.Stderr.String(), "\n"); n != 2 {
		t.Errorf("%d lines about one outage:\n%s", n, p.Stderr.String())
	}
}

func TestSampleMakesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, stderr, code := weirtest.Run(t, nil, "sample", "file:"+dir+"?topic=a")
	left, err := os.ReadDir(dir)
	if code != 1 || !strings.Contains(stderr, "stream not found") || err != nil || len(left) != 0 {
		t.Errorf("an empty directory: exit code %d, %s, now in it: %v, %v", code, stderr, left, err)
	}
	server := redistest.Start(t, redistest.Options{})
	url := redisURL(server.Addr(), "jobs", "workers")
	if s := readSample(t, must(t, "sample", url)); s.XLen != 0 || s.Lag == nil || *s.Lag != 0 || s.Source != "none" {
		t.Errorf("an absent stream: %+v", s)
	}
	if n := server.Client().Exists(t.Context(), "jobs").Val(); n != 0 {
		t.Error("a sample made the stream")
	}
	command(t, server.Client(), "XADD", "jobs", "*", "a", "b")
	if s := readSample(t, must(t, "sample", url)); s.XLen != 1 || s.Pending != 0 || s.Lag == nil || *s.Lag != 1 {
		t.Errorf("an absent group: %+v", s)
	}
	if groups := command(t, server.Client(), "XINFO", "GROUPS", "jobs").([]any); len(groups) != 0 {
		t.Errorf("groups after a sample: %v", groups)
	}
	must(t, "publish", "file:"+dir+"?topic=a", writeLines(t, []string{"a"}))
	if s := readSample(t, must(t, "sample", "file:"+dir+"?topic=a")); s.XLen != 1 || s.Source != "backlog" {
		t.Errorf("one message in a directory: %+v", s)
	}
}

func TestSampleOfAQueueOnAWeirServer(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	must(t, "publish", s.URL+"/orders", writeLines(t, []string{"a", "b", "c"}))
	got := readSample(t, must(t, "sample", s.URL+"/orders"))
	if got.XLen != 3 || got.Pending != 0 || got.Lag == nil || *got.Lag != 3 || got.Source != "backlog" {
		t.Errorf("3 messages that nobody took: %+v", got)
	}
	_, stderr, code := weirtest.Run(t, nil, "sample", s.URL+"/nothing")
	if code != 0 || !strings.Contains(stderr, "not found") {
		t.Errorf("an absent queue: exit code %d, %s", code, stderr)
	}
}
