package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/client"
	"github.com/weirmq/weir/internal/settings"
)

const topicHelp = `Topic lists and changes the topics of a weir server. URL is
http[s]://[:key@]host:port/TOPIC; for ls it ends behind the port.

What cannot be undone asks first on a terminal, and needs --yes elsewhere; --dry-run only
says what would go.`

func newTopicCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topic",
		Short: "List, configure, empty and delete the topics of a server",
		Long:  topicHelp,
		Example: `  weir topic ls http://127.0.0.1:4000
  weir topic create --type queue --max-deliveries 5 --dead-letter orders.dlq http://127.0.0.1:4000/orders
  weir topic truncate --keep 1000 --dry-run http://127.0.0.1:4000/events`,
		Args: cobra.ArbitraryArgs, // so that RunE can say what was meant
		RunE: noCommand,
	}
	cmd.AddCommand(newTopicLsCmd(), newTopicInfoCmd(), newTopicCreateCmd(), newTopicSetCmd(), newTopicRmCmd(), newTopicPurgeCmd(), newTopicTruncateCmd())
	return cmd
}

// callOptions are the settings of commands that call a server.
type callOptions struct {
	json output
	keys keyOptions
}

// fields adds the settings to those of a command.
func (o *callOptions) fields(f settings.Fields) settings.Fields {
	f["json"] = &o.json
	return o.keys.fields(f)
}

// call connects to a target and calls do, which a signal interrupts.
func (o *callOptions) call(cmd *cobra.Command, target client.Target, do func(ctx context.Context, c *client.Client) error) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := o.keys.connect(target)
	if err != nil {
		return err
	}
	defer c.Close()
	return do(ctx, c)
}

// onServer is call for the URL of a server.
func (o *callOptions) onServer(cmd *cobra.Command, url string, do func(ctx context.Context, c *client.Client) error) error {
	target, err := client.ParseServerURL(url)
	if err != nil {
		return &usageError{err}
	}
	return o.call(cmd, target, do)
}

// onTopic is call for the URL of a topic.
func (o *callOptions) onTopic(cmd *cobra.Command, url string, do func(ctx context.Context, c *client.Client, topic string) error) error {
	target, err := client.ParseTopicURL(url)
	if err != nil {
		return &usageError{err}
	}
	return o.call(cmd, target, func(ctx context.Context, c *client.Client) error {
		err := do(ctx, c, target.Topic)
		if api.IsCode(err, api.CodeTopicNotFound) {
			return absentTopic(target.Topic)
		}
		return err
	})
}

func absentTopic(topic string) error { return fmt.Errorf("topic %q does not exist", topic) }

// rows prints lines of JSON, or a table with a head.
type rows struct {
	output
	out   *bufio.Writer
	table [][]string // what is laid out together
	head  string     // still to be printed
}

func (o output) rows(out io.Writer, head string) *rows {
	r := &rows{output: o, out: bufio.NewWriter(out)}
	if !o {
		r.head = head
	}
	return r
}

// row prints a result, whose String has a tab between two cells.
func (r *rows) row(result fmt.Stringer) error {
	if r.output {
		return r.print(r.out, result)
	}
	r.begin()
	r.table = append(r.table, strings.Split(result.String(), "\t"))
	return nil
}

// begin prints the head of the table unless that is done.
func (r *rows) begin() {
	if r.head != "" {
		r.table = append(r.table, strings.Split(r.head, "\t"))
		r.head = ""
	}
}

// flush prints what has come until now. A cell that is very long does not widen its column.
func (r *rows) flush() error {
	widths := map[int]int{} // by column
	for _, row := range r.table {
		for i, cell := range row {
			if n := utf8.RuneCountInString(cell); n <= rowText {
				widths[i] = max(widths[i], n)
			}
		}
	}
	for _, row := range r.table {
		last := len(row) - 1
		for i, cell := range row[:last] {
			fmt.Fprintf(r.out, "%-*s  ", widths[i], cell)
		}
		fmt.Fprintln(r.out, row[last])
	}
	r.table = nil
	return r.out.Flush()
}

