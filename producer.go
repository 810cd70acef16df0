package weir

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/admission"
)

// Producer publishes to a stream through a guard. It is safe for concurrent use. The
// guard has a gate of its own; it shares the window, and its readings of the stream,
// with the other producers of the same Stream. Two Streams opened on the same stream
// share the window.
type Producer struct {
	stream *Stream
	guard  *guard
	gather *gatherer // nil: the backend does not ask for it
	single sync.Pool // of *[1]Message: Append takes a slice
	away   seldom
}

// NewProducer returns a producer for s. The error names the invalid field of c.
func NewProducer(s *Stream, c ProducerConfig) (*Producer, error) {
	if s == nil {
		return nil, errors.New("weir: NewProducer: the stream is nil")
	}
	given := c
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("producer of %q: %w", s.info.Stream, err)
	}
	given.tellUnused(s.info.Stream)
	g := &guard{
		name:  StreamName{Kind: s.info.Kind, Stream: s.info.Stream, Group: s.info.Group},
		hooks: c.Hooks, tracing: c.Tracing, signals: s.signalsFor(c.Budget), stages: s.stages, owner: newOwner(),
		shed: shedder{window: s.window},
	}
	g.configure(c)
	p := &Producer{stream: s, guard: g, gather: newGatherer(s.backend, g.freed)}
	p.single.New = func() any { return new([1]Message) }
	return p, nil
}

// Reconfigure replaces the settings at run time; waiting publishes follow them from
// their next check on. Hooks, Tracing and Logger stay as they are. On an error nothing changes.
func (p *Producer) Reconfigure(c ProducerConfig) error {
	given := c
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return fmt.Errorf("producer of %q: %w", p.stream.info.Stream, err)
	}
	if was := p.guard.settings.Load().Budget; c.Budget != was {
		return fmt.Errorf("producer of %q: Budget is %q and cannot become %q: make another producer", p.stream.info.Stream, was, c.Budget)
	}
	c.Hooks, c.Tracing, c.Logger = p.guard.hooks, p.guard.tracing, p.guard.settings.Load().Logger
	given.Logger = c.Logger
	given.tellUnused(p.stream.info.Stream)
	p.guard.configure(c)
	return nil
}

// Close ends publishes that wait at the guard with ErrClosed, and waits for the
// producer's own goroutines. Publishes past the guard end on their own, later ones with
// ErrClosed. Close may be called more than once, and leaves the stream open.
func (p *Producer) Close() error {
	p.guard.owner.close()
	p.guard.aimAt(admission.Objective{})
	if told := p.guard.hooks.NearCapacity; told != nil && p.guard.near.Swap(false) {
		told(p.guard.name, false)
	}
	if p.gather != nil {
		p.gather.close()
	}
	p.guard.stages.flush()
	return nil
}

// Publish stores m. It waits while the workers are behind, but no longer than ctx
// allows; the error then wraps the context's.
//
// A *QueueFullError means that m was refused because of load. ErrOutcomeUnknown means
// that m may be stored: a message with an IdempotencyKey has then already been sent a
// second time, one without has not. Any other error means that m is not stored;
// ErrExpired, that its Deadline had passed or passed while it waited. A server that does not
// answer is waited for until the Deadline, too.
func (p *Producer) Publish(ctx context.Context, m Message) error {
	_, err := p.one(ctx, m, false)
	return err
}

// Receipt is what is known of a stored message.
type Receipt struct {
	// ID names the message in its stream, as Lease.ID does for its workers. A delayed message
	// may get another one when it is due, as on Redis.
	ID string
	// Duplicate says that a message with this IdempotencyKey had been stored before, so
	// that nothing more was; ID is that one's. It may be this call's own, if the first
	// answer was lost and the message sent again.
	Duplicate bool
}

// Send is Publish, and says what the message's ID is and whether it was a duplicate. The
// receipt is empty if there is an error.
func (p *Producer) Send(ctx context.Context, m Message) (Receipt, error) {
	return p.one(ctx, m, false)
}

