package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/settings"
)

const restoreHelp = `Restore creates a data directory from a backup. The data directory must be absent
or empty; every file is checked against the backup's manifest while it is copied,
then every live record is read, and the data directory appears under its name only
once it is complete. The backup is not changed.

With --no-verify the records are not read: use it for a damaged backup if there is no
other. Reading a damaged record is then an error.`

const restoreExample = `  weir restore /backups/weir-monday --data-dir ./weir-data`

func newRestoreCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "restore DIR",
		Short:   "Create a data directory from a backup",
		Long:    restoreHelp,
		Example: restoreExample,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var json output
			var noVerify bool
			var dataDir string
			if err := load(cmd, settings.Restore, settings.Fields{"data-dir": &dataDir, "json": &json, "no-verify": &noVerify}); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			start := time.Now()
			done := copyResult{what: "restored into", Dir: dataDir}
			verify := done.readRestored
			if noVerify {
				verify = leaveUnread
			}
			if err := done.restore(ctx, args[0], verify); err != nil {
				return err
			}
			done.took = time.Since(start)
			return json.print(cmd.OutOrStdout(), done.complete())
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Restore)
	return cmd
}

// restore copies the files of the backup, without its manifest, into a directory
// that appears once verify has succeeded.
func (r *copyResult) restore(ctx context.Context, backup string, verify func(ctx context.Context, dir string) error) error {
	from, err := os.OpenRoot(backup)
	if err != nil {
		return err
	}
	defer from.Close()
	if r.m, err = readManifest(from); err != nil {
		return err
	}
	if err := r.m.checkComplete(from); err != nil {
		return err
	}
	return build(r.Dir, "FORMAT", func(root *os.Root) error {
		for i := range r.m.Files {
			if err := ctx.Err(); err != nil {
				return err
			}
			f := &r.m.Files[i]
			copyOne := func(w io.Writer) error { return f.copyFile(from, w) }
			if err := writeFile(root, f.Name, copyOne); err != nil {
				return err
			}
		}
		return verify(ctx, root.Name())
	})
}

// readRestored reads every live record that was restored.
func (r *copyResult) readRestored(ctx context.Context, dir string) (err error) {
	r.held, err = readRecords(ctx, dir, r.m, 0)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w; if there is no other backup, --no-verify restores what is readable", err)
	}
	return err
}

// leaveUnread reads nothing.
func leaveUnread(context.Context, string) error { return nil }
