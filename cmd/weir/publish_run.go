package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/client"
)

// maxBatchBytes ends a batch; a larger record is sent alone.
const maxBatchBytes = 1 << 20

// publisher sends one input to one stream, one batch in flight.
type publisher struct {
	opt      *publishOptions
	producer *weir.Producer
	courier  *courier
	stream   string
	url      string // for people: quoted, without its password
	input    *recordReader
	place    *place
	progress *progress
	hooks    weir.Hooks // of --metrics
	log      *slog.Logger

	retryMin, retryMax time.Duration

	feed    chan fedRecord
	pending []inputRecord // read and not yet acknowledged
	held    error         // why reading ended, possibly io.EOF; reported once pending is sent
	sent    uint64        // records acknowledged in this run
	skipped uint64        // records an earlier run had sent
	deduped uint64        // those of sent that a try stored whose answer was lost
	started time.Time
	lastID  string
}

// slowed is the guard's hook for a delayed publish.
func (p *publisher) slowed(s weir.StreamName, kind weir.SlowKind, d time.Duration) {
	p.progress.slowed(kind, d)
	if count := p.hooks.Slowed; count != nil {
		count(s, kind, d)
	}
}

// slowing is the guard's hook for a publish that it holds back until the workers have caught
// up; shorter delays are only counted.
func (p *publisher) slowing(s weir.StreamName, kind weir.SlowKind, why string) {
	if kind == weir.HardPause && !p.progress.isWaiting() && p.opt.logFormat != jsonFormat {
		p.progress.waiting(fmt.Sprintf("the workers of %s are behind: %s", p.stream, why))
	}
	if tell := p.hooks.Slowing; tell != nil {
		tell(s, kind, why)
	}
}

// run reads and sends until the end of the input or the first error.
func (p *publisher) run(ctx context.Context) error {
	p.started = time.Now()
	if err := p.place.load(); err != nil {
		return err
	}
	p.feed = make(chan fedRecord, feedAhead)
	go feedRecords(ctx, p.input, p.feed)
	if err := p.skip(ctx); err != nil {
		return err
	}
	limit := p.opt.batch
	for {
		p.fill(ctx, limit)
		if len(p.pending) == 0 && errors.Is(p.held, io.EOF) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if len(p.pending) == 0 {
			return p.held
		}
		n := batchLen(p.pending, limit)
		err := p.send(ctx, p.pending[:n])
		if refused(err) && n > 1 {
			limit = n / 2 // narrow down to the refused record
			continue
		}
		if refused(err) {
			r := p.pending[0]
			return &inputError{r.file, r.line, fmt.Errorf("the server refused this record: %w", err)}
		}
		if err != nil {
			return err
		}
	}
}

// refused reports whether err blames the content of the batch.
func refused(err error) bool {
	return errors.Is(err, backend.ErrTooLarge) || api.IsCode(err, api.CodeInvalidRequest) || api.IsCode(err, api.CodeBatchTooLarge) ||
		client.IsStatus(err, http.StatusRequestEntityTooLarge)
}

// skip skips what an earlier run has sent and checks that it is the same.
func (p *publisher) skip(ctx context.Context) error {
	for p.skipped < p.place.want {
		var r fedRecord
		select {
		case r = <-p.feed:
		case <-ctx.Done():
			return ctx.Err()
		}
		if errors.Is(r.err, io.EOF) {
			return fmt.Errorf("--resume %s: %s sent earlier and the input has only %d; it is not the same input", p.opt.resume, countOf(p.place.want, "record"), p.skipped)
		}
		if r.err != nil {
			return r.err
		}
		p.place.add(r.data)
		p.skipped++
	}
	return p.place.check()
}

// batchLinger is how long a batch waits for more records: slow input, such as
// tail -F, is sent as it comes.
const batchLinger = 50 * time.Millisecond

// fill adds to pending until the batch is full, or the input pauses or ends.
func (p *publisher) fill(ctx context.Context, limit int) {
	size := 0
	for _, r := range p.pending {
		size += len(r.data)
	}
	linger := time.NewTimer(batchLinger)
	defer linger.Stop()
	for p.held == nil && len(p.pending) < limit && size < maxBatchBytes {
		var pause <-chan time.Time
		if len(p.pending) > 0 {
			pause = linger.C
		}
		select {
		case r := <-p.feed:
			p.take(r)
			size += len(r.data)
		case <-pause:
			return
		case <-ctx.Done():
			p.held = ctx.Err()
		}
	}
}

// take adds what the feed delivered: a record, or why there are no more.
func (p *publisher) take(r fedRecord) {
	if r.err != nil {
		p.held = r.err
		return
	}
	p.pending = append(p.pending, r.inputRecord)
}

// batchLen returns how many of the records go into the next write.
func batchLen(records []inputRecord, limit int) int {
	n, size := 0, 0
	for n < len(records) && n < limit {
		size += len(records[n].data)
		if n > 0 && size > maxBatchBytes {
			break
		}
		n++
	}
	return n
}

// send publishes as much of a batch as there is room for, and retries while that may
// help. A message's key consists of the run and the record's number.
func (p *publisher) send(ctx context.Context, batch []inputRecord) error {
	msgs := make([]weir.Message, len(batch))
	for i, r := range batch {
		msgs[i].Data, msgs[i].Delay = p.courier.payload(r.data), p.opt.delay
		if !p.opt.noKeys {
			msgs[i].IdempotencyKey = p.place.key(uint64(i))
		}
	}
	n, err := p.try(ctx, msgs)
	if err == nil {
		return p.acknowledged(ctx, n)
	}
	if p.courier.noted && p.courier.unsure.IsZero() { // definitely not stored
		err = errors.Join(err, p.place.end())
	}
	return err
}

