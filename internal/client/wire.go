package client

import (
	"strconv"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// The wire format, as far as package api does not have it: requests are appended,
// answers are read leniently, since the server may be newer.

// appendWrite appends the body of a write. Data and meta of the records are JSON.
func appendWrite(b []byte, w *api.WriteRequest) []byte {
	b = append(b, `{"records":[`...)
	for i := range w.Records {
		r := &w.Records[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, `{"data":`...), r.Data...)
		if r.HasTag {
			b = api.AppendString(append(b, `,"tag":`...), r.Tag)
		}
		if r.HasNode {
			b = api.AppendString(append(b, `,"node":`...), r.Node)
		}
		if r.Tier != api.TierNormal {
			b = api.AppendString(append(b, `,"priority":`...), r.Tier.String())
		}
		if len(r.FairKey) > 0 {
			b = api.AppendString(append(b, `,"fair_key":`...), r.FairKey)
		}
		if r.Delay > 0 {
			b = strconv.AppendUint(append(b, `,"delay_ms":`...), r.Delay, 10)
		}
		if len(r.Meta) > 0 {
			b = append(append(b, `,"meta":`...), r.Meta...)
		}
		b = append(b, '}')
	}
	b = append(b, ']')
	if w.HasIdempotencyKey {
		b = api.AppendString(append(b, `,"idempotency_key":`...), w.IdempotencyKey)
	}
	if w.Create != nil {
		b = strconv.AppendBool(append(b, `,"create":`...), *w.Create)
	}
	if w.Config != nil {
		b = appendConfig(append(b, `,"config":`...), w.Config)
	}
	if w.DisableBackpressure {
		b = append(b, `,"disable_backpressure":true`...)
	}
	return append(b, '}')
}

// appendWrites appends the body of many writes, which have neither a config nor anything
// but Create in common.
func appendWrites(b []byte, writes []api.WriteRequest) []byte {
	b = append(b, `{"writes":[`...)
	for i := range writes {
		w := writes[i]
		w.Create = nil
		if i > 0 {
			b = append(b, ',')
		}
		b = appendWrite(b, &w)
	}
	b = append(b, ']')
	if create := writes[0].Create; create != nil {
		b = strconv.AppendBool(append(b, `,"create":`...), *create)
	}
	return append(b, '}')
}

// writeOutcome is one of the answer to many writes.
type writeOutcome struct {
	writeResult
	Error *wireError `json:"error"`
}

func (o *writeOutcome) noun() api.WriteOutcome {
	out := api.WriteOutcome{WriteResult: o.writeResult.noun()}
	if o.Error != nil {
		out.Err = o.Error.noun(0)
	}
	return out
}

// sizeOfWrite estimates the size of what appendWrite appends.
func sizeOfWrite(w *api.WriteRequest) int {
	n := 512 + len(w.IdempotencyKey)
	for i := range w.Records {
		n += w.Records[i].Size() + len(w.Records[i].Tag) + len(w.Records[i].FairKey) +
			len(`{"data":,"tag":"","priority":"background","fair_key":"","delay_ms":,"meta":},`) + 11
	}
	return n
}

// appendConfig appends the part of a configuration that weir's own programs set. The
// rest is left to the server's defaults.
func appendConfig(b []byte, c *api.Config) []byte {
	b = append(append(b, `{"type":"`...), c.Type.String()...)
	b = append(append(b, `","durability":"`...), c.Durability.String()...)
	b = append(b, '"')
	if c.IdempotencyWindowMS > 0 {
		b = strconv.AppendUint(append(b, `,"idempotency_window_ms":`...), c.IdempotencyWindowMS, 10)
	}
	if c.LeasesDurable {
		b = append(b, `,"leases_durable":true`...)
	}
	return append(b, '}')
}

