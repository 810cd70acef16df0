package main

import (
	"context"
	"slices"

	"github.com/weirmq/weir/backend"
)

// Faults that can be planted, to see that a run finds them.
const (
	faultAckFirst     = "ack-first"     // a message is acknowledged before its handler begins
	faultDropAck      = "drop-ack"      // an ack is said to be done and was not sent
	faultCountTwice   = "count-twice"   // a delivery counts as two
	faultRunTwice     = "run-twice"     // a delivery is given to two handlers
	faultBuryEarly    = "bury-early"    // a message is dead one delivery before the limit
	faultDoneAndDead  = "done-and-dead" // an acknowledged message becomes a dead letter
	faultPublishTwice = "publish-twice" // a message is stored twice
	faultUnsaid       = "unsaid"        // a stored message is said not to be
)

// hits is hit for a message that this worker has claimed.
func (r *recorder) hits(id string) bool {
	seq, known := r.seqs.Load(id)
	return known && hit(seq.(int))
}

// hit reports whether a fault is planted at a message.
func hit(seq int) bool { return seq%20 == 3 || kindOf(seq) == kindFails }

// spoilClaim plants the faults of claims.
func (r *recorder) spoilClaim(ctx context.Context, got *backend.Claimed) {
	for _, d := range slices.Clone(got.Deliveries) {
		t, err := parseTask(d.Data)
		if err != nil || !hit(t.seq) || d.Attempt > 1 {
			continue
		}
		switch r.fault {
		case faultRunTwice:
			again := *d
			got.Deliveries = append(got.Deliveries, &again)
		case faultCountTwice:
			r.countTwice(ctx, d)
		}
	}
}

// countTwice raises the count of a delivery by one, as a claim that nobody made would.
func (r *recorder) countTwice(ctx context.Context, d *backend.Delivery) {
	claim := r.client.Do(ctx, "XCLAIM", stream, group, d.Consumer, 0, d.ID, "RETRYCOUNT", d.Attempt+1, "JUSTID")
	if claim.Err() == nil {
		d.Attempt++
	}
}

// spoiledAck is Ack, with the faults of acks planted.
func (r *recorder) spoiledAck(ctx context.Context, leases []backend.Lease) ([]string, error) {
	if r.fault != faultDropAck && r.fault != faultDoneAndDead {
		return r.abilities.Ack(ctx, leases)
	}
	var pass []backend.Lease
	for _, l := range leases {
		if l.Attempt > 1 || !r.hits(l.ID) {
			pass = append(pass, l)
			continue
		}
		if r.fault == faultDoneAndDead {
			cause := backend.Cause{Reason: backend.ReasonMaxDeliveries}
			_ = r.abilities.DeadLetter(ctx, &backend.Delivery{Lease: l}, "", cause)
		}
	}
	return r.abilities.Ack(ctx, pass)
}

// spoiledNack is Nack, with the fault of nacks planted.
func (r *recorder) spoiledNack(ctx context.Context, returns []backend.Return) ([]string, error) {
	if r.fault != faultBuryEarly {
		return r.abilities.Nack(ctx, returns)
	}
	var pass []backend.Return
	for _, back := range returns {
		if back.NotStarted || back.Attempt != r.limit-1 {
			pass = append(pass, back)
			continue
		}
		cause := backend.Cause{Reason: backend.ReasonMaxDeliveries, Error: back.Error}
		_ = r.abilities.DeadLetter(ctx, &backend.Delivery{Lease: back.Lease}, "", cause)
	}
	return r.abilities.Nack(ctx, pass)
}
