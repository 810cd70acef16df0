package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// Config is the part of a topic's configuration that weir's own programs set
// and read. Zero fields are left out of a request.
type Config struct {
	Type                string `json:"type,omitempty"`
	Durability          string `json:"durability,omitempty"`
	IdempotencyWindowMS uint64 `json:"idempotency_window_ms,omitempty"`
	LeaseMS             uint64 `json:"lease_ms,omitempty"`
	MaxDeliveries       uint64 `json:"max_deliveries,omitempty"`
	DeadLetter          string `json:"dead_letter,omitempty"`
	LeasesDurable       bool   `json:"leases_durable,omitempty"`
	TTLMS               uint64 `json:"ttl_ms,omitempty"`
	CapRecords          uint64 `json:"cap_records,omitempty"`
	CapBytes            uint64 `json:"cap_bytes,omitempty"`
	Discard             string `json:"discard,omitempty"`
}

// QueueCounters are a queue's jobs: claimable now, leased, and moved aside.
type QueueCounters struct {
	Ready        uint64 `json:"ready"`
	InFlight     uint64 `json:"in_flight"`
	DeadLettered uint64 `json:"dead_lettered"`
}

// TopicState is the answer to GET topic.
type TopicState struct {
	Topic       string         `json:"topic"`
	Type        string         `json:"type"`
	HeadSeq     uint64         `json:"head_seq"`
	EarliestSeq uint64         `json:"earliest_seq"`
	Count       uint64         `json:"count"`
	Config      Config         `json:"config"`
	Queue       *QueueCounters `json:"queue"` // nil for a log
}

// Topic reads a topic's state without marking it as read.
func (c *Client) Topic(ctx context.Context, topic string) (TopicState, error) {
	var out TopicState
	err := c.call(ctx, callTimeout, http.MethodGet, topicPath(topic, "")+"?touch=false", nil, &out)
	return out, err
}

// PutTopic creates the topic or replaces its configuration.
func (c *Client) PutTopic(ctx context.Context, topic string, cfg Config) error {
	var out struct{}
	return c.call(ctx, callTimeout, http.MethodPut, topicPath(topic, ""), cfg, &out)
}

// Write is the body of a write. Records are JSON values.
type Write struct {
	Records        []WriteRecord `json:"records"`
	IdempotencyKey string        `json:"idempotency_key,omitempty"`
	Config         *Config       `json:"config,omitempty"` // used if the call creates the topic
	Create         *bool         `json:"create,omitempty"` // nil: the configuration's auto_create
}

// WriteRecord is one record to write.
type WriteRecord struct {
	Data json.RawMessage `json:"data"`
	Tag  *string         `json:"tag,omitempty"`
	Meta json.RawMessage `json:"meta,omitempty"` // an object
}

// WriteResult is the answer to a write. Count is the number of records of the
// first write with the same idempotency key if Deduped is set.
type WriteResult struct {
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
	Count    int    `json:"count"`
	Created  bool   `json:"created"`
	Deduped  bool   `json:"deduped"`
}

// Write appends the records, all or none.
func (c *Client) Write(ctx context.Context, topic string, w Write) (WriteResult, error) {
	var out WriteResult
	err := c.call(ctx, callTimeout, http.MethodPost, topicPath(topic, "")+"?return_seqs=false", w, &out)
	return out, err
}

// Diff is the body of a diff.
type Diff struct {
	FromSeq       uint64 `json:"from_seq"`
	Limit         int    `json:"limit,omitempty"`
	WaitMS        int64  `json:"wait_ms,omitempty"`
	IncludeTags   bool   `json:"include_tags,omitempty"`
	MaxBatchBytes int64  `json:"max_batch_bytes,omitempty"`
}

// Record is one record read; the pointers are nil where it has none.
type Record struct {
	Seq  uint64          `json:"$seq"`
	TS   int64           `json:"$ts"` // Unix ms
	Node *string         `json:"$node,omitempty"`
	Tag  *string         `json:"$tag,omitempty"`
	Data json.RawMessage `json:"data"`
	Meta json.RawMessage `json:"meta,omitempty"`
}

// Tombstone is a range of records that were lost against the reader's will.
type Tombstone struct {
	GapFrom        uint64              `json:"gap_from"`
	GapTo          uint64              `json:"gap_to"` // inclusive
	Reason         api.TombstoneReason `json:"reason"`
	MissedEstimate uint64              `json:"missed_estimate"`
}

// DiffResult is the answer to a diff.
type DiffResult struct {
	Records     []Record   `json:"records"`
	NextFromSeq uint64     `json:"next_from_seq"`
	HeadSeq     uint64     `json:"head_seq"`
	EarliestSeq uint64     `json:"earliest_seq"`
	CaughtUp    bool       `json:"caught_up"`
	Tombstone   *Tombstone `json:"tombstone"`
}

// Diff reads after a cursor and waits up to d.WaitMS for something to answer.
func (c *Client) Diff(ctx context.Context, topic string, d Diff) (DiffResult, error) {
	timeout := callTimeout + time.Duration(d.WaitMS)*time.Millisecond
	var out DiffResult
	err := c.call(ctx, timeout, http.MethodPost, topicPath(topic, "diff"), d, &out)
	return out, err
}

// Delete is the body of delete records: those below BeforeSeq (if not nil) whose
// tag matches Match (if not nil).
type Delete struct {
	BeforeSeq *uint64  `json:"before_seq,omitempty"`
	Match     []string `json:"match,omitempty"` // "tag", "Eq" or "Glob", value
}

// DeleteResult is the answer to delete records.
type DeleteResult struct {
	Deleted uint64 `json:"deleted"`
}

// DeleteRecords removes records for good.
func (c *Client) DeleteRecords(ctx context.Context, topic string, d Delete) (DeleteResult, error) {
	var out DeleteResult
	err := c.call(ctx, callTimeout, http.MethodPost, topicPath(topic, "delete"), d, &out)
	return out, err
}