// TryPublish stores m as Publish does, but never waits: above the hard limit, without
// room, or with an unknown signal under UnknownHold it returns a *QueueFullError with
// the reason QueueFull. The soft limit does not apply to it.
//
// It returns within 50 ms even if the server is silent: ErrUnavailable if nothing was
// sent, otherwise ErrOutcomeUnknown. Use Publish with a server that is normally slower
// than that.
func (p *Producer) TryPublish(ctx context.Context, m Message) error {
	if p.stream.info.Kind != "embedded" { // no server, and a slow disk answers in the end
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, tryTimeout, errSilent)
		defer cancel()
	}
	_, err := p.one(ctx, m, true)
	return err
}

// tryTimeout is when TryPublish gives up; a backend may take 20 ms more to return.
const tryTimeout = 25 * time.Millisecond

// errSilent is the cause when that ends a call. It does not say what became of the message.
var errSilent = fmt.Errorf("no answer within %s", tryTimeout)

func (p *Producer) one(ctx context.Context, m Message, try bool) (Receipt, error) {
	if err := p.check(&m); err != nil {
		return Receipt{}, p.refuseInvalid(1, err)
	}
	if isLate(&m) {
		return Receipt{}, p.refuseInvalid(1, lateError(&m))
	}
	box := p.single.Get().(*[1]Message)
	box[0] = withLimits(m)
	r, err := p.publish(ctx, box[:], try)
	box[0] = Message{}
	p.single.Put(box)
	return r, err
}

// PublishBatch stores messages in order, as many at a time as the guard has room for:
// above the soft limit one by one, each after its sleep. For the gate and the window it
// is one request.
//
// An error that applies to all messages is returned as it is; otherwise a *BatchError
// has one for each message that failed: ErrExpired for those whose Deadline passed before
// their turn. An empty batch does nothing.
func (p *Producer) PublishBatch(ctx context.Context, msgs []Message) error {
	if len(msgs) == 0 {
		return nil
	}
	if err := p.checkAll(msgs); err != nil {
		return err
	}
	_, err := p.publish(ctx, allWithLimits(msgs), false)
	return err
}

// PublishSome stores as many of the first messages as there is room for, at least one,
// in one write, and leaves the rest to the caller's next call. It waits for the first
// one as Publish does. n is how many it tried to store; the error is that of a
// PublishBatch of these alone.
func (p *Producer) PublishSome(ctx context.Context, msgs []Message) (n int, err error) {
	if len(msgs) == 0 {
		return 0, nil
	}
	if err := p.checkAll(msgs); err != nil {
		return len(msgs), err
	}
	began := time.Now()
	ctx, msgs, end := p.guard.tracing.begun(ctx, p.guard.name, allWithLimits(msgs))
	defer func() { end(n, err) }()
	b := batch{all: msgs, one: true}
	wait, cancel := worth(ctx, msgs)
	defer cancel()
	p.guarded(&visit{ctx: wait, now: began, n: 1}, &b)
	p.attempted(len(b.all))
	return len(b.all), p.finish(&b, began)
}

func (p *Producer) checkAll(msgs []Message) error {
	for i := range msgs {
		if err := p.check(&msgs[i]); err != nil {
			return p.refuseInvalid(len(msgs), fmt.Errorf("message %d: %w", i, err))
		}
	}
	return nil
}

// check returns an error if m is invalid, or asks for what the backend cannot do.
func (p *Producer) check(m *Message) error {
	if err := checkMessage(m); err != nil || !m.IsDelayed() {
		return err
	}
	if d, ok := p.stream.backend.(backend.Delayer); !ok || !d.Delays() {
		field := "Delay"
		if m.Delay == 0 {
			field = "NotBefore"
		}
		return fmt.Errorf("field %s: a %s stream delivers every message at once: %w", field, p.stream.info.Kind, ErrUnsupported)
	}
	now := time.Now()
	delay, err := m.DueIn(now)
	if err == nil && delay > 0 && !m.Deadline.IsZero() && !m.Deadline.After(now.Add(delay)) {
		return fmt.Errorf("field Deadline: it passes before the message is due, in %s: no worker would ever begin it", delay)
	}
	return err
}

