package otlp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
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
