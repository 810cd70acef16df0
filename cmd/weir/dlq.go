package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/internal/settings"
)

const dlqHelp = `Dlq inspects dead letters: messages that were delivered as often as allowed without
being done, that their handler declared poison, or whose deadline had passed before a
worker was free. They keep their payload, the reason,
the last error and their origin until they are sent back or purged.`

func newDLQCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Inspect dead letters, send them back or remove them",
		Long:  dlqHelp,
		Example: `  weir dlq ls 'redis://127.0.0.1:6379/0?stream=orders&group=billing'
  weir dlq redrive --rate 10 --dry-run http://127.0.0.1:4000/orders`,
		Args: cobra.ArbitraryArgs, // so that RunE can say what was meant
		RunE: noCommand,
	}
	cmd.AddCommand(newDLQLsCmd(), newDLQShowCmd(), newDLQRedriveCmd(), newDLQPurgeCmd())
	return cmd
}

// letterOptions choose dead letters.
type letterOptions struct {
	name   string
	json   output
	filter weir.LetterFilter
	waits  bool // for letters that are not there yet
	keys   keyOptions
}

// fields adds the settings to those of a command.
func (o *letterOptions) fields(f settings.Fields) settings.Fields {
	f["dead-letter"], f["json"] = &o.name, &o.json
	f["reason"], f["error"] = &o.filter.Reason, &o.filter.ErrorContains
	f["older-than"], f["newer-than"] = &o.filter.OlderThan, &o.filter.NewerThan
	return o.keys.streamFields(f)
}

// run calls do with the dead letters of the URL in args; the other args are IDs.
func (o *letterOptions) run(cmd *cobra.Command, args []string, do func(ctx context.Context, d *weir.DeadLetters) error) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := reacher{cmd.ErrOrStderr(), cmd.CommandPath(), reachFor}.open(ctx, &o.keys, args[0], openExisting)
	if err != nil {
		return err
	}
	defer s.Close()
	d, err := s.DeadLetters(o.name)
	switch {
	case errors.Is(err, weir.ErrUnsupported):
		return err
	case err != nil: // no name for dead letters
		return &usageError{err}
	}
	o.filter.IDs = args[1:]
	missing, err := o.missing(ctx, s, d)
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, d), missing)
}

// missing returns what to say, besides what is done, of IDs that are not there. It fails if
// not even the stream is: its name may be misspelt.
func (o *letterOptions) missing(ctx context.Context, s *weir.Stream, d *weir.DeadLetters) (missing, err error) {
	unknown := map[string]bool{}
	for _, id := range o.filter.IDs {
		unknown[id] = true
	}
	some := false
	for l, err := range d.List(ctx, weir.LetterFilter{IDs: o.filter.IDs}) {
		if err != nil {
			return nil, err
		}
		some = true
		if delete(unknown, l.ID); len(o.filter.IDs) == 0 {
			break
		}
	}
	if !some {
		p, err := s.Pressure(ctx)
		if err == nil {
			err = p.Missing
		}
		if errors.Is(err, weir.ErrStreamNotFound) {
			return nil, fmt.Errorf("%w; check its name in the URL", err)
		}
	}
	if len(unknown) > 0 && !o.waits {
		missing = fmt.Errorf("not among the dead letters of %q: %s", d.Name(), strings.Join(slices.Sorted(maps.Keys(unknown)), ", "))
	}
	return missing, nil
}

func newDLQLsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls URL [ID…]",
		Short: "List dead letters, oldest first",
		Example: `  weir dlq ls 'redis://127.0.0.1:6379/0?stream=orders&group=billing'
  weir dlq ls --reason poison --newer-than 1h --json http://127.0.0.1:4000/orders | jq .error`,
		Args: cobra.MinimumNArgs(1),
		RunE: runList,
	}
	settings.AddFlags(cmd.Flags(), settings.List)
	return cmd
}

func runList(cmd *cobra.Command, args []string) error {
	var opt letterOptions
	var count int
	if err := load(cmd, settings.List, opt.fields(settings.Fields{"count": &count})); err != nil {
		return err
	}
	return opt.run(cmd, args, func(ctx context.Context, d *weir.DeadLetters) error {
		p := opt.json.letters(cmd.OutOrStdout())
		for l, err := range d.List(ctx, opt.filter) {
			if err != nil {
				return errors.Join(p.end(), err)
			}
			if err := p.row(&l); err != nil {
				return err
			}
			if p.rows == count {
				break
			}
		}
		return p.end()
	})
}

func newDLQShowCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show URL ID…",
		Short:   "Print dead letters in full, with headers and payload",
		Example: `  weir dlq show 'redis://127.0.0.1:6379/0?stream=orders&group=billing' 1771090569852-0`,
		Args:    cobra.MinimumNArgs(2),
		RunE:    runShow,
	}
	settings.AddFlags(cmd.Flags(), settings.Show)
	return cmd
}

func runShow(cmd *cobra.Command, args []string) error {
	var opt letterOptions
	if err := load(cmd, settings.Show, opt.fields(settings.Fields{})); err != nil {
		return err
	}
	return opt.run(cmd, args, func(ctx context.Context, d *weir.DeadLetters) error {
		out := bufio.NewWriter(cmd.OutOrStdout())
		defer out.Flush()
		for l, err := range d.List(ctx, opt.filter) {
			if err != nil {
				return err
			}
			if err := opt.json.print(out, letterOf(&l)); err != nil {
				return err
			}
		}
		return out.Flush()
	})
}