// try publishes until there is an answer or --give-up has passed, and returns how many
// messages were sent.
func (p *publisher) try(ctx context.Context, msgs []weir.Message) (n int, err error) {
	begin := time.Now()
	p.courier.begin()
	limited, cancel := ctx, context.CancelFunc(func() {})
	if p.opt.giveUp > 0 {
		limited, cancel = context.WithTimeout(ctx, p.opt.giveUp)
	}
	defer cancel()
	var last error
	var failing stubborn
	for try := 1; ; try++ {
		n, err := p.producer.PublishSome(limited, msgs)
		if err == nil {
			return n, nil
		}
		if limited.Err() == nil {
			last = err
		}
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case limited.Err() != nil || p.opt.giveUp > 0 && time.Since(begin) > p.opt.giveUp:
			return 0, fmt.Errorf("gave up after %s without progress (--give-up): %w", p.opt.giveUp, cmp.Or(last, err))
		case !retryable(err) || failing.last(err):
			return 0, err
		}
		wait := max(client.Backoff(try, p.retryMin, p.retryMax), retryAfter(err))
		if !p.progress.isWaiting() {
			p.progress.waiting(p.reason(limited, err))
		}
		from := time.Now()
		_ = client.Sleep(limited, wait)
		p.progress.waited(time.Since(from))
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
}

// reasonTimeout is how long the load may take to read that explains a refusal.
const reasonTimeout = time.Second

// reason says why publish waits, and what would help.
func (p *publisher) reason(ctx context.Context, err error) string {
	var full *weir.QueueFullError
	if !errors.As(err, &full) {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, reasonTimeout)
	defer cancel()
	load, unread := p.courier.Stats(ctx)
	work := fmt.Sprintf("%s: start `weir work %s -- COMMAND`, or publish with --guard off", full.Limit, p.url)
	switch {
	case unread != nil || full.Limit == "":
		return err.Error()
	case load.Paused:
		return fmt.Sprintf("%s is paused and %s: `weir queue resume %s`, or publish with --guard off", p.stream, full.Limit, p.url)
	case load.Pending == 0 && (load.Workers == nil || *load.Workers == 0):
		return fmt.Sprintf("nobody works on %s, and %s", p.stream, work)
	default:
		return fmt.Sprintf("the workers of %s are behind, %s", p.stream, full.Limit)
	}
}

// acknowledged moves the place past the n records that are stored. The answer to a
// repeated write has the length of the first try, which may have held
// fewer records, or more if it belonged to an earlier run.
func (p *publisher) acknowledged(ctx context.Context, n int) error {
	c := p.courier
	if c.places != nil {
		n = c.stored
	}
	if err := p.readUpTo(ctx, n); err != nil {
		return err
	}
	p.deduped += uint64(c.deduped)
	for _, r := range p.pending[:n] {
		p.place.add(r.data)
	}
	p.pending = p.pending[:copy(p.pending, p.pending[n:])]
	p.sent += uint64(n)
	p.lastID = c.lastID
	p.progress.update(p.sent, p.started)
	return p.place.end()
}

// readUpTo reads until n records are pending.
func (p *publisher) readUpTo(ctx context.Context, n int) error {
	for len(p.pending) < n && p.held == nil {
		select {
		case r := <-p.feed:
			p.take(r)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if len(p.pending) < n {
		return fmt.Errorf("--resume %s: the interrupted write had %s and the input has only %d left; it is not the same input", p.opt.resume, countOf(n, "record"), len(p.pending))
	}
	return nil
}

// report prints the last line, even after an error.
func (p *publisher) report(out io.Writer, err error) error {
	took := time.Since(p.started)
	rate := float64(p.sent) / max(took.Seconds(), 1e-9)
	waits, waited := p.progress.totals()
	if !p.opt.json {
		text := fmt.Sprintf("%s published to %s in %s (%.0f/s)", countOf(p.sent, "record"), p.stream, took.Round(time.Millisecond), rate)
		if p.skipped > 0 {
			text += fmt.Sprintf(", %d there from an earlier run", p.skipped)
		}
		if n := p.input.mended.Load(); n > 0 {
			text += fmt.Sprintf(", %d not %s and sent by --invalid=%s", n, p.input.form(), p.opt.invalid)
		}
		if n := p.input.left.Load(); n > 0 {
			text += fmt.Sprintf(", %d not %s and left out", n, p.input.form())
		}
		if waits > 0 {
			text += fmt.Sprintf(", waited %s (%s)", countOf(waits, "time"), waited.Round(time.Millisecond))
		}
		_, err := fmt.Fprintln(out, text)
		return err
	}
	line := map[string]any{
		"topic": p.stream, "published": p.sent, "skipped": p.skipped, "deduped": p.deduped,
		"last_id": p.lastID, "elapsed_ms": took.Milliseconds(), "rate": rate,
		"mended": p.input.mended.Load(), "invalid": p.input.left.Load(),
		"waits": waits, "waited_ms": waited.Milliseconds(), "complete": err == nil,
	}
	if seq, err := strconv.ParseUint(p.lastID, 10, 64); err == nil { // a weir queue's
		line["last_seq"] = seq
	}
	text, _ := json.Marshal(line) // of strings, numbers and a bool
	_, err = fmt.Fprintf(out, "%s\n", text)
	return err
}
