package tracing_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/telemetry/tracing"
	"github.com/weirmq/weir/tests/bubble"
)

// bench is a fake stream whose producers and pools are traced.
type bench struct {
	*testing.T
	stream *weir.Stream
	spans  *tracetest.SpanRecorder
	tracer trace.Tracer
	traces weir.Tracing
}

func newBench(t *testing.T, opts ...sdk.TracerProviderOption) *bench {
	b := &bench{T: t, spans: tracetest.NewSpanRecorder()}
	provider := sdk.NewTracerProvider(append(opts, sdk.WithSpanProcessor(b.spans))...)
	b.stream = weir.New(backendtest.NewFake(backendtest.FakeOptions{Kind: "redis", Stream: "orders", Group: "billing"}))
	b.tracer, b.traces = provider.Tracer("test"), tracing.New(provider)
	return b
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func (b *bench) producer() *weir.Producer {
	b.Helper()
	p, err := weir.NewProducer(b.stream, weir.ProducerConfig{Guard: weir.GuardOff, Tracing: b.traces, Logger: quiet()})
	b.must(err)
	b.Cleanup(func() { _ = p.Close() })
	return p
}

// work runs a pool until nothing is left.
func (b *bench) work(c weir.PoolConfig, h weir.Handler) {
	b.Helper()
	c.Workers, c.UntilEmpty, c.ReclaimAfter, c.Tracing, c.Logger = 1, time.Second, time.Second, b.traces, quiet()
	pool, err := weir.NewPool(b.stream, h, c)
	b.must(err)
	b.must(pool.Run(b.Context()))
}

// claim takes everything there is, without a trace.
func (b *bench) claim(consumer string) []*backend.Delivery {
	b.Helper()
	got, err := b.stream.Backend().Claim(b.Context(), backend.ClaimRequest{Consumer: consumer, Max: 100, ReclaimAfter: time.Second})
	b.must(err)
	return got.Deliveries
}

// named returns the spans of an operation.
func (b *bench) named(operation string) (found []sdk.ReadOnlySpan) {
	for _, span := range b.spans.Ended() {
		if span.Name() == operation+" orders" {
			found = append(found, span)
		}
	}
	return found
}

// one returns the only span of an operation.
func (b *bench) one(operation string) sdk.ReadOnlySpan {
	b.Helper()
	found := b.named(operation)
	if len(found) != 1 {
		b.Fatalf("%d spans %s, want one", len(found), operation)
	}
	return found[0]
}

func value(span sdk.ReadOnlySpan, key string) string {
	set := attribute.NewSet(span.Attributes()...)
	v, _ := set.Value(attribute.Key(key))
	return v.String()
}

func handled(context.Context, *weir.Delivery) error { return nil }

// A batch is one publish of messages that each have a story of their own.
func TestEachMessageOfABatchHasItsOwnSpan(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		b := newBench(t)
		ctx, order := b.tracer.Start(t.Context(), "order")
		given := []weir.Message{{Data: []byte("1")}, {Data: []byte("2"), Headers: map[string]string{"k": "v"}}, {Data: []byte("3")}}
		b.must(b.producer().PublishBatch(ctx, given))
		if given[0].Headers != nil || len(given[1].Headers) != 1 {
			t.Errorf("the caller's messages became %v", given)
		}
		send, creates := b.one("send"), b.named("create")
		if len(creates) != 3 || len(send.Links()) != 3 || value(send, "messaging.batch.message_count") != "3" || send.SpanKind() != trace.SpanKindClient {
			t.Fatalf("%d spans create; send: %s, links %v, %v", len(creates), send.SpanKind(), send.Links(), send.Attributes())
		}
		for i, d := range b.claim("w") {
			want := creates[i].SpanContext()
			if got := contextOf(d.Headers); got.SpanID() != want.SpanID() || send.Links()[i].SpanContext.SpanID() != want.SpanID() {
				t.Errorf("message %d carries %v and the batch has the link %v, want %v", i, got, send.Links()[i], want)
			}
			if creates[i].Parent().SpanID() != order.SpanContext().SpanID() || creates[i].SpanKind() != trace.SpanKindProducer {
				t.Errorf("span %d is a %s of %v", i, creates[i].SpanKind(), creates[i].Parent())
			}
		}
	})
}

func contextOf(headers map[string]string) trace.SpanContext {
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier(headers)))
}

// What the sender of a message has put into it stays, and its vendor's part with it.
func TestAContextThatAMessageHasIsKept(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		b := newBench(t)
		own := map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "rojo=1"}
		p := b.producer()
		b.must(p.Publish(t.Context(), weir.Message{Data: []byte("1"), Headers: own}))
		b.must(p.PublishBatch(t.Context(), []weir.Message{{Data: []byte("2"), Headers: own}, {Data: []byte("3"), Headers: own}}))
		if sends := b.named("send"); len(sends) != 2 || len(sends[0].Links()) != 1 || len(sends[1].Links()) != 2 || len(b.named("create")) != 0 {
			t.Errorf("the spans are %v", sends)
		}
		b.work(weir.PoolConfig{}, func(_ context.Context, d *weir.Delivery) error {
			if d.Headers["traceparent"] != own["traceparent"] || d.Headers["tracestate"] != own["tracestate"] {
				t.Errorf("delivered with %q", d.Headers)
			}
			return nil
		})
		for _, span := range b.named("process") {
			if span.Parent().SpanID().String() != "b7ad6b7169203331" || span.SpanContext().TraceState().String() != "rojo=1" {
				t.Errorf("an attempt belongs to %v", span.Parent())
			}
		}
	})
}

