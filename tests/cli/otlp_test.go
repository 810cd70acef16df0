package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	logspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	spanpb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/open"
	"github.com/weirmq/weir/tests/tracetest"
	"github.com/weirmq/weir/tests/weirtest"
)

// collector takes what is sent over OTLP.
type collector struct {
	*httptest.Server
	mu      sync.Mutex
	spans   map[string][]*spanpb.Span // by service
	metrics map[string]map[string]bool
	lines   map[string][]string
	keys    map[string]bool // values of the header api-key
	strange []string
}

func newCollector(t *testing.T) *collector {
	c := &collector{spans: map[string][]*spanpb.Span{}, metrics: map[string]map[string]bool{}, lines: map[string][]string{}, keys: map[string]bool{}}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

// env are the variables by which a command sends to the collector.
func (c *collector) env(more ...string) []string {
	return append([]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_EXPORTER_OTLP_HEADERS=api-key=k1", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test",
	}, more...)
}

func (c *collector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys[r.Header.Get("api-key")] = true
	switch r.URL.Path {
	case "/v1/traces":
		var got tracepb.ExportTraceServiceRequest
		err = cmp.Or(err, proto.Unmarshal(body, &got))
		for _, of := range got.ResourceSpans {
			for _, scope := range of.ScopeSpans {
				c.spans[c.service(of.Resource)] = append(c.spans[c.service(of.Resource)], scope.Spans...)
			}
		}
	case "/v1/metrics":
		var got metricspb.ExportMetricsServiceRequest
		err = cmp.Or(err, proto.Unmarshal(body, &got))
		for _, of := range got.ResourceMetrics {
			names := c.metrics[c.service(of.Resource)]
			if names == nil {
				names = map[string]bool{}
				c.metrics[c.service(of.Resource)] = names
			}
			for _, scope := range of.ScopeMetrics {
				for _, m := range scope.Metrics {
					names[m.Name] = true
				}
			}
		}
	case "/v1/logs":
		var got logspb.ExportLogsServiceRequest
		err = cmp.Or(err, proto.Unmarshal(body, &got))
		for _, of := range got.ResourceLogs {
			for _, scope := range of.ScopeLogs {
				for _, line := range scope.LogRecords {
					c.lines[c.service(of.Resource)] = append(c.lines[c.service(of.Resource)], line.Body.GetStringValue())
				}
			}
		}
	default:
		err = fmt.Errorf("nothing is at %s", r.URL.Path)
	}
	if err != nil {
		c.strange = append(c.strange, err.Error())
	}
}

// service is the name of the service that a resource describes.
func (c *collector) service(r *resourcepb.Resource) string {
	about := texts(r.Attributes)
	if about["deployment.environment.name"] != "test" || about["service.version"] == "" {
		c.strange = append(c.strange, fmt.Sprint(about))
	}
	return about["service.name"]
}

func texts(all []*commonpb.KeyValue) map[string]string {
	of := map[string]string{}
	for _, a := range all {
		of[a.Key] = a.Value.GetStringValue()
	}
	return of
}

// named returns the spans of a service with a name.
func (c *collector) named(service, name string) (found []*spanpb.Span) {
	for _, span := range c.spans[service] {
		if span.Name == name {
			found = append(found, span)
		}
	}
	return found
}

