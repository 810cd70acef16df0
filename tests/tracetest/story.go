// Package tracetest tells the story of one message on any backend, and checks that its
// trace tells the same.
package tracetest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/telemetry/tracing"
)

const (
	reclaimAfter = 500 * time.Millisecond // how long a worker of the story may be silent
	retryIn      = 400 * time.Millisecond // longer than a pool that stops goes on claiming
)

// story is one message and what is traced of it.
type story struct {
	testing.TB
	open   func() *weir.Stream
	stream *weir.Stream
	spans  *tracetest.SpanRecorder
	tracer trace.Tracer
	traces weir.Tracing
}

// Run publishes a message to a full queue, which refuses it, and again; lets a handler
// fail, a worker die with it, and a handler fail for the last time; sends the dead letter
// back and handles it. open opens a stream that nobody else uses, each time anew.
func Run(t testing.TB, open func() *weir.Stream) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))
	s := &story{TB: t, open: open, stream: open(), spans: recorder, tracer: provider.Tracer("story"), traces: tracing.New(provider)}
	defer s.stream.Close()
	ctx, order := s.tracer.Start(t.Context(), "order")
	s.publish(ctx)
	order.End()
	s.work(weir.Retried, func(context.Context, *weir.Delivery) error {
		return weir.RetryIn(retryIn, errors.New("the bank is closed"))
	})
	s.die()
	s.work(weir.Dead, func(context.Context, *weir.Delivery) error { return weir.Poison(errors.New("no such account")) })
	ctx, repair := s.tracer.Start(t.Context(), "repair")
	s.redrive(ctx)
	repair.End()
	s.work(weir.Acked, func(ctx context.Context, _ *weir.Delivery) error {
		_, charge := s.tracer.Start(ctx, "charge")
		charge.End()
		return nil
	})
	s.check(order.SpanContext(), repair.SpanContext())
}

func (s *story) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// publish is refused while another message fills the queue, and then is not.
func (s *story) publish(ctx context.Context) {
	s.Helper()
	filler, err := weir.NewProducer(s.stream, weir.ProducerConfig{Guard: weir.GuardOff, Logger: quiet()})
	s.must(err)
	defer filler.Close()
	s.must(filler.Publish(s.Context(), weir.Message{Data: []byte("filler")}))
	p, err := weir.NewProducer(s.stream, weir.ProducerConfig{
		Guard: weir.GuardStatic, LagWarn: -1, LagPause: -1, LagCache: -1, MaxDepth: 1, BackpressureRetries: 1, BackpressureBaseDelay: 10 * time.Millisecond,
		Tracing: s.traces, Logger: quiet(),
	})
	s.must(err)
	defer p.Close()
	m := weir.Message{Data: []byte("42"), Headers: map[string]string{"kind": "payment"}}
	var full *weir.QueueFullError
	if err := p.Publish(ctx, m); !errors.As(err, &full) {
		s.Fatalf("published to a full queue: %v", err)
	}
	s.settleFiller()
	s.must(p.Publish(ctx, m))
	if len(m.Headers) != 1 {
		s.Errorf("the caller's headers became %q", m.Headers)
	}
}

// settleFiller does the work of a worker that is not traced.
func (s *story) settleFiller() {
	s.Helper()
	other := s.open() // what has claimed once goes on holding a part of a Kafka topic
	defer other.Close()
	lease := s.claim(other.Backend(), "other").Lease
	_, err := other.Backend().Ack(s.Context(), []backend.Lease{lease})
	s.must(err)
	for {
		p, err := s.stream.Pressure(s.Context())
		s.must(err)
		if left, known := p.Backlog(); known && left == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// claim waits for one message.
func (s *story) claim(b backend.Backend, consumer string) *backend.Delivery {
	s.Helper()
	for s.Context().Err() == nil {
		got, err := b.Claim(s.Context(), backend.ClaimRequest{Consumer: consumer, Max: 1, Block: time.Second, ReclaimAfter: reclaimAfter, MaxDeliveries: 5})
		s.must(err)
		if len(got.Deliveries) > 0 {
			return got.Deliveries[0]
		}
	}
	s.Fatal("no message to claim")
	return nil
}

// die claims the message and is not heard of again.
func (s *story) die() {
	s.Helper()
	gone := s.open()
	defer gone.Close()
	d := s.claim(gone.Backend(), "gone")
	if d.Headers[backend.HeaderTrace] == "" || d.Headers["kind"] != "payment" {
		s.Errorf("the second delivery has the headers %q", d.Headers)
	}
}

// work runs a pool of its own until a delivery has ended with the outcome.
func (s *story) work(until weir.Outcome, h weir.Handler) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 30*time.Second)
	defer cancel()
	reached := false
	settled := func(_ weir.StreamName, o weir.Outcome, _ int) {
		if o == until {
			reached = true
			cancel()
		}
	}
	stream := s.open()
	defer stream.Close()
	pool, err := weir.NewPool(stream, h, weir.PoolConfig{
		Workers: 1, MaxDeliveries: 5, Block: 100 * time.Millisecond, ReclaimAfter: reclaimAfter,
		Tracing: s.traces, Hooks: weir.Hooks{Settled: settled}, Logger: quiet(),
	})
	s.must(err)
	if err := pool.Run(ctx); err != nil || !reached {
		s.Fatalf("no delivery ended as %s: %v", until, err)
	}
}

