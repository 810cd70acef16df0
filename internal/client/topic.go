package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// Topic reads a topic's state without marking it as read.
func (c *Client) Topic(ctx context.Context, topic string) (api.TopicState, error) {
	var out topicState
	err := c.get(ctx, topicPath(topic, "")+"?touch=false", &out)
	return out.noun(), err
}

// Writable reports whether the server takes writes, and if not, why. One that does not say
// so takes them.
func (c *Client) Writable(ctx context.Context) (ok bool, why string, err error) {
	var state struct {
		Writable *bool  `json:"writable"`
		Reason   string `json:"reason"`
	}
	err = c.get(ctx, "/v0/ready", &state)
	return state.Writable == nil || *state.Writable, state.Reason, err
}

// Behind returns for how long the copy of the server's log has not been whole; 0 if it is,
// or if there is none.
func (c *Client) Behind(ctx context.Context) (time.Duration, error) {
	var state struct {
		Replica struct {
			Lag int64 `json:"lag_ms"`
		} `json:"replica"`
	}
	err := c.get(ctx, "/v0/ready", &state)
	return time.Duration(state.Replica.Lag) * time.Millisecond, err
}

// PutTopic creates the topic or replaces its configuration. Type, durability,
// idempotency window and durable leases are taken from cfg; everything else gets its
// default.
func (c *Client) PutTopic(ctx context.Context, topic string, cfg api.Config) error {
	var out aboutTopic
	return c.change(ctx, callTimeout, http.MethodPut, topicPath(topic, ""), appendConfig(nil, &cfg), &out)
}

// Write appends the records, all or none. A topic it creates is configured as by
// PutTopic. If the idempotency key is a repeat, the result is that of the first write.
func (c *Client) Write(ctx context.Context, topic string, w *api.WriteRequest) (api.WriteResult, error) {
	var out writeResult
	body := appendWrite(make([]byte, 0, sizeOfWrite(w)), w)
	err := c.change(ctx, callTimeout, http.MethodPost, topicPath(topic, "")+"?return_seqs=false", body, &out)
	if err == nil && out.FirstSeq == 0 {
		err = unsure(&unreadable{c.base, errNothingStored})
	}
	return out.noun(), err
}

// WriteEach makes many writes to the topic, in one request and in their order, each with a
// key and an outcome of its own; see engine.WriteEach. They say the same of Create, and no
// more of how the topic is made. The error is why there are no outcomes:
// errors.ErrUnsupported if the server does not know the call, and has done nothing.
func (c *Client) WriteEach(ctx context.Context, topic string, writes []api.WriteRequest) ([]api.WriteOutcome, error) {
	size := 0
	for i := range writes {
		size += sizeOfWrite(&writes[i])
	}
	var answer struct {
		Results []writeOutcome `json:"results"`
	}
	err := c.change(ctx, callTimeout, http.MethodPost, topicPath(topic, "writes"), appendWrites(make([]byte, 0, size), writes), &answer)
	switch {
	case api.IsCode(err, api.CodeNotFound), IsStatus(err, http.StatusNotFound), IsStatus(err, http.StatusMethodNotAllowed):
		return nil, fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	case err != nil:
		return nil, err
	case len(answer.Results) != len(writes):
		return nil, &Unreachable{Err: fmt.Errorf("the answer has %d results for %d writes", len(answer.Results), len(writes))}
	}
	out := make([]api.WriteOutcome, len(writes))
	for i := range out {
		if out[i] = answer.Results[i].noun(); out[i].Err == nil && out[i].FirstSeq == 0 {
			out[i].Err = unsure(&unreadable{c.base, errNothingStored})
		}
	}
	return out, nil
}

// Diff reads after a cursor and waits up to d.WaitMS for something to answer.
func (c *Client) Diff(ctx context.Context, topic string, d *api.DiffRequest) ([]api.Record, api.DiffResult, error) {
	in := struct {
		FromSeq       uint64 `json:"from_seq"`
		Limit         int    `json:"limit,omitempty"`
		WaitMS        uint32 `json:"wait_ms,omitempty"`
		IncludeTags   bool   `json:"include_tags,omitempty"`
		IncludeMeta   bool   `json:"include_meta"`
		IncludeData   *bool  `json:"include_data,omitempty"`
		MaxBatchBytes int64  `json:"max_batch_bytes,omitempty"`
	}{d.FromSeq, d.Limit, d.WaitMS, d.IncludeTags, d.IncludeMeta, nil, d.MaxBatchBytes}
	if d.OmitData {
		in.IncludeData = new(bool)
	}
	var out struct {
		aboutTopic
		Records     Records    `json:"records"`
		NextFromSeq uint64     `json:"next_from_seq"`
		HeadSeq     uint64     `json:"head_seq"`
		EarliestSeq uint64     `json:"earliest_seq"`
		Tombstone   *tombstone `json:"tombstone"`
	}
	timeout := callTimeout + time.Duration(d.WaitMS)*time.Millisecond
	err := c.call(ctx, timeout, http.MethodPost, topicPath(topic, "diff"), encode(in), &out)
	res := api.DiffResult{NextFromSeq: out.NextFromSeq, HeadSeq: out.HeadSeq, EarliestSeq: out.EarliestSeq}
	if out.Tombstone != nil {
		gap := api.Tombstone(*out.Tombstone)
		res.Tombstone = &gap
	}
	return out.Records, res, err
}

// matchTimeout ends a delete that has to look at every record.
const matchTimeout = 10 * time.Minute

// Delete removes records for good and returns how many it removed.
func (c *Client) Delete(ctx context.Context, topic string, d *api.DeleteRequest) (uint64, error) {
	var in struct {
		BeforeSeq *uint64  `json:"before_seq,omitempty"`
		MinSeq    uint64   `json:"min_seq,omitempty"`
		Match     []string `json:"match,omitempty"` // "tag", "Eq" or "Glob", value
	}
	in.MinSeq = d.MinSeq
	if d.HasBefore {
		in.BeforeSeq = &d.BeforeSeq
	}
	if d.Match != nil {
		in.Match = []string{"tag", "Eq", d.Match.Value}
		if d.Match.Glob {
			in.Match = []string{"tag", "Glob", d.Match.Value + "*"}
		}
	}
	var out struct {
		aboutTopic
		Deleted uint64 `json:"deleted"`
	}
	timeout := callTimeout
	if d.Match != nil {
		timeout = matchTimeout
	}
	err := c.change(ctx, timeout, http.MethodPost, topicPath(topic, "delete"), encode(in), &out)
	return out.Deleted, err
}
