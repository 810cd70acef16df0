// Package stores opens a copy by its URL.
package stores

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/dir"
	"github.com/weirmq/weir/internal/replica/s3"
	"github.com/weirmq/weir/internal/replica/slots"
)

// Options say how a copy is opened.
type Options struct {
	// ReadOnly is for a copy that is only looked at: it must exist, and nothing is
	// written to it.
	ReadOnly bool
	// Grace is how long what is old stays before Trim removes it; 0: a day.
	Grace time.Duration
	// Trouble, if set, is told the errors after which something is tried again.
	Trouble func(error)
}

// Check returns an error if address is not the URL of a place where a copy can be.
func Check(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return errors.New("the URL of the copy cannot be read; expected file:///path, s3://bucket/prefix, postgres://host/database or kafka://host/topic")
	case u.Scheme == "":
		return errors.New("the URL of the copy has no scheme; expected file:///path, s3://bucket/prefix, postgres://host/database or kafka://host/topic")
	case strings.Contains(address, "#"):
		return errors.New("the URL of the copy has a #, behind which nothing counts; write it as %23")
	case u.Scheme == "file" && (u.Host != "" || u.Path == "" || u.RawQuery != ""):
		return errors.New("the file URL of the copy cannot be read; expected file:///path, with three slashes")
	case u.Scheme != "file" && u.Scheme != "s3" && !apart(u.Scheme):
		return fmt.Errorf("the URL of the copy begins with %q; expected file://, s3://, postgres:// or kafka://", u.Scheme)
	case u.Scheme == "s3":
		_, err = s3.Open(u)
	}
	return err
}

// Open opens the copy at a URL. It creates it if there is none, and finds out whether
// the store can hold one.
func Open(ctx context.Context, address string, opt Options) (replica.Log, replica.Files, error) {
	if u, err := url.Parse(address); err == nil && apart(u.Scheme) {
		return openApart(ctx, u, opt)
	}
	s, err := open(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	log := slots.New(s, slots.Options{Grace: opt.Grace, Trouble: opt.Trouble})
	if opt.ReadOnly {
		_, err = slots.ReadFormat(ctx, s)
		if errors.Is(err, replica.ErrNotFound) {
			err = errors.New("there is no copy of weir")
		}
	} else {
		err = log.Probe(ctx)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", address, err), log.Close(), s.Close())
	}
	return log, s, nil
}

// OpenFiles opens the files of a copy whose log is elsewhere.
func OpenFiles(ctx context.Context, address string) (replica.Files, error) {
	return open(ctx, address)
}

// store is what holds both.
type store interface {
	slots.Objects
	replica.Files
}

func open(_ context.Context, address string) (store, error) {
	if err := Check(address); err != nil {
		return nil, err
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, err
	case u.Scheme == "file":
		return dir.Open(u.Path)
	case u.Scheme == "s3":
		return s3.Open(u)
	}
	return nil, fmt.Errorf("%s:// keeps the log of a copy and no files; name a directory or a bucket", u.Scheme)
}
