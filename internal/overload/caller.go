package overload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirmq/weir"
)

const (
	tries          = 4  // calls of a patient caller
	impatientTries = 21 // of an impatient one
	impatientPart  = 4  // of the deadline is what it gives a call
	firstBackoff   = 20 // of the deadline is the wait before the second call, at least
)

// call is one caller: it publishes offer i and tries again until it succeeds, has had
// enough, or its time is over.
func (r *run) call(ctx context.Context, p *weir.Producer, i int) {
	o := &r.offers[i]
	until := r.start.Add(o.at + r.Deadline)
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	r.ledger.fates[i].late = r.now() - o.at // nobody else writes it

	m := weir.Message{Data: r.payload(i), Priority: Tiers[o.tier].Priority, FairKey: fmt.Sprintf("user-%d", o.key)}
	if r.Expire {
		m.Deadline = until
	}
	most := tries
	if r.Variant == Impatient {
		most, m.IdempotencyKey = impatientTries, fmt.Sprintf("%x-%d", r.id, i)
	}
	var jitter *rand.Rand
	for try := 1; try <= most; try++ {
		began := r.now()
		err := r.publish(ctx, p, m)
		kind := r.ledger.called(i, began, r.now(), err)
		if err == nil || ctx.Err() != nil || try == most || kind == unclear && m.IdempotencyKey == "" {
			return
		}
		if jitter == nil {
			jitter = rand.New(rand.NewPCG(r.Seed, uint64(i)))
		}
		wait := r.pause(err, try, jitter)
		if time.Until(until) <= wait || sleep(ctx, wait) != nil {
			return
		}
	}
}

// publish is one call.
func (r *run) publish(ctx context.Context, p *weir.Producer, m weir.Message) error {
	if r.Variant == Impatient {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Deadline/impatientPart)
		defer cancel()
	}
	return p.Publish(ctx, m)
}

// pause is how long a caller waits after its try-th call.
func (r *run) pause(err error, try int, jitter *rand.Rand) time.Duration {
	if r.Variant == Impatient {
		return time.Millisecond + time.Duration(jitter.Int64N(int64(10*time.Millisecond)))
	}
	wait := r.Deadline / firstBackoff << (try - 1)
	var full *weir.QueueFullError
	if errors.As(err, &full) {
		wait = max(wait, full.RetryAfter)
	}
	return wait + time.Duration(jitter.Int64N(int64(wait)))
}

// failureOf is why a publish stored nothing.
func failureOf(err error) failure {
	var full *weir.QueueFullError
	switch {
	case errors.Is(err, weir.ErrOutcomeUnknown):
		return unclear
	case errors.As(err, &full):
		return shed
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, weir.ErrExpired), errors.Is(err, context.Canceled):
		return gaveUp
	}
	return broken
}
