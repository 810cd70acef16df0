package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/internal/otlp"
	"github.com/weirmq/weir/telemetry"
)

// metricsPage serves the metrics of a command, sends its traces, metrics and logs over
// OTLP, or both.
type metricsPage struct {
	*telemetry.Prometheus
	sent   *otlp.Exporter // nil: nothing is sent
	server *http.Server   // nil: no page
	served chan struct{}  // closed when the server has stopped
}

// How long a scrape may take.
const (
	scrapeHeader  = 5 * time.Second
	scrapeTimeout = 30 * time.Second
)

// measure serves the metrics of a command at addr until close, and sends what the
// environment asks for. It returns nil, which has no hooks, if nobody wants anything.
func measure(ctx context.Context, command, addr string, out io.Writer, log *slog.Logger) (*metricsPage, error) {
	registry := prometheus.NewRegistry()
	sent, err := send(ctx, command, registry, log)
	if err != nil || sent == nil && addr == "" {
		return nil, err
	}
	p := &metricsPage{sent: sent}
	if addr != "" || sent.Metrics() {
		p.Prometheus, err = telemetry.NewPrometheus(registry)
	}
	if err == nil && addr != "" {
		err = p.serve(addr, registry, out)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// send begins to send what the environment asks for.
func send(ctx context.Context, command string, metrics prometheus.Gatherer, log *slog.Logger) (*otlp.Exporter, error) {
	sent, err := otlp.New(ctx, otlp.Options{Service: "weir-" + command, Version: version(), Metrics: metrics, Logger: log})
	if err != nil {
		return nil, &usageError{err}
	}
	return sent, nil
}

// serve serves the metrics at addr.
func (p *metricsPage) serve(addr string, registry *prometheus.Registry, out io.Writer) error {
	l, err := listenMetrics(addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	p.server = &http.Server{Handler: mux, ReadHeaderTimeout: scrapeHeader, ReadTimeout: scrapeHeader, WriteTimeout: scrapeTimeout}
	p.served = make(chan struct{})
	fmt.Fprintf(out, "weir: metrics at http://%s/metrics\n", l.Addr())
	go func() {
		defer close(p.served)
		_ = p.server.Serve(l) // ended by close
	}()
	return nil
}

// listenMetrics listens at host:port, :port or port.
func listenMetrics(addr string) (net.Listener, error) {
	if !strings.Contains(addr, ":") {
		addr = ":" + addr
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("metrics (--metrics, WEIR_METRICS): %w", err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, notListening(fmt.Errorf("metrics (--metrics, WEIR_METRICS): %w", err), "port")
	}
	return l, nil
}

// hooks returns the hooks that count.
func (p *metricsPage) hooks() weir.Hooks {
	if p == nil || p.Prometheus == nil {
		return weir.Hooks{}
	}
	return p.Hooks()
}

// tracing returns the hooks that make traces.
func (p *metricsPage) tracing() weir.Tracing {
	if p == nil {
		return weir.Tracing{}
	}
	return p.sent.Tracing()
}

// logger returns a logger that also sends what log writes.
func (p *metricsPage) logger(log *slog.Logger) *slog.Logger {
	if p == nil {
		return log
	}
	return p.sent.Log(log, slog.LevelInfo)
}

// close ends the page, and sends what is left.
func (p *metricsPage) close() {
	if p == nil {
		return
	}
	defer p.sent.Close()
	if p.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if p.server.Shutdown(ctx) != nil {
		_ = p.server.Close()
	}
	<-p.served
}
