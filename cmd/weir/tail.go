package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	neturl "net/url"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/client"
	"github.com/weirmq/weir/internal/settings"
)

const tailHelp = `Tail prints the messages of a stream as they are written, one line each: text as
it is with control characters escaped, on a weir server any other value as JSON. With
--json a line is the whole record.

Without --from or --last it starts after the newest message. If --from is beyond the
head of a weir server's topic or a Redis stream it says so and waits for new messages; with --no-follow that
is an error. After a lost connection or a restart of the server it continues where it
was. It ends with an error when a server's topic is deleted. Messages that were lost
before they could be read (a cap, a TTL, trimming, a crash) are reported on standard error as "gap A–B (reason)", and with
--json also as a line {"tombstone":…}, {"gap":…} for streams that are not a weir
server's. What was acked or deleted on a weir server is no gap. A gap in front of the
first record read over a connection has the reason from_seq_too_old, whatever took it.

Reading removes nothing from a queue and joins no group; a group in the URL counts for
nothing. Of a stream with shards one is followed: name it (orders.0), without shards=N.

URL is http[s]://[:key@]host:port/TOPIC, redis[s]://[user:pass@]host:port/0?stream=NAME,
kafka[s]://host:port/TOPIC or file:///DIR?topic=NAME, which belongs to one process at a
time. --from is a seq of a weir server, the ID of an entry of a Redis stream, or
PARTITION:OFFSET of a record on Kafka, where partitions are read one after the other; for
several partitions, one for each with commas between them. 0 is the start of any.`

const tailExample = `  weir tail http://127.0.0.1:4000/requests
  weir tail http://127.0.0.1:4000/requests --from 0 --no-follow > requests.txt
  weir tail 'redis://127.0.0.1:6379/0?stream=orders' --last 10 --json | jq .data`

type tailOptions struct {
	from     string
	last     uint64
	count    uint64
	json     bool
	noFollow bool
	keys     keyOptions
}

func (o *tailOptions) load(cmd *cobra.Command) error {
	err := load(cmd, settings.Tail, o.keys.streamFields(settings.Fields{
		"from": &o.from, "last": &o.last, "count": &o.count, "json": &o.json, "no-follow": &o.noFollow,
	}))
	if err == nil && o.from != "" && o.last > 0 {
		return &usageError{errors.New("--from and --last exclude each other")}
	}
	return err
}

func newTailCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "tail URL",
		Short:   "Follow a stream and print its messages",
		Long:    tailHelp,
		Example: tailExample,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt tailOptions
			if err := opt.load(cmd); err != nil {
				return err
			}
			return runTail(cmd, &opt, args[0])
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Tail)
	return cmd
}

func runTail(cmd *cobra.Command, opt *tailOptions, url string) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	url, err := tailed(url)
	if err == nil {
		err = opt.checkFrom(url)
	}
	if err != nil {
		return &usageError{err}
	}
	p := printer{opt: opt, out: bufio.NewWriter(cmd.OutOrStdout()), log: cmd.ErrOrStderr()}
	if isHTTP(url) {
		err = tailTopic(ctx, &p, url)
	} else {
		err = tailStream(ctx, &p, url)
	}
	if errors.Is(err, errCounted) {
		err = nil
	}
	if flushErr := p.out.Flush(); err == nil {
		err = flushErr
	}
	switch {
	case err == nil || ctx.Err() == nil || errors.Is(err, syscall.EPIPE):
		return err
	case opt.noFollow || opt.count > 0:
		return errInterrupted
	}
	return nil // nothing else ends it
}

// What --from may be, by the kind of stream.
var (
	seqForm     = regexp.MustCompile(`^[0-9]+$`)
	entryForm   = regexp.MustCompile(`^[0-9]+(-[0-9]+)?$`)
	recordsForm = regexp.MustCompile(`^[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*$`)
)

