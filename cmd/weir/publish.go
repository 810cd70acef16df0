package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/client"
)

const publishHelp = `Publish sends each line of the files (of stdin if there are none, or for "-")
as a message to a topic. An absent topic is created: a queue of class disk that
moves a job to TOPIC.dlq after three deliveries, or what --type and --durability
say.

A line becomes a JSON string; its end (\n or \r\n) is not part of it and an empty
line is an empty message. With --ndjson a line is a JSON value and empty lines are
left out. A line that is not UTF-8, or not JSON, stops the command with its file
and number: what stands before it is sent, it and the rest are not.

Messages keep their order. Lost connections, restarts of the server, a full topic
and 429 are waited out, and a batch whose answer was lost is sent again under the
same idempotency key, so it is stored once.

With --resume FILE the command keeps its place in FILE after each batch. Run again
with the same FILE it goes on there, also after it was killed itself; input that
grew meanwhile is sent from where it ended. Without --resume a second run sends
everything a second time.`

const publishExample = `  weir publish http://127.0.0.1:4000/requests access.log
  tail -F app.log | weir publish http://:secret@queue.example:4000/app-log --type log
  weir publish --ndjson --resume import.place http://127.0.0.1:4000/orders orders.ndjson`

type publishOptions struct {
	topic  topicFlags
	ndjson bool
	json   bool
	batch  int
	resume string
	giveUp time.Duration
}

func newPublishCmd() *cobra.Command {
	var opt publishOptions
	cmd := &cobra.Command{
		Use:     "publish URL [FILE…]",
		Short:   "Send lines or JSON values to a topic",
		Long:    publishHelp,
		Example: publishExample,
		Args:    cobra.MinimumNArgs(1),
		RunE: withEnv(func(cmd *cobra.Command, args []string) error {
			return runPublish(cmd, &opt, args)
		}),
	}
	f := cmd.Flags()
	opt.topic.add(cmd)
	f.BoolVar(&opt.ndjson, "ndjson", false, "a line is a JSON value instead of text")
	f.BoolVar(&opt.json, "json", false, "print the result as one JSON line")
	f.IntVar(&opt.batch, "batch", 500, "records per write at most (1 to 10000); a write also ends at 1 MiB")
	f.StringVar(&opt.resume, "resume", "", "file that keeps the place, to go on there when run again")
	f.DurationVar(&opt.giveUp, "give-up", 10*time.Minute, "end with an error after this long without progress; 0 = never")
	addKeyFlag(cmd)
	return cmd
}

func runPublish(cmd *cobra.Command, opt *publishOptions, args []string) error {
	target, err := client.ParseTopicURL(args[0])
	if err != nil {
		return err
	}
	if opt.batch < 1 || opt.batch > 10_000 {
		return fmt.Errorf("--batch %d is out of range; use 1 to 10000", opt.batch)
	}
	cfg, err := opt.topic.config(target.Topic)
	if err != nil {
		return err
	}
	c, err := connect(cmd, target)
	if err != nil {
		return err
	}
	defer c.Close()
	run := make([]byte, 12)
	if _, err := rand.Read(run); err != nil {
		return err
	}
	paths := args[1:]
	if len(paths) == 0 {
		paths = []string{"-"}
	}
	p := &publisher{
		client: c, topic: target.Topic, config: cfg, opt: opt,
		input:    &recordReader{paths: paths, stdin: cmd.InOrStdin(), ndjson: opt.ndjson},
		place:    newPlace(opt.resume, target.Topic, hex.EncodeToString(run)),
		progress: newProgress(cmd.ErrOrStderr()),
		retryMin: 50 * time.Millisecond, retryMax: 5 * time.Second,
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err = p.run(ctx)
	p.progress.finish()
	p.report(cmd.OutOrStdout(), err)
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted after %d records", p.sent)
	}
	return err
}

// maxBatchBytes ends a batch; a single larger record travels alone.
const maxBatchBytes = 1 << 20

