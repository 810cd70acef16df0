// Package remote makes a backend of a queue on a weir server, over its HTTP
// API: http://[:KEY@]HOST:PORT/QUEUE, or https.
package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/internal/queue"
	"github.com/weirmq/weir/internal/address"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/client"
)

// idempotencyWindow is how long a queue created here remembers a message's key.
const idempotencyWindow = time.Hour

// noLimit stands in for limits that only the server knows.
const noLimit = 1 << 30

// Open opens http://[:KEY@]HOST:PORT/TOPIC or https with the query keys group (only "weir")
// and, for a topic that is created, durability (fsync, disk, memory or ephemeral; default disk)
// and type (queue or log; default queue), and standby (host:port, more behind commas: servers
// of the same copy, which are asked if the first one does not lead); with https also ca, a PEM
// file of the authorities that are trusted instead of the system's, and cert and key, those of
// the client's certificate. The server need not be running yet. The calls need a
// key with the scopes read and write, plus admin to create an absent topic and delete to send
// dead letters back. No error contains the URL or the key.
func Open(ctx context.Context, u *url.URL) (backend.Backend, error) {
	cfg, err := parseQuery(u)
	if err != nil {
		return nil, &backend.URLError{Err: err}
	}
	bare := *u
	bare.RawQuery, bare.ForceQuery = "", false
	query := u.Query()
	maps.DeleteFunc(query, func(key string, _ []string) bool { return !slices.Contains(connecting, key) })
	bare.RawQuery = query.Encode()
	target, err := client.ParseTopicURL(bare.String())
	if err != nil {
		return nil, &backend.URLError{Err: err}
	}
	limits := api.DefaultLimits()
	limits.MaxRecordBytes, limits.MaxTagBytes = noLimit, noLimit
	c, err := client.Open(target)
	if err != nil {
		return nil, &backend.URLError{Err: err}
	}
	b, err := queue.New(ctx, c, queue.Options{
		Topic: target.Topic, Config: cfg, Limits: limits, Kind: "http", Server: target.Base,
		Release: func() error { c.Close(); return nil },
	})
	if err != nil {
		c.Close()
		return nil, err
	}
	return b, nil
}

// connecting are the query keys about the way to the server.
var connecting = []string{"standby", "ca", "cert", "key"}

// parseQuery returns the configuration an absent topic is created with.
func parseQuery(u *url.URL) (cfg api.Config, err error) {
	if u == nil {
		return cfg, address.ErrNil
	}
	known := slices.Concat([]string{"group", "durability", "type"}, connecting, []string{address.Shards})
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return cfg, fmt.Errorf("the query of the %s URL cannot be read; known keys: %s", u.Scheme, strings.Join(known, ", "))
	}
	for key, values := range query {
		if !slices.Contains(known, key) {
			return cfg, fmt.Errorf("unknown key %q in the %s URL; known: %s", key, u.Scheme, strings.Join(known, ", "))
		}
		if len(values) > 1 {
			return cfg, fmt.Errorf("key %q appears twice in the %s URL", key, u.Scheme)
		}
	}
	if query.Has(address.Shards) {
		return cfg, address.ErrShards
	}
	if g := query.Get("group"); g != "" && g != queue.Group {
		return cfg, fmt.Errorf("group %q: a queue on a weir server has one group, %q, for now; leave group out", g, queue.Group)
	}
	cfg = api.DefaultConfig()
	cfg.IdempotencyWindowMS = uint64(idempotencyWindow.Milliseconds())
	if name := query.Get("durability"); name != "" {
		var ok bool
		if cfg.Durability, ok = api.ParseDurability(name); !ok {
			return cfg, fmt.Errorf("durability %q is unknown; known: fsync, disk, memory, ephemeral", name)
		}
	}
	switch kind := query.Get("type"); kind {
	case "", "queue":
		cfg.Type = api.TypeQueue
		cfg.LeasesDurable = cfg.Durability >= api.Disk // so that a restarted server goes on counting deliveries
	case "log":
	default:
		return cfg, fmt.Errorf("type %q is unknown; known: queue, log", kind)
	}
	return cfg, nil
}

// WithKey returns rawURL with key added, for a key from a file or the environment. It
// leaves rawURL unchanged if that has another scheme or already has a key, or if key is
// empty.
func WithKey(rawURL, key string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "", errors.New("invalid URL; an IPv6 address stands in [ ], and special characters in a user name, password or key need percent-encoding")
	}
	if key == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
		return rawURL, nil
	}
	u.User = url.UserPassword("", key)
	return u.String(), nil
}
