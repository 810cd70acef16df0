package cli

import (
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

var metricsAt = regexp.MustCompile(`metrics at (http://127\.0\.0\.1:\d+/metrics)\n`)

// metricsURL waits for the address that a command with --metrics tells.
func metricsURL(t *testing.T, p *weirtest.Process) string {
	t.Helper()
	var url string
	eventually(t, "the address of the metrics", func() bool {
		if found := metricsAt.FindStringSubmatch(p.Stderr.String()); found != nil {
			url = found[1]
		}
		return url != ""
	})
	return url
}

// scrape returns a page of metrics; empty if nobody answers.
func scrape(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body) // half a page lacks what is looked for
	return string(text)
}

// shows waits until a page has all rows.
func shows(t *testing.T, url string, rows ...string) {
	t.Helper()
	for _, row := range rows {
		eventually(t, row, func() bool { return strings.Contains(scrape(t, url), "\n"+row+"\n") })
	}
}

func TestPublishAndWorkServeTheirMetrics(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	url := redisURL(s.Addr(), "jobs", "workers")
	lines := make([]string, 90)
	for i := range lines {
		lines[i] = "job"
	}
	publisher := weirtest.Go(t, []string{"WEIR_GUARD=static", "QUEUE_MAX_DEPTH=100"}, "publish", "--metrics=:0", "--batch=10", url, writeLines(t, lines))
	page := metricsURL(t, publisher)
	shows(t, page,
		`sse_queue_depth{queue_name="jobs"} 80`,
		`sse_queue_produce_success_total{queue_type="redis",stream="jobs"} 80`,
		`sse_queue_produce_failures_total{queue_type="redis",reason="load_shedding",stream="jobs"} 0`)
	eventually(t, "looks at the depth", func() bool {
		return strings.Contains(scrape(t, page), `sse_queue_backpressure_retries_total{queue_type="redis",stream="jobs"} `) &&
			!strings.Contains(scrape(t, page), `sse_queue_backpressure_retries_total{queue_type="redis",stream="jobs"} 0`)
	})
	worker := run(t, "work", "--metrics=127.0.0.1:0", "--workers=4", url, "--", "true")
	workers := metricsURL(t, worker)
	labels := `group="workers",queue_type="redis",stream="jobs"`
	shows(t, workers, `weir_stream_messages_total{group="workers",outcome="acked",queue_type="redis",stream="jobs"} 90`,
		`sse_queue_depth{queue_name="jobs"} 0`, `weir_stream_workers{`+labels+`} 4`)
	publisher.Succeed()
	worker.Signal(syscall.SIGTERM)
	worker.Succeed()
	if left := scrape(t, page) + scrape(t, workers); left != "" {
		t.Errorf("commands that have ended still serve %s", left)
	}
}

func TestSampleExportsTheStreamsOfOthers(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	w := ward{t, redis.Client(), redis}
	w.do(newGroup)
	w.add(20, 0, 0)
	w.do(readFive)
	server := weirtest.Start(t, weirtest.Options{})
	must(t, "publish", server.URL+"/orders", writeLines(t, []string{"a", "b", "c"}))
	p := run(t, "sample", "--metrics=:0", "--every=20ms", redisURL(redis.Addr(), "jobs", "workers"), server.URL+"/orders", server.URL+"/absent",
		redisURL("127.0.0.1:1", "nobody", "there"))
	page := metricsURL(t, p)
	jobs, orders := `{group="workers",queue_type="redis",stream="jobs"}`, `{group="weir",queue_type="http",stream="orders"}`
	shows(t, page,
		`sse_queue_depth{queue_name="jobs"} 20`, `sse_queue_depth{queue_name="orders"} 3`,
		`weir_stream_pending`+jobs+` 5`, `weir_stream_entries`+jobs+` 20`, `weir_stream_lag`+orders+` 3`,
		`weir_stream_up`+jobs+` 1`, `weir_stream_up`+orders+` 1`, `weir_stream_up{group="weir",queue_type="http",stream="absent"} 1`,
		`weir_stream_up{group="there",queue_type="redis",stream="nobody"} 0`)
	for _, row := range []string{`weir_stream_round_trip_seconds` + jobs, `weir_stream_round_trip_seconds` + orders, `weir_stream_oldest_age_seconds` + jobs} {
		if !strings.Contains(scrape(t, page), "\n"+row+" ") {
			t.Errorf("%s is missing", row)
		}
	}
	redis.Kill()
	shows(t, page, `weir_stream_up`+jobs+` 0`)
	redis.Restart()
	shows(t, page, `weir_stream_up`+jobs+` 1`)
	eventually(t, "the end of the outage is said", func() bool { return strings.Count(p.Stderr.String(), "stream jobs: ") == 2 })
	p.Signal(syscall.SIGTERM)
	if out := p.Succeed(); out != "" || strings.Count(p.Stderr.String(), "stream jobs: ") != 2 {
		t.Errorf("printed %q, and of one outage %s", out, p.Stderr.String())
	}
}

