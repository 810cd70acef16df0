// Package open opens streams by their URLs: the one package that knows all
// backends. A program that needs only one can open that by itself, as
// redis.Open does, and give it to weir.New; then it builds nothing of the others.
package open

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/embedded"
	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/backend/remote"
)

// schemes are the URL schemes that URL knows.
var schemes = []string{"mem", "file", "redis", "rediss", "http", "https"}

// URL opens the stream that a URL names:
//
//	mem://orders                                        in memory, in this process
//	file:///var/lib/weir?topic=orders                   in a directory, by this process
//	redis://[user:pass@]host:6379/0?stream=orders       Redis Streams; rediss:// over TLS
//	http://[:key@]host:4000/orders                      a weir server; https:// over TLS
//
// group=NAME names the consumer group, "weir" by default. The other query keys
// are those of the backend's own Open. An unknown scheme or key is an error that
// lists the known ones; such errors are a *backend.URLError.
// No error repeats the URL, which may hold a secret.
func URL(ctx context.Context, rawURL string) (*weir.Stream, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, &backend.URLError{Err: errors.New("weir: the URL cannot be read; special characters in a user name, password or key need percent-encoding")}
	}
	b, err := openBackend(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("weir: %w", err)
	}
	return weir.New(b), nil
}

func openBackend(ctx context.Context, u *url.URL) (backend.Backend, error) {
	switch u.Scheme {
	case "mem", "file":
		return embedded.Open(ctx, u)
	case "http", "https":
		return remote.Open(ctx, u)
	case "redis", "rediss":
		return redis.Open(ctx, u)
	case "kafka":
		return nil, &backend.URLError{Err: fmt.Errorf("kafka URLs are not supported yet; known schemes: %s", strings.Join(schemes, ", "))}
	}
	return nil, &backend.URLError{Err: fmt.Errorf("unknown URL scheme %q; known: %s", u.Scheme, strings.Join(schemes, ", "))}
}
