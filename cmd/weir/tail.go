package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/client"
)

const tailHelp = `Tail prints the records of a topic as they are written, one line each: a JSON
string as its text with control characters escaped, any other value as JSON. With
--json a line is the whole record.

Without --from or --last it starts behind the newest record. It goes on after lost
connections and restarts of the server where it was. It ends with an error when the
topic is deleted. Records that were lost before
they could be read (a cap, a TTL, a crash) are told on standard error as
"gap A–B (reason)", and with --json also as a line {"tombstone":…}; records that
were acked or deleted are no gap. A gap in front of the first record read over a
connection has the reason from_seq_too_old, whatever took it.

Reading takes nothing away from a queue.`

const tailExample = `  weir tail http://127.0.0.1:4000/requests
  weir tail http://127.0.0.1:4000/requests --from 0 --no-follow > requests.txt
  weir tail http://127.0.0.1:4000/orders --last 10 --json | jq .data`

type tailOptions struct {
	from     uint64
	last     uint64
	count    uint64
	json     bool
	noFollow bool
}

func newTailCmd() *cobra.Command {
	var opt tailOptions
	cmd := &cobra.Command{
		Use:     "tail URL",
		Short:   "Follow a topic and print its records",
		Long:    tailHelp,
		Example: tailExample,
		Args:    cobra.ExactArgs(1),
		RunE: withEnv(func(cmd *cobra.Command, args []string) error {
			return runTail(cmd, &opt, args[0])
		}),
	}
	f := cmd.Flags()
	f.Uint64Var(&opt.from, "from", 0, "print what is after this seq; 0 = everything (default the topic's head)")
	f.Uint64VarP(&opt.last, "last", "n", 0, "start this many seqs before the head")
	f.Uint64Var(&opt.count, "count", 0, "end after this many records; 0 = never")
	f.BoolVar(&opt.json, "json", false, "print whole records as JSON lines")
	f.BoolVar(&opt.noFollow, "no-follow", false, "end at the head instead of waiting for more")
	addKeyFlag(cmd)
	cmd.MarkFlagsMutuallyExclusive("from", "last")
	return cmd
}

func runTail(cmd *cobra.Command, opt *tailOptions, url string) error {
	target, err := client.ParseTopicURL(url)
	if err != nil {
		return err
	}
	c, err := connect(cmd, target)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := bufio.NewWriter(cmd.OutOrStdout())
	t := &tailer{client: c, topic: target.Topic, opt: opt, out: out, log: cmd.ErrOrStderr()}
	err = t.run(ctx, cmd.Flags().Changed("from"))
	if flushErr := out.Flush(); err == nil {
		err = flushErr
	}
	if ctx.Err() != nil && !errors.Is(err, syscall.EPIPE) {
		return nil // ended by a signal
	}
	return err
}

// tailLimit is the most records that tail asks for at once.
const tailLimit = 1000

// tailer follows one topic from a cursor.
type tailer struct {
	client *client.Client
	topic  string
	opt    *tailOptions
	out    *bufio.Writer
	log    io.Writer

	cursor  uint64
	printed uint64
	away    bool
}

func (t *tailer) run(ctx context.Context, fromGiven bool) error {
	t.cursor = t.opt.from
	if !fromGiven {
		if err := t.startAtHead(ctx); err != nil {
			return err
		}
	}
	if t.opt.noFollow {
		return t.read(ctx)
	}
	return t.follow(ctx)
}

// read prints what is there.
func (t *tailer) read(ctx context.Context) error {
	for {
		res, err := retrying(ctx, t, func() (client.DiffResult, error) {
			return t.client.Diff(ctx, t.topic, client.Diff{FromSeq: t.cursor, Limit: t.limit(), IncludeTags: true})
		})
		if err != nil {
			return err
		}
		if res.Tombstone != nil {
			if err := t.printGap(res.Tombstone, res.Tombstone.Reason == api.ReasonRecreated); err != nil {
				return err
			}
		}
		err = t.printRecords(res.Records)
		if errors.Is(err, errCounted) {
			return nil
		}
		if err != nil || res.CaughtUp {
			return err
		}
		t.cursor = res.NextFromSeq
	}
}

