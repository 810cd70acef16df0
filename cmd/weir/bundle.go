package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/internal/client"
	"github.com/weirmq/weir/internal/settings"
)

const bundleHelp = `Bundle puts what a report of a problem needs into one file, a compressed tar:

  of a server, http://host:port   version, settings, numbers and findings of the
                                  dashboard, metrics, profiles, the end of the log
  of a stream, any other URL      version, pressure, what doctor finds

It holds no message, no key, no password and no setting that is text, but names of
topics and of workers. Look through it before you give it to somebody.

With keys configured, that for a server needs the admin scope and no prefixes.`

const bundleExample = `  weir debug bundle http://127.0.0.1:4000
  weir debug bundle 'redis://127.0.0.1:6379/0?stream=orders&group=billing' orders.tar.gz`

// bundleSilence is how long a server may send nothing of a bundle, besides the time of its profile.
const bundleSilence = time.Minute

type bundleOptions struct {
	profile time.Duration
	keys    keyOptions
}

func newDebugCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "debug", Short: "Collect what a report of a problem needs"}
	bundle := &cobra.Command{
		Use:     "bundle URL [FILE]",
		Short:   "Write it into one file",
		Long:    bundleHelp,
		Example: bundleExample,
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt bundleOptions
			if err := load(cmd, settings.Bundle, opt.keys.streamFields(settings.Fields{"profile": &opt.profile})); err != nil {
				return err
			}
			file := time.Now().Format("weir-20060102-150405.tar.gz")
			if len(args) > 1 {
				file = args[1]
			}
			return runBundle(cmd, args[0], file, &opt)
		},
	}
	settings.AddFlags(bundle.Flags(), settings.Bundle)
	cmd.AddCommand(bundle)
	return cmd
}

func runBundle(cmd *cobra.Command, from, file string, opt *bundleOptions) (err error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	collect := collectStream
	if u, err := url.Parse(from); err == nil && strings.HasPrefix(u.Scheme, "http") && strings.Trim(u.Path, "/") == "" {
		collect = collectServer
	}
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			_ = os.Remove(file)
		}
	}()
	packed := gzip.NewWriter(out)
	b := bundleFile{out: tar.NewWriter(packed), taken: time.Now()}
	if err := b.addJSON("command.json", map[string]string{
		"version": version(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH, "url": shownURL(from),
	}); err != nil {
		return err
	}
	if err := collect(ctx, &b, from, opt); err != nil {
		return err
	}
	if err := errors.Join(b.out.Close(), packed.Close()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s in %s; it names topics and workers: look through it before you give it to somebody\n", countOf(b.files, "file"), file)
	return err
}

// bundleFile is a bundle being written.
type bundleFile struct {
	out   *tar.Writer
	taken time.Time
	files int
}

func (b *bundleFile) add(name string, size int64, content io.Reader) error {
	if err := b.out.WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o600, ModTime: b.taken, Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	b.files++
	_, err := io.Copy(b.out, content)
	return err
}

func (b *bundleFile) addJSON(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return b.add(name, int64(len(text)+1), bytes.NewReader(append(text, '\n')))
}

// collectServer adds what the server tells about itself.
func collectServer(ctx context.Context, b *bundleFile, from string, opt *bundleOptions) error {
	target, err := client.ParseServerURL(from)
	if err != nil {
		return &usageError{err}
	}
	c, err := opt.keys.connect(target)
	if err != nil {
		return err
	}
	defer c.Close()
	stream, err := c.Bundle(ctx, opt.profile, bundleSilence)
	if client.IsStatus(err, http.StatusForbidden) {
		return fmt.Errorf("the key does not allow a bundle; it needs the admin scope and no prefixes: %w", err)
	}
	if err != nil {
		return err
	}
	defer stream.Close()
	unpacked, err := gzip.NewReader(stream)
	if err != nil {
		return err
	}
	for files := tar.NewReader(unpacked); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = b.add("server/"+h.Name, h.Size, files)
		}
		if err != nil {
			return fmt.Errorf("the bundle was cut off: %w", err)
		}
	}
}

// collectStream adds what can be seen of a stream.
func collectStream(ctx context.Context, b *bundleFile, from string, opt *bundleOptions) error {
	s, err := openExisting(ctx, &opt.keys, from)
	if err != nil {
		return err
	}
	defer s.Close()
	found, err := s.Examine(ctx, weir.Exam{Interval: time.Second})
	if err != nil {
		return err
	}
	return b.addJSON("doctor.json", newDiagnosis(s.Info(), &found, from))
}