// topicState is the answer to GET topic; names this version of weir does not know are
// ignored.
type topicState struct {
	aboutTopic
	Type        string `json:"type"`
	HeadSeq     uint64 `json:"head_seq"`
	EarliestSeq uint64 `json:"earliest_seq"`
	Count       uint64 `json:"count"`
	Config      struct {
		Type                string `json:"type"`
		Durability          string `json:"durability"`
		IdempotencyWindowMS uint64 `json:"idempotency_window_ms"`
		LeaseMS             uint64 `json:"lease_ms"`
		MaxDeliveries       uint64 `json:"max_deliveries"`
		DeadLetter          string `json:"dead_letter"`
		LeasesDurable       bool   `json:"leases_durable"`
		TTLMS               uint64 `json:"ttl_ms"`
		CapRecords          uint64 `json:"cap_records"`
		CapBytes            uint64 `json:"cap_bytes"`
		Discard             string `json:"discard"`
		Paused              bool   `json:"paused"`
	} `json:"config"`
	Queue struct {
		Ready        uint64 `json:"ready"`
		InFlight     uint64 `json:"in_flight"`
		Delayed      uint64 `json:"delayed"`
		Scheduled    uint64 `json:"scheduled"`
		DeadLettered uint64 `json:"dead_lettered"`
	} `json:"queue"`
}

func (t *topicState) noun() api.TopicState {
	c := &t.Config
	out := api.TopicState{
		Topic: t.Topic, Queue: api.QueueCounters(t.Queue),
		TopicCounters: api.TopicCounters{HeadSeq: t.HeadSeq, EarliestSeq: t.EarliestSeq, Count: t.Count},
		Config: api.Config{
			TTLMS: c.TTLMS, CapRecords: c.CapRecords, CapBytes: c.CapBytes, IdempotencyWindowMS: c.IdempotencyWindowMS, LeaseMS: c.LeaseMS,
			MaxDeliveries: c.MaxDeliveries, DeadLetter: c.DeadLetter, HasDeadLetter: c.DeadLetter != "", LeasesDurable: c.LeasesDurable, Paused: c.Paused,
		},
	}
	if t.Type == "queue" || c.Type == "queue" {
		out.Config.Type = api.TypeQueue
	}
	if c.Discard == "reject" {
		out.Config.Discard = api.DiscardReject
	}
	out.Config.Durability, _ = api.ParseDurability(c.Durability)
	return out
}

// writeResult is the answer to a write.
type writeResult struct {
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
	HeadSeq  uint64 `json:"head_seq"`
	Count    int    `json:"count"`
	Created  bool   `json:"created"`
	Deduped  bool   `json:"deduped"`
}

func (r *writeResult) noun() api.WriteResult {
	return api.WriteResult{FirstSeq: r.FirstSeq, LastSeq: r.LastSeq, HeadSeq: r.HeadSeq, Count: r.Count, Created: r.Created, Deduped: r.Deduped}
}

// wireError is the content of every error of the contract.
type wireError struct {
	Code    api.Code       `json:"code"`
	Message string         `json:"message"`
	Detail  map[string]any `json:"detail"`
}

// noun turns it into an error; header is what Retry-After asks for.
func (e *wireError) noun(header time.Duration) *api.Error {
	after := retryAfter(header, e.Detail[api.DetailRetryAfter])
	delete(e.Detail, api.DetailRetryAfter)
	return &api.Error{Code: e.Code, Message: printable(e.Message), Detail: e.Detail, RetryAfter: after}
}

// Records are the records of an answer or a frame.
type Records []api.Record

// UnmarshalJSON reads them as a server sends them.
func (r *Records) UnmarshalJSON(text []byte) (err error) {
	*r, err = api.DecodeRecords(text)
	return err
}

type tombstone struct {
	GapFrom        uint64              `json:"gap_from"`
	GapTo          uint64              `json:"gap_to"`
	Reason         api.TombstoneReason `json:"reason"`
	MissedEstimate uint64              `json:"missed_estimate"`
	EarliestSeq    uint64              `json:"earliest_seq"`
	HeadSeq        uint64              `json:"head_seq"`
}

// claimed is the answer to a claim: the largest that a worker reads, and it reads many.
type claimed struct{ api.Claimed }

func (c *claimed) UnmarshalJSON(text []byte) error { return api.DecodeClaimed(text, &c.Claimed) }

func (c *claimed) foreign() bool { return c.Topic == "" }
