package embedded

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
)

// service makes the calls of a server on the engine itself. Verbs that wait for the log
// continue after the context of their call has ended: a hung disk does not hold up
// callers with a deadline.
type service struct {
	e    *engine.Engine
	late *sync.WaitGroup // verbs in progress; the engine is closed after them
	look bool            // reading does not count as such
}

// promptly runs a verb and returns its result or, once ctx has ended, that the outcome
// is unknown.
func promptly[T any](ctx context.Context, s service, verb func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	s.late.Go(func() {
		var a answer
		a.value, a.err = verb()
		done <- a
	})
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
	}
	select {
	case a := <-done: // both at once: a known outcome is better
		return a.value, a.err
	default:
		var none T
		return none, fmt.Errorf("%w: %w", backend.ErrOutcomeUnknown, ctx.Err())
	}
}

func (s service) Topic(ctx context.Context, name string) (api.TopicState, error) {
	return promptly(ctx, s, func() (api.TopicState, error) { return s.e.Topic(name, false) })
}

// Writable reports whether the engine takes writes, and if not, why.
func (s service) Writable(context.Context) (ok bool, why string, err error) {
	ok, why = s.e.Writable()
	return ok, why, nil
}

func (s service) PutTopic(ctx context.Context, name string, cfg api.Config) error {
	_, err := promptly(ctx, s, func() (api.PutTopicResult, error) { return s.e.PutTopic(ctx, name, cfg) })
	return err
}

// Write waits for room while the log is behind, until ctx ends: there is no connection
// waiting for an answer.
func (s service) Write(ctx context.Context, name string, req *api.WriteRequest) (api.WriteResult, error) {
	own := *req
	own.DisableBackpressure = true
	return promptly(ctx, s, func() (api.WriteResult, error) { return s.e.Write(ctx, name, &own) })
}

// WriteEach waits as Write does.
func (s service) WriteEach(ctx context.Context, name string, reqs []api.WriteRequest) ([]api.WriteOutcome, error) {
	own := slices.Clone(reqs)
	for i := range own {
		own[i].DisableBackpressure = true
	}
	return promptly(ctx, s, func() ([]api.WriteOutcome, error) { return s.e.WriteEach(ctx, name, own) })
}

func (s service) Claim(ctx context.Context, name string, req *api.ClaimRequest) ([]api.HeldJob, time.Duration, error) {
	type claimed struct {
		jobs   []api.HeldJob
		waited time.Duration
	}
	c, err := promptly(ctx, s, func() (c claimed, _ error) {
		res, err := s.e.Claim(ctx, name, req, func(j *api.Job) {
			c.jobs = append(c.jobs, api.HeldJob{
				Record: own(&j.Record), Lease: strconv.FormatUint(j.LeaseID, 16), Deliveries: j.Deliveries,
			})
		})
		c.waited = res.Waited
		return c, err
	})
	return c.jobs, c.waited, err
}

// OldestReady is since when the first job that can be claimed waits.
func (s service) OldestReady(ctx context.Context, name string) (int64, error) {
	return promptly(ctx, s, func() (int64, error) {
		since, _, err := s.e.OldestReady(ctx, name, true)
		return since, err
	})
}

func (s service) Tally(ctx context.Context, name string, add []uint32) (api.TallyResult, error) {
	return promptly(ctx, s, func() (api.TallyResult, error) { return s.e.Tally(name, add) })
}

func (s service) Pause(ctx context.Context, name string, paused bool) error {
	_, err := promptly(ctx, s, func() (struct{}, error) { return struct{}{}, s.e.Pause(name, paused) })
	return err
}

// RemoveTopic deletes a topic; an absent one is no error.
func (s service) RemoveTopic(ctx context.Context, name string) error {
	_, err := promptly(ctx, s, func() (api.DeleteTopicResult, error) { return s.e.DeleteTopic(ctx, name, false) })
	return err
}

// own copies a record that is valid only during a visit.
func own(r *api.Record) api.Record {
	c := *r
	c.Node, c.Tag, c.Data, c.Meta = slices.Clone(r.Node), slices.Clone(r.Tag), slices.Clone(r.Data), slices.Clone(r.Meta)
	c.FairKey = slices.Clone(r.FairKey)
	return c
}

func (s service) Settle(ctx context.Context, name string, req *api.Settlement) ([]uint64, error) {
	call := api.SettleRequest{
		Node: req.Node, Seqs: req.Seqs, LeaseIDs: make([]uint64, len(req.Leases)), NumLeaseIDs: len(req.Leases),
		DelayMS: min(uint64(req.Delay.Milliseconds()), api.MaxNackDelayMS), NotStarted: req.NotStarted,
		LeaseMS: min(max(uint64(req.Lease.Milliseconds()), api.MinLeaseMS), api.MaxLeaseMS),
	}
	for i, lease := range req.Leases {
		call.LeaseIDs[i] = leaseID(lease)
	}
	do := s.e.Ack
	switch req.Kind {
	case api.SettleNack:
		do = s.e.Nack
	case api.SettleExtend:
		do = s.e.Extend
	}
	return promptly(ctx, s, func() ([]uint64, error) {
		res, err := do(ctx, name, &call)
		return res.Skipped, err
	})
}

// leaseID reads what Claim wrote; anything else is a lease that no one has.
func leaseID(s string) uint64 {
	id, err := strconv.ParseUint(s, 16, 64)
	if err != nil || id == 0 {
		return api.NoLease
	}
	return id
}

// Diff ends with ctx by itself.
func (s service) Diff(ctx context.Context, name string, req *api.DiffRequest) ([]api.Record, api.DiffResult, error) {
	var records []api.Record
	read := s.e.Diff
	if s.look {
		read = s.e.Peek
	}
	res, err := read(ctx, name, req, func(r *api.Record) { records = append(records, own(r)) })
	return records, res, err
}

func (s service) Delete(ctx context.Context, name string, req *api.DeleteRequest) (uint64, error) {
	return promptly(ctx, s, func() (uint64, error) {
		res, err := s.e.DeleteRecords(ctx, name, req)
		return res.Deleted, err
	})
}
