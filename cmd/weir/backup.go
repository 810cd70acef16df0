package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/client"
	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/settings"
)

const backupHelp = `Backup copies a server's data into DIR, which has to be absent or empty, while the
server goes on. The copy is the server's state at one moment; everything that was
acknowledged before the command began is in it. Each file is checked against the
backup's manifest and every live record is read before DIR appears under its name,
so DIR is a whole backup or is not there. (If DIR is a mount point, it is filled in
place: it is a backup once it holds MANIFEST.json.)

A file:// URL names the data directory of a server that is not running.

With keys configured the key needs the admin scope and no prefixes.`

const backupExample = `  weir backup http://127.0.0.1:4000 /backups/weir-monday
  weir backup file:///var/lib/weir /backups/weir-monday
  weir backup verify /backups/weir-monday`

// copyOptions are the settings of the commands that copy and check.
type copyOptions struct {
	json bool
	rate int64 // bytes per second; 0 is no limit
	keys keyOptions
}

func (o *copyOptions) load(cmd *cobra.Command, c settings.Command) error {
	fields := settings.Fields{"json": &o.json, "rate": &o.rate}
	if c == settings.Backup {
		fields = o.keys.fields(fields)
	}
	err := load(cmd, c, fields)
	o.rate <<= 20 // the setting is in MiB
	return err
}

func newBackupCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "backup URL DIR",
		Short:   "Copy a server's data while it runs",
		Long:    backupHelp,
		Example: backupExample,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt copyOptions
			if err := opt.load(cmd, settings.Backup); err != nil {
				return err
			}
			return runBackup(cmd, args[0], args[1], &opt)
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Backup)
	cmd.AddCommand(newBackupVerifyCmd())
	return cmd
}

func newBackupVerifyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Read a whole backup and say whether it is sound",
		Long: `Verify checks every file of the backup in DIR against its manifest and reads every
live record, as a server started on it would. It changes nothing. The exit code is 0
if the backup is whole and 1 otherwise.`,
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
	start := time.Now()
	fill, err := backupSource(ctx, from, opt)
	if err != nil {
		return err
	}
	done := copyResult{what: "backup in", dir: dir}
	err = build(dir, manifestName, func(root *os.Root) error {
		written := copied{root: root, files: make(map[string]manifestFile)}
		if err := fill(&written); err != nil {
			return err
		}
		if done.m, err = written.manifest(); err != nil {
			return err
		}
		done.held, err = readRecords(ctx, root.Name(), done.m, opt.rate)
		return err
	})
	if err != nil {
		return err
	}
	done.took = time.Since(start)
	return done.print(cmd.OutOrStdout(), opt.json)
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
	done := copyResult{what: "whole backup in", dir: dir}
	if done.m, err = checkFiles(ctx, root, opt.rate); err != nil {
		return err
	}
	if done.held, err = readRecords(ctx, dir, done.m, opt.rate); err != nil {
		return err
	}
	done.took = time.Since(start)
	return done.print(cmd.OutOrStdout(), opt.json)
}

// readRecords reads every live record of the copy in dir.
func readRecords(ctx context.Context, dir string, m *manifest, rate int64) (engine.Contents, error) {
	held, err := engine.Verify(ctx, engine.Options{Dir: dir}, rate)
	switch {
	case err != nil && ctx.Err() != nil:
		return held, ctx.Err()
	case err != nil:
		return held, fmt.Errorf("the backup is damaged: %w", err)
	case held.LSN != m.LSN:
		return held, fmt.Errorf("the backup is damaged: it ends at operation %d, its manifest says %d", held.LSN, m.LSN)
	}
	return held, nil
}

// backupSource returns what fills a directory from the URL.
func backupSource(ctx context.Context, from string, opt *copyOptions) (func(*copied) error, error) {
	if strings.HasPrefix(from, "file:") {
		data, err := dataDir(from)
		if err != nil {
			return nil, err
		}
		return func(to *copied) error { return backupDir(ctx, data, to) }, nil
	}
	target, err := client.ParseServerURL(from)
	if err != nil {
		return nil, &usageError{err}
	}
	c, err := opt.keys.connect(target)
	if err != nil {
		return nil, err
	}
	return func(to *copied) error {
		defer c.Close()
		stream, err := c.Backup(ctx, opt.rate)
		if client.IsStatus(err, http.StatusForbidden) {
			return fmt.Errorf("the key may not make a backup; it needs the admin scope and no prefixes: %w", err)
		}
		if err != nil {
			return err
		}
		defer stream.Close()
		return unpack(stream, to)
	}, nil
}

// dataDir is the directory of a file: URL, file:///absolute or file:./relative.
func dataDir(from string) (string, error) {
	u, err := url.Parse(from)
	if err != nil || u.Host != "" || u.RawQuery != "" {
		return "", &usageError{errors.New("the file URL cannot be read; expected file:///path/of/weir-data")}
	}
	dir := u.Path
	if u.Opaque != "" {
		dir = u.Opaque
	}
	if dir == "" {
		return "", &usageError{errors.New("the file URL names no directory; expected file:///path/of/weir-data")}
	}
	if st, err := os.Stat(dir); err != nil {
		return "", err
	} else if !st.IsDir() {
		return "", fmt.Errorf("%s is not a directory", dir)
	}
	return dir, nil
}

// backupDir opens a data directory that no server holds and copies it.
func backupDir(ctx context.Context, data string, to *copied) (err error) {
	e, err := engine.Open(ctx, engine.Options{Dir: data})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	s, err := e.Snapshot(ctx)
	if err != nil {
		return err
	}
	err = s.Copy(ctx, 0, func(name string, _ int64, content io.Reader) error { return to.add(name, content) })
	return errors.Join(err, s.Close())
}

// unpack copies the files of a tar stream. Names that lead out of it
// and anything but files and directories are refused.
func unpack(stream io.Reader, to *copied) error {
	in := tar.NewReader(stream)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the backup stream broke off: %w", err)
		}
		name := strings.TrimSuffix(h.Name, "/")
		if !fs.ValidPath(name) {
			return fmt.Errorf("the backup stream names the file %q, which cannot be", h.Name)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			if name != "." {
				err = to.root.MkdirAll(name, 0o700)
			}
		case tar.TypeReg:
			err = to.add(name, in)
		default:
			err = fmt.Errorf("the backup stream has %q as something else than a file", name)
		}
		if err != nil {
			return err
		}
	}
}
