package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
)

// courier stands between publish's Producer and the backend. It notes in the place
// file that a write is under way, keeps what became of it, and repeats a write
// whose outcome is not known only while the backend remembers its keys.
type courier struct {
	backend.Backend
	publisher *publisher

	places backend.PlaceKeeper // nil: the backend keeps none, each message has a key of its own
	json   bool                // payloads are JSON values

	// Of the batch under way.
	noted   bool
	unsure  time.Time // when a try was made first whose outcome is not known
	stored  int       // by a write of all or none: an earlier try may have had another length
	deduped int
	lastID  string
}

// newCourier opens the stream that url names, and the publisher's place in it.
func newCourier(ctx context.Context, p *publisher, url string) (*courier, error) {
	switch {
	case p.opt.kind == "log" && !isHTTP(url):
		return nil, &usageError{errors.New("--type log is for topics of a weir server; other URLs name a queue")}
	}
	s, err := openStream(ctx, &p.opt.keys, withType(url, p.opt.kind))
	if err != nil {
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

// withType adds to the URL of a weir server the type of a topic that is not there.
func withType(raw, kind string) string {
	u, err := url.Parse(raw)
	if err != nil || kind == "queue" || u.Query().Has("type") {
		return raw
	}
	query := u.Query()
	query.Set("type", kind)
	u.RawQuery = query.Encode()
	return u.String()
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

// withShare is a courier whose backend also shares room and window among all processes.
type withShare struct {
	withSignal
	backend.Sharer
	backend.Windower
}

// asBackend returns the courier with the abilities of its backend that a
// Producer uses.
func (c *courier) asBackend() backend.Backend {
	signaler, ok := c.Backend.(backend.Signaler)
	if !ok {
		return c
	}
	signals := withSignal{c, signaler}
	sharer, shares := c.Backend.(backend.Sharer)
	windower, counts := c.Backend.(backend.Windower)
	if shares && counts {
		return withShare{signals, sharer, windower}
	}
	return signals
}

// payload is what a message carries for a JSON value of the input: a string's
// text, or the value itself. A weir server is sent the value, so that what looks
// like JSON in a line stays text.
func (c *courier) payload(data json.RawMessage) []byte {
	if c.json || len(data) == 0 || data[0] != '"' {
		return data
	}
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return data // not reached: the reader made it
	}
	return []byte(s)
}

// begin forgets the last batch.
func (c *courier) begin() {
	c.noted, c.unsure, c.stored, c.deduped = false, time.Time{}, 0, 0
}

// Append writes a batch. Its messages are the first ones that are pending.
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
	if c.json {
		msgs = asJSON(msgs)
	}
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

// asJSON returns the messages marked as values.
func asJSON(msgs []backend.Message) []backend.Message {
	marked := make([]backend.Message, len(msgs))
	for i, m := range msgs {
		m.Headers = valueHeaders
		marked[i] = m
	}
	return marked
}

var valueHeaders = map[string]string{backend.HeaderJSON: ""} // no message of publish has others

// appendAt writes a batch behind the place that the backend keeps for the run, all
// or none. A write of an earlier run that was under way may have moved it already,
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

// count keeps what the answer to a whole batch says.
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
	// windowMargin is kept free at the end of the idempotency window: a request
	// takes its time.
	windowMargin = 10 * time.Second
	// unknownWindow is taken where the window cannot be read.
	unknownWindow = 2 * time.Minute
)

// checkWindow refuses to repeat a write whose outcome is not known once its key
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
	return fmt.Errorf("the answer to the write that begins at %s:%d was lost %s ago and the stream remembers a write for %s; look at the stream's end whether it was stored, then publish the rest",
		first.file, first.line, age.Round(time.Millisecond), window)
}

// retryable reports whether publishing the same batch again may be of use.
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

// retryAfter is how long err asks to wait before the next try, 0 if it does not say.
func retryAfter(err error) time.Duration {
	var full *weir.QueueFullError
	if errors.As(err, &full) {
		return full.RetryAfter
	}
	return 0
}