func (p *Producer) refuseInvalid(n int, err error) error {
	p.attempted(n)
	p.failed(n, failureReason(err))
	return fmt.Errorf("publish to %q: %w", p.stream.info.Stream, err)
}

// isLate reports whether a message's deadline has passed.
func isLate(m *Message) bool { return !m.Deadline.IsZero() && !time.Now().Before(m.Deadline) }

// lateError says that a message was not stored because of its deadline.
func lateError(m *Message) error {
	return fmt.Errorf("field Deadline: %w, %s ago: nothing is stored", ErrExpired, time.Since(m.Deadline).Round(time.Millisecond))
}

// errWorthless is the cause when a context ends because no message is worth waiting for any
// more. It is not ErrExpired: backends wrap causes, also in errors of what may be stored.
var errWorthless = errors.New("the deadline of the message has passed")

// worth returns a context that ends, with errWorthless as its cause, when none of the
// messages is worth waiting for any more.
func worth(ctx context.Context, msgs []Message) (context.Context, context.CancelFunc) {
	var last time.Time
	for i := range msgs {
		at := msgs[i].Deadline
		if at.IsZero() {
			return ctx, func() {}
		}
		if at.After(last) {
			last = at
		}
	}
	return context.WithDeadlineCause(ctx, last, errWorthless)
}

// publish takes messages through the guard and stores them. The receipt is that of a
// single one.
func (p *Producer) publish(ctx context.Context, msgs []Message, try bool) (r Receipt, err error) {
	began := time.Now()
	p.attempted(len(msgs))
	ctx, msgs, end := p.guard.tracing.begun(ctx, p.guard.name, msgs)
	defer func() { end(len(msgs), err) }()
	b := batch{all: msgs}
	wait, cancel := worth(ctx, msgs)
	defer cancel()
	p.guarded(&visit{ctx: wait, now: began, try: try, n: 1}, &b)
	if try && b.failed > 0 && context.Cause(ctx) == errSilent {
		b.silent(p.stream.info.Stream)
	}
	return b.receipt, p.finish(&b, began)
}

// finish reports what became of b.
func (p *Producer) finish(b *batch, began time.Time) error {
	if h := p.guard.hooks.Published; h != nil && b.failed < len(b.all) {
		h(p.guard.name, len(b.all)-b.failed, time.Since(began))
	}
	if b.failed > 0 {
		p.guard.signals.giveWay()
	}
	return p.outcome(b)
}

// guarded stores b in parts. The gate and the window are passed once, the other checks
// by each part.
func (p *Producer) guarded(v *visit, b *batch) {
	if err := p.closedOr(v.ctx); err != nil {
		b.fail(err)
		return
	}
	if err := p.guard.enter(v); err != nil {
		b.fail(err)
		return
	}
	if !v.outside {
		defer p.guard.shed.leave()
	}
	for err := error(nil); ; err = p.guard.newer(v) {
		if err == nil {
			err = p.guard.lag(v)
		}
		if err == nil {
			v.n, err = p.guard.part(v, int64(len(b.all)-b.begun))
		}
		if err != nil {
			b.fail(err)
			return
		}
		b.next(int(v.n))
		b.cut() // before anything is noted of its messages
		p.guard.admit(v, b)
		if v.n = int64(len(b.left)); v.n > 0 {
			p.store(v, b)
		}
		b.cut()
		if b.begun == len(b.all) {
			return
		}
		if err := b.partFailed(v.ctx); err != nil {
			b.fail(err)
			return
		}
		*v = visit{ctx: v.ctx, now: time.Now(), done: v.done, n: 1, r: v.r}
	}
}

