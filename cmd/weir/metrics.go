package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/telemetry"
)

// metricsPage serves the metrics of a command.
type metricsPage struct {
	*telemetry.Prometheus
	server *http.Server
	served chan struct{} // closed when the server has stopped
}

// How long a scrape may take.
const (
	scrapeHeader  = 5 * time.Second
	scrapeTimeout = 30 * time.Second
)

// serveMetrics serves at addr until close. Without addr it returns nil, which has
// no hooks.
func serveMetrics(addr string, log io.Writer) (*metricsPage, error) {
	if addr == "" {
		return nil, nil
	}
	l, err := listenMetrics(addr)
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	counts, err := telemetry.NewPrometheus(registry)
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	p := &metricsPage{
		Prometheus: counts,
		server:     &http.Server{Handler: mux, ReadHeaderTimeout: scrapeHeader, ReadTimeout: scrapeHeader, WriteTimeout: scrapeTimeout},
		served:     make(chan struct{}),
	}
	fmt.Fprintf(log, "weir: metrics at http://%s/metrics\n", l.Addr())
	go func() {
		defer close(p.served)
		_ = p.server.Serve(l) // ended by close
	}()
	return p, nil
}

// listenMetrics listens at host:port, :port or port.
func listenMetrics(addr string) (net.Listener, error) {
	if !strings.Contains(addr, ":") {
		addr = ":" + addr
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "" {
		return nil, &usageError{fmt.Errorf("flag --metrics: %q is not host:port, :port or port", addr)}
	}
	if host == "" {
		host = "127.0.0.1"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("--metrics: %s:%s is in use by another program; choose another port", host, port)
	case err != nil:
		return nil, fmt.Errorf("--metrics: %w", err)
	}
	return l, nil
}

// hooks returns the hooks that count.
func (p *metricsPage) hooks() weir.Hooks {
	if p == nil {
		return weir.Hooks{}
	}
	return p.Hooks()
}

// close ends the page.
func (p *metricsPage) close() {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if p.server.Shutdown(ctx) != nil {
		_ = p.server.Close()
	}
	<-p.served
}