// checkFrom refuses a place that no stream of the URL's kind has.
func (o *tailOptions) checkFrom(url string) error {
	form, what := seqForm, "a seq, which is a number"
	switch schemeOf(url) {
	case "redis", "rediss":
		form, what = entryForm, "the ID of an entry, such as 1771090569852-0"
	case "kafka", "kafkas":
		form, what = recordsForm, "PARTITION:OFFSET, or several with commas between them"
	}
	if o.from == "" || o.from == "0" || form.MatchString(o.from) || o.from == backend.CursorEnd && !isHTTP(url) {
		return nil
	}
	return fmt.Errorf("--from %q is not %s; 0 is everything", o.from, what)
}

// tailed returns the URL of what is read: without what belongs to the workers and to the
// creation of a topic on a weir server.
func tailed(raw string) (string, error) {
	u, err := neturl.Parse(raw)
	if err != nil {
		return raw, nil // opening it says what is wrong
	}
	query := u.Query()
	if query.Has("shards") {
		return "", errors.New("tail follows one shard at a time: leave shards out and name it, such as orders.0 instead of orders")
	}
	if !isHTTP(raw) {
		return raw, nil
	}
	for _, key := range []string{"group", "type", "durability"} {
		if key != "group" || query.Get(key) == "weir" { // the one group that there is
			query.Del(key)
		}
	}
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// tailTopic follows a topic of a weir server by its event stream.
func tailTopic(ctx context.Context, p *printer, url string) error {
	target, err := client.ParseTopicURL(url)
	if err != nil {
		return &usageError{err}
	}
	c, err := p.opt.keys.connect(target)
	if err != nil {
		return err
	}
	defer c.Close()
	t := &topicTailer{printer: p, client: c, topic: target.Topic, url: url, started: time.Now()}
	return t.run(ctx)
}

// tailLimit is the most messages that tail asks for at once.
const tailLimit = 1000

// errCounted means that --count is reached.
var errCounted = errors.New("as many records as were asked for")

// printer prints what tail reads, and reports once when a server stops
// answering and once when it is back.
type printer struct {
	opt     *tailOptions
	out     *bufio.Writer
	log     io.Writer
	printed uint64
	away    bool
}

// limit returns how many messages to ask for at once.
func (p *printer) limit() int {
	if left := p.opt.count - p.printed; p.opt.count > 0 && left < tailLimit {
		return int(left)
	}
	return tailLimit
}

// counted counts a printed message.
func (p *printer) counted() error {
	p.printed++
	if p.opt.count > 0 && p.printed == p.opt.count {
		return errCounted
	}
	return nil
}

func (p *printer) setAway(err error) {
	if (err != nil) == p.away {
		return
	}
	p.away = err != nil
	if err != nil {
		fmt.Fprintf(p.log, "weir tail: waiting for the server: %v\n", err)
		return
	}
	fmt.Fprintln(p.log, "weir tail: the server is back")
}

// beyondHead reports that --from is after the last record, head, which may be a
// mistake: an error with --no-follow, otherwise a line that says what comes next.
func (p *printer) beyondHead(head, next string) error {
	text := fmt.Sprintf("--from %s is beyond the topic's head, which is %s", p.opt.from, head)
	if p.opt.noFollow {
		return errors.New(text + "; use --from 0 for everything")
	}
	fmt.Fprintf(p.log, "weir tail: %s; waiting for %s (--from 0 is everything)\n", text, next)
	return nil
}

// gap reports what was lost between the lines before and after it.
func (p *printer) gap(line, key string, value any) error {
	if err := p.out.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(p.log, line)
	if !p.opt.json {
		return nil
	}
	return p.json(map[string]any{key: value})
}

func (p *printer) text(s string) error {
	_, err := p.out.WriteString(oneLine(s) + "\n")
	return err
}

func (p *printer) json(v any) error {
	enc := json.NewEncoder(p.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// oneLine escapes control characters except the tab, so that a message is one line and
// cannot control the terminal. Bytes that are not UTF-8 are shown as U+FFFD.
func oneLine(s string) string {
	control := func(r rune) bool { return r != '\t' && (r < 0x20 || r >= 0x7f && r < 0xa0) }
	s = strings.ToValidUTF8(s, "\uFFFD")
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
