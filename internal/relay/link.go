package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/push"
)

const (
	// pingEvery is how often an upstream that says nothing is pinged, and longestSilence how
	// long it may say nothing at all, in the middle of a message, too.
	pingEvery      = 5 * time.Second
	longestSilence = 15 * time.Second
	// longestRequest is how long it may leave a subscription unanswered while it says other things:
	// the answer goes in front of all records but those of the message that is on its way.
	longestRequest = 30 * time.Second
	// reconnectFirst and reconnectMost bound the wait before the next connection, which doubles.
	reconnectFirst = 20 * time.Millisecond
	reconnectMost  = time.Second
)

// notYet is the request of a mirror whose subscription has not been sent.
const notYet = math.MaxUint64

// link is one WebSocket to the upstream, over lost connections, with the topics that are
// subscribed on it. The goroutine of run reads and delivers; while it is connected a second
// one writes.
type link struct {
	relay *Relay
	first bool // it stays without topics
	wake  chan struct{}
	up    atomic.Bool
	heard atomic.Bool        // something has come since the last look
	stop  context.CancelFunc // ends run

	mu       sync.Mutex
	topics   map[string]*mirror
	fresh    []*mirror // to be subscribed
	dropped  []string  // to be unsubscribed
	requests map[uint64]request
	number   uint64 // of the last request
	visit    push.Visit
}

// request is a subscription that is not answered yet.
type request struct {
	mirrors []*mirror
	at      time.Time
}

func newLink(r *Relay, first bool) *link {
	return &link{relay: r, first: first, wake: make(chan struct{}, 1), topics: make(map[string]*mirror)}
}

// take subscribes a topic, unless the socket is full.
func (l *link) take(m *mirror) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.topics) >= l.relay.opt.Limits.MaxWatchTopics {
		return false
	}
	m.link, m.subscribing = l, notYet
	l.topics[m.name] = m
	l.fresh = append(l.fresh, m)
	l.poke()
	return true
}

// drop unsubscribes a topic.
func (l *link) drop(m *mirror) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.topics[m.name] == m {
		delete(l.topics, m.name)
		l.dropped = append(l.dropped, m.name)
		l.poke()
	}
}

func (l *link) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *link) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.topics)
}

// run keeps the link connected until ctx ends.
func (l *link) run(ctx context.Context) {
	defer l.stop()
	pause := reconnectFirst
	for ctx.Err() == nil {
		began := time.Now()
		err := l.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > reconnectMost {
			pause = reconnectFirst
		}
		l.relay.lost(l, err)
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
		}
		pause = min(2*pause, reconnectMost)
	}
}

// connect serves one connection to its end.
func (l *link) connect(ctx context.Context) error {
	conn, err := l.relay.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	l.mu.Lock()
	l.fresh, l.dropped, l.requests = nil, nil, make(map[uint64]request)
	for _, m := range l.topics {
		l.fresh = append(l.fresh, m)
		m.subscribing, m.alone = l.number+1, false
	}
	l.mu.Unlock()
	l.poke()
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(longestSilence, func() { cancel(errSilent) })
	defer late.Stop()
	heard := func() {
		l.heard.Store(true)
		late.Reset(longestSilence)
	}
	var writer sync.WaitGroup
	writer.Go(func() { cancel(l.write(ctx, conn, heard)) })
	l.up.Store(true)
	l.relay.connected(l)
	err = l.read(ctx, conn, heard)
	l.up.Store(false)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	cancel(nil)
	writer.Wait()
	return err
}

// dial opens a WebSocket to the upstream.
func (r *Relay) dial(ctx context.Context) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := r.probe(ctx); err != nil {
		return nil, err
	}
	opt := websocket.DialOptions{HTTPClient: r.client, HTTPHeader: r.own()}
	conn, resp, err := websocket.Dial(ctx, r.Upstream()+"/v0/ws", &opt)
	if err != nil {
		if resp != nil && resp.StatusCode == http.StatusUnauthorized {
			return nil, errors.New("the upstream does not know the relay's key; set WEIR_UPSTREAM_KEY to one that may read")
		}
		if resp != nil && resp.StatusCode == http.StatusServiceUnavailable {
			return nil, errNotReady
		}
		return nil, err
	}
	conn.SetReadLimit(maxRecords)
	return conn, nil
}

// probe finds out whether the upstream wants keys.
func (r *Relay) probe(ctx context.Context) error {
	a, err := r.ask(ctx, http.MethodGet, knownPath, make(http.Header), nil, maxAnswer)
	if err != nil {
		return err
	}
	keyed := a.status == http.StatusUnauthorized
	if !keyed && a.status != http.StatusBadRequest {
		return a.error()
	}
	r.keyed.Store(keyed)
	r.seen.Store(true)
	if !keyed && !r.opt.OpenToAll {
		return errOpen
	}
	return r.probeRelay(ctx)
}

