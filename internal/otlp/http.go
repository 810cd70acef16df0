package otlp

import (
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Requests returns what makes a span of each request but GET and HEAD, which are
// streams, probes and pages. route returns the pattern of a request's path. It returns
// nil if no traces are sent.
func (e *Exporter) Requests() func(next http.Handler, route func(*http.Request) string) http.Handler {
	if e == nil || e.traces == nil {
		return nil
	}
	tracer := e.traces.Tracer("github.com/weirmq/weir/server", trace.WithSchemaURL(semconv.SchemaURL))
	return func(next http.Handler, route func(*http.Request) string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet || r.Method == http.MethodHead {
				next.ServeHTTP(w, r)
				return
			}
			traced(tracer, next, route(r), w, r)
		})
	}
}

// traced answers a request within a span.
func traced(tracer trace.Tracer, next http.Handler, route string, w http.ResponseWriter, r *http.Request) {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	name, attributes := r.Method, []attribute.KeyValue{semconv.HTTPRequestMethodKey.String(r.Method), semconv.URLPath(validText(r.URL.Path)), semconv.URLScheme(scheme)}
	if route != "" {
		name += " " + route
		attributes = append(attributes, semconv.HTTPRoute(route))
	}
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
	defer span.End()
	answer := &answer{ResponseWriter: w, status: http.StatusOK}
	next.ServeHTTP(answer, r.WithContext(ctx))
	span.SetAttributes(semconv.HTTPResponseStatusCode(answer.status))
	if answer.status >= http.StatusInternalServerError {
		span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(answer.status)))
		span.SetStatus(codes.Error, "")
	}
}

// answer remembers the status of an answer.
type answer struct {
	http.ResponseWriter
	status int
}

// WriteHeader sends the status.
func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
