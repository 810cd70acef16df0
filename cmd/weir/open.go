package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/open"
)

// openStream opens the stream of a URL, with the API key of the flags or the
// environment, or their user and password on Kafka, if the URL has none.
func openStream(ctx context.Context, keys *keyOptions, rawURL string) (*weir.Stream, error) {
	if u, err := url.Parse(rawURL); err == nil && u.Scheme == "mem" {
		return nil, &backend.URLError{Err: errors.New("a mem URL exists in one process only and would be empty here; use file:///DIR?topic=NAME, or weir serve and http://")}
	}
	rawURL, err := keys.complete(rawURL)
	if err != nil {
		return nil, err
	}
	return open.URL(ctx, rawURL)
}

// openExisting is openStream for commands that only read: it does not create a data
// directory.
func openExisting(ctx context.Context, keys *keyOptions, rawURL string) (*weir.Stream, error) {
	if u, err := url.Parse(rawURL); err == nil && u.Scheme == "file" {
		u.RawQuery = ""
		dir, err := dataDir(u.String())
		if err == nil {
			_, err = os.Stat(filepath.Join(dir, "FORMAT")) // what every data directory has
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%w: the directory holds no weir data: %w", weir.ErrStreamNotFound, err)
		}
	}
	return openStream(ctx, keys, rawURL)
}
