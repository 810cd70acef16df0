package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

// maxSettle is how many jobs one ack, nack or extend may name, unless the server's max_claim
// is less.
const maxSettle = 1000

// Ack completes deliveries. Every lease is checked.
func (b *Backend) Ack(ctx context.Context, leases []backend.Lease) (lost []string, err error) {
	lost, err = b.settle(ctx, leases, api.Settlement{Kind: api.SettleAck})
	if err == nil {
		b.errs.forget(leases)
	}
	return lost, err
}

// Extend keeps leases for d, which is clamped to 100 ms … 24 h.
func (b *Backend) Extend(ctx context.Context, leases []backend.Lease, d time.Duration) (lost []string, err error) {
	return b.settle(ctx, leases, api.Settlement{Kind: api.SettleExtend, Lease: d})
}

// Nack gives deliveries back, those with equal delay in one call. A delay is at most 24
// h.
func (b *Backend) Nack(ctx context.Context, returns []backend.Return) (lost []string, err error) {
	type how struct {
		delay      time.Duration
		notStarted bool
	}
	groups := make(map[how][]backend.Lease)
	var order []how
	for _, r := range returns {
		h := how{max(r.Delay, 0), r.NotStarted}
		if groups[h] == nil {
			order = append(order, h)
		}
		groups[h] = append(groups[h], r.Lease)
		b.errs.put(r.ID, r.Error)
	}
	for i, h := range order {
		gone, err := b.settle(ctx, groups[h], api.Settlement{Kind: api.SettleNack, Delay: h.delay, NotStarted: h.notStarted})
		lost = append(lost, gone...)
		if err != nil {
			return lost, halfway(err, i > 0)
		}
		b.idle.returned(h.delay)
	}
	return lost, nil
}

// settle makes the calls for leases, which may belong to several consumers.
func (b *Backend) settle(ctx context.Context, leases []backend.Lease, how api.Settlement) (lost []string, err error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	for some := false; len(leases) > 0; {
		call := how
		call.Node = leases[0].Consumer
		n, most := 0, int(cmp.Or(b.settleMost.Load(), maxSettle))
		for n < len(leases) && n < most && leases[n].Consumer == call.Node {
			seq, ok := parseSeq(leases[n].ID)
			if !ok {
				return lost, badLease(leases[n].ID)
			}
			call.Seqs, call.Leases = append(call.Seqs, seq), append(call.Leases, leases[n].Token)
			n++
		}
		skipped, err := b.svc.Settle(ctx, b.opt.Topic, &call)
		if api.IsCode(err, api.CodeBatchTooLarge) && n > 1 {
			b.settleMost.Store(int64(n / 2))
			continue
		}
		if api.IsCode(err, api.CodeTopicNotFound) {
			skipped, err = call.Seqs, nil // the queue was deleted together with its jobs
		}
		if err != nil {
			return lost, halfway(b.fail(err, true), some)
		}
		for _, seq := range skipped {
			lost = append(lost, formatSeq(seq))
		}
		leases, some = leases[n:], true
	}
	return lost, nil
}

// halfway is err, of calls some of which may have been made: a repeat finds the leases of those
// gone and has to know why.
func halfway(err error, some bool) error {
	if err == nil || !some || errors.Is(err, backend.ErrOutcomeUnknown) {
		return err
	}
	return fmt.Errorf("%w for some: %w", backend.ErrOutcomeUnknown, err)
}

// maxLastErrors is how many handler errors are remembered.
const maxLastErrors = 4096

// lastErrors holds the error texts messages were given back with, for which the server
// has no place. If a message then crashes its worker in this process, its dead letter
// gets the last one. When full, an arbitrary one is forgotten.
type lastErrors struct {
	sync.Mutex
	texts map[string]string
}

func (l *lastErrors) put(id, text string) {
	if text == "" {
		return
	}
	l.Lock()
	defer l.Unlock()
	if l.texts == nil {
		l.texts = make(map[string]string)
	}
	for other := range l.texts {
		if len(l.texts) < maxLastErrors {
			break
		}
		delete(l.texts, other)
	}
	l.texts[id] = cutError(text)
}

func (l *lastErrors) get(id string) string {
	l.Lock()
	defer l.Unlock()
	return l.texts[id]
}

func (l *lastErrors) forget(leases []backend.Lease) {
	l.Lock()
	defer l.Unlock()
	if len(l.texts) == 0 {
		return
	}
	for i := range leases {
		delete(l.texts, leases[i].ID)
	}
}
