// Package tracing turns the steps of a message into spans of OpenTelemetry.
//
// Give what New returns to every Producer, Pool and redrive of the process:
//
//	traces := tracing.New(provider)
//	p, err := weir.NewProducer(s, weir.ProducerConfig{Tracing: traces})
//
// The spans follow the messaging conventions of OpenTelemetry 1.43.0. The context of a
// message travels in its W3C headers traceparent and tracestate, on every backend. What
// happens to the message afterwards, in whichever process, belongs to the trace in which
// it was published:
//
//	send orders            the publish; a message of a batch has a span "create orders" instead
//	├─ wait orders         each delay of the publish by the guard
//	├─ process orders      each run of a handler, with a link to the publish
//	│  └─ nack orders      how it ended: ack, nack, return, dead_letter, expire or settle
//	├─ dead_letter orders  a message that a claim moved aside after its last delivery
//	└─ redrive orders      a dead letter that was sent back
package tracing

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
)

// The attributes that OpenTelemetry has no name for.
const (
	attemptKey    = attribute.Key("weir.attempt")   // from 1
	reclaimedKey  = attribute.Key("weir.reclaimed") // taken over from another worker
	redrivesKey   = attribute.Key("weir.redrives")  // how often it was sent back from the dead letters
	ageKey        = attribute.Key("weir.age_ms")    // since it was published
	outcomeKey    = attribute.Key("weir.outcome")
	retryInKey    = attribute.Key("weir.retry_in_ms")
	deadReasonKey = attribute.Key("weir.dead_letter.reason")
	lastOwnerKey  = attribute.Key("weir.last_consumer")
	waitKindKey   = attribute.Key("weir.wait.kind") // a weir.SlowKind
	waitWhyKey    = attribute.Key("weir.wait.reason")
)

// mostHeaders leaves room for both headers of a trace among those that a message may have.
const mostHeaders = 58

var w3c propagation.TraceContext

// New returns hooks that make spans with a tracer of provider. It panics if that is nil.
func New(provider trace.TracerProvider) weir.Tracing {
	if provider == nil {
		panic("weir: tracing.New: the provider is nil")
	}
	t := tracer{provider.Tracer("github.com/weirmq/weir", trace.WithSchemaURL(semconv.SchemaURL))}
	return weir.Tracing{
		Publish: t.publish, Waited: t.waited, Attempt: t.attempt,
		Settled: t.settled, Buried: t.buried, Redriven: t.redriven,
	}
}

type tracer struct{ trace.Tracer }

// about are the attributes of every span.
func about(s weir.StreamName, operation string, kind attribute.KeyValue, more ...attribute.KeyValue) trace.SpanStartEventOption {
	system := "weir"
	if s.Kind == "redis" || s.Kind == "kafka" {
		system = s.Kind
	}
	all := append(more, semconv.MessagingSystemKey.String(system), semconv.MessagingDestinationName(s.Stream),
		semconv.MessagingOperationName(operation), kind)
	for i := range all {
		if v := &all[i].Value; v.Type() == attribute.STRING {
			*v = attribute.StringValue(valid(v.AsString()))
		}
	}
	return trace.WithAttributes(all...)
}

// valid returns a text as UTF-8: Redis takes any bytes for a name, and with one span that has
// them none of its batch can be sent.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// start begins the span of an operation.
func (t tracer) start(ctx context.Context, s weir.StreamName, operation string, kind attribute.KeyValue, more []attribute.KeyValue, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	return t.Start(ctx, operation+" "+valid(s.Stream), append(opts, about(s, operation, kind, more...))...)
}

// within returns ctx with the span context in a message's headers as its parent. Without
// one, ctx stays as it is.
func within(ctx context.Context, headers map[string]string) (_ context.Context, created trace.SpanContext) {
	if headers[backend.HeaderTrace] == "" {
		return ctx, created
	}
	created = trace.SpanContextFromContext(w3c.Extract(context.Background(), propagation.MapCarrier(headers)))
	if !created.IsValid() {
		return ctx, created
	}
	return trace.ContextWithRemoteSpanContext(ctx, created), created
}

// carrying returns headers with the span context of ctx in addition.
func carrying(ctx context.Context, headers map[string]string) map[string]string {
	if len(headers) > mostHeaders || !trace.SpanContextFromContext(ctx).IsValid() {
		return headers
	}
	all := make(map[string]string, len(headers)+2)
	maps.Copy(all, headers)
	w3c.Inject(ctx, propagation.MapCarrier(all))
	return all
}

