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
	"strings"
	"time"

	"github.com/weirmq/weir/internal/client"
	"github.com/weirmq/weir/internal/engine"
)

// backupSilence is how long a server may send nothing of a backup before it is given up.
const backupSilence = 5 * time.Minute

// backupSource returns a function that fills a directory from the URL.
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
		stream, err := c.Backup(ctx, opt.rate, backupSilence)
		if client.IsStatus(err, http.StatusForbidden) {
			return fmt.Errorf("the key does not allow backups; it needs the admin scope and no prefixes: %w", err)
		}
		if err != nil {
			return err
		}
		defer stream.Close()
		return unpack(stream, to)
	}, nil
}

// dataDir returns the directory of a file: URL, file:///absolute or file:./relative.
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

// backupDir opens a data directory that no server is using and copies it.
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

// unpack copies the files of a tar stream. It rejects names outside the stream's
// root and anything that is not a file or directory.
func unpack(stream io.Reader, to *copied) error {
	in := tar.NewReader(stream)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the backup stream ended early: %w", err)
		}
		name := strings.TrimSuffix(h.Name, "/")
		if !fs.ValidPath(name) {
			return fmt.Errorf("the backup stream contains an invalid file name, %q", h.Name)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			if name != "." {
				err = to.root.MkdirAll(name, 0o700)
			}
		case tar.TypeReg:
			err = to.add(name, in)
		default:
			err = fmt.Errorf("the backup stream contains %q, which is neither a file nor a directory", name)
		}
		if err != nil {
			return err
		}
	}
}
