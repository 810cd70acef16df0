package client

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// Claim leases up to req.Max jobs; it may return fewer, or none. While there are none it
// waits up to req.WaitMS for one, unless the server is too old for that or stopping. waited
// is how long the server has waited before it leased the jobs, or gave up.
func (c *Client) Claim(ctx context.Context, topic string, req *api.ClaimRequest) (_ []api.HeldJob, waited time.Duration, _ error) {
	in := struct {
		Node    string `json:"node"`
		Max     int    `json:"max"`
		LeaseMS uint64 `json:"lease_ms,omitempty"` // 0: the queue's
		WaitMS  uint32 `json:"wait_ms,omitempty"`
	}{req.Node, req.Max, req.LeaseMS, req.WaitMS}
	var out claimed
	timeout := callTimeout + time.Duration(req.WaitMS)*time.Millisecond
	if err := c.call(ctx, timeout, http.MethodPost, topicPath(topic, "claim"), encode(in), &out); err != nil {
		return nil, 0, err
	}
	return out.Jobs, out.Waited, nil
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
		aboutTopic
		Skipped []uint64 `json:"skipped"`
	}
	err = c.change(ctx, callTimeout, http.MethodPost, topicPath(topic, verb), encode(in), &out)
	return out.Skipped, err
}

// Pause makes a queue hand out no more jobs, or hand them out again.
func (c *Client) Pause(ctx context.Context, topic string, paused bool) error {
	verb := "resume"
	if paused {
		verb = "pause"
	}
	var out aboutTopic
	return c.change(ctx, callTimeout, http.MethodPost, topicPath(topic, verb), nil, &out)
}

// Tally adds to the counters of a queue's producers.
func (c *Client) Tally(ctx context.Context, topic string, add []uint32) (api.TallyResult, error) {
	in := struct {
		Of   int      `json:"of"`
		Bins []int    `json:"bins"`
		Add  []uint32 `json:"add"`
	}{Of: len(add), Bins: []int{}, Add: []uint32{}}
	for i, n := range add {
		if n > 0 {
			in.Bins, in.Add = append(in.Bins, i), append(in.Add, n)
		}
	}
	var out struct {
		aboutTopic
		Bins  []int    `json:"bins"`
		Sums  []uint32 `json:"sums"`
		Head  uint64   `json:"head_seq"`
		Count uint64   `json:"count"`
		Queue *struct {
			Ready     uint64 `json:"ready"`
			InFlight  uint64 `json:"in_flight"`
			Finished  int64  `json:"finished"`
			Scheduled uint64 `json:"scheduled"`
			Paused    bool   `json:"paused"`
		} `json:"queue"`
	}
	if err := c.call(ctx, callTimeout, http.MethodPost, topicPath(topic, "offered"), encode(in), &out); err != nil {
		return api.TallyResult{}, err
	}
	res := api.TallyResult{Sums: make([]uint32, len(add)), Exists: out.Queue != nil}
	for i, bin := range out.Bins {
		if bin < 0 || bin >= len(add) || i >= len(out.Sums) {
			return res, fmt.Errorf("the answer of %s names counters that were not asked for", c.base)
		}
		res.Sums[bin] = out.Sums[i]
	}
	if q := out.Queue; q != nil {
		res.HeadSeq, res.Count, res.Finished = out.Head, out.Count, q.Finished
		res.Queue.Ready, res.Queue.InFlight, res.Queue.Scheduled, res.Paused = q.Ready, q.InFlight, q.Scheduled, q.Paused
		res.Queue.Delayed = out.Count - min(q.Ready+q.InFlight, out.Count) // who is neither
	}
	return res, nil
}
