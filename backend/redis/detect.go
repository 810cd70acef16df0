package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

// classes of durability, best first.
var classes = []string{"fsync", "disk", "memory", "ephemeral"}

// detectEvery is the least time between two detections on a live backend.
const detectEvery = time.Second

// features are what was detected of the server. Versions say nothing of what it can do,
// because Valkey reports the number of the Redis it was forked from.
type features struct {
	autoclaim  bool // XAUTOCLAIM that may be used, and with it exclusive range starts (6.2)
	minid      bool // XTRIM MINID, if there is one, may be used
	ackdel     bool // XACKDEL, XDELEX and trimming by acknowledged (8.2)
	cluster    bool
	sentinel   bool // not a data server, but one that knows where they are
	durability string
	eviction   string // the policy, if it may remove keys
	maxField   int64  // largest argument of a command, in bytes
	maxCommand int64  // largest command
	server     string // product and version, for humans
}

// noAutoclaim are the versions whose XAUTOCLAIM is not used. In 6.2.0 and 6.2.1 it counts a
// delivery despite JUSTID (redis/redis#8724); in 7.0.0 to 7.0.3 it may write beyond its memory
// where entries were deleted, if it has a COUNT (CVE-2022-31144).
var noAutoclaim = []string{"6.2.0", "6.2.1", "7.0.0", "7.0.1", "7.0.2", "7.0.3"}

// minidMistakes are the versions in which XTRIM MINID takes an entry that is 25 days younger
// than the first of its block for older than it is (redis/redis#9410). KeyDB was forked from
// one of them.
var minidMistakes = []string{"6.2.0", "6.2.1", "6.2.2", "6.2.3", "6.2.4", "6.2.5", "6.2.6"}

const keydb = "6.3."

// detect asks the server what it is and can do, and remembers it.
func (b *Backend) detect(ctx context.Context) (*features, error) {
	b.stale.Store(false)
	b.detected.Store(time.Now().UnixNano())
	q := newInquiry(ctx)
	_ = b.do(ctx, q.all...)
	return b.learn(q)
}

// connected looks at the server behind a new connection: it may be a different one, or
// the same with different settings. A server that does not meet the URL's demands is
// refused before anything is sent to it. The client strips the outer layer of the
// error.
func (b *Backend) connected(ctx context.Context, c *redis.Conn) error {
	b.stale.Store(true)
	b.count.doubt()
	if !b.opened.Load() {
		return nil // Open does its own check
	}
	q := newInquiry(ctx)
	send(ctx, c, q.all)
	f, err := q.features()
	if code, _ := replyCode(err); code != "" {
		return nil // a Sentinel that refuses INFO; Open would have refused such a server
	}
	if err != nil {
		return fmt.Errorf("new connection: %w", &notSent{err})
	}
	// The client also passes its Sentinels' connections to this function.
	if infoField(q.replication.Val(), "role") != "master" || infoField(q.info.Val(), "redis_mode") == "sentinel" {
		return nil
	}
	if b.cluster == nil { // there it may be a node without the stream
		f, _ = b.learn(q)
	}
	if err = f.check(b.set); err != nil {
		return fmt.Errorf("new connection: %w", &notSent{fmt.Errorf("the server has changed: %w", err)})
	}
	return nil
}

func (b *Backend) learn(q *inquiry) (*features, error) {
	f, err := q.features()
	if err != nil {
		return nil, err
	}
	if q.replication.Err() == nil {
		b.replicas.set(q.info.Val(), q.replication.Val(), b.cluster != nil)
	}
	b.features.Store(f)
	return f, nil
}

// inquiry is what a server is asked about itself.
type inquiry struct {
	all                          []redis.Cmder
	commands                     *redis.SliceCmd
	info, replication, clustered *redis.StringCmd
	config                       []*redis.MapStringStringCmd
}

func newInquiry(ctx context.Context) *inquiry {
	q := &inquiry{
		commands:    redis.NewSliceCmd(ctx, "COMMAND", "INFO", "xautoclaim", "xackdel"),
		info:        redis.NewStringCmd(ctx, "INFO", "server"),
		replication: redis.NewStringCmd(ctx, "INFO", "replication"),
		clustered:   redis.NewStringCmd(ctx, "INFO", "cluster"),
	}
	q.all = []redis.Cmder{q.info, q.replication, q.clustered, q.commands}
	for _, name := range []string{"appendonly", "appendfsync", "no-appendfsync-on-rewrite", "save", "maxmemory", "maxmemory-policy", configField, configCommand} {
		cmd := redis.NewMapStringStringCmd(ctx, "CONFIG", "GET", name)
		q.config, q.all = append(q.config, cmd), append(q.all, cmd)
	}
	return q
}