// publisher sends one input to one topic, one batch in flight.
type publisher struct {
	client   *client.Client
	topic    string
	config   client.Config
	opt      *publishOptions
	input    *recordReader
	place    *place
	progress *progress

	retryMin, retryMax time.Duration

	feed    chan fedRecord
	pending []inputRecord // read and not yet acknowledged
	held    error         // why reading ended, io.EOF included; reported once pending is sent
	sent    uint64        // records acknowledged in this run
	skipped uint64        // records an earlier run had sent
	deduped uint64        // of sent: stored by a try whose answer was lost
	started time.Time
	last    client.WriteResult
}

// run reads, sends and stops at the end of the input or the first error.
func (p *publisher) run(ctx context.Context) error {
	p.started = time.Now()
	if err := p.place.load(); err != nil {
		return err
	}
	if err := p.skip(ctx); err != nil {
		return err
	}
	p.feed = make(chan fedRecord, feedAhead)
	go feedRecords(ctx, p.input, p.feed)
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
			limit = n / 2 // narrow down to the record that is refused
			continue
		}
		if refused(err) {
			r := p.pending[0]
			return &inputError{r.file, r.line, fmt.Errorf("the server refuses this record: %w", err)}
		}
		if err != nil {
			return err
		}
	}
}

// refused reports an answer that blames the content of the batch.
func refused(err error) bool {
	return client.IsCode(err, api.CodeInvalidRequest) || client.IsCode(err, api.CodeRecordTooLarge) ||
		client.IsCode(err, api.CodeBatchTooLarge) || client.IsStatus(err, http.StatusRequestEntityTooLarge)
}

// skip reads over what an earlier run has sent and checks that it is the same.
func (p *publisher) skip(ctx context.Context) error {
	for p.skipped < p.place.want {
		if err := ctx.Err(); err != nil {
			return err
		}
		r, err := p.input.next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("--resume %s: %d records were sent and the input has only %d; it is not the same input", p.opt.resume, p.place.want, p.skipped)
		}
		if err != nil {
			return err
		}
		p.place.add(r.data)
		p.skipped++
	}
	return p.place.check()
}

// batchLinger is how long a batch that has begun waits for company: input that
// trickles in, such as tail -F, is sent as it comes.
const batchLinger = 50 * time.Millisecond

// fill adds to pending until a batch is together, the input pauses or ends.
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

// take adds what the feed delivered: a record or the reason why it ended.
func (p *publisher) take(r fedRecord) {
	if r.err != nil {
		p.held = r.err
		return
	}
	p.pending = append(p.pending, r.inputRecord)
}

// batchLen is how many of the records make the next write.
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

// send writes one batch, trying again for as long as that is of use. The key
// is made of the run and the number of the first record: a batch that was
// stored under it keeps its own count, which may differ from this one's.
func (p *publisher) send(ctx context.Context, batch []inputRecord) error {
	w := client.Write{
		Records:        make([]client.WriteRecord, len(batch)),
		IdempotencyKey: p.place.key(),
		Config:         &p.config,
	}
	for i, r := range batch {
		w.Records[i].Data = r.data
	}
	unsure, err := p.place.begin(time.Now())
	if err != nil {
		return err
	}
	res, unsure, err := p.try(ctx, w, unsure)
	if err == nil {
		return p.acknowledged(ctx, res, len(batch))
	}
	if unsure.IsZero() { // certainly not stored
		err = errors.Join(err, p.place.end())
	}
	return err
}

