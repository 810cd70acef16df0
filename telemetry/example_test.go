package telemetry_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/open"
	"github.com/weirmq/weir/telemetry"
)

// The metrics live in a registry of the program, next to its own.
func ExampleNewPrometheus() {
	registry := prometheus.NewRegistry()
	metrics, err := telemetry.NewPrometheus(registry)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	stream, err := open.URL(ctx, "mem://orders")
	if err != nil {
		panic(err)
	}
	defer stream.Close()
	producer, err := weir.NewProducer(stream, weir.ProducerConfig{Hooks: metrics.Hooks()})
	if err != nil {
		panic(err)
	}
	defer producer.Close()
	if err := producer.Publish(ctx, weir.Message{Data: []byte("order 1")}); err != nil {
		panic(err)
	}

	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "sse_queue_produce_success_total") {
			fmt.Print(line)
		}
	}
	// Output:
	// sse_queue_produce_success_total{queue_type="embedded",stream="orders"} 1
}
