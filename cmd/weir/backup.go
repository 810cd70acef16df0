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
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/client"
	"github.com/weirmq/weir/internal/engine"
)

const backupHelp = `Backup copies a server's data into DIR, which has to be absent or empty, while the
server goes on. Everything that was acknowledged before the command began is in it.
Each file is checked against the backup's manifest before DIR appears under its
name, so DIR is a whole backup or is not there.

A file:// URL names the data directory of a server that is not running.

With keys configured the key needs the admin scope and no prefixes.`

const backupExample = `  weir backup http://127.0.0.1:4000 /backups/weir-monday
  weir backup file:///var/lib/weir /backups/weir-monday`

func newBackupCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "backup URL DIR",
		Short:   "Copy a server's data while it runs",
		Long:    backupHelp,
		Example: backupExample,
		Args:    cobra.ExactArgs(2),
		RunE: withEnv(func(cmd *cobra.Command, args []string) error {
			return runBackup(cmd, args[0], args[1], asJSON)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as one JSON line")
	addKeyFlag(cmd)
	return cmd
}

func runBackup(cmd *cobra.Command, from, dir string, asJSON bool) error {
	if err := freshDir(dir); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	start := time.Now()
	fill, err := backupSource(cmd, ctx, from)
	if err != nil {
		return err
	}
	var m *manifest
	err = build(dir, func(root *os.Root) error {
		if err := fill(root); err != nil {
			return err
		}
		m, err = verify(root)
		return err
	})
	if err != nil {
		return err
	}
	reportCopy(cmd.OutOrStdout(), asJSON, "backup in", dir, m, time.Since(start))
	return nil
}

// backupSource returns what fills a directory from the URL.
func backupSource(cmd *cobra.Command, ctx context.Context, from string) (func(*os.Root) error, error) {
	if strings.HasPrefix(from, "file:") {
		data, err := dataDir(from)
		if err != nil {
			return nil, err
		}
		return func(root *os.Root) error { return backupDir(ctx, data, root) }, nil
	}
	target, err := client.ParseServerURL(from)
	if err != nil {
		return nil, err
	}
	c, err := connect(cmd, target)
	if err != nil {
		return nil, err
	}
	return func(root *os.Root) error {
		defer c.Close()
		stream, err := c.Backup(ctx)
		if client.IsStatus(err, http.StatusForbidden) {
			return fmt.Errorf("the key may not make a backup; it needs the admin scope and no prefixes: %w", err)
		}
		if err != nil {
			return err
		}
		defer stream.Close()
		return unpack(stream, root)
	}, nil
}

// dataDir is the directory of a file: URL, file:///absolute or file:./relative.
func dataDir(from string) (string, error) {
	u, err := url.Parse(from)
	if err != nil || u.Host != "" || u.RawQuery != "" {
		return "", errors.New("the file URL cannot be read; expected file:///path/of/weir-data")
	}
	dir := u.Path
	if u.Opaque != "" {
		dir = u.Opaque
	}
	if dir == "" {
		return "", errors.New("the file URL names no directory; expected file:///path/of/weir-data")
	}
	if st, err := os.Stat(dir); err != nil {
		return "", err
	} else if !st.IsDir() {
		return "", fmt.Errorf("%s is not a directory", dir)
	}
	return dir, nil
}

// backupDir opens a data directory that no server holds and copies it. The
// engine wants a directory that is not there yet, so its copy is moved up.
func backupDir(ctx context.Context, data string, root *os.Root) (err error) {
	e, err := engine.Open(ctx, engine.Options{Dir: data})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	const inner = ".engine"
	if err := e.Backup(ctx, filepath.Join(root.Name(), inner)); err != nil {
		return err
	}
	entries, err := fs.ReadDir(root.FS(), inner)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := root.Rename(path.Join(inner, entry.Name()), entry.Name()); err != nil {
			return err
		}
	}
	return errors.Join(root.Remove(inner), makePrivate(root))
}

// unpack writes the files of a tar stream into root. Names that lead out of it
// and anything but files and directories are refused.
func unpack(stream io.Reader, root *os.Root) error {
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
				err = root.MkdirAll(name, 0o700)
			}
		case tar.TypeReg:
			err = writeFile(root, name, func(w io.Writer) error {
				_, err := io.Copy(w, in)
				return err
			})
		default:
			err = fmt.Errorf("the backup stream has %q as something else than a file", name)
		}
		if err != nil {
			return err
		}
	}
}
