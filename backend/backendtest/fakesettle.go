package backendtest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/weirmq/weir/backend"
)

// Extend keeps leases for d from now on.
func (f *Fake) Extend(ctx context.Context, leases []backend.Lease, d time.Duration) ([]string, error) {
	return f.settle(ctx, OpExtend, leases, func(_ int, p *fakePending) { p.free = time.Now().Add(d) })
}

// Ack completes deliveries.
func (f *Fake) Ack(ctx context.Context, leases []backend.Lease) ([]string, error) {
	return f.settle(ctx, OpAck, leases, func(_ int, p *fakePending) {
		delete(f.pending, p.entry.id)
		f.acked = append(f.acked, p.entry.id)
	})
}

// Nack gives deliveries back.
func (f *Fake) Nack(ctx context.Context, returns []backend.Return) ([]string, error) {
	leases := make([]backend.Lease, len(returns))
	for i, r := range returns {
		leases[i] = r.Lease
	}
	return f.settle(ctx, OpNack, leases, func(i int, p *fakePending) {
		p.free = time.Now().Add(returns[i].Delay)
		p.consumer = ""
		if returns[i].NotStarted {
			p.attempt--
			return
		}
		p.err = returns[i].Error
		p.err = p.err[:min(len(p.err), backend.MaxErrorBytes)]
	})
}

// settle runs do for the leases that are still held and returns the others.
func (f *Fake) settle(ctx context.Context, op Op, leases []backend.Lease, do func(int, *fakePending)) (lost []string, err error) {
	err = f.call(ctx, op, func(*injected) error {
		f.state.Lock()
		defer f.state.Unlock()
		for i, lease := range leases {
			if p := f.pending[lease.ID]; p == nil || p.token() != lease.Token {
				lost = append(lost, lease.ID)
			} else {
				do(i, p)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return lost, nil
}

// DeadLetter moves a delivery to the dead letters.
func (f *Fake) DeadLetter(ctx context.Context, d *backend.Delivery, to string, cause backend.Cause) error {
	return f.call(ctx, OpDeadLetter, func(*injected) error {
		f.state.Lock()
		defer f.state.Unlock()
		p := f.pending[d.ID]
		if p == nil || p.token() != d.Token {
			return fmt.Errorf("fake: message %s: %w", d.ID, backend.ErrLeaseLost)
		}
		f.bury(p, f.target(to), cause, time.Now())
		return nil
	})
}

// CheckDeadLetter refuses the stream itself.
func (f *Fake) CheckDeadLetter(name string) error {
	if name == f.info.Stream {
		return fmt.Errorf("fake: %q is the stream itself", name)
	}
	return nil
}

// bury moves p to the dead letters.
func (f *Fake) bury(p *fakePending, to string, cause backend.Cause, now time.Time) backend.DeadLetter {
	f.letterID++
	header := maps.Clone(p.entry.header)
	redrives, _ := strconv.Atoi(header[backend.HeaderRedrives])
	delete(header, backend.HeaderRedrives)
	letter := backend.DeadLetter{
		ID: fmt.Sprintf("dead-%06d", f.letterID), Data: bytes.Clone(p.entry.data), Headers: header,
		Stream: f.info.Stream, Group: f.info.Group, OriginID: p.entry.id, Attempts: cause.Attempts(p.attempt),
		Reason: cause.Reason, Error: cause.Error[:min(len(cause.Error), backend.MaxErrorBytes)],
		Consumer: p.consumer, Redrives: redrives, Enqueued: p.entry.at, DeadAt: now,
	}
	f.letters[to] = append(f.letters[to], letter)
	delete(f.pending, p.entry.id)
	return letter
}

// List returns dead letters, oldest first.
func (f *Fake) List(ctx context.Context, from, after string, limit int) (list []backend.DeadLetter, err error) {
	err = f.call(ctx, OpList, func(*injected) error {
		f.state.Lock()
		defer f.state.Unlock()
		for _, letter := range f.letters[f.target(from)] {
			if letter.ID > after && len(list) < limit {
				letter.Data, letter.Headers = bytes.Clone(letter.Data), maps.Clone(letter.Headers)
				list = append(list, letter)
			}
		}
		return nil
	})
	return list, err
}

// Redrive appends the message again and removes the dead letter, in one step.
func (f *Fake) Redrive(ctx context.Context, from string, letter backend.DeadLetter) error {
	return f.call(ctx, OpRedrive, func(*injected) error {
		f.state.Lock()
		defer f.state.Unlock()
		at := f.letter(f.target(from), letter.ID)
		if at < 0 {
			return fmt.Errorf("fake: dead letter %s: %w", letter.ID, backend.ErrNotFound)
		}
		letter = f.letters[f.target(from)][at]
		header := maps.Clone(letter.Headers)
		if header == nil {
			header = map[string]string{}
		}
		delete(header, backend.HeaderDeadline)
		header[backend.HeaderRedrives] = strconv.Itoa(letter.Redrives + 1)
		f.append(backend.Message{Data: letter.Data, Headers: header})
		f.letters[f.target(from)] = slices.Delete(f.letters[f.target(from)], at, at+1)
		return nil
	})
}

// Purge removes dead letters.
func (f *Fake) Purge(ctx context.Context, from string, ids []string) (removed int, err error) {
	err = f.call(ctx, OpPurge, func(*injected) error {
		f.state.Lock()
		defer f.state.Unlock()
		for _, id := range ids {
			if at := f.letter(f.target(from), id); at >= 0 {
				f.letters[f.target(from)] = slices.Delete(f.letters[f.target(from)], at, at+1)
				removed++
			}
		}
		return nil
	})
	return removed, err
}

func (s *fakeStream) letter(from, id string) int {
	return slices.IndexFunc(s.letters[from], func(l backend.DeadLetter) bool { return l.ID == id })
}