// The commands send traces, metrics and logs to a collector that the usual variables
// name; the trace of a line goes through all of them, and into the command that handles it.
func TestTheCommandsSendOverOTLP(t *testing.T) {
	t.Parallel()
	weirtest.Binary(t)
	c := newCollector(t)
	srv := weirtest.Start(t, weirtest.Options{Env: c.env()})
	record := filepath.Join(t.TempDir(), "record")
	lines := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(lines, []byte("good\nbad\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	url := srv.URL + "/orders"
	run := func(args ...string) {
		t.Helper()
		if _, stderr, code := weirtest.Run(t, c.env("RECORD="+record), args...); code != 0 && (args[0] != "work" || code != 3) {
			t.Fatalf("weir %s: %s", strings.Join(args, " "), stderr)
		}
	}
	run("publish", url, lines)
	run("work", url, "--workers", "1", "--until-empty", "300ms", "--max-deliveries", "1", "--", "sh", "-c", `read line; echo "$TRACEPARENT $line" >> "$RECORD"; test "$line" = good`)
	run("dlq", "redrive", "--delay", "0", url)
	t.Run("the library", func(t *testing.T) { // over HTTP, beside it
		tracetest.Run(t, func() *weir.Stream {
			s, err := open.URL(t.Context(), srv.URL+"/payments")
			if err != nil {
				t.Fatal(err)
			}
			return s
		})
	})
	srv.Stop()

	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.strange) > 0 || len(c.keys) != 1 || !c.keys["k1"] {
		t.Errorf("the collector got %q with the keys %v", c.strange, c.keys)
	}
	creates, attempts := c.named("weir-publish", "create orders"), c.named("weir-work", "process orders")
	if len(creates) != 2 || len(attempts) != 2 || len(c.named("weir-publish", "send orders")) != 1 || len(c.named("weir-work", "ack orders")) != 1 ||
		len(c.named("weir-work", "dead_letter orders")) != 1 || len(c.named("weir-dlq", "redrive orders")) != 1 {
		t.Fatalf("the spans are %v", c.titles())
	}
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	for i, attempt := range attempts {
		if string(attempt.ParentSpanId) != string(creates[i].SpanId) || string(attempt.TraceId) != string(creates[i].TraceId) {
			t.Errorf("attempt %d is of %x in %x, want of %x in %x", i, attempt.ParentSpanId, attempt.TraceId, creates[i].SpanId, creates[i].TraceId)
		}
		if want := fmt.Sprintf("00-%x-%x-01 ", attempt.TraceId, attempt.SpanId); !strings.Contains(string(text), want) {
			t.Errorf("the command of attempt %d has not got TRACEPARENT=%s: %s", i, want, text)
		}
	}
	if again := c.named("weir-dlq", "redrive orders")[0]; string(again.TraceId) != string(creates[1].TraceId) {
		t.Errorf("the redrive is in the trace %x, want %x", again.TraceId, creates[1].TraceId)
	}
	for service, name := range map[string]string{"weir-serve": "weir_records_live", "weir-publish": "sse_queue_produce_success_total", "weir-work": "weir_stream_messages_total"} {
		if !c.metrics[service][name] {
			t.Errorf("%s has sent no %s but %v", service, name, c.metrics[service])
		}
	}
	if !slices.Contains(c.lines["weir-serve"], "ready") || !slices.Contains(c.lines["weir-work"], "weir: message moved to the dead letters") {
		t.Errorf("the lines are %v", c.lines)
	}
	requests := c.named("weir-serve", "POST /v0/topics/:topic/ack")
	if len(requests) == 0 || requests[0].Kind != spanpb.Span_SPAN_KIND_SERVER {
		t.Errorf("the server's spans are %v", c.titles())
	}
}

func (c *collector) titles() map[string]int {
	count := map[string]int{}
	for service, spans := range c.spans {
		for _, span := range spans {
			count[service+": "+span.Name]++
		}
	}
	return count
}

// A request says where it comes from, and its span belongs there.
func TestARequestBelongsToTheTraceOfItsClient(t *testing.T) {
	t.Parallel()
	weirtest.Binary(t)
	c := newCollector(t)
	srv := weirtest.Start(t, weirtest.Options{Env: c.env("OTEL_METRICS_EXPORTER=none", "OTEL_LOGS_EXPORTER=none")})
	post := func(path, body string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if code := post("/v0/topics/orders", `{"create":true,"records":[{"data":1}]}`); code >= 300 {
		t.Fatalf("the write was answered %d", code)
	}
	post("/v0/elsewhere", `{}`)
	srv.Signal(syscall.SIGTERM)
	<-srv.Exited()
	c.mu.Lock()
	defer c.mu.Unlock()
	write, other := c.named("weir-serve", "POST /v0/topics/:topic"), c.named("weir-serve", "POST")
	if len(write) != 1 || len(other) != 1 || fmt.Sprintf("%x", write[0].ParentSpanId) != "b7ad6b7169203331" || texts(write[0].Attributes)["http.route"] != "/v0/topics/:topic" {
		t.Errorf("the spans are %v: %v", c.titles(), write)
	}
	if len(c.metrics)+len(c.lines) > 0 {
		t.Errorf("what was not wanted was sent: %v %v", c.metrics, c.lines)
	}
}

// A path with bytes that are not UTF-8, which anybody can send, takes nothing else along.
func TestARequestThatIsNotUTF8LosesNoTelemetry(t *testing.T) {
	t.Parallel()
	weirtest.Binary(t)
	c := newCollector(t)
	srv := weirtest.Start(t, weirtest.Options{Env: c.env("OTEL_METRICS_EXPORTER=none", "WEIR_API_KEYS=secret")})
	resp, err := http.Post(srv.URL+"/v0/a%ffb", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Fatalf("it was answered %d", resp.StatusCode)
	}
	srv.Signal(syscall.SIGTERM)
	<-srv.Exited()
	c.mu.Lock()
	defer c.mu.Unlock()
	if spans := c.named("weir-serve", "POST"); len(spans) != 1 || texts(spans[0].Attributes)["url.path"] != "/v0/a\uFFFDb" {
		t.Errorf("the spans are %v", spans)
	}
	if lines := c.lines["weir-serve"]; !slices.Contains(lines, "ready") || !slices.Contains(lines, "a login was refused") {
		t.Errorf("the lines are %q", lines)
	}
}

// What cannot be done is said before anything is done, and what cannot be sent stops nobody.
func TestACollectorThatIsNotThereStopsNobody(t *testing.T) {
	t.Parallel()
	weirtest.Binary(t)
	srv := weirtest.Start(t, weirtest.Options{})
	lines := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(lines, []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, refused := range []string{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_TRACES_EXPORTER=zipkin",
		"OTEL_EXPORTER_OTLP_ENDPOINT=:::bad", "OTEL_EXPORTER_OTLP_ENDPOINT=foo", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:99999", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT=ftp://127.0.0.1:1",
		"OTEL_EXPORTER_OTLP_TIMEOUT=abc", "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT=10s", "OTEL_EXPORTER_OTLP_COMPRESSION=zip",
		"OTEL_EXPORTER_OTLP_HEADERS=api-key", "OTEL_EXPORTER_OTLP_CERTIFICATE=/nowhere", "OTEL_EXPORTER_OTLP_CLIENT_KEY=/nowhere",
		"OTEL_TRACES_SAMPLER=foo", "OTEL_BSP_MAX_QUEUE_SIZE=many", "OTEL_BSP_SCHEDULE_DELAY=0", "OTEL_BLRP_SCHEDULE_DELAY=-1", "OTEL_BSP_MAX_QUEUE_SIZE=9223372036854775807", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=1000001", "OTEL_METRIC_EXPORT_TIMEOUT=0", "OTEL_METRIC_EXPORT_INTERVAL=9223372036855",
		"OTEL_METRIC_EXPORT_INTERVAL=1m", "OTEL_RESOURCE_ATTRIBUTES=foo"} {
		_, stderr, code := weirtest.Run(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", refused}, "publish", srv.URL+"/orders", lines)
		name, _, _ := strings.Cut(refused, "=")
		if code != 2 || !strings.Contains(stderr, "environment variable "+name) {
			t.Errorf("%s: exit code %d, %s", refused, code, stderr)
		}
	}
	_, stderr, code := weirtest.Run(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TIMEOUT=500"}, "publish", srv.URL+"/orders", lines)
	if code != 0 || strings.Count(stderr, "telemetry could not be sent") != 1 || !strings.Contains(stderr, "127.0.0.1:1") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if _, stderr, code := weirtest.Run(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=ftp://127.0.0.1:1"}, "serve", "--port=0", "--data-dir="+t.TempDir()); code != 2 || strings.Count(stderr, "\n") != 1 {
		t.Errorf("serve: exit code %d, %s", code, stderr)
	}
	if _, stderr, code := weirtest.Run(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_SDK_DISABLED=true"}, "publish", srv.URL+"/orders", lines); code != 0 || strings.Contains(stderr, "telemetry") {
		t.Errorf("disabled: exit code %d, %s", code, stderr)
	}
}

// Each of the three has the time that a command takes for its end: one that nobody takes does
// not keep the others.
func TestTracesThatNobodyTakesKeepNoMetrics(t *testing.T) {
	t.Parallel()
	weirtest.Binary(t)
	srv := weirtest.Start(t, weirtest.Options{})
	c, stuck := newCollector(t), make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-stuck
	}))
	defer hangs.Close()
	defer close(stuck)
	lines := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(lines, []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := weirtest.Run(t, c.env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+hangs.URL+"/v1/traces"), "publish", srv.URL+"/orders", lines)
	c.mu.Lock()
	defer c.mu.Unlock()
	if code != 0 || !c.metrics["weir-publish"]["sse_queue_produce_success_total"] {
		t.Errorf("exit code %d, metrics %v, %s", code, c.metrics, stderr)
	}
}