// store appends the current part of b, or as much of it as there is room for. A
// refusal by a server without room counts as one more check of a full queue.
func (p *Producer) store(v *visit, b *batch) {
	for try := 1; ; try++ {
		room, err := p.guard.depth(v)
		for !room && err == nil && b.halve() {
			v.n = int64(len(b.left))
			room, err = p.guard.depth(v)
		}
		var full *backend.FullError
		if room {
			b.cut()
			sent := p.guard.signals.sent
			sent.Add(v.n)
			full = p.append(v.ctx, b, &v.took)
			sent.Add(-int64(len(b.left)))
			p.guard.landed(v)
			if len(b.left) == 0 {
				return
			}
			v.n = int64(len(b.left))
		}
		if err == nil {
			err = p.guard.again(v, try, full)
		}
		if err != nil {
			b.fail(err)
			return
		}
	}
}

// append stores what is left of b, and sends messages with a key once more if the
// answer was lost, but nothing past its deadline. What is still left was refused by a
// server without room. It ends with ctx, which also ends when nothing of b is worth
// anything any more: a server that does not answer must not hold the caller.
func (p *Producer) append(ctx context.Context, b *batch, took *int64) (full *backend.FullError) {
	for {
		if b.expire(p.stream.info.Stream); len(b.left) == 0 {
			return nil
		}
		results, err := p.appendLeft(ctx, b, took)
		switch err {
		case nil:
			b.stored(results)
			return nil
		case errAgain:
			continue
		}
		var repeat bool
		if context.Cause(ctx) == errWorthless {
			err = p.overdue(results, err)
		}
		if full, repeat = b.settle(results, err, ctx.Err() == nil); !repeat {
			return full
		}
	}
}

// appendLeft makes one append of what is left of b, or has a part in one.
func (p *Producer) appendLeft(ctx context.Context, b *batch, took *int64) ([]backend.Appended, error) {
	if p.gather == nil || p.guard.settings.Load().DisableGathering {
		return p.stream.backend.Append(ctx, b.left)
	}
	return p.gather.append(ctx, b.left, took)
}

// overdue makes the errors of an append that ended with the last deadline of its messages
// say so, unless they may be stored.
func (p *Producer) overdue(results []backend.Appended, err error) error {
	told := func(err error) error {
		if err == nil || errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		return fmt.Errorf("publish to %q: field Deadline: %w, nothing is stored: %v", p.stream.info.Stream, ErrExpired, err)
	}
	for i := range results {
		results[i].Err = told(results[i].Err)
	}
	return told(err)
}

func (p *Producer) closedOr(ctx context.Context) error {
	if p.guard.owner.life.Err() != nil {
		return fmt.Errorf("publish to %q: producer %w", p.stream.info.Stream, ErrClosed)
	}
	if err := ended(ctx); err != nil {
		return fmt.Errorf("publish to %q: %w", p.stream.info.Stream, err)
	}
	return nil
}

// ended is why the context of a publish has ended, nil if it has not: ErrExpired if
// nothing that it waited for is worth anything any more.
func ended(ctx context.Context) error {
	if context.Cause(ctx) == errWorthless {
		return ErrExpired
	}
	return ctx.Err()
}

// outcome counts the failures of b and returns the error for the caller.
func (p *Producer) outcome(b *batch) error {
	switch {
	case b.failed == 0:
		p.tellAway(nil)
		return nil
	case b.whole != nil:
		p.failed(len(b.all), failureReason(b.whole))
		p.tellAway(b.whole)
		return b.whole
	}
	counts := map[string]int{}
	for _, err := range b.errs {
		if err != nil {
			counts[failureReason(err)]++
			p.tellAway(err)
		}
	}
	for reason, n := range counts {
		p.failed(n, reason)
	}
	if len(b.all) == 1 {
		return b.errs[0]
	}
	return &BatchError{Errs: b.errs}
}

