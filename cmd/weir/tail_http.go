package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/client"
)

// topicTailer follows one topic of a weir server from a cursor.
type topicTailer struct {
	*printer
	client *client.Client
	topic  string
	cursor uint64

	url     string // for hopeless
	started time.Time
	reached bool // the server has answered
}

// lost says once that the server does not answer, and returns an error if waiting for it
// has no point any more: as with a reacher, but no other call is made.
func (t *topicTailer) lost(err error) error {
	if fix := hopeless(err, t.url); fix != "" {
		return &remedied{err, fix}
	}
	if !t.reached && time.Since(t.started) > reachFor {
		return fmt.Errorf("the server was not there for %s: %w", reachFor, err)
	}
	t.setAway(err)
	return nil
}

func (t *topicTailer) back() {
	t.reached = true
	t.setAway(nil)
}

func (t *topicTailer) run(ctx context.Context) error {
	start := t.startAtHead
	if t.opt.from != "" {
		start = t.startAtSeq
	}
	if err := start(ctx); err != nil {
		return err
	}
	if t.opt.noFollow {
		return t.read(ctx)
	}
	return t.follow(ctx)
}

// read prints what the topic holds.
func (t *topicTailer) read(ctx context.Context) error {
	for {
		var records []api.Record
		res, err := retrying(ctx, t, func() (res api.DiffResult, err error) {
			records, res, err = t.client.Diff(ctx, t.topic, &api.DiffRequest{FromSeq: t.cursor, Limit: t.limit(), IncludeTags: true, IncludeMeta: true})
			return res, err
		})
		if err != nil {
			return err
		}
		if res.Tombstone != nil {
			if err := t.printGap(res.Tombstone, res.Tombstone.Reason == api.ReasonRecreated); err != nil {
				return err
			}
		}
		if err := t.printRecords(records); err != nil || res.CaughtUp() {
			return err
		}
		t.cursor = res.NextFromSeq
	}
}

// follow prints what the topic holds and what is added.
func (t *topicTailer) follow(ctx context.Context) error {
	watch := client.Watch{From: map[string]uint64{t.topic: t.cursor}, Limit: t.limit(), IncludeTags: true}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	err := t.client.Follow(ctx, watch, client.WatchEvents{
		Records: func(e client.WatchRecords) error { return t.printRecords(e.Records) },
		Tombstone: func(e client.WatchTombstone) error {
			gap := api.Tombstone{GapFrom: e.GapFrom, GapTo: e.GapTo, Reason: e.Reason, MissedEstimate: e.GapTo - e.GapFrom + 1}
			return t.printGap(&gap, e.Recreated())
		},
		Deleted:   func(client.WatchTopic) error { return fmt.Errorf("topic %q was deleted", t.topic) },
		Connected: t.back,
		Lost: func(err error) {
			if err := t.lost(err); err != nil {
				end(err)
			}
		},
	})
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if api.IsCode(err, api.CodeTopicNotFound) {
		return fmt.Errorf("topic %q does not exist", t.topic)
	}
	if fix := hopeless(err, t.url); fix != "" {
		return &remedied{err, fix}
	}
	return err
}

func (t *topicTailer) startAtHead(ctx context.Context) error {
	st, err := retrying(ctx, t, func() (api.TopicState, error) {
		return t.client.Topic(ctx, t.topic)
	})
	if err != nil {
		return err
	}
	t.cursor = st.HeadSeq - min(t.opt.last, st.HeadSeq)
	return nil
}

// startAtSeq starts after --from, or at the head if that comes first: the server
// would take a cursor beyond it for one of an older topic of that name, and start
// at the beginning.
func (t *topicTailer) startAtSeq(ctx context.Context) error {
	seq, err := strconv.ParseUint(t.opt.from, 10, 64)
	if err != nil {
		return &usageError{fmt.Errorf("--from %q is larger than any seq; 0 is everything", t.opt.from)}
	}
	t.cursor = seq
	if seq == 0 {
		return nil
	}
	st, err := retrying(ctx, t, func() (api.TopicState, error) {
		return t.client.Topic(ctx, t.topic)
	})
	if err != nil || seq <= st.HeadSeq {
		return err
	}
	t.cursor = st.HeadSeq
	return t.beyondHead(strconv.FormatUint(st.HeadSeq, 10), strconv.FormatUint(st.HeadSeq+1, 10))
}

// retrying repeats the call until it is answered, while the server is unreachable.
func retrying[T any](ctx context.Context, t *topicTailer, call func() (T, error)) (T, error) {
	var failing stubborn
	for try := 1; ; try++ {
		res, err := call()
		if err == nil {
			t.back()
			return res, nil
		}
		if api.IsCode(err, api.CodeTopicNotFound) {
			return res, fmt.Errorf("topic %q does not exist", t.topic)
		}
		if ctx.Err() != nil {
			return res, ctx.Err()
		}
		if fix := hopeless(err, t.url); fix != "" {
			return res, &remedied{err, fix}
		}
		if !client.Retryable(err) || failing.last(err) {
			return res, err
		}
		if err := t.lost(err); err != nil {
			return res, err
		}
		wait := max(client.Backoff(try, reconnectMin, reconnectMax), client.RetryAfter(err))
		if err := client.Sleep(ctx, wait); err != nil {
			return res, err
		}
	}
}

// How long to wait between tries while a server is unreachable.
const (
	reconnectMin = 50 * time.Millisecond
	reconnectMax = 2 * time.Second
)

func (t *topicTailer) printRecords(records []api.Record) error {
	for i := range records {
		if err := t.printRecord(&records[i]); err != nil {
			return err
		}
		if err := t.counted(); err != nil {
			return err
		}
	}
	return t.out.Flush()
}

func (t *topicTailer) printRecord(r *api.Record) error {
	if t.opt.json {
		_, err := t.out.Write(append(api.AppendRecord(nil, r, true, true), '\n'))
		return err
	}
	if len(r.Data) > 0 && r.Data[0] == '"' {
		var s string
		if err := json.Unmarshal(r.Data, &s); err != nil {
			return fmt.Errorf("seq %d: the payload cannot be read: %w", r.Seq, err)
		}
		return t.text(s)
	}
	return t.text(string(r.Data)) // where there are control characters it is the same value with their escapes
}

func (t *topicTailer) printGap(g *api.Tombstone, recreated bool) error {
	line := fmt.Sprintf("gap %d–%d (%s)", g.GapFrom, g.GapTo, g.Reason)
	if recreated {
		line += ": the topic was recreated; continuing at its start"
	}
	return t.gap(line, "tombstone", struct {
		GapFrom        uint64              `json:"gap_from"`
		GapTo          uint64              `json:"gap_to"` // inclusive
		Reason         api.TombstoneReason `json:"reason"`
		MissedEstimate uint64              `json:"missed_estimate"`
	}{g.GapFrom, g.GapTo, g.Reason, g.MissedEstimate})
}
