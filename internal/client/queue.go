package client

import (
	"context"
	"net/http"

	"github.com/weirmq/weir/internal/api"
)

// Claim leases up to req.Max jobs; it may return fewer, or none.
func (c *Client) Claim(ctx context.Context, topic string, req *api.ClaimRequest) ([]api.HeldJob, error) {
	in := struct {
		Node    string `json:"node"`
		Max     int    `json:"max"`
		LeaseMS uint64 `json:"lease_ms,omitempty"` // 0: the queue's
	}{req.Node, req.Max, req.LeaseMS}
	var out struct {
		Claimed []job `json:"claimed"`
	}
	err := c.call(ctx, callTimeout, http.MethodPost, topicPath(topic, "claim"), encode(in), &out)
	jobs := make([]api.HeldJob, len(out.Claimed))
	for i := range out.Claimed {
		j := &out.Claimed[i]
		jobs[i] = api.HeldJob{Record: j.noun(), Lease: j.LeaseID, Deliveries: j.Deliveries}
	}
	return jobs, err
}

// Settle acks, nacks or extends jobs that s.Node holds. It returns the numbers of those
// it no longer holds.
func (c *Client) Settle(ctx context.Context, topic string, s *api.Settlement) (skipped []uint64, err error) {
	in := struct {
		Node     string   `json:"node"`
		Seqs     []uint64 `json:"seqs"`
		LeaseIDs []string `json:"lease_ids"`
		DelayMS  int64    `json:"delay_ms,omitempty"` // nack
		Started  *bool    `json:"started,omitempty"`  // nack; false: no handler began
		LeaseMS  int64    `json:"lease_ms,omitempty"` // extend
	}{Node: s.Node, Seqs: s.Seqs, LeaseIDs: s.Leases}
	verb := "ack"
	switch s.Kind {
	case api.SettleNack:
		verb, in.DelayMS = "nack", s.Delay.Milliseconds()
		if s.NotStarted {
			in.Started = new(bool)
		}
	case api.SettleExtend:
		verb, in.LeaseMS = "extend", max(s.Lease.Milliseconds(), api.MinLeaseMS)
	}
	var out struct {
		Skipped []uint64 `json:"skipped"`
	}
	err = c.call(ctx, callTimeout, http.MethodPost, topicPath(topic, verb), encode(in), &out)
	return out.Skipped, err
}
