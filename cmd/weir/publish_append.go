package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/client"
)

// courier stands between publish's Producer and the backend. It records in the place
// file that a write is in progress, keeps its outcome, and repeats a write
// of unknown outcome only while the backend remembers its keys.
type courier struct {
	backend.Backend
	publisher *publisher

	places backend.PlaceKeeper // nil: the backend keeps none, and each message has its own key
	json   bool                // payloads are JSON values

	// The current batch.
	noted   bool
	unsure  time.Time // the first try of unknown outcome
	stored  int       // by a write of all or none: an earlier try may have had another length
	deduped int
	lastID  string
}

// newCourier opens the stream of url and the publisher's place in it.
func newCourier(ctx context.Context, p *publisher, url string) (*courier, error) {
	if p.opt.kind == "log" {
		if !isHTTP(url) {
			return nil, &usageError{errors.New("--type log is for topics of a weir server; other URLs name a queue")}
		}
		url = withKey(url, "type", "log")
	}
	most := reachFor
	if p.opt.giveUp > 0 {
		most = min(p.opt.giveUp, most)
	}
	s, err := reacher{p.progress, "weir publish", most}.open(ctx, &p.opt.keys, url, openStream)
	if err != nil {
		return nil, err
	}
	if err := p.checkType(ctx, url); err != nil {
		_ = s.Close() // it has not been used
		return nil, err
	}
	c := &courier{Backend: s.Backend(), publisher: p, json: isHTTP(url)}
	if !p.opt.noKeys {
		c.places, _ = s.Backend().(backend.PlaceKeeper)
	}
	p.stream = s.Info().Stream
	p.place = newPlace(p.opt.resume, p.stream, newRunName())
	return c, nil
}

// checkType refuses a topic that is there and of another type than --type says.
func (p *publisher) checkType(ctx context.Context, url string) error {
	url, err := tailed(url)
	if err != nil || !p.opt.typed || !isHTTP(url) {
		return nil
	}
	target, err := client.ParseTopicURL(url)
	if err != nil {
		return nil // it could be opened
	}
	c, err := p.opt.keys.connect(target)
	if err != nil {
		return err
	}
	defer c.Close()
	info, err := c.TopicInfo(ctx, target.Topic)
	if err != nil || info.Type == p.opt.kind {
		return nil // it is not there yet, or the key may not read
	}
	return fmt.Errorf("topic %q is a %s, not a %s; leave --type out to publish to it as it is, or choose another topic", target.Topic, info.Type, p.opt.kind)
}

// newRunName names a run in its idempotency keys.
func newRunName() string {
	var name [12]byte
	_, _ = rand.Read(name[:]) // never fails
	return hex.EncodeToString(name[:])
}

// close ends the connections.
func (c *courier) close() { _ = c.Backend.Close() }

// withSignal is a courier whose backend has a signal for the guard.
type withSignal struct {
	*courier
	backend.Signaler
}

// shared is what a backend has that all processes use together.
type shared interface {
	backend.Sharer
	backend.Tallier
	backend.Budgeter
	backend.Windower
}

// withShare is a courier whose backend also has that.
type withShare struct {
	withSignal
	shared
}

// counted is what a backend has whose processes share the room and count together, and
// no more.
type counted interface {
	backend.Sharer
	backend.Tallier
}

// withCounts is a courier whose backend has that.
type withCounts struct {
	withSignal
	counted
}

// withTally is a courier of a backend whose processes count together.
type withTally struct {
	withSignal
	backend.Tallier
}

// asBackend returns the courier with the optional interfaces of its backend that a
// Producer uses.
func (c *courier) asBackend() backend.Backend {
	signaler, ok := c.Backend.(backend.Signaler)
	if !ok {
		return c
	}
	signals := withSignal{c, signaler}
	if together, ok := c.Backend.(shared); ok {
		return withShare{signals, together}
	}
	if together, ok := c.Backend.(counted); ok {
		return withCounts{signals, together}
	}
	if counter, ok := c.Backend.(backend.Tallier); ok {
		return withTally{signals, counter}
	}
	return signals
}

// Delays reports whether the stream keeps messages back until they are due.
func (c *courier) Delays() bool {
	d, ok := c.Backend.(backend.Delayer)
	return ok && d.Delays()
}

// payload returns the payload for a JSON value of the input: the text of a
// string, or the value itself. A weir server gets the value, so that a line that looks
// like JSON stays text.
func (c *courier) payload(data json.RawMessage) []byte {
	if c.json || len(data) == 0 || data[0] != '"' {
		return data
	}
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return data // unreachable: the reader made it
	}
	return []byte(s)
}

