package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/weirmq/weir/backend"
)

// Extend makes leases end d from now. The broker's locks are renewed in the background; if
// that is late, as after a standstill of the process, it is done before leases are extended.
func (b *Backend) Extend(ctx context.Context, leases []backend.Lease, d time.Duration) (lost []string, err error) {
	if err := b.may(ctx); err != nil {
		return nil, err
	}
	shelf := b.held
	until := time.Now().Add(d)
	var list []*held
	lost = shelf.update(leases, func(_ int, h *held) {
		h.until = until
		list = append(list, h)
	})
	shelf.mu.Lock()
	late := len(list) > 0 && shelf.late()
	shelf.mu.Unlock()
	if late {
		more, err := b.renewNow(ctx, list)
		return append(lost, more...), err
	}
	return lost, nil
}

// renewNow renews locks and returns the IDs of those that were lost. The renewal goes on if the context ends:
// what it finds lost, the next call is told.
func (b *Backend) renewNow(ctx context.Context, list []*held) (lost []string, err error) {
	done := make(chan []string, 1)
	if !b.spawn(func() { done <- b.group.renew(list) }) {
		return nil, errClosed
	}
	select {
	case lost := <-done:
		return lost, nil
	case <-ctx.Done():
		return nil, b.cut(ctx, fmt.Errorf("kafka: %w", ctx.Err()))
	}
}

// Ack accepts deliveries.
func (b *Backend) Ack(ctx context.Context, leases []backend.Lease) (lost []string, err error) {
	if err := b.may(ctx); err != nil {
		return nil, err
	}
	list := make([]*held, 0, len(leases))
	lost = b.held.update(leases, func(_ int, h *held) {
		h.stage = settling
		list = append(list, h)
	})
	more, err := b.group.say(ctx, list, saysAccept)
	if err != nil {
		err = b.cut(ctx, err)
	}
	return append(lost, more...), err
}

// Nack releases deliveries. One with a delay stays with this handle until it is due: if the
// process ends before, it is due at once. In a share group, a delivery that no handler started
// counts nevertheless: the broker counts what it hands out.
func (b *Backend) Nack(ctx context.Context, returns []backend.Return) (lost []string, err error) {
	if err := b.may(ctx); err != nil {
		return nil, err
	}
	leases := make([]backend.Lease, len(returns))
	for i, r := range returns {
		leases[i] = r.Lease
	}
	at := time.Now()
	var now []*held
	lost = b.held.update(leases, func(i int, h *held) {
		h.unstarted = returns[i].NotStarted
		if d := returns[i].Delay; d > 0 {
			h.stage, h.until = delayed, at.Add(d)
			return
		}
		h.stage = settling
		now = append(now, h)
	})
	more, err := b.group.say(ctx, now, saysRelease)
	if err != nil {
		err = b.cut(ctx, err)
	}
	return append(lost, more...), err
}

// may reports why a call cannot begin.
func (b *Backend) may(ctx context.Context) error {
	if b.ended.Load() {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	return nil
}
