// Package redis is a stream on Redis Streams or Valkey and one consumer group
// on it, on a single server, behind Sentinel or in a Cluster.
//
// A message is an entry: its field data is the payload, enqueue_ts when it was
// published (Unix ms), every other field a header. An entry without data, written by
// another program, is delivered as the JSON object of its fields. The group is an
// ordinary one: other programs may read, acknowledge and claim in it.
package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/address"
)

const (
	dialTimeout = 5 * time.Second
	// callTimeout bounds a round trip whose context has no earlier deadline.
	callTimeout = 5 * time.Second
	// defaultReclaim is how long leases are assumed to last until a claim says.
	defaultReclaim = 30 * time.Second
)

// Backend is a stream and a group on Redis. Use Open or New to create one.
type Backend struct {
	set      settings
	keys     keys
	place    string
	lent     bool // the client is the program's: see New
	client   redis.UniversalClient
	cluster  *redis.ClusterClient // nil: not a Cluster
	features atomic.Pointer[features]

	// node is the master of the stream's slot in a Cluster; nil if it has to be looked
	// up.
	node    atomic.Pointer[redis.Client]
	takers  takers
	primacy primacy
	// stale is set by each new connection, which may lead to a different server.
	stale    atomic.Bool
	detected atomic.Int64 // Unix ns of the last detection
	replicas replicas

	reclaimAfter atomic.Int64 // ns, of the last claim
	scannedAt    atomic.Int64 // Unix ns of the last scan beside a read
	cursor       atomic.Pointer[string]
	placed       atomic.Bool // it has been asked how far the group has got
	orphans      atomic.Bool // the last claim found some: reclaim first, then read
	acked        progress
	count        count
	producer     string // names this backend in the room's key
	noRoom       atomic.Pointer[denial]
	noTally      atomic.Pointer[denial] // the same for Tally
	noBudget     atomic.Pointer[denial] // the same for a budget
	missed       missed
	names        consumers
	roster       roster
	pause        pausing
	later        later
	begun        atomic.Bool   // this process has appended, so the stream existed then
	unscripted   atomic.Bool   // the user may append, but not by script
	own          atomic.Bool   // weir created the stream, according to the last trim
	grouped      atomic.Bool   // the group has existed, so its absence is news
	silence      time.Duration // forgetAfter
	// untold is the loss of a group that the last claim could not report because it had
	// deliveries to hand out; the next one reports it.
	untold atomic.Pointer[error]

	opened  atomic.Bool     // the server was acceptable when it was opened
	ended   atomic.Bool     // Close was called
	parting context.Context // ends when Close begins: nothing waits for messages any more
	part    context.CancelFunc
	closing context.Context // ends with the connections
	close   context.CancelFunc
	calls   calls
	claims  readers
	readers readers
}

var _ backend.Backend = (*Backend)(nil)

// Open connects to the server of a URL:
//
//	redis://[user:pass@]host:6379/0?stream=orders&group=billing
//	redis://a:6379,b:6379,c:6379?stream=orders            a Cluster, each host with its port
//	redis://s1:26379,s2:26379/0?master=main&stream=orders  a Sentinel's master
//
// and rediss:// for TLS. One host of a Cluster is enough. User and password are those of the
// servers. Query keys: stream; group (default "weir"); master, the name the Sentinels know
// it by; sentinel_user and sentinel_password, if the Sentinels require them; durability, the
// least class ("fsync", "disk", "memory" or "ephemeral") that is accepted, where fsync also
// waits for one replica with each append if there are any; signal, another name for the key
// of the workers' signal; enqueue_field, the field that Stats takes ages from, the time of
// publishing in Unix ms (default "enqueue_ts"); trim, whether pools remove what every group
// has acknowledged unless told otherwise: "auto" (the default: if weir created the stream),
// "on" or "off"; start, where a group that is new begins: "0" (the default), the stream's
// first entry, or "$", behind its last; create, "never" if a claim must not create the group,
// so that a misspelt name is an error; with TLS, ca, a PEM file of the authorities to trust (by
// default the system's), and cert and key, PEM files of a client certificate and its key. Open
// creates nothing: the first append creates the stream, the first claim the group.
//
// A server that may evict streams (maxmemory with an allkeys policy), or that is less durable
// than asked for, is refused: at Open with an error; later, on any new connection, with
// ErrUnavailable. Open also returns ErrUnavailable if the server cannot be reached or is not
// ready.
func Open(ctx context.Context, u *url.URL) (*Backend, error) {
	silence()
	set, err := parse(u)
	if err != nil {
		return nil, &backend.URLError{Err: fmt.Errorf("redis URL: %w", err)}
	}
	b := newBackend(set)
	b.place = set.place()
	b.connect(set.cluster())
	early, stop := address.Early(ctx, set.look)
	defer stop()
	if err = b.settle(ctx); err != nil {
		_ = b.Close()
		if why := set.misfit(ctx, err, early); why != nil {
			err = why
		}
		return nil, &backend.OpenError{
			Info: backend.Info{Kind: "redis", Stream: b.keys.stream, Group: b.keys.group},
			Err:  fmt.Errorf("open %s: %w", set.server(), err),
		}
	}
	b.opened.Store(true)
	return b, nil
}

