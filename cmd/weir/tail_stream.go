package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/client"
)

// tailStream follows a stream through the library.
func tailStream(ctx context.Context, p *printer, url string) error {
	s, err := reacher{p.log, "weir tail", reachFor}.open(ctx, &p.opt.keys, url, openExisting)
	if err != nil {
		return err
	}
	defer s.Close()
	reader, ok := s.Backend().(backend.Reader)
	if !ok {
		return fmt.Errorf("tail: %w", weir.ErrUnsupported)
	}
	t := &streamTailer{printer: p, stream: s, reader: reader, name: s.Info().Stream}
	return t.run(ctx)
}

// tailBlock is how long a tail at the end of a stream waits in one read.
const tailBlock = 2 * time.Second

// streamTailer follows a stream from a cursor.
type streamTailer struct {
	*printer
	stream *weir.Stream
	reader backend.Reader
	name   string
	cursor string
}

func (t *streamTailer) run(ctx context.Context) error {
	switch {
	case t.opt.from == "0":
		t.cursor = backend.CursorStart
	case t.opt.from != "":
		t.cursor = t.opt.from
	case t.opt.last > 0:
		if err := t.printLast(ctx); err != nil {
			return err
		}
	default:
		t.cursor = backend.CursorEnd
	}
	block := tailBlock
	if t.opt.noFollow {
		block = 0
	}
	for first := true; ; first = false {
		res, err := t.read(ctx, t.limit(), block)
		if err != nil {
			return err
		}
		if head, next := t.headBefore(res.Gap); head != "" && first {
			if err := t.beyondHead(head, next); err != nil {
				return err
			}
			t.cursor = head
			continue
		}
		if res.Gap != nil {
			if err := t.printGap(res.Gap); err != nil {
				return err
			}
		}
		if err := t.printRecords(res.Records); err != nil {
			return err
		}
		if first && len(res.Records) == 0 && res.Gap == nil {
			if err := t.missing(ctx); err != nil {
				return err
			}
		}
		if t.opt.noFollow && len(res.Records) == 0 {
			return nil
		}
	}
}

// missing says that there is no stream, whose name may be misspelt: an error with
// --no-follow, otherwise a line. Redis reads one that is not there as empty.
func (t *streamTailer) missing(ctx context.Context) error {
	p, err := t.stream.Pressure(ctx)
	switch {
	case err != nil || !errors.Is(p.Missing, weir.ErrStreamNotFound):
		return nil // more than a reader may read
	case t.opt.noFollow:
		return fmt.Errorf("stream %q does not exist", t.name)
	}
	fmt.Fprintf(t.log, "weir tail: stream %q does not exist; waiting for its first message\n", t.name)
	return nil
}

// headBefore returns the head of a weir topic or a Redis stream that ends before --from, and what
// comes next: as nothing was read of it before, the gap says only that. It is empty if there is none.
func (t *streamTailer) headBefore(g *backend.Gap) (head, next string) {
	if g == nil || t.opt.from == "" || g.Reason != string(api.ReasonRecreated) {
		return "", ""
	}
	if seq, err := strconv.ParseUint(g.To, 10, 64); err == nil {
		return g.To, strconv.FormatUint(seq+1, 10)
	}
	if t.stream.Info().Kind == "redis" {
		return g.To, "the next message"
	}
	return "", ""
}

// read reads once from the cursor and advances it, retrying while the server is unreachable.
func (t *streamTailer) read(ctx context.Context, limit int, block time.Duration) (backend.Records, error) {
	var failing stubborn
	for try := 1; ; try++ {
		res, err := t.reader.Read(ctx, backend.ReadRequest{After: t.cursor, Max: limit, Block: block})
		switch {
		case err == nil:
			t.setAway(nil)
			t.cursor = res.Next
			return res, nil
		case ctx.Err() != nil:
			return res, ctx.Err()
		case errors.Is(err, backend.ErrStreamNotFound):
			return res, fmt.Errorf("stream %q does not exist", t.name)
		case !backend.Retryable(err) || failing.last(err):
			return res, err
		}
		t.setAway(err)
		if err := client.Sleep(ctx, client.Backoff(try, reconnectMin, reconnectMax)); err != nil {
			return res, err
		}
	}
}

// printLast reads the stream to its end and prints the last messages: the library
// cannot read a stream backwards.
func (t *streamTailer) printLast(ctx context.Context) error {
	var last []backend.Record
	keep := int(min(t.opt.last, maxLast))
	for {
		res, err := t.read(ctx, tailLimit, 0)
		if err != nil {
			return err
		}
		if len(res.Records) == 0 {
			return t.printRecords(last)
		}
		last = append(last, res.Records...)
		last = last[max(0, len(last)-keep):]
	}
}

// maxLast limits how many messages --last holds in memory.
const maxLast = 100_000

func (t *streamTailer) printRecords(records []backend.Record) error {
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

// streamRecord is a line of --json. DataBase64 holds a payload that is not text.
type streamRecord struct {
	ID         string            `json:"id"`
	TS         int64             `json:"ts,omitempty"` // Unix ms
	Headers    map[string]string `json:"headers,omitempty"`
	Data       *string           `json:"data,omitempty"`
	DataBase64 string            `json:"data_base64,omitempty"`
}

func (t *streamTailer) printRecord(r *backend.Record) error {
	if !t.opt.json {
		return t.text(string(r.Data))
	}
	line := streamRecord{ID: r.ID, Headers: r.Headers}
	if !r.At.IsZero() {
		line.TS = r.At.UnixMilli()
	}
	if utf8.Valid(r.Data) {
		text := string(r.Data)
		line.Data = &text
	} else {
		line.DataBase64 = base64.StdEncoding.EncodeToString(r.Data)
	}
	return t.json(line)
}

func (t *streamTailer) printGap(g *backend.Gap) error {
	text := fmt.Sprintf("gap %s–%s (%s)", orUnknown(g.From), orUnknown(g.To), g.Reason)
	if g.Missed != nil {
		text += ": " + countOf(*g.Missed, "message")
	}
	return t.gap(text, "gap", struct {
		From   string `json:"from"`
		To     string `json:"to"`
		Reason string `json:"reason"`
		Missed *int64 `json:"missed"`
	}{g.From, g.To, g.Reason, g.Missed})
}

func orUnknown(cursor string) string {
	if cursor == "" {
		return "?"
	}
	return cursor
}
