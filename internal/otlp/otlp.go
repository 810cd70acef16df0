// Package otlp sends traces, metrics and logs of a command to where the variables of
// OpenTelemetry say, over OTLP. Without them it does nothing.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	client "github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/telemetry/tracing"
)

const (
	// lastSend is how long the end of a command waits for what is not sent yet.
	lastSend = 5 * time.Second
	// troubleEvery is how often it is logged that nothing can be sent.
	troubleEvery = time.Minute
)

// signal is one of the three kinds of telemetry.
type signal string

const (
	traces  signal = "TRACES"
	metrics signal = "METRICS"
	logs    signal = "LOGS"
)

// wanted reports whether the environment names where to send a signal.
func wanted(s signal) (bool, error) {
	if on(os.Getenv("OTEL_SDK_DISABLED")) || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")+os.Getenv("OTEL_EXPORTER_OTLP_"+string(s)+"_ENDPOINT") == "" {
		return false, nil
	}
	switch name := "OTEL_" + string(s) + "_EXPORTER"; os.Getenv(name) {
	case "", "otlp":
	case "none":
		return false, nil
	default:
		return false, fmt.Errorf("environment variable %s: %q is unknown; known: otlp, none", name, os.Getenv(name))
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_" + string(s) + "_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		switch protocol := os.Getenv(name); protocol {
		case "":
		case "http/protobuf":
			return true, check(s)
		default:
			return false, fmt.Errorf("environment variable %s: weir does not speak %q: use http/protobuf, for which collectors listen on port 4318", name, protocol)
		}
	}
	return true, check(s)
}

func on(value string) bool { return strings.EqualFold(value, "true") }

// Exporter sends telemetry. A nil one sends nothing.
type Exporter struct {
	traces  *sdktrace.TracerProvider // nil: not wanted
	metrics *metric.MeterProvider
	logs    *sdklog.LoggerProvider
}

// Options say what is sent.
type Options struct {
	Service string // the name of the command's service, unless OTEL_SERVICE_NAME has another
	Version string
	Metrics client.Gatherer // nil: none
	Logger  *slog.Logger    // learns that sending fails
}

// New begins to send what the environment asks for. It returns nil if that is nothing.
// An error names the variable.
func New(ctx context.Context, o Options) (*Exporter, error) {
	var want [3]bool
	for i, s := range []signal{traces, metrics, logs} {
		var err error
		if want[i], err = wanted(s); err != nil {
			return nil, err
		}
	}
	want[1] = want[1] && o.Metrics != nil
	if want == [3]bool{} {
		return nil, nil
	}
	about, err := resource.New(ctx, resource.WithSchemaURL(semconv.SchemaURL), resource.WithHost(), resource.WithProcessPID(),
		resource.WithAttributes(semconv.ServiceName(o.Service), semconv.ServiceVersion(o.Version)), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("environment variable OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	quietly(o.Logger)
	e := &Exporter{}
	if err := e.start(ctx, want, about, o); err != nil {
		e.Close()
		return nil, fmt.Errorf("OTLP: %w", err)
	}
	return e, nil
}

// start makes the exporters; none of them connects before it has something to send.
func (e *Exporter) start(ctx context.Context, want [3]bool, about *resource.Resource, o Options) error {
	if want[0] {
		to, err := otlptracehttp.New(ctx)
		if err != nil {
			return err
		}
		e.traces = sdktrace.NewTracerProvider(sdktrace.WithBatcher(to), sdktrace.WithResource(about))
	}
	if want[1] {
		to, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return err
		}
		from := prometheus.NewMetricProducer(prometheus.WithGatherer(o.Metrics))
		e.metrics = metric.NewMeterProvider(metric.WithReader(metric.NewPeriodicReader(to, metric.WithProducer(from))), metric.WithResource(about))
	}
	if want[2] {
		to, err := otlploghttp.New(ctx)
		if err != nil {
			return err
		}
		e.logs = sdklog.NewLoggerProvider(sdklog.WithProcessor(validLines{}), sdklog.WithProcessor(sdklog.NewBatchProcessor(to)), sdklog.WithResource(about))
	}
	return nil
}

// quietly makes failures to send a line of the log, once in a while, and lines of the
// log of what the SDK has to say itself.
func quietly(log *slog.Logger) {
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	lines := make(chan struct{}, 1)
	lines <- struct{}{}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		select {
		case <-lines:
			log.Warn("weir: telemetry could not be sent", "error", err)
			time.AfterFunc(troubleEvery, func() { lines <- struct{}{} })
		default:
		}
	}))
}

// Metrics reports whether metrics are sent.
func (e *Exporter) Metrics() bool { return e != nil && e.metrics != nil }

// Tracing returns the hooks for producers, pools and redrives.
func (e *Exporter) Tracing() weir.Tracing {
	if e == nil || e.traces == nil {
		return weir.Tracing{}
	}
	return tracing.New(e.traces)
}

// Log returns a logger that also sends what log writes at this level and above.
func (e *Exporter) Log(log *slog.Logger, level slog.Leveler) *slog.Logger {
	if e == nil || e.logs == nil {
		return log
	}
	sent := otelslog.NewHandler("github.com/weirmq/weir", otelslog.WithLoggerProvider(e.logs))
	return slog.New(slog.NewMultiHandler(log.Handler(), atLeast{sent, level}))
}

// atLeast is a handler for a level and those above.
type atLeast struct {
	slog.Handler
	level slog.Leveler
}

func (h atLeast) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

func (h atLeast) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atLeast{h.Handler.WithAttrs(attrs), h.level}
}

func (h atLeast) WithGroup(name string) slog.Handler {
	return atLeast{h.Handler.WithGroup(name), h.level}
}

// Close sends what is left, for some seconds.
func (e *Exporter) Close() {
	if e == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastSend)
	defer cancel()
	// At once: what nobody takes must not use up the time of the others.
	var (
		sending sync.WaitGroup
		errs    [3]error
	)
	if e.traces != nil {
		sending.Go(func() { errs[0] = e.traces.Shutdown(ctx) })
	}
	if e.metrics != nil {
		sending.Go(func() { errs[1] = e.metrics.Shutdown(ctx) })
	}
	if e.logs != nil {
		sending.Go(func() { errs[2] = e.logs.Shutdown(ctx) })
	}
	sending.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		otel.Handle(err)
	}
}

// Environ returns the variables by which a program that a handler starts continues its
// trace.
func Environ(ctx context.Context) (env []string) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	for name, value := range carrier {
		env = append(env, strings.ToUpper(name)+"="+value)
	}
	return env
}