// follow prints what is there and what comes.
func (t *tailer) follow(ctx context.Context) error {
	watch := client.Watch{From: map[string]uint64{t.topic: t.cursor}, Limit: t.limit(), IncludeTags: true}
	err := t.client.Follow(ctx, watch, client.WatchEvents{
		Records: func(e client.WatchRecords) error { return t.printRecords(e.Records) },
		Tombstone: func(e client.WatchTombstone) error {
			gap := client.Tombstone{GapFrom: e.GapFrom, GapTo: e.GapTo, Reason: e.Reason, MissedEstimate: e.GapTo - e.GapFrom + 1}
			return t.printGap(&gap, e.Recreated())
		},
		Deleted:   func(client.WatchTopic) error { return fmt.Errorf("topic %q was deleted", t.topic) },
		Connected: func() { t.setAway(nil) },
		Lost:      t.setAway,
	})
	switch {
	case errors.Is(err, errCounted):
		return nil
	case client.IsCode(err, api.CodeTopicNotFound):
		return fmt.Errorf("topic %q does not exist", t.topic)
	}
	return err
}

func (t *tailer) startAtHead(ctx context.Context) error {
	st, err := retrying(ctx, t, func() (client.TopicState, error) {
		return t.client.Topic(ctx, t.topic)
	})
	if err != nil {
		return err
	}
	t.cursor = st.HeadSeq - min(t.opt.last, st.HeadSeq)
	return nil
}

// limit is how many records to ask for at once.
func (t *tailer) limit() int {
	if left := t.opt.count - t.printed; t.opt.count > 0 && left < tailLimit {
		return int(left)
	}
	return tailLimit
}

// retrying makes the call until it is answered, waiting while the server is away.
func retrying[T any](ctx context.Context, t *tailer, call func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		res, err := call()
		if err == nil {
			t.setAway(nil)
			return res, nil
		}
		if client.IsCode(err, api.CodeTopicNotFound) {
			return res, fmt.Errorf("topic %q does not exist", t.topic)
		}
		if ctx.Err() != nil {
			return res, ctx.Err()
		}
		if !client.Retryable(err) {
			return res, err
		}
		t.setAway(err)
		wait := max(client.Backoff(try, 50*time.Millisecond, 2*time.Second), client.RetryAfter(err))
		if err := client.Sleep(ctx, wait); err != nil {
			return res, err
		}
	}
}

func (t *tailer) setAway(err error) {
	if (err != nil) == t.away {
		return
	}
	t.away = err != nil
	if err != nil {
		fmt.Fprintf(t.log, "weir tail: waiting for the server: %v\n", err)
		return
	}
	fmt.Fprintln(t.log, "weir tail: the server is back")
}

// errCounted means that --count is reached.
var errCounted = errors.New("as many records as were asked for")

func (t *tailer) printRecords(records []client.Record) error {
	for i := range records {
		if err := t.printRecord(&records[i]); err != nil {
			return err
		}
		t.printed++
		if t.opt.count > 0 && t.printed == t.opt.count {
			return errCounted
		}
	}
	return t.out.Flush()
}

func (t *tailer) printGap(g *client.Tombstone, recreated bool) error {
	if err := t.out.Flush(); err != nil { // the gap stands between what it parts
		return err
	}
	if recreated {
		fmt.Fprintf(t.log, "gap %d–%d (%s): the topic was created again; going on at its start\n", g.GapFrom, g.GapTo, g.Reason)
	} else {
		fmt.Fprintf(t.log, "gap %d–%d (%s)\n", g.GapFrom, g.GapTo, g.Reason)
	}
	if !t.opt.json {
		return nil
	}
	return t.printJSON(map[string]any{"tombstone": g})
}

func (t *tailer) printRecord(r *client.Record) error {
	if t.opt.json {
		return t.printJSON(r)
	}
	if len(r.Data) > 0 && r.Data[0] == '"' {
		var s string
		if err := json.Unmarshal(r.Data, &s); err != nil {
			return fmt.Errorf("seq %d: the payload cannot be read: %w", r.Seq, err)
		}
		_, err := t.out.WriteString(oneLine(s) + "\n")
		return err
	}
	_, err := t.out.Write(append(r.Data, '\n'))
	return err
}

func (t *tailer) printJSON(v any) error {
	enc := json.NewEncoder(t.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// oneLine escapes control characters except the tab: a record is one line, and
// it does not steer the terminal.
func oneLine(s string) string {
	control := func(r rune) bool { return r != '\t' && (r < 0x20 || r >= 0x7f && r < 0xa0) }
	if !strings.ContainsFunc(s, control) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !control(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
