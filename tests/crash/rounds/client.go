package rounds

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/weirmq/weir/tests/oracle"
)

// callTimeout is the longest time a call may take before its outcome counts as
// unknown.
const callTimeout = 20 * time.Second

// unready is for how long a call is made again that the server is not ready for: one that has
// stood still with its machine has to prove first that it still leads.
const unready = 5 * time.Second

// maxAnswer bounds the answer that a client reads, in bytes.
const maxAnswer = 64 << 20

// errNotSent says that the server was not there: nothing was sent.
var errNotSent = errors.New("rounds: connection refused")

// Client does operations on one server and turns each into an oracle event. It
// is safe for concurrent use.
type Client struct {
	base string
	http *http.Client
}

// NewClient returns a client of the server at base, http://host:port.
func NewClient(base string) *Client {
	return &Client{base: base, http: &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 64,
		DisableCompression:  true,
	}}}
}

// Close gives the connections back.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call sends one request and decodes a 2xx answer into reply. The event gets
// its times, outcome and note. The error is not nil if no answer came.
func (c *Client) call(ctx context.Context, e *oracle.Event, method, path string, body []byte, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var status int
	var text []byte
	var err error
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		req, bad := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
		if bad != nil {
			return bad
		}
		if body != nil {
			req.Header.Set("Content-Type", "application/json")
		}
		e.Outcome = oracle.Unknown
		e.Invoke = time.Now().UnixNano()
		status, text, err = c.roundTrip(req)
		e.Return = time.Now().UnixNano()
		if err != nil || status != http.StatusServiceUnavailable || time.Since(begin) > unready {
			break
		}
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Outcome = oracle.Fail
		return errNotSent
	case err != nil:
		e.Note = err.Error()
		return err
	case status >= 500 && status != http.StatusServiceUnavailable:
		e.Note = fmt.Sprintf("%d %.300s", status, text)
		return nil
	case status >= 300:
		e.Outcome = oracle.Fail
		e.Note = fmt.Sprintf("%d %.300s", status, text)
		return nil
	}
	if err := json.Unmarshal(text, reply); err != nil {
		return fmt.Errorf("%s %s: answer %.200q: %w", method, path, text, err)
	}
	e.Outcome = oracle.OK
	return nil
}

func (c *Client) roundTrip(req *http.Request) (int, []byte, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, text, err
}

func topicPath(name, verb string) string { return "/v0/topics/" + name + verb }

// Put creates a topic or replaces its configuration.
func (c *Client) Put(ctx context.Context, name string, cfg oracle.Config) (oracle.Event, error) {
	e := oracle.Event{Kind: oracle.Put, Topic: name, Config: &cfg}
	body := map[string]any{"type": "log", "durability": cfg.Class, "cap_records": cfg.CapRecords,
		"cap_bytes": cfg.CapBytes, "ttl_ms": cfg.TTLMS,
		"max_deliveries": cfg.MaxDeliveries, "leases_durable": cfg.LeasesDurable}
	if cfg.Queue {
		body["type"] = "queue"
	}
	if cfg.Reject {
		body["discard"] = "reject"
	}
	if cfg.DeadLetter != "" {
		body["dead_letter"] = cfg.DeadLetter
	}
	if cfg.LeaseMS > 0 {
		body["lease_ms"] = cfg.LeaseMS
	}
	text, err := json.Marshal(body)
	if err != nil {
		return e, err
	}
	return e, c.call(ctx, &e, http.MethodPut, topicPath(name, ""), text, &struct{}{})
}

// Drop deletes a topic.
func (c *Client) Drop(ctx context.Context, name string) (oracle.Event, error) {
	e := oracle.Event{Kind: oracle.Drop, Topic: name}
	return e, c.call(ctx, &e, http.MethodDelete, topicPath(name, ""), nil, &struct{}{})
}