// pages calls page with a cursor, empty at first, until there is no next one.
func pages(r *rows, page func(cursor string) (next string, err error)) error {
	for cursor := ""; ; {
		next, err := page(cursor)
		if err == nil {
			r.begin()
		}
		if err := errors.Join(err, r.flush()); err != nil || next == "" {
			return err
		}
		cursor = next
	}
}

func newTopicLsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls URL",
		Short: "List the topics of a server by name",
		Long:  "Ls prints, for each topic, the number and bytes of its live records and the numbers of\nthe first and the last one. FSYNC says whether a write is synced before it is answered.",
		Example: `  weir topic ls http://127.0.0.1:4000
  weir topic ls --prefix orders --json http://127.0.0.1:4000 | jq -r 'select(.bytes > 1e9).topic'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt callOptions
			var prefix string
			if err := load(cmd, settings.Topics, opt.fields(settings.Fields{"prefix": &prefix})); err != nil {
				return err
			}
			return opt.onServer(cmd, args[0], func(ctx context.Context, c *client.Client) error {
				r := opt.json.rows(cmd.OutOrStdout(), "TOPIC\tRECORDS\tBYTES\tFIRST\tLAST\tFSYNC")
				return pages(r, func(cursor string) (string, error) {
					topics, next, err := c.Topics(ctx, prefix, cursor)
					for _, t := range topics {
						err = errors.Join(err, r.row(listedTopic(t)))
					}
					return next, err
				})
			})
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Topics)
	return cmd
}

// listedTopic is a topic as it is listed.
type listedTopic client.TopicEntry

func (t listedTopic) String() string {
	return fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%v", oneCell(t.Topic), t.Count, t.Bytes, t.EarliestSeq, t.HeadSeq, t.Durable)
}

func newTopicInfoCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "info URL",
		Short:   "Print the state and configuration of a topic",
		Example: `  weir topic info --json http://127.0.0.1:4000/orders | jq .config`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt callOptions
			if err := load(cmd, settings.TopicInfo, opt.fields(settings.Fields{})); err != nil {
				return err
			}
			return opt.onTopic(cmd, args[0], func(ctx context.Context, c *client.Client, topic string) error {
				info, err := c.TopicInfo(ctx, topic)
				if err != nil {
					return err
				}
				return opt.json.print(cmd.OutOrStdout(), topicInfo(info))
			})
		},
	}
	settings.AddFlags(cmd.Flags(), settings.TopicInfo)
	return cmd
}

// topicInfo is what info prints.
type topicInfo client.TopicInfo

func (t topicInfo) String() string {
	lines := [][2]string{
		{"topic", t.Topic}, {"type", t.Type}, {"records", fmt.Sprint(t.Count)}, {"bytes", fmt.Sprint(t.Bytes)},
		{"first", fmt.Sprint(t.EarliestSeq)}, {"last", fmt.Sprint(t.HeadSeq)},
		{"written", moment(t.LastWriteTS)}, {"read", moment(t.LastReadTS)},
	}
	lines = append(lines, members("queue ", t.Queue)...)
	lines = append(lines, members("", t.Config)...)
	width := 0
	for _, line := range lines {
		width = max(width, len(line[0]))
	}
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&b, "%-*s  %s\n", width, oneLine(line[0]), oneLine(line[1]))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// moment is a time of the server's in words.
func moment(ms *int64) string {
	if ms == nil {
		return "never"
	}
	return time.UnixMilli(*ms).Format(time.RFC3339)
}

// members are the members of an object by name, with what is in front of each name.
func members(prefix string, object json.RawMessage) [][2]string {
	var all map[string]json.RawMessage
	if json.Unmarshal(object, &all) != nil {
		return nil
	}
	var lines [][2]string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if name != "type" && name != "durable" { // said by others
			lines = append(lines, [2]string{prefix + name, plain(all[name])})
		}
	}
	return lines
}

// plain is a value of JSON for people: a text without quotes, – for null.
func plain(value json.RawMessage) string {
	var text *string
	if json.Unmarshal(value, &text) != nil {
		return string(value)
	}
	if text == nil {
		return "–"
	}
	return cmp.Or(*text, `""`)
}
