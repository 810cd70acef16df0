package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/weirmq/weir/internal/api"
)

const (
	// watchHeartbeat is how often the server signals that it is alive.
	watchHeartbeat = 15 * time.Second
	// watchSilence is how long a stream may be silent before it is considered lost: a
	// vanished peer does not close the connection.
	watchSilence = 3 * watchHeartbeat
	// watchRetryBase and watchRetryLimit bound the waits between retries; the server's
	// retry hint replaces the limit.
	watchRetryBase  = 50 * time.Millisecond
	watchRetryLimit = 2 * time.Second
)

// Watch says what to follow.
type Watch struct {
	From        map[string]uint64 // topic → the last seq already seen
	Limit       int               // most records in a frame; 0: the server's default
	IncludeTags bool
}

// WatchRecords are new records of a topic, in order.
type WatchRecords struct {
	Topic   string  `json:"topic"`
	FromSeq uint64  `json:"from_seq"` // the cursor before
	ToSeq   uint64  `json:"to_seq"`   // the cursor after
	HeadSeq uint64  `json:"head_seq"`
	Records Records `json:"records"`
}

// WatchTombstone is a range of a topic that was lost before it could be sent.
type WatchTombstone struct {
	Topic       string              `json:"topic"`
	Reason      api.TombstoneReason `json:"reason"`
	GapFrom     uint64              `json:"gap_from"`
	GapTo       uint64              `json:"gap_to"` // inclusive
	EarliestSeq uint64              `json:"earliest_seq"`
	HeadSeq     uint64              `json:"head_seq"`
}

// Recreated reports whether the topic was created again, so that reading continues at
// its start. The first tombstone of a connection does not say why, but after a mere
// loss nothing of the range is left.
func (t *WatchTombstone) Recreated() bool {
	return t.Reason == api.ReasonRecreated || t.EarliestSeq <= t.GapTo
}

// after returns the cursor after the gap.
func (t *WatchTombstone) after() uint64 {
	if t.Recreated() {
		return max(t.EarliestSeq, 1) - 1
	}
	return t.GapTo
}

// WatchTopic is a topic whose state has changed, and its head then.
type WatchTopic struct {
	Topic   string `json:"topic"`
	HeadSeq uint64 `json:"head_seq"` // 0 if the server does not know it
}

// WatchAdvice says that the server is pacing topics.
type WatchAdvice struct {
	Topics     []string
	RetryAfter time.Duration
}

// WatchEvents are called by Follow, one at a time; nil ones are skipped. An error ends
// Follow, which returns it. Tombstones come before the records after the gap.
type WatchEvents struct {
	Records   func(WatchRecords) error
	Tombstone func(WatchTombstone) error
	CaughtUp  func(WatchTopic) error
	Deleted   func(WatchTopic) error // the topic is gone; the others go on
	Advice    func(WatchAdvice)
	Connected func()          // a stream is open, the first or a later one
	Lost      func(err error) // there is no stream; Follow tries again
}

// StreamEnded is the reason a server gave for ending a stream.
type StreamEnded struct {
	Code    string // "410", "slow_consumer", "server_shutting_down"
	Message string
}

func (e *StreamEnded) Error() string {
	return fmt.Sprintf("the server ended the stream: %s: %s", e.Code, e.Message)
}

const (
	streamCodeAdvice   = "429"
	streamCodeGone     = "410"
	streamCodeShutdown = "server_shutting_down"
)

// Follow delivers what is written to the topics until the last of them is deleted
// (nil), ctx ends (its error), an event returns an error, or the server refuses in a
// way that retrying cannot help. After lost connections and server restarts it
// continues after the last event delivered. A topic that is absent at the start is an
// error; one found missing later is reported as deleted.
func (c *Client) Follow(ctx context.Context, w Watch, events WatchEvents) error {
	f := &follower{
		client: c, watch: w, events: events, at: maps.Clone(w.From),
		retry: watchRetryLimit, maxFrame: maxAnswerBytes, silence: watchSilence,
	}
	for len(f.at) > 0 {
		err := f.connect(ctx)
		var ended *eventError
		switch {
		case errors.As(err, &ended):
			return ended.err
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			return nil
		case f.dropTopic(err):
			if err := f.deleted(WatchTopic{Topic: absentTopic(err)}); err != nil {
				return err
			}
			continue
		case !lostStream(err):
			return err
		}
		if events.Lost != nil {
			events.Lost(err)
		}
		if err := Sleep(ctx, f.pause(err)); err != nil {
			return err
		}
	}
	return nil
}
