package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir"
)

const dlqHelp = `Dlq looks at dead letters: messages that were delivered as often as allowed and never
done, or that their handler called poison. They keep their payload, the reason, the last
error and where they came from until they are sent back or purged.`

func newDLQCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Look at dead letters, send them back or remove them",
		Long:  dlqHelp,
		Example: `  weir dlq ls 'redis://127.0.0.1:6379/0?stream=orders&group=billing'
  weir dlq redrive --rate 10 --dry-run http://127.0.0.1:4000/orders`,
		Args: cobra.NoArgs, // so that a wrong name is an error
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDLQLsCmd(), newDLQShowCmd(), newDLQRedriveCmd(), newDLQPurgeCmd())
	return cmd
}

// letterFlags choose dead letters.
type letterFlags struct {
	name   string
	json   bool
	filter weir.LetterFilter
}

func (f *letterFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.name, "dead-letter", "", "where the dead letters are (default the stream's own)")
	flags.BoolVar(&f.json, "json", false, "print JSON lines")
	flags.StringVar(&f.filter.Reason, "reason", "", "only those with this reason: max_deliveries or poison")
	flags.StringVar(&f.filter.ErrorContains, "error", "", "only those whose last error has this text in it")
	flags.DurationVar(&f.filter.OlderThan, "older-than", 0, "only those dead for longer than this")
	flags.DurationVar(&f.filter.NewerThan, "newer-than", 0, "only those dead for less than this")
	addKeyFlag(cmd)
}

