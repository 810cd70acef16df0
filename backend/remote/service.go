package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/internal/queue"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/client"
)

// service makes the calls over HTTP.
type service struct{ c *client.Client }

// Now is the time by the server's clock.
func (s service) Now() time.Time { return s.c.Now() }

func (s service) Topic(ctx context.Context, name string) (api.TopicState, error) {
	st, err := ask(ctx, func() (client.TopicState, error) { return s.c.Topic(ctx, name) })
	out := api.TopicState{Topic: st.Topic, Config: configOf(&st.Config)}
	out.HeadSeq, out.EarliestSeq, out.Count = st.HeadSeq, st.EarliestSeq, st.Count
	if st.Type == "queue" {
		out.Config.Type = api.TypeQueue
	}
	if q := st.Queue; q != nil {
		out.Queue = api.QueueCounters{Ready: q.Ready, InFlight: q.InFlight, DeadLettered: q.DeadLettered}
	}
	return out, err
}

// configOf reads what a server echoes; names that this weir does not know are left out.
func configOf(c *client.Config) api.Config {
	cfg := api.Config{
		TTLMS: c.TTLMS, CapRecords: c.CapRecords, CapBytes: c.CapBytes, IdempotencyWindowMS: c.IdempotencyWindowMS, LeaseMS: c.LeaseMS,
		MaxDeliveries: c.MaxDeliveries, DeadLetter: c.DeadLetter, HasDeadLetter: c.DeadLetter != "", LeasesDurable: c.LeasesDurable,
	}
	if c.Type == "queue" {
		cfg.Type = api.TypeQueue
	}
	if c.Discard == "reject" {
		cfg.Discard = api.DiscardReject
	}
	cfg.Durability, _ = api.ParseDurability(c.Durability)
	return cfg
}

func configFor(c *api.Config) *client.Config {
	return &client.Config{
		Type: c.Type.String(), Durability: c.Durability.String(), IdempotencyWindowMS: c.IdempotencyWindowMS, LeasesDurable: c.LeasesDurable,
	}
}

func (s service) PutTopic(ctx context.Context, name string, cfg api.Config) error {
	_, err := ask(ctx, func() (struct{}, error) { return struct{}{}, s.c.PutTopic(ctx, name, *configFor(&cfg)) })
	return err
}

func (s service) Write(ctx context.Context, name string, req *api.WriteRequest) (api.WriteResult, error) {
	w := client.Write{Records: make([]client.WriteRecord, len(req.Records)), IdempotencyKey: string(req.IdempotencyKey), Create: req.Create}
	for i := range req.Records {
		r := &req.Records[i]
		w.Records[i] = client.WriteRecord{Data: r.Data, Meta: r.Meta}
		if r.HasTag {
			tag := string(r.Tag)
			w.Records[i].Tag = &tag
		}
	}
	if req.Config != nil {
		w.Config = configFor(req.Config)
	}
	res, err := ask(ctx, func() (client.WriteResult, error) { return s.c.Write(ctx, name, w) })
	return api.WriteResult{FirstSeq: res.FirstSeq, LastSeq: res.LastSeq, Count: res.Count, Created: res.Created, Deduped: res.Deduped}, err
}

func (s service) Claim(ctx context.Context, name string, req *api.ClaimRequest) ([]queue.Job, error) {
	res, err := ask(ctx, func() (client.ClaimResult, error) {
		return s.c.Claim(ctx, name, client.Claim{Node: req.Node, Max: req.Max, LeaseMS: int64(req.LeaseMS)})
	})
	jobs := make([]queue.Job, len(res.Claimed))
	for i := range res.Claimed {
		j := &res.Claimed[i]
		jobs[i] = queue.Job{Record: record(j.Seq, j.TS, j.Tag, j.Data, j.Meta), Lease: j.LeaseID, Deliveries: j.Deliveries}
	}
	return jobs, err
}

func record(seq uint64, ts int64, tag *string, data, meta json.RawMessage) api.Record {
	r := api.Record{Seq: seq, TS: ts, Data: data, Meta: meta}
	if tag != nil {
		r.Tag, r.HasTag = []byte(*tag), true
	}
	return r
}

func (s service) Settle(ctx context.Context, name string, req *queue.Settle) ([]uint64, error) {
	call := client.Settle{Node: req.Node, Seqs: req.Seqs, LeaseIDs: req.Leases}
	do := s.c.Ack
	switch req.Kind {
	case api.SettleNack:
		do = s.c.Nack
		call.DelayMS = req.Delay.Milliseconds()
		if req.NotStarted {
			call.Started = new(bool)
		}
	case api.SettleExtend:
		do = s.c.Extend
		call.LeaseMS = max(req.Lease.Milliseconds(), api.MinLeaseMS)
	}
	res, err := ask(ctx, func() (client.SettleResult, error) { return do(ctx, name, call) })
	return res.Skipped, err
}

func (s service) Diff(ctx context.Context, name string, req *api.DiffRequest) ([]api.Record, api.DiffResult, error) {
	res, err := ask(ctx, func() (client.DiffResult, error) {
		return s.c.Diff(ctx, name, client.Diff{
			FromSeq: req.FromSeq, Limit: req.Limit, WaitMS: int64(req.WaitMS), IncludeTags: req.IncludeTags, MaxBatchBytes: req.MaxBatchBytes,
		})
	})
	records := make([]api.Record, len(res.Records))
	for i := range res.Records {
		r := &res.Records[i]
		records[i] = record(r.Seq, r.TS, r.Tag, r.Data, r.Meta)
	}
	out := api.DiffResult{NextFromSeq: res.NextFromSeq, HeadSeq: res.HeadSeq, EarliestSeq: res.EarliestSeq}
	if t := res.Tombstone; t != nil {
		out.Tombstone = &api.Tombstone{GapFrom: t.GapFrom, GapTo: t.GapTo, Reason: t.Reason, MissedEstimate: t.MissedEstimate}
	}
	return records, out, err
}

func (s service) Delete(ctx context.Context, name string, req *api.DeleteRequest) (uint64, error) {
	var d client.Delete
	if req.HasBefore {
		d.BeforeSeq = &req.BeforeSeq
	}
	if req.Match != nil {
		d.Match = []string{"tag", "Eq", req.Match.Value}
	}
	res, err := ask(ctx, func() (client.DeleteResult, error) { return s.c.DeleteRecords(ctx, name, d) })
	return res.Deleted, err
}

// ask makes a call and names its error: *api.Error for an answer of the contract,
// else whether anything can have happened.
func ask[T any](ctx context.Context, call func() (T, error)) (T, error) {
	if err := ctx.Err(); err != nil {
		var none T
		return none, err // nothing was sent
	}
	out, err := call()
	return out, named(ctx, err)
}

func named(ctx context.Context, err error) error {
	var e *client.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e) && e.Code != "":
		detail := e.Detail
		if e.RetryAfter > 0 {
			detail = map[string]any{"retry_after_ms": float64(e.RetryAfter.Milliseconds())}
		}
		return &api.Error{Code: e.Code, Message: e.Message, Detail: detail}
	case client.Ambiguous(err):
		return also(ctx, fmt.Errorf("%w: %w", backend.ErrOutcomeUnknown, err))
	case client.Retryable(err):
		return also(ctx, fmt.Errorf("%w: %w", backend.ErrUnavailable, err))
	}
	return err
}

// also adds the context's error if it is what ended the call.
func also(ctx context.Context, err error) error {
	if cerr := ctx.Err(); cerr != nil && !errors.Is(err, cerr) {
		return fmt.Errorf("%w: %w", err, cerr)
	}
	return err
}
