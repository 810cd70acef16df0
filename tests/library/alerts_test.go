package library

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/open"
	"github.com/weirmq/weir/telemetry"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

// monitor is a Prometheus with the rules of docs/alerts.yml, their times shortened.
type monitor struct {
	t       *testing.T
	dir     string
	url     string
	log     weirtest.Output
	targets []string
	servers []string
}

const prometheusConfig = `global: {scrape_interval: 200ms, evaluation_interval: 200ms}
rule_files: [alerts.yml]
scrape_configs:
  - job_name: commands
    file_sd_configs: [{files: [targets.json], refresh_interval: 1s}]
  - job_name: weir
    authorization: {credentials: key}
    file_sd_configs: [{files: [servers.json], refresh_interval: 1s}]
`

// newMonitor starts Prometheus, which scrapes what is watched later.
func newMonitor(t *testing.T) *monitor {
	t.Helper()
	m := &monitor{t: t, dir: t.TempDir()}
	rules, err := os.ReadFile("../../docs/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	short := regexp.MustCompile(`for: \d+m`).ReplaceAllString(string(rules), "for: 400ms")
	short = regexp.MustCompile(`\[\d+m\]`).ReplaceAllString(short, "[3s]")
	m.write("alerts.yml", short)
	m.write("prometheus.yml", prometheusConfig)
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(m.dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(m.dir, "data"), "--web.listen-address=127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = &m.log, &m.log
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: run make deps, which installs Prometheus", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // its end is waited for
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(m.log.String())
		}
	})
	listening := regexp.MustCompile(`"Listening on" address=(\S+)`)
	weirtest.Eventually(t, "Prometheus listens", func() bool {
		if found := listening.FindStringSubmatch(m.log.String()); found != nil {
			m.url = "http://" + found[1]
		}
		return m.url != ""
	})
	return m
}

