package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// follower is the state of one Follow across its connections.
type follower struct {
	client *Client
	watch  Watch
	events WatchEvents

	at      map[string]uint64 // per topic, the last seq delivered
	gone    map[string]bool   // announced as deleted on this connection
	wid     string            // the session; empty if one has to be created
	lastID  string            // id of the last frame delivered in this session
	started bool              // the session's stream was open once
	began   bool              // there was a session
	tries   int               // failures since the last frame

	retry    time.Duration // the server's hint
	maxFrame int
	silence  time.Duration
}

// eventError is the error of an event function, which ends Follow.
type eventError struct{ err error }

func (e *eventError) Error() string { return e.err.Error() }

// connect follows one stream to its end; nil means that all topics are gone.
func (f *follower) connect(ctx context.Context) error {
	// Frames may have been sent and lost: without an id the server cannot know where to
	// continue.
	if f.started && f.lastID == "" {
		f.wid = ""
	}
	if f.wid == "" {
		if err := f.open(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	giveUp := func() { cancel(errSilent) }
	late := time.AfterFunc(callTimeout, giveUp)
	resp, err := f.client.stream(ctx, "/v0/watch/"+url.PathEscape(f.wid), f.lastID)
	late.Stop()
	// To a session that was this key's, a key with other rights is another one; whether it is still
	// good for a new one is said where that is asked for.
	if IsStatus(err, http.StatusNotFound) || f.started && IsStatus(err, http.StatusUnauthorized) {
		f.wid = ""
		return errSessionLost
	}
	if err != nil {
		return orSilent(ctx, err)
	}
	defer resp.Body.Close()
	f.started, f.gone = true, map[string]bool{}
	if f.events.Connected != nil {
		f.events.Connected()
	}
	timer := time.AfterFunc(f.silence, giveUp)
	defer timer.Stop()
	r := newFrameReader(&impatientReader{resp.Body, timer, f.silence}, f.maxFrame)
	err = f.frames(r)
	if r.retry > 0 && f.wid != "" { // a session that is gone needs a new one, not patience
		f.retry = r.retry
	}
	if errors.Is(err, io.EOF) && len(f.gone) == len(f.at) {
		return nil
	}
	return orSilent(ctx, err)
}

// errSilent means that nothing arrived for so long that the connection is considered
// dead; errSessionLost means that the session expired or the server restarted.
var (
	errSilent      = errors.New("the stream has been silent for too long")
	errSessionLost = errors.New("the server no longer knows the watch session")
)

// orSilent returns err, or errSilent if that ended ctx.
func orSilent(ctx context.Context, err error) error {
	if context.Cause(ctx) == errSilent {
		return &Unreachable{Err: errSilent}
	}
	return err
}

// open creates a session that begins where the last one ended.
func (f *follower) open(ctx context.Context) error {
	type start struct {
		FromSeq uint64 `json:"from_seq"`
	}
	body := struct {
		Topics      map[string]start `json:"topics"`
		Limit       int              `json:"limit,omitempty"`
		HeartbeatMS int64            `json:"heartbeat_ms"`
		IncludeTags bool             `json:"include_tags,omitempty"`
	}{map[string]start{}, f.watch.Limit, watchHeartbeat.Milliseconds(), f.watch.IncludeTags}
	for topic, seq := range f.at {
		body.Topics[topic] = start{seq}
	}
	var out struct {
		WID string `json:"wid"`
	}
	if err := f.client.call(ctx, callTimeout, http.MethodPost, "/v0/watch", encode(body), &out); err != nil {
		return err
	}
	if out.WID == "" {
		return errors.New("the answer to POST /v0/watch has no wid; is this a weir server?")
	}
	f.wid, f.lastID, f.started, f.began = out.WID, "", false, true
	return nil
}

// frames delivers frame after frame; it always returns an error.
func (f *follower) frames(r *frameReader) error {
	for {
		fr, err := r.next()
		if err != nil {
			if errors.Is(err, errFrameTooLarge) {
				return err
			}
			return &Unreachable{Err: err}
		}
		if err := f.deliver(fr); err != nil {
			return err
		}
		if fr.id != "" {
			f.lastID = fr.id
		}
		f.tries = 0
	}
}

// deliver passes one frame to its event function and advances the topic's position.
// Unknown events, of a later protocol, are ignored.
func (f *follower) deliver(fr frame) error {
	switch fr.event {
	case "record":
		return deliver(fr, f.events.Records, func(e WatchRecords) { f.move(e.Topic, e.ToSeq) })
	case "tombstone":
		return deliver(fr, f.events.Tombstone, func(e WatchTombstone) { f.move(e.Topic, e.after()) })
	case "caught-up":
		return deliver(fr, f.events.CaughtUp, nil)
	case "topic-deleted":
		return deliver(fr, f.events.Deleted, func(e WatchTopic) {
			if _, ok := f.at[e.Topic]; ok {
				f.gone[e.Topic] = true
			}
		})
	case "error":
		return f.streamError(fr)
	}
	return nil
}

func deliver[E any](fr frame, event func(E) error, then func(E)) error {
	var e E
	if err := json.Unmarshal(fr.data, &e); err != nil {
		return fmt.Errorf("a %q frame is not what /v0 says: %w", fr.event, err)
	}
	if event != nil {
		if err := event(e); err != nil {
			return &eventError{err}
		}
	}
	if then != nil {
		then(e)
	}
	return nil
}

func (f *follower) move(topic string, seq uint64) {
	if _, ok := f.at[topic]; ok {
		f.at[topic] = seq
		delete(f.gone, topic) // it was created again
	}
}

// streamError handles a frame of the event error: an advice, or why the stream ends.
func (f *follower) streamError(fr frame) error {
	var body struct {
		Code         json.RawMessage `json:"code"` // a number or a string
		Error        string          `json:"error"`
		Message      string          `json:"message"`
		RetryAfterMS float64         `json:"retry_after_ms"`
		Topics       []string        `json:"topics"`
	}
	if err := json.Unmarshal(fr.data, &body); err != nil {
		return fmt.Errorf("an error frame is not what /v0 says: %w", err)
	}
	code := string(body.Code)
	var text string
	if json.Unmarshal(body.Code, &text) == nil {
		code = text
	}
	switch code {
	case streamCodeAdvice:
		if f.events.Advice != nil {
			after := retryAfter(0, body.RetryAfterMS)
			f.events.Advice(WatchAdvice{Topics: body.Topics, RetryAfter: after})
		}
		return nil
	case streamCodeGone:
		f.wid = ""
	}
	if body.Message == "" {
		body.Message = body.Error
	}
	return &StreamEnded{Code: printable(code), Message: printable(body.Message)}
}

// lostStream reports whether reconnecting may help.
func lostStream(err error) bool {
	var ended *StreamEnded
	return errors.Is(err, errSessionLost) || errors.As(err, &ended) || Retryable(err)
}

// pause returns the wait before the next connection. A server that is shutting down
// asks for the whole hint.
func (f *follower) pause(err error) time.Duration {
	f.tries++
	var ended *StreamEnded
	if errors.As(err, &ended) && ended.Code == streamCodeShutdown {
		return f.retry
	}
	return max(Backoff(f.tries, watchRetryBase, f.retry), RetryAfter(err))
}

// absentTopic returns the topic a refusal names as unknown, or "".
func absentTopic(err error) string {
	e, ok := errors.AsType[*api.Error](err)
	if !ok || e.Code != api.CodeTopicNotFound {
		return ""
	}
	topic, _ := e.Detail["topic"].(string)
	return topic
}

// dropTopic removes from the watch a topic that has disappeared since the last session.
func (f *follower) dropTopic(err error) bool {
	topic := absentTopic(err)
	if _, ok := f.at[topic]; !ok || !f.began {
		return false
	}
	delete(f.at, topic)
	return true
}

func (f *follower) deleted(t WatchTopic) error {
	if f.events.Deleted == nil {
		return nil
	}
	return f.events.Deleted(t)
}

// impatientReader lets timer fire if a read takes longer than limit. The time between
// reads does not count.
type impatientReader struct {
	r     io.Reader
	timer *time.Timer
	limit time.Duration
}

func (r *impatientReader) Read(p []byte) (int, error) {
	r.timer.Reset(r.limit)
	n, err := r.r.Read(p)
	r.timer.Stop()
	return n, err
}

// stream opens a server-sent stream, after the frame with the id lastID if that is not
// empty; the caller closes the body.
func (c *Client) stream(ctx context.Context, path, lastID string) (*http.Response, error) {
	header := http.Header{"Accept": {"text/event-stream"}}
	if lastID != "" {
		header.Set("Last-Event-ID", lastID)
	}
	return c.send(ctx, http.MethodGet, path, header, nil)
}
