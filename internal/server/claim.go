package server

import (
	"context"
	"net/http"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
)

// postClaim leases jobs.
func (q *request) postClaim() error {
	s, name := q.s, q.topic()
	req, err := api.DecodeClaim(q.body, &s.limits, &q.warnings)
	if err != nil {
		return err
	}
	if err := q.strict(); err != nil {
		return err
	}
	if err := api.CheckClaim(&req, &s.limits); err != nil {
		return q.queueFirst(name, err)
	}
	if req.WaitMS > 0 {
		defer q.mayTakeLong()()
	}
	q.out = api.AppendClaimHead(q.out[:0], name)
	req.MaxBytes = api.MaxClaimBytes
	res, err := q.eng.Claim(q.r.Context(), name, &req, func(j *api.Job) {
		q.room.askOnce(&req.MaxBytes)
		q.out = api.AppendClaimJob(q.out, j, &q.times)
	})
	if err != nil {
		return err
	}
	q.out = api.AppendClaimTail(q.out, &res, q.millis())
	return q.send(http.StatusOK)
}

// queueFirst lets a problem with the topic take precedence over err.
func (q *request) queueFirst(name string, err error) error {
	state, terr := q.eng.Topic(name, false)
	if terr != nil {
		return terr
	}
	if state.Config.Type != api.TypeQueue {
		return api.Errorf(api.CodeNotAQueue, "topic %q is a log; claims need a topic of type queue", name).With("topic", name)
	}
	return err
}

func (q *request) postAck() error { return q.settleJobs(api.SettleAck, (*engine.Engine).Ack) }

func (q *request) postNack() error { return q.settleJobs(api.SettleNack, (*engine.Engine).Nack) }

func (q *request) postExtend() error { return q.settleJobs(api.SettleExtend, (*engine.Engine).Extend) }

// postOffered adds up what the producers of a queue were offered.
func (q *request) postOffered() error {
	add, err := api.DecodeTally(q.body, &q.warnings)
	if err != nil {
		return err
	}
	if err := q.strict(); err != nil {
		return err
	}
	res, err := q.eng.Tally(q.topic(), add)
	if err != nil {
		return err
	}
	q.out = api.AppendTally(q.out[:0], q.topic(), &res, q.millis())
	return q.send(http.StatusOK)
}

type settleVerb func(*engine.Engine, context.Context, string, *api.SettleRequest) (api.SettleResult, error)

// settleJobs completes, gives back or keeps leased jobs.
func (q *request) settleJobs(kind api.SettleKind, do settleVerb) error {
	if err := api.DecodeSettle(kind, q.body, &q.s.limits, &q.settle, &q.warnings); err != nil {
		return err
	}
	if err := q.strict(); err != nil {
		return err
	}
	res, err := do(q.eng, q.r.Context(), q.topic(), &q.settle)
	if err != nil {
		return err
	}
	q.out = api.AppendSettleResult(q.out[:0], kind, q.topic(), &res, q.millis())
	return q.send(http.StatusOK)
}