func (s *story) redrive(ctx context.Context) {
	s.Helper()
	letters, err := s.stream.DeadLetters("")
	s.must(err)
	done, err := letters.Redrive(ctx, weir.RedriveConfig{Delay: -1, Tracing: s.traces})
	s.must(err)
	if done.Sent != 1 {
		s.Fatalf("the redrive did %+v", done)
	}
}

// check compares the spans with the story.
func (s *story) check(order, repair trace.SpanContext) {
	s.Helper()
	name := s.stream.Info().Stream
	spans := map[string][]sdk.ReadOnlySpan{}
	for _, span := range s.spans.Ended() {
		spans[span.Name()] = append(spans[span.Name()], span)
		if span.SpanContext().TraceID() != order.TraceID() && span.Name() != "repair" {
			s.Errorf("%s is in another trace", span.Name())
		}
	}
	want := map[string]int{
		"order": 1, "repair": 1, "charge": 1, "send " + name: 2, "wait " + name: 1, "process " + name: 3,
		"nack " + name: 1, "dead_letter " + name: 1, "redrive " + name: 1, "ack " + name: 1,
	}
	for title, n := range want {
		if len(spans[title]) != n {
			s.Errorf("%d spans are named %q, want %d", len(spans[title]), title, n)
		}
	}
	if len(spans) != len(want) || s.Failed() {
		s.Fatalf("the spans are %v", titles(s.spans.Ended()))
	}
	refused, sent := spans["send "+name][0], spans["send "+name][1]
	s.is(refused, order, codes.Error, "error.type", weir.QueueFull)
	s.is(spans["wait "+name][0], refused.SpanContext(), codes.Unset, "weir.wait.kind", weir.DepthWait)
	s.is(sent, order, codes.Unset, "messaging.operation.type", "send")
	first, last, again := spans["process "+name][0], spans["process "+name][1], spans["process "+name][2]
	s.is(first, sent.SpanContext(), codes.Error, "weir.attempt", 1)
	s.is(spans["nack "+name][0], first.SpanContext(), codes.Unset, "weir.retry_in_ms", int(retryIn.Milliseconds()))
	s.is(last, sent.SpanContext(), codes.Error, "weir.reclaimed", true)
	s.is(last, sent.SpanContext(), codes.Error, "weir.attempt", 3)
	s.is(spans["dead_letter "+name][0], last.SpanContext(), codes.Unset, "weir.dead_letter.reason", backend.ReasonPoison)
	s.is(spans["redrive "+name][0], sent.SpanContext(), codes.Unset, "weir.redrives", 1)
	if links := spans["redrive "+name][0].Links(); len(links) != 1 || links[0].SpanContext.SpanID() != repair.SpanID() {
		s.Errorf("the redrive has the links %v, want one to who asked for it", links)
	}
	s.is(again, sent.SpanContext(), codes.Unset, "weir.redrives", 1)
	s.is(spans["charge"][0], again.SpanContext(), codes.Unset, "", nil)
	s.is(spans["ack "+name][0], again.SpanContext(), codes.Unset, "messaging.operation.type", "settle")
	for _, attempt := range spans["process "+name] {
		if links := attempt.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != sent.SpanContext().SpanID() {
			s.Errorf("an attempt has the links %v, want one to the publish", links)
		}
		s.is(attempt, sent.SpanContext(), attempt.Status().Code, "messaging.destination.name", name)
		s.is(attempt, sent.SpanContext(), attempt.Status().Code, "messaging.consumer.group.name", s.stream.Info().Group)
	}
}

// is checks a span's parent, status and one attribute.
func (s *story) is(span sdk.ReadOnlySpan, parent trace.SpanContext, status codes.Code, key string, want any) {
	s.Helper()
	if span.Parent().SpanID() != parent.SpanID() {
		s.Errorf("%s has another parent", span.Name())
	}
	if span.Status().Code != status {
		s.Errorf("%s has the status %v, want %v", span.Name(), span.Status(), status)
	}
	if key == "" {
		return
	}
	have := attribute.NewSet(span.Attributes()...)
	value, _ := have.Value(attribute.Key(key))
	if got, want := value.String(), text(want); got != want {
		s.Errorf("%s has %s=%q, want %q; all: %v", span.Name(), key, got, want, span.Attributes())
	}
}

// text is a value as attribute.Value.String has it.
func text(v any) string {
	switch v := v.(type) {
	case bool:
		return attribute.BoolValue(v).String()
	case int:
		return attribute.IntValue(v).String()
	case weir.Reason:
		return string(v)
	case weir.SlowKind:
		return string(v)
	}
	return v.(string)
}

func titles(spans []sdk.ReadOnlySpan) (all []string) {
	for _, span := range spans {
		all = append(all, span.Name())
	}
	return all
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