func TestMetricsThatCannotBeServedAreToldAtTheStart(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := redistest.Start(t, redistest.Options{})
	url := redisURL(s.Addr(), "jobs", "workers")
	for _, k := range []struct {
		args []string
		code int
		said string
	}{
		{[]string{"sample", "--metrics", l.Addr().String(), url}, 1, l.Addr().String() + ": bind: address already in use; choose another port"},
		{[]string{"publish", "--metrics", l.Addr().String(), url}, 1, "address already in use; choose another port"},
		{[]string{"work", "--metrics", l.Addr().String(), url, "--", "true"}, 1, "address already in use; choose another port"},
		{[]string{"work", "--metrics", "192.0.2.1:1", url, "--", "true"}, 1, "use an address of this machine, such as 127.0.0.1\n"},
		{[]string{"sample", "--metrics=a:b:c", url}, 2, "is not host:port"},
		{[]string{"sample", "--metrics", "99999", url}, 2, "flag --metrics: \"99999\" is not host:port, :port or port, and the port from 0 to 65535; see `weir sample --help`"},
		{[]string{"publish", "--metrics", "abc", url}, 2, "flag --metrics: \"abc\" is not "},
		{[]string{"sample", "--metrics=:0", url, url}, 2, "is named twice"},
		{[]string{"sample", "--metrics=:0", url, "redis://x?strem=a"}, 2, `URL 2: `},
		{[]string{"sample", "--metrics=:0", "--count=2", url}, 2, "--count"},
		{[]string{"sample", url, url}, 2, "accepts at most 1 arg"},
	} {
		if out, stderr, code := weirtest.Run(t, nil, k.args...); code != k.code || !strings.Contains(stderr, k.said) {
			t.Errorf("%v: exit code %d, %s%s", k.args, code, out, stderr)
		}
	}
}

// Producers with an adaptive guard decide as one, those of the command too: the server adds up what
// each was offered.
func TestPublishersOfAServerCountTogether(t *testing.T) {
	t.Parallel()
	lines := make([]string, 300)
	for i := range lines {
		lines[i] = "job"
	}
	for name, url := range map[string]string{"a queue": "/jobs", "shards": "/divided?shards=2"} {
		t.Run(name, func(t *testing.T) {
			srv := weirtest.Start(t, weirtest.Options{})
			must(t, "publish", "--guard=adaptive", "--wait-slo=50ms", "--batch=1", srv.URL+url, writeLines(t, lines))
			var counted struct{ Sums []int }
			topic := strings.Replace(strings.TrimPrefix(url, "/"), "?shards=2", ".0", 1)
			if !request(t, http.MethodPost, srv.URL+"/v0/topics/"+topic+"/offered", `{"bins":[],"add":[]}`, &counted) || len(counted.Sums) == 0 {
				t.Errorf("of 300 messages the server has been told of %v", counted.Sums)
			}
		})
	}
}
