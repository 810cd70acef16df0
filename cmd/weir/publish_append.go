package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/client"
)

// courier stands between publish's Producer and the backend. It notes in the place
// file that a write is under way, keeps what became of it, and repeats a write
// whose outcome is not known only while the backend remembers its keys.
type courier struct {
	backend.Backend
	publisher *publisher
	topic     *topicWriter // nil: not a weir server

	places backend.PlaceKeeper // nil: the backend keeps none, each message has a key of its own

	// Of the batch under way.
	noted   bool
	unsure  time.Time // when a try was made first whose outcome is not known
	stored  int       // by a write of all or none: an earlier try may have had another length
	deduped int
	lastID  string
}

// newCourier opens the stream that url names, and the publisher's place in it.
func newCourier(ctx context.Context, cmd *cobra.Command, p *publisher, url string) (*courier, error) {
	switch {
	case p.opt.kind != "queue" && p.opt.kind != "log":
		return nil, &usageError{fmt.Errorf("--type %q is unknown; known: queue, log", p.opt.kind)}
	case p.opt.kind == "log" && !isHTTP(url):
		return nil, errors.New("--type log is for topics of a weir server; what other URLs name is a queue")
	}
	s, err := openStream(ctx, cmd, url)
	if err != nil {
		return nil, err
	}
	c := &courier{Backend: s.Backend(), publisher: p}
	if isHTTP(url) {
		if c.topic, err = newTopicWriter(cmd, url, p.opt.kind); err != nil {
			_ = s.Close()
			return nil, err
		}
	}
	if !p.opt.noKeys {
		c.places, _ = s.Backend().(backend.PlaceKeeper)
	}
	p.stream = s.Info().Stream
	p.place = newPlace(p.opt.resume, p.stream, newRunName())
	return c, nil
}

// newRunName names a run in its idempotency keys.
func newRunName() string {
	var name [12]byte
	_, _ = rand.Read(name[:]) // never fails
	return hex.EncodeToString(name[:])
}

// close ends the connections.
func (c *courier) close() {
	if c.topic != nil {
		c.topic.client.Close()
	}
	_ = c.Backend.Close()
}

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
	if c.topic != nil || len(data) == 0 || data[0] != '"' {
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
	var out []backend.Appended
	var err error
	switch {
	case c.topic != nil:
		out, err = c.topic.write(ctx, msgs, &c.stored)
	case c.places != nil:
		out, err = c.appendAt(ctx, msgs)
	default:
		out, err = c.Backend.Append(ctx, msgs)
	}
	if errors.Is(err, backend.ErrOutcomeUnknown) && c.unsure.IsZero() {
		c.unsure = now
	}
	if err == nil {
		c.count(out)
	}
	return out, err
}

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
	if c.deduped > 0 && (c.topic != nil || c.places != nil) {
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
	// redisWindow is how long the Redis backend keeps a key (docs/REDIS.md).
	redisWindow = 24 * time.Hour
)

// checkWindow refuses to repeat a write whose outcome is not known once its key
// may be forgotten: storing twice is worse than asking.
func (c *courier) checkWindow(ctx context.Context) error {
	if c.unsure.IsZero() || c.publisher.opt.noKeys {
		return nil
	}
	window := unknownWindow
	switch {
	case c.topic != nil:
		var err error
		if window, err = c.topic.window(ctx); err != nil {
			return err
		}
	case c.Info().Kind == "redis":
		window = redisWindow
	}
	age := time.Since(c.unsure)
	if age < window-min(windowMargin, window/2) {
		return nil
	}
	first := c.publisher.pending[0]
	return fmt.Errorf("the answer to the write that begins at %s:%d was lost %s ago and the stream remembers a write for %s; look at the stream's end whether it was stored, then publish the rest",
		first.file, first.line, age.Round(time.Millisecond), window)
}

// topicWriter writes to a topic of a weir server. A batch goes into one write
// under the key of its first message: through the library each message with a key
// of its own would be a request.
type topicWriter struct {
	client *client.Client
	topic  string
	config client.Config // of a topic that has to be created
}

// createdIdempotencyWindowMS is the window of a topic that publish creates: a
// retry can only be recognised inside it, so it covers an outage of an hour.
const createdIdempotencyWindowMS = 3_600_000

// newTopicWriter connects to the server of a URL that open.URL has taken. A queue
// that is created has no delivery limit of its own: the limit and the dead letters
// are the workers'.
func newTopicWriter(cmd *cobra.Command, raw, kind string) (*topicWriter, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("the URL cannot be read")
	}
	class := cmp.Or(u.Query().Get(durabilityFlag), "disk")
	u.RawQuery = ""
	target, err := client.ParseTopicURL(u.String())
	if err != nil {
		return nil, err
	}
	c, err := connect(cmd, target)
	if err != nil {
		return nil, err
	}
	return &topicWriter{client: c, topic: target.Topic, config: client.Config{
		Type: kind, Durability: class, IdempotencyWindowMS: createdIdempotencyWindowMS,
		LeasesDurable: kind == "queue" && (class == "disk" || class == "fsync"),
	}}, nil
}

// write sends a batch, all or none. stored is set to how many records there are
// under its key, which a first try of another length may have stored.
func (t *topicWriter) write(ctx context.Context, msgs []backend.Message, stored *int) ([]backend.Appended, error) {
	w := client.Write{
		Records:        make([]client.WriteRecord, len(msgs)),
		IdempotencyKey: msgs[0].IdempotencyKey,
		Config:         &t.config,
	}
	for i := range msgs {
		w.Records[i].Data = msgs[i].Data
	}
	res, err := t.client.Write(ctx, t.topic, w)
	if err != nil {
		return nil, translate(err)
	}
	*stored = len(msgs)
	if res.Deduped {
		*stored = res.Count
	}
	out := make([]backend.Appended, len(msgs))
	for i := range out {
		out[i] = backend.Appended{ID: strconv.FormatUint(res.LastSeq, 10), Deduped: res.Deduped}
	}
	return out, nil
}

// window is how long the topic remembers an idempotency key.
func (t *topicWriter) window(ctx context.Context) (time.Duration, error) {
	st, err := t.client.Topic(ctx, t.topic)
	switch {
	case err == nil:
		return time.Duration(st.Config.IdempotencyWindowMS) * time.Millisecond, nil
	case client.IsCode(err, api.CodeTopicNotFound):
		return time.Duration(1 << 62), nil // nothing was stored, or it is gone
	case client.Retryable(err):
		return 0, translate(err)
	}
	return unknownWindow, nil // the key may not read it
}

// translate puts an answer of a server to a write under the names of package backend.
func translate(err error) error {
	switch {
	case client.IsCode(err, api.CodeThrottled), client.IsCode(err, api.CodeTopicFull), client.IsCode(err, api.CodeDiskFull):
		return &backend.FullError{Reason: backend.ReasonQueueFull, RetryAfter: client.RetryAfter(err), Err: err}
	case client.Ambiguous(err):
		return fmt.Errorf("%w: %w", backend.ErrOutcomeUnknown, err)
	case client.Retryable(err):
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	return err
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