// PutRouter creates a router; its destination is created with it if absent.
func (c *Client) PutRouter(ctx context.Context, r oracle.Router) (oracle.Event, error) {
	e := oracle.Event{Kind: oracle.Route, Router: &r}
	body := map[string]any{"source": r.Source, "dest": r.Dest, "preserve_node": !r.DropNode}
	if r.Tag != "" {
		body["filter"] = []string{"tag", "Eq", r.Tag}
	}
	if r.ExactlyOnce {
		body["guarantee"] = "exactly_once"
	}
	text, err := json.Marshal(body)
	if err != nil {
		return e, err
	}
	return e, c.call(ctx, &e, http.MethodPut, "/v0/routers/"+r.Name, text, &struct{}{})
}

// DropRouter deletes a router.
func (c *Client) DropRouter(ctx context.Context, r oracle.Router) (oracle.Event, error) {
	e := oracle.Event{Kind: oracle.Unroute, Router: &r}
	return e, c.call(ctx, &e, http.MethodDelete, "/v0/routers/"+r.Name, nil, &struct{}{})
}

// hasRouter asks for a router.
func (c *Client) hasRouter(ctx context.Context, name string) (bool, error) {
	var e oracle.Event
	if err := c.call(ctx, &e, http.MethodGet, "/v0/routers/"+name, nil, &struct{}{}); err != nil {
		return false, err
	}
	if e.Outcome == oracle.Unknown {
		return false, fmt.Errorf("router %s: %s", name, e.Note)
	}
	return e.Outcome == oracle.OK, nil
}

// Write appends a batch of size records; key may be empty.
func (c *Client) Write(ctx context.Context, name string, id oracle.BatchID, size int, key string) (oracle.Event, error) {
	return c.WriteLater(ctx, name, id, size, key, nil)
}

// WriteLater is Write of records that wait so many ms each for their first claim.
func (c *Client) WriteLater(ctx context.Context, name string, id oracle.BatchID, size int, key string, delays []int64) (oracle.Event, error) {
	e := oracle.Event{Kind: oracle.Write, Topic: name, Batch: id, Size: size, Key: key, Delays: delays}
	var reply struct {
		First   uint64 `json:"first_seq"`
		Last    uint64 `json:"last_seq"`
		Head    uint64 `json:"head_seq"`
		Deduped bool   `json:"deduped"`
	}
	err := c.call(ctx, &e, http.MethodPost, topicPath(name, "")+"?return_seqs=false", writeBody(id, size, key, delays), &reply)
	e.First, e.Last, e.Head, e.Deduped = reply.First, reply.Last, reply.Head, reply.Deduped
	return e, err
}

func writeBody(id oracle.BatchID, size int, key string, delays []int64) []byte {
	b := make([]byte, 0, 200*size)
	b = append(b, `{"create":false,"records":[`...)
	for i := range size {
		p := oracle.PayloadOf(id, i, size)
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, `{"data":`...), p.Data...)
		if p.Tag != "" {
			b = append(append(append(b, `,"tag":"`...), p.Tag...), '"')
		}
		if p.Node != "" {
			b = append(append(append(b, `,"node":"`...), p.Node...), '"')
		}
		if p.Meta != "" {
			b = append(append(b, `,"meta":`...), p.Meta...)
		}
		if delays != nil {
			b = strconv.AppendInt(append(b, `,"delay_ms":`...), delays[i], 10)
		}
		b = append(b, '}')
	}
	b = append(b, ']')
	if key != "" {
		b = append(append(append(b, `,"idempotency_key":"`...), key...), '"')
	}
	return append(b, '}')
}

// DeleteRecords deletes records below before (0: any) with the tag ("": any).
func (c *Client) DeleteRecords(ctx context.Context, name string, before uint64, tag string) (oracle.Event, error) {
	e := oracle.Event{Kind: oracle.Delete, Topic: name, Before: before, Tag: tag}
	body := map[string]any{}
	if before > 0 {
		body["before_seq"] = before
	}
	if tag != "" {
		body["match"] = []string{"tag", "Eq", tag}
	}
	text, err := json.Marshal(body)
	if err != nil {
		return e, err
	}
	var reply struct {
		Head uint64 `json:"head_seq"`
	}
	err = c.call(ctx, &e, http.MethodPost, topicPath(name, "/delete"), text, &reply)
	e.Head = reply.Head
	return e, err
}