func (t tracer) publish(ctx context.Context, s weir.StreamName, msgs []weir.Message) (context.Context, []weir.Message, func(int, error)) {
	if len(msgs) == 1 {
		return t.publishOne(ctx, s, msgs[0])
	}
	return t.publishBatch(ctx, s, msgs)
}

// publishOne begins the span of one message, which then carries its context unless it has
// one already.
func (t tracer) publishOne(ctx context.Context, s weir.StreamName, m weir.Message) (context.Context, []weir.Message, func(int, error)) {
	kind, opts := trace.SpanKindProducer, []trace.SpanStartOption(nil)
	parent, created := within(ctx, m.Headers)
	if created.IsValid() {
		kind, opts = trace.SpanKindClient, append(opts, trace.WithLinks(trace.Link{SpanContext: created}))
		if !trace.SpanContextFromContext(ctx).IsValid() {
			ctx = parent
		}
	}
	more := []attribute.KeyValue{semconv.MessagingMessageBodySize(len(m.Data))}
	ctx, span := t.start(ctx, s, "send", semconv.MessagingOperationTypeSend, more, append(opts, trace.WithSpanKind(kind))...)
	if !created.IsValid() {
		m.Headers = carrying(ctx, m.Headers)
	}
	return ctx, []weir.Message{m}, func(_ int, err error) {
		finish(span, err)
	}
}

// publishBatch begins one span for each message of a batch, and one for the batch.
func (t tracer) publishBatch(ctx context.Context, s weir.StreamName, msgs []weir.Message) (context.Context, []weir.Message, func(int, error)) {
	began := time.Now()
	creates, contexts, out := make([]trace.Span, len(msgs)), make([]trace.SpanContext, len(msgs)), make([]weir.Message, len(msgs))
	for i, m := range msgs {
		if _, contexts[i] = within(ctx, m.Headers); !contexts[i].IsValid() {
			var own context.Context
			more := []attribute.KeyValue{semconv.MessagingMessageBodySize(len(m.Data))}
			own, creates[i] = t.start(ctx, s, "create", semconv.MessagingOperationTypeCreate, more, trace.WithSpanKind(trace.SpanKindProducer))
			contexts[i], m.Headers = creates[i].SpanContext(), carrying(own, m.Headers)
		}
		out[i] = m
	}
	ctx, send := t.start(ctx, s, "send", semconv.MessagingOperationTypeSend, nil, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(began))
	return ctx, out, func(n int, err error) {
		var each *weir.BatchError
		errors.As(err, &each)
		for i := range n { // the spans of messages that have to wait for the next publish are never ended, which drops them
			send.AddLink(trace.Link{SpanContext: contexts[i]})
			switch {
			case creates[i] == nil:
			case each != nil:
				finish(creates[i], each.Errs[i])
			default:
				finish(creates[i], err)
			}
		}
		send.SetAttributes(semconv.MessagingBatchMessageCount(n))
		finish(send, err)
	}
}

func (t tracer) waited(ctx context.Context, s weir.StreamName, w weir.Wait) {
	_, span := t.start(ctx, s, "wait", waitKindKey.String(string(w.Kind)), []attribute.KeyValue{waitWhyKey.String(w.Why)}, trace.WithTimestamp(w.Began))
	finish(span, w.Err)
}

func (t tracer) attempt(ctx context.Context, s weir.StreamName, d *weir.Delivery, reclaimed bool) (context.Context, func(error)) {
	ctx, created := within(ctx, d.Headers)
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer)}
	if created.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: created}))
	}
	more := append(ofDelivery(s, d.ID, d.Consumer, d.Attempt), semconv.MessagingMessageBodySize(len(d.Data)))
	if reclaimed {
		more = append(more, reclaimedKey.Bool(true))
	}
	if n, err := strconv.Atoi(d.Headers[backend.HeaderRedrives]); err == nil {
		more = append(more, redrivesKey.Int(n))
	}
	if !d.Enqueued.IsZero() {
		more = append(more, ageKey.Int64(max(time.Since(d.Enqueued).Milliseconds(), 0)))
	}
	ctx, span := t.start(ctx, s, "process", semconv.MessagingOperationTypeProcess, more, opts...)
	return ctx, func(err error) { finish(span, err) }
}

