package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/settings"
)

// newRepairCmd returns `weir repair`, which lists damage in a data directory and
// with --mark makes it start again.
func newRepairCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "repair DIR",
		Short: "Find damage in a data directory that no server uses",
		Long: `Reads the whole data directory DIR and prints every damaged place with file
and offset. The exit code is 0 if nothing is damaged and 1 otherwise.

With --mark, damage is accepted: the next start continues after it, and readers
get a tombstone with reason "crash" for the numbers that may be lost. Sealed
segments with a damaged place are rewritten without it. Copy DIR first: what
is marked is given up. The exit code is then 0 if everything was marked, and 1 if
something cannot be: restore a backup for it. It may be interrupted, and run again.`,
		Example: "  weir repair ./weir-data\n  weir repair --mark ./weir-data",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var mark bool
			if err := load(cmd, settings.Repair, settings.Fields{"mark": &mark}); err != nil {
				return err
			}
			dir := args[0]
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			progress := newCopyProgress(cmd.ErrOrStderr(), "weir repair")
			defer context.AfterFunc(ctx, func() {
				stop() // a damaged block may take a minute, and a kill does the directory no harm
				fmt.Fprintln(progress, "weir repair: ending; a second signal ends it at once")
			})()
			n, err := engine.Repair(ctx, progress.verifying(dir), mark, progress.above(cmd.OutOrStdout()))
			progress.finish()
			switch {
			case errors.Is(err, context.Canceled) && mark:
				return errors.New("interrupted; what was marked stays marked, and the same command marks the rest")
			case errors.Is(err, context.Canceled):
				return errors.New("interrupted; nothing was changed")
			case err != nil:
				return err
			}
			if n == 0 {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "nothing is damaged")
				return err
			}
			if mark {
				return nil
			}
			return fmt.Errorf("%s in %s; --mark accepts the loss", countOf(n, "damaged place"), dir)
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Repair)
	return cmd
}