// probeRelay refuses an upstream that is a relay itself: it tells no lives of topics.
func (r *Relay) probeRelay(ctx context.Context) error {
	a, err := r.ask(ctx, http.MethodGet, "/v0/health", r.own(), nil, maxAnswer)
	if err != nil {
		return err
	}
	var health struct {
		Relay struct {
			Upstream string `json:"upstream"`
		} `json:"relay"`
	}
	if a.status == http.StatusOK && json.Unmarshal(a.body, &health) == nil && health.Relay.Upstream != "" {
		return fmt.Errorf("the upstream is a relay itself, in front of %s; set upstream to the server", health.Relay.Upstream)
	}
	return nil
}

// write sends what topics need, and pings, until ctx ends.
func (l *link) write(ctx context.Context, conn *websocket.Conn, heard func()) error {
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		for _, msg := range l.requestsDue() {
			if err := conn.Write(ctx, websocket.MessageText, msg); err != nil {
				return err
			}
		}
		select {
		case <-l.wake:
		case <-ping.C:
			if _, oldest := l.unanswered(); !oldest.IsZero() && time.Since(oldest) > longestRequest {
				return errUnanswered
			}
			if l.heard.Swap(false) {
				continue
			}
			if err := conn.Ping(ctx); err != nil {
				return err
			}
			heard()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unanswered returns how many topics have asked for a subscription on this connection that is not
// answered yet, and since when the first one of them.
func (l *link) unanswered() (topics int, oldest time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.requests {
		topics += len(r.mirrors)
		if oldest.IsZero() || r.at.Before(oldest) {
			oldest = r.at
		}
	}
	return topics, oldest
}

// start of a subscription, on the wire.
type begin struct {
	From uint64 `json:"from_seq"`
	Tail bool   `json:"tail,omitempty"`
}

// requestsDue are the messages to be sent now.
func (l *link) requestsDue() (all [][]byte) {
	l.mu.Lock()
	fresh, dropped := l.fresh, l.dropped
	l.fresh, l.dropped = nil, nil
	if len(dropped) > 0 {
		all = append(all, encode(map[string]any{"op": "unsubscribe", "topics": dropped}))
	}
	var together []*mirror
	for _, m := range fresh {
		switch {
		case l.topics[m.name] != m:
		case m.alone:
			all = append(all, l.request(m))
		default:
			together = append(together, m)
		}
	}
	if len(together) > 0 {
		all = append(all, l.request(together...))
	}
	l.mu.Unlock()
	return all
}

// request is a message that subscribes topics; mu is held.
func (l *link) request(all ...*mirror) []byte {
	l.number++
	l.requests[l.number] = request{all, time.Now()}
	topics := make(map[string]begin, len(all))
	for _, m := range all {
		m.subscribing = l.number
		topics[m.name] = m.begin()
	}
	return encode(map[string]any{
		"op": "subscribe", "request_id": l.number, "topics": topics, "lenient": true, "relay": true,
		"include_tags": true, "limit": l.relay.opt.Limits.MaxLimit,
	})
}

// encode is json.Marshal for what cannot fail.
func encode(v any) []byte {
	text, _ := json.Marshal(v)
	return text
}

// begin is where the mirror's subscription has to begin.
func (m *mirror) begin() begin {
	select {
	case <-m.ready:
		return begin{From: m.at()}
	default:
		return begin{Tail: true}
	}
}

// message is a message of the upstream; which members it has depends on op.
type message struct {
	Op        string          `json:"op"`
	RequestID *uint64         `json:"request_id"`
	Topic     string          `json:"topic"`
	Topics    json.RawMessage `json:"topics"`
	FromSeq   uint64          `json:"from_seq"`
	ToSeq     uint64          `json:"to_seq"`
	HeadSeq   uint64          `json:"head_seq"`
	Records   []record        `json:"records"`
	Dedupe    *bool           `json:"dedupe_node"`
	Code      api.Code        `json:"code"`
	Message   string          `json:"message"`
	tombstone
}

// position is where the upstream says that a topic is.
type position struct {
	FromSeq     uint64 `json:"from_seq"`
	HeadSeq     uint64 `json:"head_seq"`
	EarliestSeq uint64 `json:"earliest_seq"`
	Life        uint64 `json:"life"`
}

// read takes messages until the connection ends.
func (l *link) read(ctx context.Context, conn *websocket.Conn, heard func()) error {
	for {
		_, r, err := conn.Reader(ctx)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(patient{r, heard})
		if err != nil {
			return err
		}
		l.relay.counts.received.Add(int64(len(text)))
		var m message
		if err := json.Unmarshal(text, &m); err != nil {
			return fmt.Errorf("a message of the upstream is not what /v0 says: %w", err)
		}
		if err := l.handle(ctx, &m); err != nil {
			return err
		}
	}
}

func (l *link) handle(ctx context.Context, msg *message) error {
	switch msg.Op {
	case "subscribed":
		return l.subscribed(msg)
	case "error":
		return l.refused(msg)
	}
	m := l.current(msg.Topic)
	if m == nil {
		return nil
	}
	switch msg.Op {
	case "record":
		return l.records(ctx, m, msg)
	case "tombstone":
		if msg.Reason == api.ReasonRecreated {
			l.relay.ended(m)
			return nil
		}
		lost := msg.noun()
		lost.HeadSeq = msg.HeadSeq
		l.deliver(ctx, m, []item{{last: lost.GapTo, lost: lost}}, lost.GapTo, lost.GapTo < msg.HeadSeq)
	case "caught_up":
		l.deliver(ctx, m, nil, msg.HeadSeq, false)
	case "topic_deleted":
		l.relay.ended(m)
	}
	return nil
}

// current is the mirror that a message is for; nil if it is of an earlier subscription.
func (l *link) current(topic string) *mirror {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.topics[topic]; m != nil && m.subscribing == 0 {
		return m
	}
	return nil
}

func (l *link) records(ctx context.Context, m *mirror, msg *message) error {
	if at := m.at(); msg.FromSeq < at || msg.ToSeq < msg.FromSeq {
		return fmt.Errorf("the upstream sent %d to %d of topic %q, which is at %d", msg.FromSeq, msg.ToSeq, m.name, at)
	}
	items, err := itemsOf(msg.Records, msg.Dedupe != nil && !*msg.Dedupe)
	if err != nil {
		return err
	}
	l.deliver(ctx, m, items, msg.ToSeq, msg.ToSeq < msg.HeadSeq)
	return nil
}

// deliver takes what a message brought and pushes it to the topic's listeners.
func (l *link) deliver(ctx context.Context, m *mirror, items []item, to uint64, more bool) {
	if head, ok := m.add(items, to, more); ok {
		l.visit.Deliver(ctx, &m.topic, head)
	}
}

// asked returns the mirrors that a request was about, as far as it is still what matters.
func (l *link) asked(msg *message) []*mirror {
	l.mu.Lock()
	defer l.mu.Unlock()
	if msg.RequestID == nil {
		return nil
	}
	var all []*mirror
	for _, m := range l.requests[*msg.RequestID].mirrors {
		if l.topics[m.name] == m && m.subscribing == *msg.RequestID {
			m.subscribing = 0
			all = append(all, m)
		}
	}
	delete(l.requests, *msg.RequestID)
	return all
}

// subscribed begins mirrors, or continues them after a reconnection.
func (l *link) subscribed(msg *message) error {
	var at map[string]position
	if err := json.Unmarshal(msg.Topics, &at); err != nil {
		return fmt.Errorf("a message of the upstream is not what /v0 says: %w", err)
	}
	for _, m := range l.asked(msg) {
		p, ok := at[m.name]
		if ok && p.Life == 0 {
			return errOld
		}
		select {
		case <-m.ready:
			if !ok || !m.goesOn(&p) {
				l.relay.ended(m)
			} else {
				m.topic.Again()
			}
			continue
		default:
		}
		if ok {
			m.began(&p)
		} else {
			m.err = api.TopicNotFound(m.name)
			l.relay.forget(m)
		}
		close(m.ready)
	}
	return nil
}

// refused deals with a subscription that the upstream does not grant. Of several topics it may
// grant some: each is asked for by itself.
func (l *link) refused(msg *message) error {
	err := api.Errorf(msg.Code, "the upstream refuses the relay's subscription: %s", msg.Message)
	asked := l.asked(msg)
	if len(asked) == 0 {
		return err
	}
	if len(asked) > 1 {
		l.askAlone(asked)
		return nil
	}
	l.relay.log.Warn("the upstream refuses a subscription", "topic", asked[0].name, "code", string(msg.Code), "error", msg.Message)
	for _, m := range asked {
		select {
		case <-m.ready:
			l.relay.ended(m)
		default:
			m.err = err
			l.relay.forget(m)
			close(m.ready)
		}
	}
	return nil
}

// askAlone subscribes topics anew, each by itself.
func (l *link) askAlone(all []*mirror) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range all {
		if l.topics[m.name] == m {
			m.alone, m.subscribing = true, notYet
			l.fresh = append(l.fresh, m)
		}
	}
	l.poke()
}