// run calls do with the dead letters of the URL in args; more args are IDs.
func (f *letterFlags) run(do func(ctx context.Context, d *weir.DeadLetters) error) func(*cobra.Command, []string) error {
	return withEnv(func(cmd *cobra.Command, args []string) error {
		if f.filter.OlderThan < 0 || f.filter.NewerThan < 0 {
			return &usageError{errors.New("--older-than and --newer-than are ages, 0 or more")}
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		s, err := openExisting(ctx, cmd, args[0])
		if err != nil {
			return err
		}
		defer s.Close()
		d, err := s.DeadLetters(f.name)
		if err != nil {
			return err
		}
		f.filter.IDs = args[1:]
		return do(ctx, d)
	})
}

func newDLQLsCmd() *cobra.Command {
	var opt letterFlags
	var limit int
	cmd := &cobra.Command{
		Use:   "ls URL [ID…]",
		Short: "List dead letters, the oldest first",
		Example: `  weir dlq ls 'redis://127.0.0.1:6379/0?stream=orders&group=billing'
  weir dlq ls --reason poison --newer-than 1h --json http://127.0.0.1:4000/orders | jq .error`,
		Args: cobra.MinimumNArgs(1),
	}
	opt.add(cmd)
	cmd.Flags().IntVar(&limit, "limit", 0, "at most this many; 0 = all")
	cmd.RunE = opt.run(func(ctx context.Context, d *weir.DeadLetters) error {
		p := newLetterPrinter(cmd.OutOrStdout(), opt.json)
		for l, err := range d.List(ctx, opt.filter) {
			if err != nil {
				return errors.Join(p.end(), err)
			}
			if err := p.row(&l); err != nil {
				return err
			}
			if p.rows == limit {
				break
			}
		}
		return p.end()
	})
	return cmd
}

func newDLQShowCmd() *cobra.Command {
	var opt letterFlags
	cmd := &cobra.Command{
		Use:     "show URL ID…",
		Short:   "Print dead letters whole, with headers and payload",
		Example: `  weir dlq show 'redis://127.0.0.1:6379/0?stream=orders&group=billing' 1771090569852-0`,
		Args:    cobra.MinimumNArgs(2),
	}
	opt.add(cmd)
	cmd.RunE = opt.run(func(ctx context.Context, d *weir.DeadLetters) error {
		missing := map[string]bool{}
		for _, id := range opt.filter.IDs {
			missing[id] = true
		}
		out := bufio.NewWriter(cmd.OutOrStdout())
		defer out.Flush()
		for l, err := range d.List(ctx, opt.filter) {
			if err != nil {
				return err
			}
			delete(missing, l.ID)
			if err := showLetter(out, &l, opt.json); err != nil {
				return err
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("not among the dead letters of %q: %v", d.Name(), slices.Sorted(maps.Keys(missing)))
		}
		return out.Flush()
	})
	return cmd
}

// letterJSON is a dead letter as --json prints it.
type letterJSON struct {
	ID         string            `json:"id"`
	Stream     string            `json:"stream"`
	Group      string            `json:"group"`
	OriginID   string            `json:"origin_id"`
	Attempts   int               `json:"attempts"`
	Redrives   int               `json:"redrives"`
	Reason     string            `json:"reason"`
	Error      string            `json:"error"`
	Consumer   string            `json:"consumer"`
	EnqueuedMS *int64            `json:"enqueued_ms"` // null: not known
	DeadMS     int64             `json:"dead_ms"`
	Headers    map[string]string `json:"headers"`
	Data       *string           `json:"data,omitempty"` // the payload if it is text
	Base64     []byte            `json:"data_base64,omitempty"`
}

func letterOf(l *weir.DeadLetter) letterJSON {
	out := letterJSON{
		ID: l.ID, Stream: l.Stream, Group: l.Group, OriginID: l.OriginID, Attempts: l.Attempts, Redrives: l.Redrives,
		Reason: l.Reason, Error: l.Error, Consumer: l.Consumer, DeadMS: l.DeadAt.UnixMilli(), Headers: l.Headers,
	}
	if out.Headers == nil {
		out.Headers = map[string]string{}
	}
	if !l.Enqueued.IsZero() {
		ms := l.Enqueued.UnixMilli()
		out.EnqueuedMS = &ms
	}
	if text := string(l.Data); utf8.ValidString(text) {
		out.Data = &text
	} else {
		out.Base64 = l.Data
	}
	return out
}

func writeLetter(out io.Writer, l *weir.DeadLetter) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	return enc.Encode(letterOf(l))
}

// letterPrinter prints dead letters as a table, or as JSON lines.
type letterPrinter struct {
	out   *bufio.Writer
	table *tabwriter.Writer // nil: JSON
	rows  int
}

func newLetterPrinter(out io.Writer, asJSON bool) *letterPrinter {
	p := &letterPrinter{out: bufio.NewWriter(out)}
	if !asJSON {
		p.table = tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	}
	return p
}

// The most characters of a payload and an error in a row, and how many rows are
// laid out together: a table of any length takes little memory.
const (
	rowText  = 40
	rowGroup = 1000
)

func (p *letterPrinter) row(l *weir.DeadLetter) error {
	p.rows++
	if p.table == nil {
		return writeLetter(p.out, l)
	}
	if p.rows%rowGroup == 1 {
		if err := p.table.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(p.table, "ID\tDIED\tATTEMPTS\tREDRIVES\tREASON\tERROR\tDATA")
	}
	_, err := fmt.Fprintf(p.table, "%s\t%s\t%d\t%d\t%s\t%s\t%s\n", oneLine(l.ID), l.DeadAt.Format(time.RFC3339),
		l.Attempts, l.Redrives, oneLine(l.Reason), short(l.Error), short(string(l.Data)))
	return err
}

func (p *letterPrinter) end() error {
	if p.table != nil {
		if err := p.table.Flush(); err != nil {
			return err
		}
	}
	return p.out.Flush()
}

// short is the beginning of a text, on one line.
func short(s string) string {
	if s == "" {
		return "-"
	}
	runes := 0
	for i := range s {
		if runes++; runes > rowText {
			s = s[:i] + "…"
			break
		}
	}
	return oneCell(s)
}

func oneCell(s string) string {
	cell := []rune(oneLine(s))
	for i, r := range cell {
		if r == '\t' || r == utf8.RuneError {
			cell[i] = '.'
		}
	}
	return string(cell)
}

// showLetter prints everything about one dead letter.
func showLetter(out io.Writer, l *weir.DeadLetter, asJSON bool) error {
	if asJSON {
		return writeLetter(out, l)
	}
	enqueued := "not known"
	if !l.Enqueued.IsZero() {
		enqueued = l.Enqueued.Format(time.RFC3339Nano)
	}
	for _, line := range [][2]string{
		{"id", l.ID}, {"stream", l.Stream}, {"group", l.Group}, {"origin id", l.OriginID}, {"reason", l.Reason},
		{"error", l.Error}, {"attempts", fmt.Sprint(l.Attempts)}, {"redrives", fmt.Sprint(l.Redrives)},
		{"consumer", l.Consumer}, {"published", enqueued}, {"died", l.DeadAt.Format(time.RFC3339Nano)},
	} {
		fmt.Fprintf(out, "%-10s %s\n", line[0], oneLine(line[1]))
	}
	for _, name := range slices.Sorted(maps.Keys(l.Headers)) {
		fmt.Fprintf(out, "%-10s %s: %s\n", "header", oneLine(name), oneLine(l.Headers[name]))
	}
	_, err := fmt.Fprintf(out, "%-10s %s\n\n", "data", oneLine(string(l.Data)))
	return err
}
