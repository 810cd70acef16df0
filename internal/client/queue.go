package client

import (
	"context"
	"encoding/json"
	"net/http"
)

// Claim is the body of a claim.
type Claim struct {
	Node    string `json:"node"`
	Max     int    `json:"max"`
	LeaseMS int64  `json:"lease_ms,omitempty"` // 0: the queue's
}

// Job is one claimed job.
type Job struct {
	Seq        uint64          `json:"$seq"`
	TS         int64           `json:"$ts"` // Unix ms
	LeaseID    string          `json:"lease_id"`
	Deadline   int64           `json:"deadline"` // Unix ms by the server's clock
	Deliveries uint64          `json:"deliveries"`
	Tag        *string         `json:"$tag"`
	Data       json.RawMessage `json:"data"`
	Meta       json.RawMessage `json:"meta"`
}

// ClaimResult is the answer to a claim; Ready is what is left to claim.
type ClaimResult struct {
	Claimed []Job  `json:"claimed"`
	Ready   uint64 `json:"ready"`
}

// Claim leases up to max jobs; fewer, even none, is normal.
func (c *Client) Claim(ctx context.Context, topic string, req Claim) (ClaimResult, error) {
	var out ClaimResult
	err := c.call(ctx, callTimeout, http.MethodPost, topicPath(topic, "claim"), req, &out)
	return out, err
}

// Settle is the body of ack, nack and extend. LeaseIDs is as long as Seqs.
type Settle struct {
	Node     string   `json:"node"`
	Seqs     []uint64 `json:"seqs"`
	LeaseIDs []string `json:"lease_ids"`
	DelayMS  int64    `json:"delay_ms,omitempty"` // nack
	Started  *bool    `json:"started,omitempty"`  // nack; false: no handler began
	LeaseMS  int64    `json:"lease_ms,omitempty"` // extend
}

// SettleResult is the answer to ack, nack and extend: what was not held any
// more is in Skipped.
type SettleResult struct {
	Skipped []uint64 `json:"skipped"`
}

// Ack completes leased jobs.
func (c *Client) Ack(ctx context.Context, topic string, req Settle) (SettleResult, error) {
	return c.settle(ctx, topic, "ack", req)
}

// Nack gives leased jobs back, at once or after req.DelayMS.
func (c *Client) Nack(ctx context.Context, topic string, req Settle) (SettleResult, error) {
	return c.settle(ctx, topic, "nack", req)
}

// Extend sets the deadline of leased jobs to now plus req.LeaseMS.
func (c *Client) Extend(ctx context.Context, topic string, req Settle) (SettleResult, error) {
	return c.settle(ctx, topic, "extend", req)
}

func (c *Client) settle(ctx context.Context, topic, verb string, req Settle) (SettleResult, error) {
	var out SettleResult
	err := c.call(ctx, callTimeout, http.MethodPost, topicPath(topic, verb), req, &out)
	return out, err
}
