package queue

import (
	"context"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

// Stats reads the queue. Lag counts jobs that can be claimed and those given back for
// later: both are still to be done and no one holds them. The age is that of the oldest unfinished
// message; it counts as pending while any is leased, and is an estimate if none is. While
// messages are delayed it is that of the first job that can be claimed, if the service says
// so: in front of it may be one that is not due. A queue that does not exist yet is empty. A
// log has no work: ErrGroupNotFound.
func (b *Backend) Stats(ctx context.Context) (backend.Stats, error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return backend.Stats{}, err
	}
	defer leave()
	st, err := b.svc.Topic(ctx, b.opt.Topic)
	var missing error
	switch {
	case api.IsCode(err, api.CodeTopicNotFound):
		missing = b.fail(err, false)
	case err != nil:
		return backend.Stats{}, b.fail(err, false)
	case st.Config.Type != api.TypeQueue:
		return backend.Stats{}, translate(notAQueue(b.opt.Topic), false)
	}
	out := backend.Stats{At: b.now(), OldestSource: backend.AgeNone, Missing: missing}
	out.XLen, out.Pending, out.Delayed, out.Lag = numbers(&st)
	out.Paused = st.Config.Paused
	if out.Pending+*out.Lag > 0 {
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

// numbers returns the counts of stored, leased, never claimed and not yet due, and other records.
func numbers(st *api.TopicState) (stored, pending, scheduled int64, lag *int64) {
	stored, pending, scheduled = int64(st.Count), int64(st.Queue.InFlight), int64(st.Queue.Scheduled)
	left := max(stored-pending-scheduled, 0)
	return stored, pending, scheduled, &left
}

// retrying returns the count of those that were given back and are not due.
func retrying(st *api.TopicState) int64 {
	return int64(st.Queue.Delayed - min(st.Queue.Scheduled, st.Queue.Delayed))
}

// readier is a Service that knows since when the first job that can be claimed waits, in
// Unix ms; 0 if it does not, or if there is none.
type readier interface {
	OldestReady(ctx context.Context, name string) (int64, error)
}

// readAge fills in the age of the first live record, or, while messages are delayed, of
// the first job that can be claimed.
func (b *Backend) readAge(ctx context.Context, s *backend.Stats) error {
	if s.Delayed > 0 {
		s.OldestSource, s.Approx = backend.AgeUnknown, true
		if r, ok := b.svc.(readier); ok {
			since, err := r.OldestReady(ctx, b.opt.Topic)
			if err != nil {
				return err
			}
			if since > 0 {
				s.OldestAge, s.OldestSource = max(s.At.Sub(time.UnixMilli(since)), 0), backend.AgeBacklog
			}
		}
		return nil
	}
	records, _, err := b.svc.Diff(ctx, b.opt.Topic, &api.DiffRequest{Limit: 1, OmitData: true, MaxBatchBytes: 1})
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
	s.XLen, s.Pending, s.Delayed, s.Lag = numbers(&st)
	s.Retrying = retrying(&st)
	if st.Config.Type != api.TypeQueue {
		*s.Lag = 0
	}
	workers, finished := s.Pending, int64(st.HeadSeq-st.Count)-b.otherwise.Load()
	s.Workers, s.Counted, s.Finished, s.Paused = &workers, true, &finished, st.Config.Paused
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
