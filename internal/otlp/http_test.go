package otlp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// A span says by which scheme its request came.
func TestASpanHasTheSchemeOfItsRequest(t *testing.T) {
	for scheme, start := range map[string]func(http.Handler) *httptest.Server{"http": httptest.NewServer, "https": httptest.NewTLSServer} {
		spans := tracetest.NewSpanRecorder()
		e := &Exporter{traces: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))}
		s := start(e.Requests()(http.NotFoundHandler(), func(*http.Request) string { return "" }))
		resp, err := s.Client().Post(s.URL, "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		s.Close()
		for _, a := range spans.Ended()[0].Attributes() {
			if a.Key == semconv.URLSchemeKey && a.Value.AsString() != scheme {
				t.Errorf("a request to %s has the scheme %s", s.URL, a.Value.AsString())
			}
		}
	}
}

// A span is one of its client's trace, which its handler goes on with, and says what the request came to.
func TestASpanSaysWhatItsRequestCameTo(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, c := range []struct {
		method, path, route string
		status              int // 0: the handler sets none
		failed              bool
	}{
		{"POST", "/v0/topics/a", "/v0/topics/{topic}", 0, false},
		{"PUT", "/\xff", "", 404, false},
		{"DELETE", "/v0/topics/a", "/v0/topics/{topic}", 499, false},
		{"POST", "/v0/topics/a", "/v0/topics/{topic}", 500, true},
		{"POST", "/v0/topics/a", "/v0/topics/{topic}", 503, true},
		{"GET", "/", "/", 200, false},
		{"HEAD", "/", "/", 200, false},
	} {
		spans := tracetest.NewSpanRecorder()
		e := &Exporter{traces: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))}
		var within trace.SpanContext
		h := e.Requests()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			within = trace.SpanContextFromContext(r.Context())
			if c.status != 0 {
				w.WriteHeader(c.status)
			}
		}), func(*http.Request) string { return c.route })
		req := httptest.NewRequest(c.method, "/", nil)
		req.URL.Path = c.path
		req.Header.Set("Traceparent", parent)
		h.ServeHTTP(httptest.NewRecorder(), req)
		ended := spans.Ended()
		if c.method == "GET" || c.method == "HEAD" {
			if len(ended) > 0 {
				t.Errorf("%s has a span", c.method)
			}
			continue
		}
		if len(ended) != 1 {
			t.Fatalf("%s %s has %d spans", c.method, c.path, len(ended))
		}
		span := ended[0]
		if p := span.Parent(); span.SpanContext().TraceID() != p.TraceID() || "00-"+p.TraceID().String()+"-"+p.SpanID().String()+"-01" != parent || !within.Equal(span.SpanContext()) {
			t.Errorf("%s %s is of %v, and its handler in %v", c.method, c.path, p, within)
		}
		if want := strings.TrimSpace(c.method + " " + c.route); span.Name() != want {
			t.Errorf("the span's name is %q, want %q", span.Name(), want)
		}
		if failed := span.Status().Code == codes.Error; failed != c.failed {
			t.Errorf("%d is an error: %v", c.status, failed)
		}
		for _, a := range span.Attributes() {
			if !utf8.ValidString(a.Value.String()) {
				t.Errorf("%s is not UTF-8", a.Key)
			}
			if want := int64(max(c.status, 200)); a.Key == semconv.HTTPResponseStatusCodeKey && a.Value.AsInt64() != want {
				t.Errorf("the status is %d, want %d", a.Value.AsInt64(), want)
			}
		}
	}
}
