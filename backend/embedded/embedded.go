// Package embedded runs the engine of a weir server inside this process, as a backend:
// mem:// in memory, file:// in a directory. All backends opened on the same name or
// directory share one engine, which is closed with the last of them.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/internal/queue"
	"github.com/weirmq/weir/internal/address"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
)

const (
	// idempotencyWindow is how long a queue created here remembers a message's key.
	idempotencyWindow = time.Hour
	// memSegment is the size of a log segment in memory, where little is kept.
	memSegment = 1 << 20
)

// Open opens one of
//
//	mem://NAME
//	file:///DIR?topic=NAME   file:./DIR?topic=NAME
//
// with the query keys topic (file, required), group (only "weir") and durability (file:
// fsync, disk, memory or ephemeral; the class of a topic that is created, default
// disk). A mem queue is of the class ephemeral and lives as long as anyone in this
// process has it open. If another process holds the directory, the error names that
// process.
func Open(ctx context.Context, u *url.URL) (backend.Backend, error) {
	p, err := parse(u)
	if err != nil {
		return nil, &backend.URLError{Err: err}
	}
	s, err := share(ctx, p.key, p.options)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("open topic %q, %s: %w", p.topic, p.server, err)
	}
	if err != nil {
		return nil, err
	}
	b, err := queue.New(ctx, service{e: s.engine, late: &s.late}, queue.Options{
		Topic: p.topic, Config: created(p.durability), Limits: api.DefaultLimits(), Kind: "embedded", Server: p.server, Release: s.release,
	})
	if err != nil {
		return nil, errors.Join(err, s.release())
	}
	return b, nil
}

// place is what a URL refers to.
type place struct {
	key        string // of the shared engine
	topic      string
	durability api.Durability
	server     string
	options    engine.Options
}

func parse(u *url.URL) (place, error) {
	if u == nil {
		return place{}, address.ErrNil
	}
	known := []string{"group", address.Shards}
	if u.Scheme == "file" {
		known = []string{"topic", "group", "durability", address.Shards}
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return place{}, fmt.Errorf("the query of the %s URL cannot be read; known keys: %s", u.Scheme, strings.Join(known, ", "))
	}
	for key, values := range query {
		if !slices.Contains(known, key) {
			return place{}, fmt.Errorf("unknown key %q in the %s URL; known: %s", key, u.Scheme, strings.Join(known, ", "))
		}
		if len(values) > 1 {
			return place{}, fmt.Errorf("key %q appears twice in the %s URL", key, u.Scheme)
		}
	}
	if query.Has(address.Shards) {
		return place{}, address.ErrShards
	}
	if u.User != nil || u.Fragment != "" {
		return place{}, fmt.Errorf("a %s URL has neither user nor fragment (#…)", u.Scheme)
	}
	if g := query.Get("group"); g != "" && g != queue.Group {
		return place{}, fmt.Errorf("group %q: an embedded queue has one group, %q, for now; leave group out", g, queue.Group)
	}
	if u.Scheme == "mem" {
		return parseMem(u)
	}
	return parseFile(u, query)
}

func parseMem(u *url.URL) (place, error) {
	if u.Opaque != "" || u.Host == "" || u.Path != "" && u.Path != "/" {
		return place{}, errors.New("a mem URL is mem://NAME")
	}
	return place{
		key: "mem://" + u.Host, topic: u.Host, durability: api.Ephemeral, server: "in memory",
		options: engine.Options{Dir: "/data", FS: vfs.NewMem(), SegmentBytes: memSegment},
	}, nil
}

func parseFile(u *url.URL, query url.Values) (place, error) {
	const form = "a file URL is file:///DIR?topic=NAME, or file:./DIR?topic=NAME relative to where the program runs"
	dir := u.Path
	if u.Opaque != "" {
		var err error
		if dir, err = url.PathUnescape(u.Opaque); err != nil {
			return place{}, errors.New(form)
		}
	}
	if u.Host != "" && u.Host != "localhost" {
		return place{}, fmt.Errorf("the file URL names a host, %q; %s", u.Host, form)
	}
	if dir == "" || dir == "/" {
		return place{}, fmt.Errorf("the file URL names no directory; %s", form)
	}
	topic := query.Get("topic")
	if topic == "" {
		return place{}, fmt.Errorf("the file URL names no topic; %s", form)
	}
	class := api.Disk
	if name := query.Get("durability"); name != "" {
		var ok bool
		if class, ok = api.ParseDurability(name); !ok {
			return place{}, fmt.Errorf("durability %q is unknown; known: fsync, disk, memory, ephemeral", name)
		}
	}
	dir, err := resolve(dir)
	if err != nil {
		return place{}, err
	}
	return place{key: "file://" + dir, topic: topic, durability: class, server: dir, options: engine.Options{Dir: dir}}, nil
}

// resolve returns the path by which everyone in this process knows the directory,
// whether or not it exists yet.
func resolve(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	rest := ""
	for p := dir; ; p = filepath.Dir(p) {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			return filepath.Join(real, rest), nil
		}
		if p == filepath.Dir(p) {
			return dir, nil
		}
		rest = filepath.Join(filepath.Base(p), rest)
	}
}

// heldError explains that another process holds the directory.
func heldError(err error) error {
	if errors.Is(err, engine.ErrInUse) {
		return fmt.Errorf("%w: %w; to share it between processes, run `weir serve` on the directory and use http:// URLs", backend.ErrUnavailable, err)
	}
	return err
}