// seen is a record as the server shows it.
type seen struct {
	Seq  uint64          `json:"$seq"`
	TS   int64           `json:"$ts"`
	Tag  string          `json:"$tag"`
	Node string          `json:"$node"`
	Data json.RawMessage `json:"data"`
	Meta json.RawMessage `json:"meta"`
}

func (s *seen) payload() oracle.Payload {
	return oracle.Payload{Data: string(s.Data), Tag: s.Tag, Node: s.Node, Meta: string(s.Meta)}
}

// rec reduces a shown record; a dead letter names its queue in meta.
func (s *seen) rec() oracle.Rec {
	if plain, router, source, seq, ok := oracle.StripMark(string(s.Meta)); ok {
		p := s.payload()
		p.Meta = plain
		return oracle.NewCopy(s.Seq, s.TS, p, len(s.Data)+len(s.Meta), router, source, seq)
	}
	if !bytes.Contains(s.Meta, []byte(`"$dead_letter_from"`)) {
		return oracle.NewRec(s.Seq, s.TS, s.payload())
	}
	var m struct {
		From string `json:"$dead_letter_from"`
		Seq  string `json:"$dead_letter_src_seq"`
	}
	if err := json.Unmarshal(s.Meta, &m); err != nil {
		return oracle.Rec{Seq: s.Seq, TS: s.TS, Bad: "meta " + string(s.Meta)}
	}
	from, err := strconv.ParseUint(m.Seq, 10, 64)
	if err != nil {
		return oracle.Rec{Seq: s.Seq, TS: s.TS, Bad: "meta " + string(s.Meta)}
	}
	return oracle.NewDeadLetter(s.Seq, s.TS, s.payload(), m.From, from)
}

// Diff reads one page after a cursor; caughtUp is the server's word for the end.
func (c *Client) Diff(ctx context.Context, name string, from uint64, limit int) (e oracle.Event, caughtUp bool, err error) {
	e = oracle.Event{Kind: oracle.Read, Topic: name, From: from}
	body := fmt.Appendf(nil, `{"from_seq":%d,"limit":%d,"include_tags":true,"max_batch_bytes":8388608}`, from, limit)
	var reply struct {
		Records  []seen `json:"records"`
		Next     uint64 `json:"next_from_seq"`
		Head     uint64 `json:"head_seq"`
		Earliest uint64 `json:"earliest_seq"`
		CaughtUp bool   `json:"caught_up"`
		Tomb     *struct {
			From   uint64 `json:"gap_from"`
			To     uint64 `json:"gap_to"`
			Reason string `json:"reason"`
		} `json:"tombstone"`
	}
	err = c.call(ctx, &e, http.MethodPost, topicPath(name, "/diff"), body, &reply)
	e.Next, e.Head, e.Earliest = reply.Next, reply.Head, reply.Earliest
	e.Recs = make([]oracle.Rec, len(reply.Records))
	for i := range reply.Records {
		e.Recs[i] = reply.Records[i].rec()
	}
	if g := reply.Tomb; g != nil {
		e.Tomb = &oracle.Tomb{From: g.From, To: g.To, Reason: g.Reason}
	}
	return e, reply.CaughtUp, err
}

// shownConfig is a configuration as a state shows it.
type shownConfig struct {
	Type          string  `json:"type"`
	Durability    string  `json:"durability"`
	CapRecords    uint64  `json:"cap_records"`
	CapBytes      uint64  `json:"cap_bytes"`
	TTLMS         uint64  `json:"ttl_ms"`
	Discard       string  `json:"discard"`
	MaxDeliveries int     `json:"max_deliveries"`
	DeadLetter    *string `json:"dead_letter"`
	LeasesDurable bool    `json:"leases_durable"`
	LeaseMS       int     `json:"lease_ms"`
}