func newBackend(set settings) *Backend {
	b := &Backend{set: set, keys: set.keys, silence: forgetAfter, producer: rand.Text()}
	b.closing, b.close = context.WithCancel(context.Background())
	b.parting, b.part = context.WithCancel(b.closing)
	b.calls.closing = b.closing
	if set.master != "" {
		b.calls.sentinels.addrs = set.addrs
	}
	b.replicas.counting = make(chan struct{}, 1)
	b.reclaimAfter.Store(int64(defaultReclaim))
	start := cursorStart
	b.cursor.Store(&start)
	return b
}

// silence keeps the client library from printing to standard error, for the whole
// process: every failure it prints is also returned as an error. After the first Open,
// its SetLogger restores the output.
var silence = sync.OnceFunc(func() { redis.SetLogger(quiet{}) })

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// connect creates the client; nothing is dialed yet.
func (b *Backend) connect(cluster bool) {
	opt := b.set.options()
	opt.IsClusterMode, b.calls.cluster = cluster, cluster
	opt.Dialer = b.calls.dialer(opt.TLSConfig)
	opt.OnConnect = b.connected
	b.client = redis.NewUniversalClient(opt)
	b.cluster, _ = b.client.(*redis.ClusterClient)
}

// settle detects what the server is and refuses it if it is not acceptable.
func (b *Backend) settle(ctx context.Context) error {
	f, err := b.detect(ctx)
	if err != nil {
		return err
	}
	if f.sentinel {
		return fmt.Errorf("%s is a Sentinel; add master=NAME, the name it knows the servers by", b.set.server())
	}
	if f.cluster && b.cluster == nil && b.lent {
		return errPlainClient
	}
	if f.cluster && b.cluster == nil && b.set.master == "" {
		_ = b.client.Close()
		b.connect(true)
		if f, err = b.detect(ctx); err != nil {
			return err
		}
	}
	if err = f.check(b.set); err != nil || b.cluster == nil {
		return err
	}
	return b.checkSlots()
}

// checkSlots refuses a signal key that a Cluster keeps on a different node than the
// stream.
func (b *Backend) checkSlots() error {
	if slotOf(b.keys.stream) != slotOf(b.keys.lag) {
		return fmt.Errorf("signal %q is not in the slot of stream %q: give both the same {tag}", b.keys.lag, b.keys.stream)
	}
	return nil
}

// Info describes the stream.
func (b *Backend) Info() backend.Info {
	f := b.features.Load()
	return backend.Info{
		Kind:       "redis",
		Stream:     b.keys.stream,
		Group:      b.keys.group,
		DeadLetter: b.keys.dead,
		Durability: f.durability,
		Server:     f.server,
	}
}

// Close ends waiting claims, removes consumers that hold nothing from the group, closes all
// connections, unless they are those of a client given to New, and waits for the calls that
// use them.
func (b *Backend) Close() error {
	if b.ended.Swap(true) {
		return nil
	}
	ctx, cancel := context.WithTimeout(b.closing, leaveFor)
	defer cancel()
	b.part()
	b.claims.end(ctx) // a read that still waits would be given a message, under a name that has left
	b.leave(ctx)
	b.close()
	err := b.takers.close()
	if !b.lent {
		err = errors.Join(err, b.client.Close())
	}
	b.claims.end(context.Background())
	b.readers.end(context.Background())
	return err
}