// begin forgets the last batch.
func (c *courier) begin() {
	c.noted, c.unsure, c.stored, c.deduped = false, time.Time{}, 0, 0
}

// Append writes a batch: the first pending messages.
func (c *courier) Append(ctx context.Context, msgs []backend.Message) ([]backend.Appended, error) {
	now := time.Now()
	if !c.noted {
		earlier, err := c.publisher.place.begin(now)
		if err != nil {
			return nil, err
		}
		c.noted, c.unsure = true, earlier
	}
	if err := c.checkWindow(ctx); err != nil {
		return nil, err
	}
	msgs = c.marked(msgs, now)
	appending := c.Backend.Append
	if c.places != nil {
		appending = c.appendAt
	}
	out, err := appending(ctx, msgs)
	if errors.Is(err, backend.ErrOutcomeUnknown) && c.unsure.IsZero() {
		c.unsure = now
	}
	if err == nil {
		c.count(out)
	}
	return out, err
}

// marked returns the messages as they are sent now: marked as JSON values where the
// backend stores those, and with --deadline worth anything for so long. A message that
// waited at the guard, or is sent again, has all of that time.
func (c *courier) marked(msgs []backend.Message, now time.Time) []backend.Message {
	worth := c.publisher.opt.deadline
	if !c.json && worth == 0 {
		return msgs
	}
	marked := slices.Clone(msgs)
	for i := range marked {
		if c.json {
			marked[i].Headers = asValue(marked[i].Headers)
		}
		if worth > 0 {
			marked[i].Deadline = now.Add(worth)
		}
	}
	return marked
}

var valueHeaders = map[string]string{backend.HeaderJSON: ""}

// asValue adds to the headers of a message, which are those of its trace, that its
// payload is a JSON value.
func asValue(headers map[string]string) map[string]string {
	if len(headers) == 0 {
		return valueHeaders
	}
	all := maps.Clone(headers)
	all[backend.HeaderJSON] = ""
	return all
}

// appendAt writes a batch at the place that the backend keeps for the run, all
// or nothing. An unfinished write of an earlier run may have moved it already,
// by fewer messages or by more.
func (c *courier) appendAt(ctx context.Context, msgs []backend.Message) ([]backend.Appended, error) {
	place := c.publisher.place
	placed, err := c.places.AppendAt(ctx, place.source(), place.count, msgs)
	if err != nil {
		return nil, err
	}
	c.stored = int(placed.Next - place.count)
	out := make([]backend.Appended, len(msgs))
	for i := range out {
		out[i] = backend.Appended{ID: placed.LastID, Deduped: placed.Known}
	}
	return out, nil
}

// count records the answer to a batch.
func (c *courier) count(out []backend.Appended) {
	for _, a := range out {
		if a.Deduped {
			c.deduped++
		}
	}
	if c.deduped > 0 && c.places != nil {
		c.deduped = c.stored
	}
	if len(out) > 0 {
		c.lastID = out[len(out)-1].ID
	}
}

const (
	// windowMargin is left unused at the end of the idempotency window, since a request
	// takes time.
	windowMargin = 10 * time.Second
	// unknownWindow is assumed where the window cannot be read.
	unknownWindow = 2 * time.Minute
)

// checkWindow refuses to repeat a write of unknown outcome once its key
// may be forgotten: storing twice is worse than asking.
func (c *courier) checkWindow(ctx context.Context) error {
	if c.unsure.IsZero() || c.publisher.opt.noKeys {
		return nil
	}
	window := unknownWindow
	if c.places != nil {
		switch known, err := c.places.KeyWindow(ctx); {
		case err == nil:
			window = known
		case backend.Retryable(err):
			return err
		}
	}
	age := time.Since(c.unsure)
	if age < window-min(windowMargin, window/2) {
		return nil
	}
	first := c.publisher.pending[0]
	return fmt.Errorf("the answer to the write that begins at %s:%d was lost %s ago and the stream remembers a write for %s; check at the stream's end whether it was stored, then publish the rest",
		first.file, first.line, age.Round(time.Millisecond), window)
}

// retryable reports whether publishing the same batch again may succeed.
func retryable(err error) bool {
	var batch *weir.BatchError
	if errors.As(err, &batch) {
		for _, e := range batch.Errs {
			if e != nil && !retryable(e) {
				return false
			}
		}
		return true
	}
	var full *weir.QueueFullError
	return errors.As(err, &full) || backend.Retryable(err)
}

// retryAfter returns how long err asks to wait before the next try, 0 if it does not say.
func retryAfter(err error) time.Duration {
	var full *weir.QueueFullError
	if errors.As(err, &full) {
		return full.RetryAfter
	}
	return 0
}
