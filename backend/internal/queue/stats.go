package queue

import (
	"context"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

// Stats reads the queue. Lag counts jobs that can be claimed and delayed ones: both are
// still to be done and no one holds them. The age is that of the oldest unfinished
// message; it counts as pending while any is leased, and is an estimate if none is. A
// log has no work: ErrGroupNotFound.
func (b *Backend) Stats(ctx context.Context) (backend.Stats, error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return backend.Stats{}, err
	}
	defer leave()
	st, err := b.svc.Topic(ctx, b.opt.Topic)
	if err != nil {
		return backend.Stats{}, b.fail(err, false)
	}
	if st.Config.Type != api.TypeQueue {
		return backend.Stats{}, translate(notAQueue(b.opt.Topic), false)
	}
	out := backend.Stats{At: b.now(), OldestSource: backend.AgeNone}
	out.XLen, out.Pending, out.Lag = numbers(&st)
	out.Paused = st.Config.Paused
	if st.Count > 0 {
		if err := b.readAge(ctx, &out); err != nil {
			return backend.Stats{}, b.fail(err, false)
		}
	}
	dead, err := b.svc.Topic(ctx, b.info.DeadLetter)
	if err != nil && !api.IsCode(err, api.CodeTopicNotFound) {
		return out, nil // if the key may not read it, the number stays unknown
	}
	n := int64(dead.Count)
	out.DeadLetters = &n
	return out, nil
}

// clock is a Service that has a clock of its own.
type clock interface{ Now() time.Time }

// now is the time the records' timestamps are compared with.
func (b *Backend) now() time.Time {
	if c, ok := b.svc.(clock); ok {
		return c.Now()
	}
	return time.Now()
}

func notAQueue(topic string) *api.Error {
	return api.Errorf(api.CodeNotAQueue, "topic %q is a log and has no work", topic).With("topic", topic)
}

// numbers returns the counts of stored, leased and other records.
func numbers(st *api.TopicState) (stored, pending int64, lag *int64) {
	stored, pending = int64(st.Count), int64(st.Queue.InFlight)
	left := max(stored-pending, 0)
	return stored, pending, &left
}

// readAge fills in the age of the first live record.
func (b *Backend) readAge(ctx context.Context, s *backend.Stats) error {
	records, _, err := b.svc.Diff(ctx, b.opt.Topic, &api.DiffRequest{Limit: 1, MaxBatchBytes: 1})
	if err != nil {
		return err
	}
	if len(records) == 0 {
		return nil // done in the meantime
	}
	s.OldestAge = max(s.At.Sub(time.UnixMilli(records[0].TS)), 0)
	s.OldestSource, s.Approx = backend.AgeBacklog, true
	if s.Pending > 0 {
		s.OldestSource, s.Approx = backend.AgePending, false
	}
	return nil
}

// Signal reads the queue's own numbers, which are always known; the pending count is
// what workers would have published. An absent queue or a log holds no one up.
func (b *Backend) Signal(ctx context.Context, _ int64) (backend.Signal, error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return backend.Signal{}, err
	}
	defer leave()
	st, err := b.svc.Topic(ctx, b.opt.Topic)
	if err != nil && !api.IsCode(err, api.CodeTopicNotFound) {
		return backend.Signal{}, b.fail(err, false)
	}
	var s backend.Signal
	s.XLen, s.Pending, s.Lag = numbers(&st)
	if st.Config.Type != api.TypeQueue {
		*s.Lag = 0
	}
	workers, finished := s.Pending, int64(st.HeadSeq-st.Count)-b.otherwise.Load()
	s.Workers, s.Finished, s.Paused = &workers, &finished, st.Config.Paused
	return s, nil
}

// Pause pauses the queue or resumes it. A queue that is to be paused and does not exist is
// created; one that is to be resumed is not paused.
func (b *Backend) Pause(ctx context.Context, paused bool) error {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	err = b.svc.Pause(ctx, b.opt.Topic, paused)
	if api.IsCode(err, api.CodeTopicNotFound) {
		if !paused {
			return nil
		}
		if err = b.create(ctx); err == nil {
			err = b.svc.Pause(ctx, b.opt.Topic, true)
		}
	}
	return b.fail(err, true)
}

// PublishSignal does nothing, because the server itself counts.
func (b *Backend) PublishSignal(ctx context.Context, _ time.Duration) error {
	_, leave, err := b.enter(ctx)
	if err != nil {
		return err
	}
	leave()
	return nil
}
