package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/internal/settings"
)

const purgeHelp = `Purge removes dead letters permanently. On a terminal it asks first; elsewhere
it needs --yes. Without an ID or a filter it removes all.`

const purgeExample = `  weir dlq purge --older-than 720h --dry-run 'redis://127.0.0.1:6379/0?stream=orders&group=billing'
  weir dlq purge --older-than 720h --yes http://127.0.0.1:4000/orders`

func newDLQPurgeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "purge URL [ID…]",
		Short:   "Remove dead letters permanently",
		Long:    purgeHelp,
		Example: purgeExample,
		Args:    cobra.MinimumNArgs(1),
		RunE:    runPurge,
	}
	settings.AddFlags(cmd.Flags(), settings.Purge)
	return cmd
}

func runPurge(cmd *cobra.Command, args []string) error {
	var opt letterOptions
	var yes, dryRun bool
	if err := load(cmd, settings.Purge, opt.fields(settings.Fields{"yes": &yes, "dry-run": &dryRun})); err != nil {
		return err
	}
	if err := checkFinal(cmd, yes, dryRun); err != nil {
		return err
	}
	return opt.run(cmd, args, func(ctx context.Context, d *weir.DeadLetters) error {
		if dryRun {
			return previewPurge(ctx, cmd.OutOrStdout(), d, &opt)
		}
		if !yes {
			asked := time.Now()
			sure, err := confirmPurge(ctx, cmd, d, opt.filter)
			if err != nil || !sure {
				return err
			}
			opt.filter = asOf(opt.filter, time.Since(asked))
		}
		n, err := d.Purge(ctx, opt.filter)
		return errors.Join(opt.json.print(cmd.OutOrStdout(), purged{d.Name(), false, n}), err)
	})
}

func previewPurge(ctx context.Context, out io.Writer, d *weir.DeadLetters, opt *letterOptions) error {
	p := opt.json.letters(out)
	for l, err := range d.List(ctx, opt.filter) {
		if err != nil {
			return errors.Join(p.end(), err)
		}
		if err := p.row(&l); err != nil {
			return err
		}
	}
	if err := p.end(); err != nil {
		return err
	}
	return opt.json.print(out, purged{d.Name(), true, p.rows})
}

// confirmPurge asks at the terminal.
func confirmPurge(ctx context.Context, cmd *cobra.Command, d *weir.DeadLetters, filter weir.LetterFilter) (bool, error) {
	n := 0
	for _, err := range d.List(ctx, filter) {
		if err != nil {
			return false, err
		}
		n++
	}
	return confirm(ctx, cmd, fmt.Sprintf("Remove %s of %s permanently? [y/N] ", countOf(n, "dead letter"), oneLine(d.Name())), "nothing was removed"), ctx.Err()
}

// asOf returns a filter that selects what f did some time ago: nothing that died since.
func asOf(f weir.LetterFilter, ago time.Duration) weir.LetterFilter {
	f.OlderThan += ago
	if f.NewerThan > 0 {
		f.NewerThan += ago
	}
	return f
}

// purged is the result of a purge, or of its dry run.
type purged struct {
	DeadLetter string `json:"dead_letter"`
	DryRun     bool   `json:"dry_run"`
	Removed    int    `json:"removed"`
}

func (p purged) String() string {
	verb := "removed"
	if p.DryRun {
		verb = "would be removed"
	}
	return fmt.Sprintf("%d %s from %s", p.Removed, verb, oneLine(p.DeadLetter))
}
