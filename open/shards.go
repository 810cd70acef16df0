package open

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/shard"
	"github.com/weirmq/weir/internal/address"
)

// openShards opens the stream of a URL, or its shards if it is to have some.
func openShards(ctx context.Context, u *url.URL) (backend.Backend, error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || !query.Has(address.Shards) || strings.Contains(u.RawQuery, "@") {
		return openBackend(ctx, u) // which says what is wrong with the query, and hides a secret in it
	}
	n, err := strconv.Atoi(query.Get(address.Shards))
	if err != nil || n < 1 || n > shard.Most || len(query[address.Shards]) > 1 {
		return nil, &backend.URLError{Err: fmt.Errorf("shards is a number from 1 to %d, given once", shard.Most)}
	}
	query.Del(address.Shards)
	whole := *u
	whole.RawQuery = query.Encode()
	name, err := streamName(&whole)
	if err != nil {
		return nil, &backend.URLError{Err: err}
	}
	return shard.Open(ctx, shard.Options{Name: name, Shards: n, Open: func(ctx context.Context, number int) (backend.Backend, error) {
		one := whole
		renamed(&one, "."+strconv.Itoa(number))
		return openBackend(ctx, &one)
	}})
}

// streamName is the name of the stream in a URL.
func streamName(u *url.URL) (name string, err error) {
	switch key := nameKey(u.Scheme); {
	case u.Scheme == "kafka", u.Scheme == "kafkas":
		return "", errors.New("shards: a topic of Kafka has partitions instead; leave shards out")
	case key != "":
		name = u.Query().Get(key)
	case u.Scheme == "mem":
		name = u.Host
	default:
		name = strings.Trim(u.Path, "/")
	}
	if name == "" {
		return "", errors.New("shards needs a URL that names a stream")
	}
	return name, nil
}

// nameKey is the query key that names the stream; empty if the scheme has none.
func nameKey(scheme string) string {
	switch scheme {
	case "redis", "rediss":
		return "stream"
	case "file":
		return "topic"
	}
	return ""
}

// renamed adds to the name of the stream in a URL.
func renamed(u *url.URL, suffix string) {
	key := nameKey(u.Scheme)
	switch {
	case key != "":
		query := u.Query()
		query.Set(key, query.Get(key)+suffix)
		if signal := query.Get("signal"); signal != "" {
			query.Set("signal", signal+suffix)
		}
		u.RawQuery = query.Encode()
	case u.Scheme == "mem":
		u.Host += suffix
	default:
		u.Path = strings.TrimRight(u.Path, "/") + suffix
		u.RawPath = ""
	}
}
