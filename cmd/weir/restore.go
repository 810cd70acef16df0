package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/settings"
)

const restoreHelp = `Restore creates a data directory from a backup, or from the copy that a server with
--replica keeps. The data directory must be absent or empty; every file is checked
against the manifest while it is copied, then every live record is read, and the data
directory appears under its name only once it is complete. The source is not changed.

From a copy, --at restores an earlier state: that after one operation, by its LSN, or
that of a time in RFC 3339. Times are those at which the server shipped its log, by its
clock: with the default --replica-every the result ends up to a second before the time.
--dry-run prints what would be read, the resulting LSN, and from when to when the copy
goes. A server that is started on what was restored needs another place for its copy.

With --no-verify the records are not read, and files that are damaged or missing are
restored as far as they are there, with a warning for each: use it for a damaged backup
if there is no other. weir repair then says what is damaged.`

const restoreExample = `  weir restore /backups/weir-monday --data-dir ./weir-data
  weir restore file:///mnt/copy ./weir-data
  weir restore file:///mnt/copy ./weir-data --at 2026-01-31T23:59:00Z --dry-run`

// restoreOptions are the arguments and settings of restore.
type restoreOptions struct {
	from             string
	dataDir, at      string
	noVerify, dryRun bool
	json             output
}

func newRestoreCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "restore DIR|URL [DATA-DIR]",
		Short:   "Create a data directory from a backup or a copy",
		Long:    restoreHelp,
		Example: restoreExample,
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			opt := restoreOptions{from: args[0]}
			fields := settings.Fields{"data-dir": &opt.dataDir, "json": &opt.json, "no-verify": &opt.noVerify, "at": &opt.at, "dry-run": &opt.dryRun}
			if err := load(cmd, settings.Restore, fields); err != nil {
				return err
			}
			if len(args) > 1 {
				if cmd.Flags().Changed("data-dir") {
					return &usageError{errors.New("the data directory is named twice: as an argument and with --data-dir")}
				}
				opt.dataDir = args[1]
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if strings.Contains(opt.from, "://") {
				progress := newCopyProgress(cmd.ErrOrStderr(), "weir restore")
				done, err := restoreCopy(ctx, progress, &opt)
				progress.finish()
				if err != nil {
					return err
				}
				return opt.json.print(cmd.OutOrStdout(), done)
			}
			if opt.at != "" || opt.dryRun {
				return &usageError{errors.New("--at and --dry-run are for a copy, named by a URL; a backup is one state")}
			}
			return restoreBackup(ctx, cmd, &opt)
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Restore)
	return cmd
}

func restoreBackup(ctx context.Context, cmd *cobra.Command, opt *restoreOptions) error {
	start := time.Now()
	done := copyResult{what: "restored into", Dir: opt.dataDir, progress: newCopyProgress(cmd.ErrOrStderr(), "weir restore")}
	verify := done.readRestored
	if opt.noVerify {
		verify, done.bears = leaveUnread, true
	}
	err := done.restore(ctx, opt.from, verify)
	done.progress.finish()
	if err != nil {
		return err
	}
	for _, err := range done.damaged {
		fmt.Fprintf(cmd.ErrOrStderr(), "weir restore: %v; what is left of it was restored\n", err)
	}
	if len(done.damaged) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "weir restore: look what is damaged before a server is started: weir repair %s\n", opt.dataDir)
	}
	done.took = time.Since(start)
	return opt.json.print(cmd.OutOrStdout(), done.complete())
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
		counted := r.progress.counted("copied", r.m.bytes())
		for i := range r.m.Files {
			if err := ctx.Err(); err != nil {
				return err
			}
			f := &r.m.Files[i]
			copyOne := func(w io.Writer) error { return r.bear(f.copyFile(from, io.MultiWriter(w, counted))) }
			if _, err := from.Stat(f.Name); errors.Is(err, fs.ErrNotExist) {
				if err := copyOne(io.Discard); err != nil { // an empty file in its place would be another damage
					return err
				}
				continue
			}
			if err := writeFile(root, f.Name, copyOne); err != nil {
				return err
			}
		}
		return verify(ctx, root.Name())
	})
}

// bear keeps the error of a damaged file if damage is to be restored, too.
func (r *copyResult) bear(err error) error {
	switch {
	case !errors.Is(err, errFileDamaged):
		return err
	case !r.bears:
		return unlessNoOther(err)
	}
	r.damaged = append(r.damaged, err)
	return nil
}

// unlessNoOther adds to the error of a damaged backup what can be done with it.
func unlessNoOther(err error) error {
	return fmt.Errorf("%w; if there is no other backup, --no-verify restores what is readable", err)
}

// readRestored reads every live record that was restored.
func (r *copyResult) readRestored(ctx context.Context, dir string) (err error) {
	r.held, err = readRecords(ctx, dir, r.m, 0, r.progress)
	if err != nil && ctx.Err() == nil && !engine.OfMachine(err) {
		return unlessNoOther(err)
	}
	return err
}

// leaveUnread reads nothing.
func leaveUnread(context.Context, string) error { return nil }