func (s *shownConfig) config() *oracle.Config {
	c := &oracle.Config{
		Queue: s.Type == "queue", Class: s.Durability, CapRecords: s.CapRecords, CapBytes: s.CapBytes, TTLMS: s.TTLMS,
		Reject: s.Discard == "reject", MaxDeliveries: s.MaxDeliveries, LeasesDurable: s.LeasesDurable, LeaseMS: s.LeaseMS,
	}
	if s.DeadLetter != nil {
		c.DeadLetter = *s.DeadLetter
	}
	return c
}

// State reads the counters and the configuration of a topic.
func (c *Client) State(ctx context.Context, name string) (oracle.Event, error) {
	e := oracle.Event{Kind: oracle.State, Topic: name}
	var reply struct {
		Head     uint64 `json:"head_seq"`
		Earliest uint64 `json:"earliest_seq"`
		Count    uint64 `json:"count"`
		Bytes    uint64 `json:"bytes"`

		Config shownConfig `json:"config"`
	}
	err := c.call(ctx, &e, http.MethodGet, topicPath(name, "")+"?touch=false", nil, &reply)
	if e.Outcome == oracle.OK {
		e.Config = reply.Config.config()
	}
	e.Head, e.Earliest, e.Count, e.Bytes = reply.Head, reply.Earliest, reply.Count, reply.Bytes
	return e, err
}

// Claim leases up to limit jobs to node.
func (c *Client) Claim(ctx context.Context, name, node string, limit int, lease time.Duration) (oracle.Event, error) {
	e := oracle.Event{Kind: oracle.Claim, Topic: name, Node: node, Max: limit}
	body := fmt.Appendf(nil, `{"node":%q,"max":%d,"lease_ms":%d}`, node, limit, lease.Milliseconds())
	var reply struct {
		Claimed []struct {
			seen
			Lease      string `json:"lease_id"`
			Deadline   int64  `json:"deadline"`
			Deliveries int    `json:"deliveries"`
		} `json:"claimed"`
	}
	err := c.call(ctx, &e, http.MethodPost, topicPath(name, "/claim"), body, &reply)
	for i := range reply.Claimed {
		j := &reply.Claimed[i]
		e.Jobs = append(e.Jobs, oracle.Job{Rec: j.rec(), Lease: j.Lease, Deadline: j.Deadline, Deliveries: j.Deliveries})
	}
	return e, err
}

// Settle sends an ack, nack (back after delay) or extend (by lease) of jobs.
func (c *Client) Settle(ctx context.Context, kind oracle.Kind, name, node string, jobs []oracle.Job, delay, lease time.Duration) (oracle.Event, error) {
	e := oracle.Event{Kind: kind, Topic: name, Node: node}
	var seqs []uint64
	var ids []string
	for _, j := range jobs {
		seqs, ids = append(seqs, j.Seq), append(ids, j.Lease)
		e.Items = append(e.Items, oracle.Item{Seq: j.Seq, Lease: j.Lease})
	}
	body := map[string]any{"node": node, "seqs": seqs, "lease_ids": ids}
	switch kind {
	case oracle.Nack:
		body["delay_ms"] = delay.Milliseconds()
	case oracle.Extend:
		body["lease_ms"] = lease.Milliseconds()
	}
	text, err := json.Marshal(body)
	if err != nil {
		return e, err
	}
	var reply struct {
		Skipped   []uint64         `json:"skipped"`
		Deadlines map[string]int64 `json:"deadlines"`
	}
	err = c.call(ctx, &e, http.MethodPost, topicPath(name, "/"+string(kind)), text, &reply)
	if e.Outcome != oracle.OK {
		return e, err
	}
	skipped := map[uint64]bool{}
	for _, seq := range reply.Skipped {
		skipped[seq] = true
	}
	for i := range e.Items {
		it := &e.Items[i]
		it.Accepted = !skipped[it.Seq]
		it.Deadline = reply.Deadlines[strconv.FormatUint(it.Seq, 10)]
	}
	return e, err
}