// tellAway logs when the backend becomes unavailable and when it is back.
func (p *Producer) tellAway(err error) {
	log := p.guard.settings.Load().Logger
	switch {
	case err == nil:
		if p.away.ends() {
			log.Info("weir: publishing works again", "stream", p.stream.info.Stream)
		}
	case failureReason(err) == reasonUnavailable:
		if p.away.begins() {
			log.Warn("weir: publishing fails", "stream", p.stream.info.Stream, "error", err)
		}
	}
}

func (p *Producer) attempted(n int) {
	if h := p.guard.hooks.PublishAttempt; h != nil {
		h(p.guard.name, n)
	}
}

func (p *Producer) failed(n int, reason string) {
	if h := p.guard.hooks.PublishFailed; h != nil {
		h(p.guard.name, n, reason)
	}
}

// reasonUnavailable is the label of publishes that failed because the backend cannot be
// reached, is not ready, or is less durable than was asked for.
const reasonUnavailable = "unavailable"

// failureReason is the label under which a failed publish is counted.
func failureReason(err error) string {
	if full, ok := errors.AsType[*QueueFullError](err); ok && !errors.Is(err, ErrOutcomeUnknown) {
		return string(full.Reason)
	}
	switch {
	case errors.Is(err, ErrOutcomeUnknown):
		return "outcome_unknown"
	case errors.Is(err, ErrExpired):
		return "expired"
	case errors.Is(err, ErrUnavailable):
		return reasonUnavailable
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "cancelled"
	}
	return "error"
}

// Limits of a message's names and keys, in bytes, for every backend.
const (
	maxHeaders  = 60 // a weir queue takes fewer, see Message
	maxKeyBytes = 256
)

// checkMessage returns an error that names the invalid field and its valid values. What
// it accepts can be published on every backend, as far as its size allows.
func checkMessage(m *Message) error {
	switch {
	case !m.Priority.Valid():
		return fmt.Errorf("field Priority: %d is out of range: use %d (background) to %d (critical)", m.Priority, Background, Critical)
	case len(m.FairKey) > maxKeyBytes || !utf8.ValidString(m.FairKey):
		return fmt.Errorf("field FairKey: must be at most %d bytes of UTF-8", maxKeyBytes)
	case len(m.IdempotencyKey) > maxKeyBytes || !utf8.ValidString(m.IdempotencyKey):
		return fmt.Errorf("field IdempotencyKey: must be at most %d bytes of UTF-8", maxKeyBytes)
	case m.MaxDeliveries < 0:
		return fmt.Errorf("field MaxDeliveries: %d is out of range: use 1 or more, or 0 for the pool's limit alone", m.MaxDeliveries)
	case m.Timeout < 0 || m.Timeout > 0 && m.Timeout < time.Millisecond:
		return fmt.Errorf("field Timeout: %s is out of range: use 1ms or more, or 0 for the pool's HandlerTimeout alone", m.Timeout)
	case len(m.Headers) > maxHeaders:
		return fmt.Errorf("field Headers: %d entries, at most %d", len(m.Headers), maxHeaders)
	}
	for name, value := range m.Headers {
		switch {
		case name == "" || len(name) > maxKeyBytes || !utf8.ValidString(name):
			return fmt.Errorf("header %.64q: a name must be 1 to %d bytes of UTF-8", name, maxKeyBytes)
		case strings.HasPrefix(name, backend.HeaderPrefix):
			return fmt.Errorf("header %q: names that start with %q are reserved", name, backend.HeaderPrefix)
		case name == "data" || name == backend.FieldEnqueued:
			return fmt.Errorf("header %q: weir writes this field itself", name)
		case !utf8.ValidString(value):
			return fmt.Errorf("header %q: a value must be UTF-8; put other bytes into Data", name)
		}
	}
	return nil
}