// try makes the write until it is answered. unsure is when a try was made first
// whose outcome is not known, zero if there was none.
func (p *publisher) try(ctx context.Context, w client.Write, unsure time.Time) (client.WriteResult, time.Time, error) {
	begin := time.Now()
	for try := 1; ; try++ {
		at := time.Now()
		err := p.checkWindow(ctx, unsure)
		if err == nil {
			var res client.WriteResult
			if res, err = p.client.Write(ctx, p.topic, w); err == nil {
				return res, unsure, nil
			}
		}
		if client.Ambiguous(err) && unsure.IsZero() {
			unsure = at
		}
		switch {
		case ctx.Err() != nil:
			return client.WriteResult{}, unsure, ctx.Err()
		case !client.Retryable(err):
			return client.WriteResult{}, unsure, err
		case p.opt.giveUp > 0 && time.Since(begin) > p.opt.giveUp:
			return client.WriteResult{}, unsure, fmt.Errorf("gave up after %s without progress (--give-up): %w", p.opt.giveUp, err)
		}
		wait := max(client.Backoff(try, p.retryMin, p.retryMax), client.RetryAfter(err))
		p.progress.waiting(err, wait)
		if err := client.Sleep(ctx, wait); err != nil {
			return client.WriteResult{}, unsure, err
		}
	}
}

const (
	// windowMargin is kept free at the end of the idempotency window: a request
	// takes its time.
	windowMargin = 10 * time.Second
	// unknownWindow is taken for a topic that the key may not read.
	unknownWindow = 2 * time.Minute
)

// checkWindow refuses to repeat a write whose outcome is not known once the
// topic may have forgotten its key: storing twice is worse than asking.
func (p *publisher) checkWindow(ctx context.Context, unsure time.Time) error {
	if unsure.IsZero() {
		return nil
	}
	window := unknownWindow
	switch st, err := p.client.Topic(ctx, p.topic); {
	case err == nil:
		window = time.Duration(st.Config.IdempotencyWindowMS) * time.Millisecond
	case client.IsCode(err, api.CodeTopicNotFound):
		return nil // nothing was stored, or it is gone
	case client.Retryable(err):
		return err
	}
	age := time.Since(unsure)
	if age < window-min(windowMargin, window/2) {
		return nil
	}
	return fmt.Errorf("the answer to the write that begins at %s:%d was lost %s ago and the topic remembers a write for %s; look at the topic's end whether it was stored, then publish the rest",
		p.pending[0].file, p.pending[0].line, age.Round(time.Millisecond), window)
}

// acknowledged moves the place behind what is stored. A repeat answers with
// the count of the first try, which may have held fewer
// records, or more if it was an earlier run's.
func (p *publisher) acknowledged(ctx context.Context, res client.WriteResult, n int) error {
	if res.Deduped {
		n = res.Count
		p.deduped += uint64(n)
		if err := p.readUpTo(ctx, n); err != nil {
			return err
		}
	}
	for _, r := range p.pending[:n] {
		p.place.add(r.data)
	}
	p.pending = p.pending[:copy(p.pending, p.pending[n:])]
	p.sent += uint64(n)
	p.last = res
	p.progress.update(p.sent, p.started)
	return p.place.end()
}

// readUpTo reads on until n records are pending.
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
		return fmt.Errorf("--resume %s: the write that was under way had %d records and the input has only %d left; it is not the same input", p.opt.resume, n, len(p.pending))
	}
	return nil
}

// report prints the last line, also after an error.
func (p *publisher) report(out io.Writer, err error) {
	took := time.Since(p.started)
	rate := float64(p.sent) / max(took.Seconds(), 1e-9)
	if !p.opt.json {
		fmt.Fprintf(out, "%d records published to %s in %s (%.0f/s)", p.sent, p.topic, took.Round(time.Millisecond), rate)
		if p.skipped > 0 {
			fmt.Fprintf(out, ", %d were there from an earlier run", p.skipped)
		}
		if w := p.progress.waits; w > 0 {
			fmt.Fprintf(out, ", waited %d times (%s)", w, p.progress.waited.Round(time.Millisecond))
		}
		fmt.Fprintln(out)
		return
	}
	line := map[string]any{
		"topic": p.topic, "published": p.sent, "skipped": p.skipped, "deduped": p.deduped,
		"last_seq": p.last.LastSeq, "elapsed_ms": took.Milliseconds(), "rate": rate,
		"waits": p.progress.waits, "waited_ms": p.progress.waited.Milliseconds(), "complete": err == nil,
	}
	text, _ := json.Marshal(line)
	fmt.Fprintf(out, "%s\n", text)
}
