package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weirmq/weir/backend"
)

// Claim hands out records in the broker's order: of each partition the lowest that nobody
// holds first, so what was given back comes before what is new. The first claim joins the
// group, which takes a moment that Block does not include.
func (b *Backend) Claim(ctx context.Context, req backend.ClaimRequest) (backend.Claimed, error) {
	if b.ended.Load() {
		return backend.Claimed{}, errClosed
	}
	if err := ctx.Err(); err != nil {
		return backend.Claimed{}, fmt.Errorf("kafka: %w", err)
	}
	if b.worker.Load() == nil {
		b.worker.Store(new(req.Consumer))
	}
	b.lookFirst(ctx)
	if err := b.group.join(ctx); err != nil {
		return backend.Claimed{}, b.cut(ctx, b.sureOfAll(ctx, err))
	}
	limit, err := b.group.limit(req.MaxDeliveries)
	if err != nil {
		return backend.Claimed{}, err
	}
	b.group.expect(req)
	end := time.Now().Add(req.Block)
	for {
		got, err := b.takeReady(ctx, req, limit)
		if err != nil || len(got.Deliveries)+len(got.Dead) > 0 {
			return got, err
		}
		last := !time.Now().Before(end) || req.HasEnough()
		if err := b.fill(ctx, req, time.Until(end)); err != nil {
			return backend.Claimed{}, b.cut(ctx, b.sure(ctx, err))
		}
		if _, waiting := b.held.waiting(); last && !waiting {
			return backend.Claimed{}, nil
		}
	}
}

// goneTries is how often the brokers have to say that a topic is gone which was there.
const goneTries = 8

// errUnheard says that a broker did not know the topic which others know by now.
var errUnheard = errors.New("a broker did not know topic")

// sureOfAll is sure for a topic that nobody has known yet, if there are several brokers: one of them may just have been
// told to make it.
func (b *Backend) sureOfAll(ctx context.Context, err error) error {
	return b.sureIf(ctx, err, b.topic.known() || b.topic.brokers.Load() > 1)
}

// sure returns what a call ends with: a broker that has just started may not have heard of the topic yet, and that is
// no reason for a worker to end, or for a reading to find nothing.
func (b *Backend) sure(ctx context.Context, err error) error {
	return b.sureIf(ctx, err, b.topic.known())
}

func (b *Backend) sureIf(ctx context.Context, err error, doubtful bool) error {
	if !errors.Is(err, backend.ErrStreamNotFound) || !doubtful {
		return err
	}
	for range goneTries {
		if _, asked := b.layoutOf(ctx, b.set.topic); !errors.Is(asked, kerr.UnknownTopicOrPartition) {
			b.topic.forget()
			return fmt.Errorf("kafka: %w: %w %q", backend.ErrUnavailable, errUnheard, b.set.topic)
		}
		if !b.pause(ctx, retryEvery) {
			return b.cut(ctx, fmt.Errorf("kafka: %w", ctx.Err()))
		}
	}
	return err
}

// fill fetches once, or waits for the fetch of another claim.
func (b *Backend) fill(ctx context.Context, req backend.ClaimRequest, wait time.Duration) error {
	select {
	case <-b.fetching:
	case <-req.Enough:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kafka: %w", ctx.Err())
	case <-b.closing.Done():
		return errClosed
	}
	if _, waiting := b.held.waiting(); waiting {
		b.fetching <- struct{}{}
		return nil
	}
	done := make(chan error, 1)
	// The broker may hand out records after the claim has ended: they wait on the shelf for
	// the next claim, or for their release.
	if !b.spawn(func() {
		err := b.group.fetch(req, wait)
		b.fetching <- struct{}{}
		done <- err
	}) {
		b.fetching <- struct{}{}
		return errClosed
	}
	select {
	case err := <-done:
		return err
	case <-req.Enough:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kafka: %w", ctx.Err())
	case <-b.closing.Done():
		return errClosed
	}
}

// waiting reports whether anything is held, and whether some of it waits for a claim.
func (s *shelf) waiting() (holds, waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all) > 0, len(s.queue) > 0
}

// takeReady hands out what is on the shelf; what is past its limit becomes a dead letter. If
// that fails, the message stays with this handle for now, and the rest is handed out.
func (b *Backend) takeReady(ctx context.Context, req backend.ClaimRequest, limit int) (backend.Claimed, error) {
	var got backend.Claimed
	since := time.Now()
	list, token := b.held.claim(req.Max, since.Add(req.ReclaimAfter))
	made := maker{count: len(list)}
	fresh := make([]*backend.Delivery, 0, len(list))
	var others, dead []*backend.Delivery
	for i := range list {
		h := &list[i]
		d := made.delivery(h.record)
		d.Lease = backend.Lease{ID: h.id, Token: token, Consumer: req.Consumer, Attempt: h.attempt, Since: since}
		switch {
		case !b.forUs(d):
			others = append(others, d)
		case limit > 0 && h.attempt > limit:
			d.Consumer, d.Attempt = "", h.attempt-1 // whoever had it last
			dead = append(dead, d)
		case h.attempt > 1:
			got.Deliveries = append(got.Deliveries, d)
			got.Reclaimed++
		default:
			fresh = append(fresh, d)
		}
	}
	got.Deliveries = append(got.Deliveries, fresh...)
	failed := b.buryAll(ctx, req, dead, &got)
	if err := b.pass(ctx, others); failed == nil {
		failed = err
	}
	if len(got.Deliveries)+len(got.Dead) == 0 {
		return got, failed
	}
	got.Failed = failed
	return got, nil
}

// The time that a claim spends on dead letters, while its deliveries wait, is a third of their
// leases, but not more than callTimeout or less than buryLeast.
const buryLeast = time.Second

// buryAll makes dead letters. Those that cannot be stored are set aside: to release them would
// count, and the broker drops what it has delivered as often as it may.
func (b *Backend) buryAll(ctx context.Context, req backend.ClaimRequest, dead []*backend.Delivery, got *backend.Claimed) error {
	if len(dead) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, max(buryLeast, min(callTimeout, req.ReclaimAfter/3)))
	defer cancel()
	for i, d := range dead {
		letter, err := b.bury(ctx, d, req.DeadLetter, backend.Cause{Reason: backend.ReasonMaxDeliveries})
		switch {
		case err == nil:
			got.Dead = append(got.Dead, letter)
		case errors.Is(err, backend.ErrLeaseLost): // another claim finds it again
		default:
			b.held.setAside(dead[i:])
			return err
		}
	}
	return nil
}

// forUs reports whether a message is for this group, and takes the header off that says so.
func (b *Backend) forUs(d *backend.Delivery) bool {
	group, only := d.Headers[backend.HeaderRedriveGroup]
	if delete(d.Headers, backend.HeaderRedriveGroup); len(d.Headers) == 0 {
		d.Headers = nil
	}
	return !only || group == b.set.group
}

// pass accepts unseen what was sent back to another group. If that does not get through,
// it comes again.
func (b *Backend) pass(ctx context.Context, list []*backend.Delivery) error {
	if len(list) == 0 {
		return nil
	}
	leases := make([]backend.Lease, len(list))
	for i, d := range list {
		leases[i] = d.Lease
	}
	_, err := b.Ack(ctx, leases)
	if errors.Is(err, backend.ErrOutcomeUnknown) {
		return nil
	}
	return err
}
