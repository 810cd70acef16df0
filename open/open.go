// Package open opens streams by URL. It is the only package that imports all backends;
// a program that needs just one can open it itself, as with redis.Open, and pass it to
// weir.New, and does not compile the others.
package open

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/embedded"
	"github.com/weirmq/weir/backend/kafka"
	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/backend/remote"
)

// schemes are the URL schemes that URL knows.
var schemes = []string{"mem", "file", "redis", "rediss", "kafka", "kafkas", "http", "https"}

// URL opens the stream named by a URL:
//
//	mem://orders                                        in memory, in this process
//	file:///var/lib/weir?topic=orders                   in a directory, in this process
//	redis://[user:pass@]host:6379/0?stream=orders       Redis Streams; rediss:// over TLS
//	kafka://[user:pass@]host:9092/orders                a topic of Apache Kafka and a group; kafkas:// over TLS
//	http://[:key@]host:4000/orders                      a weir server; https:// over TLS
//
// group=NAME sets the consumer group, "weir" by default. shards=N makes the stream one of
// N: package shard says what that means; the streams have the names orders.0, orders.1 and
// so on. The other query keys are those
// of the backend's own Open. An unknown scheme or key is a *backend.URLError that lists
// the known ones. No error repeats the URL, which may contain a secret.
func URL(ctx context.Context, rawURL string) (*weir.Stream, error) {
	if rawURL == "" {
		return nil, &backend.URLError{Err: errors.New("weir: the URL is empty")}
	}
	u, err := url.Parse(rawURL)
	if !strings.Contains(rawURL, "://") && (err != nil || !slices.Contains(schemes, u.Scheme)) {
		return nil, &backend.URLError{Err: fmt.Errorf("weir: the URL has no scheme in front, such as http://; known: %s", strings.Join(schemes, ", "))}
	}
	if err != nil {
		return nil, &backend.URLError{Err: errors.New("weir: invalid URL; an IPv6 address stands in [ ], and special characters in a user name, password or key need percent-encoding")}
	}
	b, err := openShards(ctx, u)
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
	case "kafka", "kafkas":
		return kafka.Open(ctx, u)
	}
	return nil, &backend.URLError{Err: fmt.Errorf("unknown URL scheme %q; known: %s", u.Scheme, strings.Join(schemes, ", "))}
}
