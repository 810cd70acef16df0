package server

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/relay"
)

// socketClaims is how many claims of one WebSocket may wait for jobs at a time.
const socketClaims = 16

// givingBack is how long it may take to give back the jobs of a client that has gone.
const givingBack = 5 * time.Second

// claims are the claims of a WebSocket that wait.
type claims struct {
	waiting atomic.Int64
	running sync.WaitGroup
}

// settlers are the calls of the engine by kind.
var settlers = [...]settleVerb{api.SettleAck: (*engine.Engine).Ack, api.SettleNack: (*engine.Engine).Nack, api.SettleExtend: (*engine.Engine).Extend}

// mayUse makes the checks of a call on a queue that precede the engine's. A relay's key is its
// upstream's to check.
func (k *socket) mayUse(queue string, need scope) error {
	if !k.key.has(need) {
		return errScope(need)
	}
	if !k.key.allows(queue) {
		return errBodyPrefix("topic", queue)
	}
	return nil
}

// claim leases jobs. One that may wait does so beside the messages that follow.
func (k *socket) claim(ctx context.Context, m *api.SocketMessage, body []byte) {
	if err := k.mayUse(m.Topic, scopeRead|scopeWrite); err != nil {
		k.refuse(m.RequestID, err)
		return
	}
	if m.Claim.WaitMS == 0 {
		k.claimNow(ctx, k.out, m, body, k.warnings, func() {})
		return
	}
	if k.claims.waiting.Load() >= socketClaims {
		k.refuse(m.RequestID, api.OverFixed("max_waiting_claims_per_socket", socketClaims))
		return
	}
	holder, limit := k.key.counted(), k.s.limits.MaxInflightPerKey
	if holder != nil && !holder.inflight.take(1, limit) {
		k.refuse(m.RequestID, api.OverLimit("max_inflight_per_key", limit))
		return
	}
	k.claims.waiting.Add(1)
	own, text, warnings := *m, slices.Clone(body), slices.Clone(k.warnings)
	leave := sync.OnceFunc(func() {
		k.claims.waiting.Add(-1)
		if holder != nil {
			holder.inflight.give(1)
		}
	})
	k.claims.running.Go(func() {
		defer leave()
		var out *relay.Publisher
		if k.out != nil { // the socket's own passes on one message after the other
			out = k.s.relay.NewPublisher(k.caller, k.strict)
			defer out.Close()
		}
		if k.s.guard(func() { k.claimNow(ctx, out, &own, text, warnings, leave) }) {
			_ = k.conn.CloseNow()
		}
	})
}

// claimNow makes a claim, of the upstream if the server is a relay, and queues its answer. The
// jobs of an answer that is not sent go back. It calls leave before the client can claim again.
func (k *socket) claimNow(ctx context.Context, out *relay.Publisher, m *api.SocketMessage, body []byte, warnings api.Warnings, leave func()) {
	a := answer{room: k.s.share()}
	var err error
	if out != nil {
		a.msg, err = out.Publish(ctx, body)
		a.unsent = func() { k.giveBackUpstream(m, a.msg) }
	} else {
		back := api.SettleRequest{Node: m.Claim.Node, NotStarted: true}
		a.msg, err = k.claimHere(ctx, m, &back, &a.room)
		a.msg = warnings.Append(a.msg)
		a.unsent = func() { k.giveBack(m.Topic, &back) }
	}
	leave()
	if err != nil {
		k.refuse(m.RequestID, err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queueAnswer(a)
}

// claimHere makes a claim and fills back with its jobs, and room with what its answer takes.
func (k *socket) claimHere(ctx context.Context, m *api.SocketMessage, back *api.SettleRequest, room *share) ([]byte, error) {
	start := time.Now()
	m.Claim.MaxBytes = api.MaxClaimBytes
	answer := api.AppendClaimHead(nil, m.Topic)
	var times api.Times
	res, err := k.eng.Claim(ctx, m.Topic, &m.Claim, func(j *api.Job) {
		room.askOnce(&m.Claim.MaxBytes)
		answer = api.AppendClaimJob(answer, j, &times)
		back.Seqs, back.LeaseIDs = append(back.Seqs, j.Seq), append(back.LeaseIDs, j.LeaseID)
	})
	if err != nil {
		room.holds(0)
		return nil, err
	}
	msg := api.AppendSocketClaimed(nil, m.RequestID, api.AppendClaimTail(answer, &res, since(start)))
	room.holds(len(msg))
	return msg, nil
}

// giveBack makes jobs claimable again that the client was never told of.
func (k *socket) giveBack(queue string, back *api.SettleRequest) {
	if len(back.Seqs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), givingBack)
	defer cancel()
	if _, err := k.eng.Nack(ctx, queue, back); err != nil {
		k.s.log.Warn("jobs claimed for a WebSocket that has ended stay leased until their deadline", "topic", queue, "jobs", len(back.Seqs), "error", err)
	}
}

// giveBackUpstream is giveBack for jobs that a relay has from its upstream.
func (k *socket) giveBackUpstream(m *api.SocketMessage, claimed []byte) {
	var got struct {
		Claimed []struct {
			Seq   uint64 `json:"$seq"`
			Lease string `json:"lease_id"`
		}
	}
	if err := json.Unmarshal(claimed, &got); err != nil || len(got.Claimed) == 0 {
		return // it is an error, or has no jobs
	}
	nack := api.AppendString(append([]byte(nil), `{"op":"nack","topic":`...), m.Topic)
	nack = append(api.AppendString(append(nack, `,"node":`...), m.Claim.Node), `,"started":false,"seqs":[`...)
	var ids []byte
	for i, j := range got.Claimed {
		if i > 0 {
			nack, ids = append(nack, ','), append(ids, ',')
		}
		nack, ids = strconv.AppendUint(nack, j.Seq, 10), api.AppendString(ids, j.Lease)
	}
	nack = append(append(append(nack, `],"lease_ids":[`...), ids...), "]}"...)
	ctx, cancel := context.WithTimeout(context.Background(), givingBack)
	defer cancel()
	out := k.s.relay.NewPublisher(k.caller, false)
	defer out.Close()
	if _, err := out.Publish(ctx, nack); err != nil {
		k.s.log.Warn("jobs claimed for a WebSocket that has ended stay leased until their deadline", "topic", m.Topic, "jobs", len(got.Claimed), "error", err)
	}
}

// settle completes, gives back or keeps leased jobs.
func (k *socket) settle(ctx context.Context, m *api.SocketMessage, body []byte) {
	start, kind := time.Now(), m.Op.Settles()
	err := k.mayUse(m.Topic, scopeWrite)
	if err == nil {
		err = m.Wrong
	}
	if err != nil {
		k.refuse(m.RequestID, err)
		return
	}
	if k.out != nil {
		k.passOn(ctx, body, m.RequestID)
		return
	}
	res, err := settlers[kind](k.eng, ctx, m.Topic, &m.Settle)
	if err != nil {
		k.refuse(m.RequestID, err)
		return
	}
	k.answer(k.warnings.Append(api.AppendSocketSettled(nil, m.RequestID, kind, m.Topic, &res, since(start))))
}

// since is the time since start in milliseconds.
func since(start time.Time) float64 { return float64(time.Since(start)) / float64(time.Millisecond) }
