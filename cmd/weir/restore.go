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

const restoreHelp = `Restore makes a data directory out of a backup. The data directory has to be absent
or empty; every file is checked against the backup's manifest while it is copied,
then every live record is read, and the data directory appears under its name only
when all of it is there. The backup stays as it is.

With --no-verify the records are not read: for a damaged backup when there is no
other. What cannot be read then answers with an error.`

const restoreExample = `  weir restore /backups/weir-monday --data-dir ./weir-data`

func newRestoreCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "restore DIR",
		Short:   "Make a data directory out of a backup",
		Long:    restoreHelp,
		Example: restoreExample,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var asJSON, noVerify bool
			var dataDir string
			if err := load(cmd, settings.Restore, settings.Fields{"data-dir": &dataDir, "json": &asJSON, "no-verify": &noVerify}); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			start := time.Now()
			done := copyResult{what: "restored into", dir: dataDir}
			if err := restore(ctx, args[0], noVerify, &done); err != nil {
				return err
			}
			done.took = time.Since(start)
			return done.print(cmd.OutOrStdout(), asJSON)
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Restore)
	return cmd
}

// restore copies the files of the backup, without its manifest, into done.dir.
func restore(ctx context.Context, backup string, noVerify bool, done *copyResult) error {
	from, err := os.OpenRoot(backup)
	if err != nil {
		return err
	}
	defer from.Close()
	m, err := readManifest(from)
	if err != nil {
		return err
	}
	if err := m.checkComplete(from); err != nil {
		return err
	}
	done.m = m
	return build(done.dir, "FORMAT", func(root *os.Root) error {
		for i := range m.Files {
			if err := ctx.Err(); err != nil {
				return err
			}
			f := &m.Files[i]
			copyOne := func(w io.Writer) error { return f.copyFile(from, w) }
			if err := writeFile(root, f.Name, copyOne); err != nil {
				return err
			}
		}
		if noVerify {
			return nil
		}
		done.held, err = readRecords(ctx, root.Name(), m, 0)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%w; if there is no other backup, --no-verify restores what can be read", err)
		}
		return err
	})
}