// A message that no handler begins any more has its end in its trace all the same.
func TestAMessageWithoutAHandlerEndsInItsTrace(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		b := newBench(t)
		p := b.producer()
		b.must(p.Publish(t.Context(), weir.Message{Data: []byte("poison")}))
		if got := b.claim("gone"); len(got) != 1 {
			t.Fatalf("claimed %v", got)
		}
		time.Sleep(2 * time.Second)
		b.must(p.Publish(t.Context(), weir.Message{Data: []byte("late"), Deadline: time.Now().Add(time.Second)}))
		time.Sleep(2 * time.Second)
		b.work(weir.PoolConfig{MaxDeliveries: 1}, func(context.Context, *weir.Delivery) error {
			t.Error("a handler began")
			return nil
		})
		sends := b.named("send")
		for i, operation := range []string{"dead_letter", "expire"} {
			if span := b.one(operation); span.Parent().SpanID() != sends[i].SpanContext().SpanID() {
				t.Errorf("%s belongs to %v", operation, span.Parent())
			}
		}
		dead := b.one("dead_letter")
		if value(dead, "weir.last_consumer") != "gone" || value(dead, "weir.dead_letter.reason") != backend.ReasonMaxDeliveries || value(b.one("expire"), "weir.dead_letter.reason") != backend.ReasonExpired {
			t.Errorf("dead letter: %v; expired: %v", dead.Attributes(), b.one("expire").Attributes())
		}
	})
}

// A handler whose message somebody else has by then did not end it.
func TestALostLeaseIsAnErrorInTheTrace(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		b := newBench(t)
		b.must(b.producer().Publish(t.Context(), weir.Message{Data: []byte("1")}))
		fake := b.stream.Backend()
		b.work(weir.PoolConfig{}, func(ctx context.Context, d *weir.Delivery) error {
			if d.Attempt > 1 {
				return nil
			}
			_, err := fake.Nack(ctx, []backend.Return{{Lease: d.Lease}})
			b.must(err)
			if got := b.claim("thief"); len(got) != 1 {
				t.Errorf("the thief claimed %v", got)
			}
			return errors.New("too late")
		})
		lost := b.one("settle")
		if lost.Status().Code != codes.Error || value(lost, "weir.outcome") != string(weir.Unsettled) || len(b.named("ack")) != 1 {
			t.Errorf("the lost one ended as %v %v; the spans: %v", lost.Status(), lost.Attributes(), b.spans.Ended())
		}
	})
}

// Who does not record a trace says so to those who come later.
func TestATraceThatIsNotRecordedIsCarried(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		b := newBench(t, sdk.WithSampler(sdk.ParentBased(sdk.NeverSample())))
		b.must(b.producer().Publish(t.Context(), weir.Message{Data: []byte("1")}))
		b.work(weir.PoolConfig{}, func(ctx context.Context, d *weir.Delivery) error {
			if !strings.HasSuffix(d.Headers["traceparent"], "-00") {
				t.Errorf("the message carries %q", d.Headers)
			}
			if got := trace.SpanContextFromContext(ctx); got.TraceID() != contextOf(d.Headers).TraceID() {
				t.Errorf("the handler's trace is %v", got)
			}
			return nil
		})
		if spans := b.spans.Ended(); len(spans) > 0 {
			t.Errorf("recorded: %v", spans)
		}
	})
}

// A message with as many headers as are allowed is sent as it is.
func TestATraceTakesNoHeaderFromAMessage(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		b := newBench(t)
		full := map[string]string{}
		for i := range 60 {
			full[strings.Repeat("h", i+1)] = "v"
		}
		b.must(b.producer().Publish(t.Context(), weir.Message{Data: []byte("1"), Headers: full}))
		b.work(weir.PoolConfig{}, func(_ context.Context, d *weir.Delivery) error {
			if len(d.Headers) != 60 {
				t.Errorf("delivered with %d headers", len(d.Headers))
			}
			return nil
		})
	})
}

// Every span has what the conventions require.
func TestEverySpanFollowsTheConventions(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		b := newBench(t)
		b.must(b.producer().Publish(t.Context(), weir.Message{Data: []byte("1")}))
		b.work(weir.PoolConfig{}, handled)
		types := []string{"create", "send", "receive", "process", "settle"}
		for _, span := range b.spans.Ended() {
			operation := value(span, "messaging.operation.name")
			if span.Name() != operation+" "+value(span, "messaging.destination.name") || value(span, "messaging.system") != "redis" ||
				!slices.Contains(types, value(span, "messaging.operation.type")) || span.InstrumentationScope().SchemaURL != "https://opentelemetry.io/schemas/1.43.0" {
				t.Errorf("%s has %v of %s", span.Name(), span.Attributes(), span.InstrumentationScope().SchemaURL)
			}
		}
		if n := len(b.spans.Ended()); n != 3 {
			t.Errorf("%d spans, want send, process and ack", n)
		}
	})
}

// No text of a span keeps an exporter from encoding it.
func TestSpansAreUTF8(t *testing.T) {
	b := newBench(t)
	s := weir.StreamName{Kind: "redis", Stream: "a\xff", Group: "g\xff"}
	_, _, published := b.traces.Publish(t.Context(), s, []weir.Message{{Data: []byte("\xff")}})
	published(1, errors.New("no \xff"))
	b.traces.Buried(t.Context(), s, &weir.DeadLetter{OriginID: "1\xff", Consumer: "w\xff", Reason: "r\xff"})
	if n := len(b.spans.Ended()); n != 2 {
		t.Fatalf("%d spans", n)
	}
	for _, span := range b.spans.Ended() {
		texts := []string{span.Name(), span.Status().Description}
		for _, a := range span.Attributes() {
			texts = append(texts, a.Value.AsString()) // empty for a number
		}
		for _, text := range texts {
			if !utf8.ValidString(text) {
				t.Errorf("%s: %q", span.Name(), text)
			}
		}
	}
}