// features reads the answers. The user may lack permission for any of them; INFO shows
// whether the server is there.
func (q *inquiry) features() (*features, error) {
	err := q.info.Err()
	switch code, _ := replyCode(err); {
	case err == nil, code == "NOPERM":
	case code == "NOAUTH", code == "WRONGPASS", !errors.Is(err, backend.ErrForbidden):
		return nil, err
	}
	version := infoField(q.info.Val(), "redis_version")
	known := map[string]string{}
	for _, cmd := range q.config {
		for name, value := range cmd.Val() {
			known[name] = value
		}
	}
	return &features{
		autoclaim:  present(q.commands.Val(), 0) && !slices.Contains(noAutoclaim, version),
		minid:      version != "" && !slices.Contains(minidMistakes, version) && !strings.HasPrefix(version, keydb),
		ackdel:     present(q.commands.Val(), 1),
		cluster:    infoField(q.clustered.Val(), "cluster_enabled") == "1",
		sentinel:   infoField(q.info.Val(), "redis_mode") == "sentinel",
		durability: durabilityOf(known),
		eviction:   evictionOf(known),
		maxField:   sizeOf(known[configField], defaultField),
		maxCommand: sizeOf(known[configCommand], defaultCommand),
		server:     serverOf(q.info.Val()),
	}, nil
}

// current returns the features, detecting them again if there have been new
// connections: a failover may have brought another version.
func (b *Backend) current(ctx context.Context) *features {
	if b.stale.Load() && !younger(&b.detected, detectEvery) {
		_, _ = b.detect(ctx) // what cannot be read stays as it was
	}
	return b.features.Load()
}

// younger reports whether a moment, in Unix ns, is less than d ago. One that is to come is of
// before the clock was set back, and may be of any age.
func younger(moment *atomic.Int64, d time.Duration) bool {
	age := time.Duration(time.Now().UnixNano() - moment.Load())
	return 0 <= age && age < d
}

// check refuses a server that does not meet the URL's demands.
func (f *features) check(s settings) error {
	if f.evictsStreams() {
		return fmt.Errorf("maxmemory-policy %s may evict the stream; set it to noeviction", f.eviction)
	}
	if s.durability != "" && slices.Index(classes, f.durability) > slices.Index(classes, s.durability) {
		return fmt.Errorf("durability %s is asked for and the server keeps %s; set appendonly yes, appendfsync (always for fsync, everysec for disk) and no-appendfsync-on-rewrite no", s.durability, f.durability)
	}
	return nil
}

// durabilityOf returns what an acknowledged append survives; "memory" if unknown.
func durabilityOf(config map[string]string) string {
	switch appendonly := config["appendonly"]; {
	case appendonly == "yes" && config["no-appendfsync-on-rewrite"] == "yes":
		// While a snapshot or a shorter log is written, and while a replica is sent one,
		// nothing is synced, whatever appendfsync says.
	case appendonly == "yes" && config["appendfsync"] == "always":
		return "fsync"
	case appendonly == "yes" && config["appendfsync"] == "everysec":
		return "disk"
	case appendonly == "no":
		if save, ok := config["save"]; ok && save == "" {
			return "ephemeral"
		}
	}
	return "memory"
}

// evictionOf returns the policy if it may evict keys.
func evictionOf(config map[string]string) string {
	policy := config["maxmemory-policy"]
	if limit := config["maxmemory"]; limit == "" || limit == "0" || policy == "noeviction" {
		return ""
	}
	return policy
}

// evictsStreams reports whether keys without an expiry may be evicted; others may be in any case
// if there is a policy.
func (f *features) evictsStreams() bool { return strings.HasPrefix(f.eviction, "allkeys-") }

func serverOf(info string) string {
	for _, product := range []string{"valkey", "redis"} {
		if version := infoField(info, product+"_version"); version != "" {
			return product + " " + version
		}
	}
	return "redis"
}

// infoField returns a field of an INFO reply.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// present reports whether COMMAND INFO describes its i-th command.
func present(described []any, i int) bool {
	if i >= len(described) {
		return false
	}
	about, ok := described[i].([]any)
	return ok && len(about) > 0
}

// server says where the server is, without secrets.
func (s settings) server() string { return strings.Join(s.addrs, ",") }

// place is the same for two backends only if they are on the same stream.
func (s settings) place() string {
	return fmt.Sprintf("redis %s %s/%d %s", s.server(), s.master, s.db, s.keys.stream)
}