func (m *monitor) write(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

var metricsAt = regexp.MustCompile(`metrics at http://(127\.0\.0\.1:\d+)/metrics\n`)

// watch starts a weir command with --metrics and has it scraped.
func (m *monitor) watch(command string, args ...string) *weirtest.Process {
	m.t.Helper()
	p := weirtest.Go(m.t, nil, append([]string{command, "--metrics=:0"}, args...)...)
	weirtest.Eventually(m.t, "the address of the metrics of weir "+command, func() bool {
		return metricsAt.MatchString(p.Stderr.String())
	})
	m.scrape(metricsAt.FindStringSubmatch(p.Stderr.String())[1])
	return p
}

// scrape adds a target.
func (m *monitor) scrape(addr string) {
	m.t.Helper()
	m.targets = append(m.targets, addr)
	m.list("targets.json", m.targets)
}

// serve adds a server, and forgets one.
func (m *monitor) serve(add, gone string) {
	m.t.Helper()
	m.servers = slices.DeleteFunc(append(m.servers, add), func(addr string) bool { return addr == "" || addr == gone })
	m.list("servers.json", m.servers)
}

// list tells Prometheus whom to scrape.
func (m *monitor) list(file string, targets []string) {
	m.t.Helper()
	list, _ := json.Marshal([]map[string][]string{{"targets": targets}}) // of strings
	m.write("new", string(list))
	if err := os.Rename(filepath.Join(m.dir, "new"), filepath.Join(m.dir, file)); err != nil {
		m.t.Fatal(err)
	}
}

// firing returns the alerts that fire, by name and what they are about.
func (m *monitor) firing() (alerts []string) {
	m.t.Helper()
	resp, err := http.Get(m.url + "/api/v1/alerts")
	if err != nil {
		return nil // not ready yet
	}
	defer resp.Body.Close()
	var answer struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	if json.NewDecoder(resp.Body).Decode(&answer) != nil {
		return nil
	}
	for _, a := range answer.Data.Alerts {
		if about := a.Labels["queue_name"] + a.Labels["stream"] + a.Labels["topic"]; a.State == "firing" {
			alerts = append(alerts, a.Labels["alertname"]+" "+about)
		}
	}
	slices.Sort(alerts)
	return slices.Compact(alerts)
}

// trouble is a stream in Redis as some alert wants it.
type trouble struct {
	t *testing.T
	c *redis.Client
}

// do runs commands, one in a line.
func (r trouble) do(lines ...string) {
	r.t.Helper()
	for _, line := range lines {
		var args []any
		for word := range strings.FieldsSeq(line) {
			args = append(args, word)
		}
		if err := r.c.Do(r.t.Context(), args...).Err(); err != nil && err != redis.Nil {
			r.t.Fatalf("%s: %v", line, err)
		}
	}
}

// fill adds entries of an age to a stream with the group g.
func (r trouble) fill(stream string, n int, age time.Duration) {
	r.t.Helper()
	r.do("XGROUP CREATE " + stream + " g 0 MKSTREAM")
	const script = `for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], ARGV[2] .. '-' .. i, 'data', i) end`
	if err := r.c.Eval(r.t.Context(), script, []string{stream}, n, time.Now().Add(-age).UnixMilli()).Err(); err != nil && err != redis.Nil {
		r.t.Fatal(err)
	}
}

// again does something every few milliseconds until stop is called.
func again(t *testing.T, every time.Duration, do func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for ctx.Err() == nil {
			do(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return func() { cancel(); running.Wait() }
}

// add adds an entry to a stream.
func (r trouble) add(ctx context.Context, stream string) {
	_ = r.c.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []string{"data", "x"}}).Err() // the next one comes soon
}

// lose makes a message that is pending and has no data any more.
func (r trouble) lose(ctx context.Context, stream string) {
	const script = `local id = redis.call('XADD', KEYS[1], '*', 'data', 'x')
redis.call('XREADGROUP', 'GROUP', 'g', 'gone', 'STREAMS', KEYS[1], '>')
redis.call('XDEL', KEYS[1], id)`
	_ = r.c.Eval(ctx, script, []string{stream}).Err() // nil is an error to this client
}

// program is a publisher that somebody wrote in Go, which is scraped until its page is closed.
type program struct {
	m       *monitor
	metrics *telemetry.Prometheus
	page    *httptest.Server
	stops   []func()
}

func (m *monitor) program() *program {
	m.t.Helper()
	registry := prometheus.NewRegistry()
	metrics, err := telemetry.NewPrometheus(registry)
	if err != nil {
		m.t.Fatal(err)
	}
	page := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	m.t.Cleanup(page.Close)
	m.scrape(strings.TrimPrefix(page.URL, "http://"))
	return &program{m: m, metrics: metrics, page: page}
}

// publish begins to publish to a stream, by a number of callers.
func (p *program) publish(url string, c weir.ProducerConfig, callers int, send func(*weir.Producer, context.Context, weir.Message) error) {
	t := p.m.t
	t.Helper()
	s, err := open.URL(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	c.Hooks, c.Logger = p.metrics.Hooks(), slog.New(slog.DiscardHandler)
	producer, err := weir.NewProducer(s, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = producer.Close() }) // has nothing to report
	for range callers {
		p.stops = append(p.stops, again(t, 50*time.Millisecond, func(ctx context.Context) { _ = send(producer, ctx, weir.Message{Data: []byte("job")}) }))
	}
}

// idle ends all publishing. The program goes on.
func (p *program) idle() {
	for _, stop := range p.stops {
		stop()
	}
}

// full is a program with one producer that takes a request a second, and one with many callers
// on a stream that is full.
func (m *monitor) full(window, full string) (stop func()) {
	m.t.Helper()
	p := m.program()
	p.publish(window, weir.ProducerConfig{Guard: weir.GuardStatic, LoadSheddingMaxRequests: 1}, 1, (*weir.Producer).TryPublish)
	p.publish(full, weir.ProducerConfig{Guard: weir.GuardStatic, DisableLoadShedding: true, BackpressureBaseDelay: 20 * time.Millisecond}, 10, (*weir.Producer).Publish)
	return func() {
		p.page.Close()
		p.idle()
	}
}

// unattended is a program that publishes with every guard to streams on which nobody works. Once
// somebody does, it sees that and then has nothing to publish.
func (m *monitor) unattended(r trouble, url func(stream string) string) (attend func(), alerts []string) {
	m.t.Helper()
	p := m.program()
	for stream, c := range map[string]weir.ProducerConfig{
		"default": {}, "static": {Guard: weir.GuardStatic}, "shadow": {Guard: weir.GuardShadow}, "off": {Guard: weir.GuardOff},
		"backlog": {Guard: weir.GuardStatic, LagSignal: weir.SignalBacklog},
	} {
		p.publish(url(stream), c, 1, (*weir.Producer).TryPublish)
		alerts = append(alerts, "WorkersOff "+stream)
	}
	return func() {
		for _, alert := range alerts {
			r.do("SET {" + strings.TrimPrefix(alert, "WorkersOff ") + "}:lag:g 0 PX 60000") // as a worker does
		}
		weirtest.Eventually(m.t, "the publishers see the workers", func() bool {
			resp, err := http.Get(p.page.URL)
			if err != nil {
				m.t.Fatal(err)
			}
			defer resp.Body.Close()
			page, err := io.ReadAll(resp.Body)
			return err == nil && len(regexp.MustCompile(`(?m)^weir_stream_attended\{.*\} 1$`).FindAll(page, -1)) == len(alerts)
		})
		p.idle()
	}, alerts
}

// see waits until each alert has been seen firing.
func (m *monitor) see(want ...string) {
	m.t.Helper()
	began, seen := time.Now(), map[string]bool{}
	defer func() {
		for _, alert := range want {
			if !seen[alert] {
				m.t.Errorf("not seen firing: %s", alert)
			}
		}
	}()
	weirtest.Eventually(m.t, "all alerts fire", func() bool {
		for _, alert := range m.firing() {
			if !seen[alert] {
				seen[alert] = true
				m.t.Logf("%5.1f s fires %s", time.Since(began).Seconds(), alert)
			}
		}
		return !slices.ContainsFunc(want, func(alert string) bool { return !seen[alert] }) || time.Since(began) > 100*time.Second
	})
	rules, err := os.ReadFile(filepath.Join(m.dir, "alerts.yml"))
	if err != nil {
		m.t.Fatal(err)
	}
	for _, rule := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(rules), -1) {
		if !slices.ContainsFunc(want, func(alert string) bool { return strings.HasPrefix(alert, rule[1]+" ") }) {
			m.t.Errorf("nothing makes %s fire", rule[1])
		}
	}
}

