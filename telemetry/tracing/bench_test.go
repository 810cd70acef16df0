package tracing_test

import (
	"context"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/telemetry/tracing"
)

// sink stores nothing.
type sink struct{ backend.Backend }

func (sink) Info() backend.Info {
	return backend.Info{Kind: "redis", Stream: "orders", Group: "billing"}
}

func (sink) Append(context.Context, []backend.Message) ([]backend.Appended, error) { return nil, nil }

func (sink) Stats(context.Context) (backend.Stats, error) {
	return backend.Stats{Lag: new(int64)}, nil
}

// drop records spans and forgets them.
type drop struct{}

func (drop) OnStart(context.Context, sdk.ReadWriteSpan) {}
func (drop) OnEnd(sdk.ReadOnlySpan)                     {}
func (drop) Shutdown(context.Context) error             { return nil }
func (drop) ForceFlush(context.Context) error           { return nil }

// BenchmarkPublish is what a trace adds to a publish.
func BenchmarkPublish(b *testing.B) {
	tracers := map[string]weir.Tracing{
		"off":       {},
		"noop":      tracing.New(noop.NewTracerProvider()),
		"unsampled": tracing.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(drop{}), sdk.WithSampler(sdk.NeverSample()))),
		"sampled":   tracing.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(drop{}))),
	}
	for _, name := range []string{"off", "noop", "unsampled", "sampled"} {
		b.Run(name, func(b *testing.B) {
			p, err := weir.NewProducer(weir.New(sink{}), weir.ProducerConfig{Guard: weir.GuardOff, Tracing: tracers[name], Logger: quiet()})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			m := weir.Message{Data: []byte("payload"), Headers: map[string]string{"kind": "order"}}
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Publish(b.Context(), m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
