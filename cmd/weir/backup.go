package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/settings"
)

const backupHelp = `Backup copies a server's data into DIR, which must be absent or empty, while the
server runs. The copy is the server's state at one moment; it contains everything
acknowledged before the command began. Each file is checked against the
backup's manifest and every live record is read before DIR appears under its name,
so DIR is a complete backup or does not exist. (If DIR is a mount point, it is filled
in place: it is a backup once it contains MANIFEST.json.)

A file:// URL names the data directory of a server that is not running.

With --every the command stays and makes a backup that often in the folder DIR, each in a
directory named for when it began, the first at once unless the newest is young enough. What
fails is tried again. --keep says which are kept: 24h:7d is all of the last 24 hours, and the
last of each day (UTC) of the last 7 days. The newest is always kept, none is removed unless a
newer one has been made, and nothing else in the folder is touched.

With keys configured the key needs the admin scope and no prefixes.`

const backupExample = `  weir backup http://127.0.0.1:4000 /backups/weir-monday
  weir backup file:///var/lib/weir /backups/weir-monday
  weir backup --every 1h --keep 24h:7d --metrics :9467 https://weir.example:4000 /backups
  weir backup verify /backups/weir-monday`

func newBackupCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "backup URL DIR",
		Short:   "Copy a server's data while it runs",
		Long:    backupHelp,
		Example: backupExample,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt backupOptions
			if err := opt.load(cmd); err != nil {
				return err
			}
			if opt.every > 0 {
				return runScheduledBackups(cmd, args[0], args[1], &opt)
			}
			return runBackup(cmd, args[0], args[1], &opt.copyOptions)
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Backup)
	cmd.AddCommand(newBackupVerifyCmd())
	return cmd
}

func newBackupVerifyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Check a backup by reading all of it",
		Long: `Verify checks every file of the backup in DIR against its manifest and reads every
live record, as a server started on it would. It changes nothing. The exit code is 0
if the backup is complete and undamaged, and 1 otherwise.`,
		Example: "  weir backup verify /backups/weir-monday",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt copyOptions
			if err := opt.load(cmd, settings.Verify); err != nil {
				return err
			}
			return runBackupVerify(cmd, args[0], &opt)
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Verify)
	return cmd
}

func runBackup(cmd *cobra.Command, from, dir string, opt *copyOptions) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	progress := newCopyProgress(cmd.ErrOrStderr(), "weir backup")
	done, err := takeBackup(ctx, from, dir, opt, progress)
	progress.finish()
	if err != nil {
		return err
	}
	return opt.json.print(cmd.OutOrStdout(), done)
}

// takeBackup makes a backup in dir and reads it.
func takeBackup(ctx context.Context, from, dir string, opt *copyOptions, p *copyProgress) (*copyResult, error) {
	start := time.Now()
	fill, err := backupSource(ctx, from, opt)
	if err != nil {
		return nil, err
	}
	done := copyResult{what: "backup in", Dir: dir}
	err = build(dir, manifestName, func(root *os.Root) error {
		written := copied{root: root, files: make(map[string]manifestFile), counted: p.counted("copied", 0)}
		if err := fill(&written); err != nil {
			return err
		}
		if done.m, err = written.manifest(); err != nil {
			return err
		}
		done.held, err = readRecords(ctx, root.Name(), done.m, opt.rate, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	done.took = time.Since(start)
	return done.complete(), nil
}

func runBackupVerify(cmd *cobra.Command, dir string, opt *copyOptions) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	start := time.Now()
	done := copyResult{what: "complete backup in", Dir: dir}
	progress := newCopyProgress(cmd.ErrOrStderr(), "weir backup verify")
	if done.m, err = checkFiles(ctx, root, opt.rate, progress); err == nil {
		done.held, err = readRecords(ctx, dir, done.m, opt.rate, progress)
	}
	progress.finish()
	if err != nil {
		return err
	}
	done.took = time.Since(start)
	return opt.json.print(cmd.OutOrStdout(), done.complete())
}