// calm waits until no alert fires any more.
func (m *monitor) calm() {
	m.t.Helper()
	began := time.Now()
	var left []string
	weirtest.Eventually(m.t, "all alerts resolve", func() bool {
		now := m.firing()
		for _, alert := range left {
			if !slices.Contains(now, alert) {
				m.t.Logf("%5.1f s resolves %s", time.Since(began).Seconds(), alert)
			}
		}
		left = now
		return len(left) == 0 || time.Since(began) > 3*telemetry.StaleAfter/2
	})
	if len(left) > 0 {
		m.t.Errorf("still firing: %v", left)
	}
}

// pipe is an input of n lines that does not end.
func pipe(t *testing.T, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.WriteString(strings.Repeat("job\n", n)); err != nil { // a pipe holds 64 KiB
		t.Fatal(err)
	}
	return path
}

// Every alert of docs/alerts.yml is seen firing and resolving, on streams that are
// really filled and commands that are really scraped.
func TestEveryAlertFiresOnItsTroubleAndResolves(t *testing.T) {
	weirtest.Binary(t)
	server := redistest.Start(t, redistest.Options{})
	queues := weirtest.Start(t, weirtest.Options{Args: []string{"--disk-reserve=3MiB"}}) // for small files
	r := trouble{t, server.Client()}
	m := newMonitor(t)
	m.serve(queues.Addr, "")
	servers := newServerTrouble(m, queues)
	m.serve(weirtest.Start(t, weirtest.Options{Args: []string{"--replica=file://" + t.TempDir()}}).Addr, "")
	m.serve(weirtest.Start(t, weirtest.Options{Args: []string{"--upstream=" + queues.URL}}).Addr, "")
	slow, away, broken := redistest.NewProxy(t, server.Addr()), redistest.NewProxy(t, server.Addr()), redistest.NewProxy(t, server.Addr())
	via := func(addr, stream string) string { return "redis://" + addr + "/0?stream=" + stream + "&group=g" }
	url := func(stream string) string { return via(server.Addr(), stream) }

	// The guard stops a publisher at 8,000 exactly; one with a higher limit goes on.
	r.do("XGROUP CREATE guarded g 0 MKSTREAM")
	m.watch("publish", url("guarded"), pipe(t, 8100))
	weirtest.Must(t, "publish", "--queue-max-depth=20000", queues.URL+"/unguarded", jobs(t, 10_000))
	cut := m.watch("publish", "--guard=off", "--batch=1", via(broken.Addr(), "cut"), jobs(t, 50_000))

	r.fill("old", 5, 10*time.Minute)
	r.fill("long", 90_000, 0)
	r.fill("holes", 5, 0)
	r.do("XGROUP SETID long g $", "XREADGROUP GROUP g c COUNT 1 NOACK STREAMS holes >",
		"XDEL holes "+r.c.XRange(t.Context(), "holes", "-", "+").Val()[2].ID)
	for _, stream := range []string{"rising", "slow", "away", "lost", "poison"} {
		r.fill(stream, 1, 0)
	}
	slow.Set(redistest.Fault{Latency: 20 * time.Millisecond})
	away.Refuse()
	m.watch("sample", "--every=200ms", url("old"), url("long"), url("holes"), url("rising"), via(slow.Addr(), "slow"), via(away.Addr(), "away"))
	m.watch("work", "--reclaim-after=100ms", "--block=100ms", url("lost"), "--", "true")
	m.watch("work", "--max-deliveries=1", url("poison"), "--", "false")
	attend, unattended := m.unattended(r, url)
	quit := []func(){
		m.full(url("window"), url("guarded")), attend,
		again(t, 20*time.Millisecond, func(ctx context.Context) { r.add(ctx, "rising") }),
		again(t, 300*time.Millisecond, func(ctx context.Context) { r.lose(ctx, "lost"); r.add(ctx, "poison") }),
	}
	weirtest.Eventually(t, "something is sent before the link breaks", func() bool { return r.c.XLen(t.Context(), "cut").Val() > 0 })
	broken.Refuse()
	m.see(append(append(servers.alerts(), unattended...), "DeadLetters poison", "EntriesNearMaxLen long", "HighBackpressureRate guarded", "LagRising rising", "LagUnknown holes",
		"LoadShedding window", "MessagesLost lost", "NearThreshold guarded", "PublishesFail cut", "PublishesRefused guarded", "QueueApproachingCapacity unguarded",
		"QueueAtCapacity unguarded", "QueueFilling guarded", "QueueFull guarded", "SlowRoundTrip slow", "StreamUnreachable away",
		"WaitOverObjective old", "WorkersBehind old", "WorkersOff guarded")...)
	servers.doctor()
	m.answersEveryPanel()
	m.hasEveryMetricOfThePage()

	servers.end()
	for _, stop := range quit {
		stop()
	}
	cut.Signal(syscall.SIGTERM)
	m.watch("work", url("guarded"), "--", "true")
	weirtest.Eventually(t, "it says that it works", func() bool { return r.c.Exists(t.Context(), "{guarded}:lag:g").Val() == 1 })
	for _, stream := range []string{"old", "long", "holes", "rising", "guarded", "slow", "away"} {
		r.do("XGROUP SETID "+stream+" g $", "XTRIM "+stream+" MAXLEN 0")
	}
	slow.Heal()
	away.Heal()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, queues.URL+"/v0/topics/unguarded", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(req); err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	m.calm()
}

// jobs is an input of n lines.
func jobs(t *testing.T, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(path, []byte(strings.Repeat("job\n", n)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