// ofDelivery are the attributes of what happens to one delivery.
func ofDelivery(s weir.StreamName, id, consumer string, attempt int) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, 14)
	all = append(all, semconv.MessagingMessageID(id), semconv.MessagingConsumerGroupName(s.Group), attemptKey.Int(attempt))
	if consumer != "" {
		all = append(all, semconv.MessagingClientID(consumer))
	}
	if partition, offset, found := strings.Cut(id, ":"); found && s.Kind == "kafka" {
		if n, err := strconv.Atoi(offset); err == nil {
			all = append(all, semconv.MessagingDestinationPartitionID(partition), semconv.MessagingKafkaOffset(n))
		}
	}
	return all
}

// operations are the names of how deliveries end.
var operations = map[weir.Outcome]string{
	weir.Acked: "ack", weir.Retried: "nack", weir.Returned: "return", weir.Dead: "dead_letter", weir.Expired: "expire",
}

func (t tracer) settled(ctx context.Context, s weir.StreamName, e weir.Ending) {
	ctx, _ = within(ctx, e.Headers)
	operation, known := operations[e.Outcome]
	if !known {
		operation = "settle"
	}
	more := append(ofDelivery(s, e.Lease.ID, e.Lease.Consumer, e.Lease.Attempt), outcomeKey.String(string(e.Outcome)))
	if e.Outcome == weir.Retried {
		more = append(more, retryInKey.Int64(e.Delay.Milliseconds()))
	}
	if e.Reason != "" {
		more = append(more, deadReasonKey.String(e.Reason))
	}
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}
	if !e.Began.IsZero() {
		opts = append(opts, trace.WithTimestamp(e.Began))
	}
	_, span := t.start(ctx, s, operation, semconv.MessagingOperationTypeSettle, more, opts...)
	if e.Outcome == weir.Unsettled {
		fail(span, string(weir.Unsettled), "another worker had the message by then, or the backend did not answer")
	}
	span.End()
}

func (t tracer) buried(ctx context.Context, s weir.StreamName, l *weir.DeadLetter) {
	ctx, _ = within(ctx, l.Headers)
	more := append(ofDelivery(s, l.OriginID, "", l.Attempts), outcomeKey.String(string(weir.Dead)), deadReasonKey.String(l.Reason))
	if l.Consumer != "" {
		more = append(more, lastOwnerKey.String(l.Consumer))
	}
	_, span := t.start(ctx, s, "dead_letter", semconv.MessagingOperationTypeSettle, more, trace.WithSpanKind(trace.SpanKindClient))
	span.End()
}

func (t tracer) redriven(ctx context.Context, s weir.StreamName, l *weir.DeadLetter, began time.Time, err error) {
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(began)}
	asked := trace.SpanContextFromContext(ctx)
	ctx, created := within(ctx, l.Headers)
	if created.IsValid() && asked.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: asked})) // who asked for it
	}
	more := []attribute.KeyValue{semconv.MessagingMessageID(l.OriginID), redrivesKey.Int(l.Redrives + 1), deadReasonKey.String(l.Reason)}
	_, span := t.start(ctx, s, "redrive", semconv.MessagingOperationTypeSend, more, opts...)
	finish(span, err)
}

// finish ends a span with the error of its operation.
func finish(span trace.Span, err error) {
	if err != nil {
		fail(span, errorType(err), err.Error())
	}
	span.End()
}

func fail(span trace.Span, kind, text string) {
	span.SetAttributes(semconv.ErrorTypeKey.String(kind))
	span.SetStatus(codes.Error, strings.ToValidUTF8(text[:min(len(text), backend.MaxErrorBytes)], ""))
}

// errorType is the class of an error: a weir.Reason, or the name of one of weir's errors.
func errorType(err error) string {
	var full *weir.QueueFullError
	if errors.As(err, &full) {
		return string(full.Reason)
	}
	for _, known := range []struct {
		err  error
		name string
	}{
		{weir.ErrOutcomeUnknown, "outcome_unknown"},
		{weir.ErrExpired, "expired"},
		{weir.ErrUnavailable, "unavailable"},
		{weir.ErrClosed, "closed"},
		{weir.ErrHandlerTimeout, "handler_timeout"},
		{weir.ErrLeaseLost, "lease_lost"},
		{context.Canceled, "cancelled"},
		{context.DeadlineExceeded, "timeout"},
	} {
		if errors.Is(err, known.err) {
			return known.name
		}
	}
	return semconv.ErrorTypeOther.Value.AsString()
}
