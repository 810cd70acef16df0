// Package kafka is a stream on a topic of Apache Kafka and one group on it.
//
// A message is a record: its value is the payload, its timestamp when it was published, its
// headers the message's, its key the FairKey. The group is a share group (KIP-932), where the
// broker locks what it hands out, counts deliveries and hands out again what is released or
// whose holder is gone; or, on brokers without these, a classic consumer group, where a
// partition's owner does that and the commits say what it would lose with its process.
// docs/KAFKA.md says what follows from either.
package kafka

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/address"
	"github.com/weirmq/weir/internal/patient"
)

const (
	// callTimeout bounds a call whose context has no earlier deadline.
	callTimeout = patient.Timeout
	// leastRecord is what a record counts for at least in a full buffer, in bytes.
	leastRecord = 32
)

// Backend is a topic and a group on it. Use Open to create one.
type Backend struct {
	set    settings
	opts   []kgo.Opt // of the program
	dialer *patient.Dialer
	client *kgo.Client // produces, asks, reads
	admin  *kadm.Client
	facts  facts

	group group // claims
	held  *shelf
	// fetching holds a token while nobody fetches.
	fetching   chan struct{}
	ledger     *ledger
	oldest     oldest
	lookout    *lookout // of the pools
	glance     *lookout // of who only looks
	limits     lastLimits
	starts     logStart
	consumers  lastConsumers
	offers     offers
	rooms      rooms
	cursors    cursors
	topic      topicCache
	made       made
	ids        topicIDs
	renewing   atomic.Bool // one of these
	keys       keys
	unanswered unanswered
	lanes      lanes
	dead       shelves
	redrives   redrives
	finished   finished
	terms      atomic.Pointer[terms] // nil: the topic was not there yet

	worker atomic.Pointer[string] // who has claimed first

	opened  atomic.Bool // the brokers have answered as brokers do
	ended   atomic.Bool
	closing context.Context // ends with Close
	close   context.CancelFunc
	gate    sync.RWMutex   // ended changes under it
	running sync.WaitGroup // what Close waits for
	late    sync.WaitGroup // requests that may outlast their calls
	over    bool           // none may be added to late, by gate
}

// spawn runs do unless the handle is closed; Close waits for it.
func (b *Backend) spawn(do func()) bool {
	b.gate.RLock()
	defer b.gate.RUnlock()
	if b.ended.Load() {
		return false
	}
	b.running.Go(do)
	return true
}

var _ backend.Backend = (*Backend)(nil)

// Open connects to the brokers of a URL:
//
//	kafka://[user:pass@]host:9092,host:9092/orders?group=billing
//
// and kafkas:// for TLS. The path is the topic; topic=NAME says the same. Query keys: group
// (default "weir"); partitions, with how many the topic is created by the first append or
// claim if it is missing (without it, a missing topic is an error); replication, of what weir
// creates (by default the broker's default); retention, how long a topic that is created keeps
// its records, such as 168h (by default as the broker says); buffer_memory, how many bytes may
// wait to be sent (default 33554432); max_in_flight, which has to be 5; client_id (default "weir"); sasl, the mechanism
// for the user and password: "scram-sha-512", "scram-sha-256" or "plain" (by default the
// first of these that the brokers offer, but plain only with TLS); with TLS, ca, a PEM file of
// the authorities to trust (by default the system's), and cert and key, PEM files of a client
// certificate and its key; group_type, "share" or "classic" (by default what the brokers
// offer: share groups need Kafka 4.2 with the feature share.version at 1 or above); start, where
// a group that is new begins: "0" (the default), the first record, or "$", behind what is
// published before its first claim; create, "never" if a claim must not create the group, so
// that a misspelt name is an error.
//
// Options of the program are passed to the clients of franz-go: a dialer, other mechanisms of
// SASL (for a URL without a user), hooks, a logger, compression and so on. They beat what the
// URL says, but for the brokers' addresses, the acknowledgement by all in-sync replicas, the context and the size of
// the producer's buffer, which are weir's. Options that contradict them are an error: those
// that consume, transactions, writes that are not idempotent or are cancelled, flushing by
// hand and topics that create themselves.
//
// Open creates nothing. It returns ErrUnavailable if no broker answers. A group that exists as
// the other type is an error of the first claim.
func Open(ctx context.Context, u *url.URL, opts ...kgo.Opt) (*Backend, error) {
	set, err := parse(u)
	if err != nil {
		return nil, &backend.URLError{Err: fmt.Errorf("kafka URL: %w", err)}
	}
	b := &Backend{set: set, opts: opts, fetching: make(chan struct{}, 1)}
	b.held = newShelf(b)
	b.lookout, b.glance = newLookout(true), newLookout(false)
	b.offers.turn, b.rooms.turn, b.redrives.turn = newTurn(), newTurn(), newTurn()
	b.fetching <- struct{}{}
	b.closing, b.close = context.WithCancel(context.Background())
	b.dialer, err = patient.NewDialer(b.options())
	if err == nil {
		b.set.dial = b.dialer.Dial
		if b.set.tls == nil {
			b.set.tls, b.set.tlsGiven = b.dialer.TLS, b.dialer.TLS != nil
		}
	}
	early, stop := address.Early(ctx, func(ctx context.Context) error { return b.set.look(ctx, briefly) })
	defer stop()
	if err == nil {
		err = b.connect(ctx)
	}
	if err != nil {
		if why := b.set.misfitTLS(ctx, err, early); why != nil {
			err = why
		}
		_ = b.Close()
		return nil, &backend.OpenError{
			Info: backend.Info{Kind: "kafka", Stream: set.topic, Group: set.group},
			Err:  fmt.Errorf("open %s: %w", set.server(), err),
		}
	}
	return b, nil
}

func (b *Backend) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	b.dialer.Await(ctx, b.set.addrs)
	client, err := b.newClient(
		kgo.MaxBufferedBytes(b.set.memory),
		kgo.ProducerBatchMaxBytesFn(b.batchBytes),
		kgo.MaxBufferedRecords(max(1, b.set.memory/leastRecord)),
	)
	if err != nil {
		return err
	}
	b.client, b.admin = client, kadm.NewClient(client)
	if err := checkOptions(client); err != nil {
		return err
	}
	if b.facts, err = b.examineWithin(ctx); err != nil {
		return b.explain(err)
	}
	if b.facts.groupType == groupClassic {
		b.group = newClassic(b)
	} else {
		member, err := newMember(b)
		if err != nil {
			return err
		}
		b.group = member
	}
	b.ledger = newLedger(b)
	b.opened.Store(true)
	return nil
}

// newClient returns a client with the options of the program, which opts and weir's own beat.
func (b *Backend) newClient(opts ...kgo.Opt) (*kgo.Client, error) {
	client, err := kgo.NewClient(slices.Concat(b.options(), b.dialer.Options(), opts)...)
	if err != nil {
		return nil, fmt.Errorf("kafka: options: %w", err)
	}
	return client, nil
}

// options are those of every client.
func (b *Backend) options() []kgo.Opt {
	all := append(patient.Limits(), kgo.ClientID(b.set.clientID), kgo.ProducerLinger(0), kgo.RecordPartitioner(spread{}))
	if b.set.tls != nil {
		all = append(all, kgo.DialTLSConfig(b.set.tls))
	}
	own := []kgo.Opt{kgo.SeedBrokers(b.set.addrs...), kgo.WithContext(b.closing), kgo.RequiredAcks(kgo.AllISRAcks())}
	return slices.Concat(all, b.set.login.Options(), b.opts, own)
}

// Info describes the stream.
func (b *Backend) Info() backend.Info {
	return backend.Info{
		Kind:       "kafka",
		Stream:     b.set.topic,
		Group:      b.set.group,
		DeadLetter: b.set.deadLetter(),
		Durability: b.durability(),
		Server:     b.facts.server,
	}
}

// Close gives back what the handle holds and closes all connections. The broker hands out
// again what was held; that counts as a delivery.
func (b *Backend) Close() error {
	b.gate.Lock()
	again := b.ended.Swap(true)
	b.gate.Unlock()
	if again {
		return nil
	}
	if b.ledger != nil {
		back := b.held.lowest()
		b.group.leave()
		b.ledger.leave(back)
	}
	b.close()
	b.running.Wait()
	b.redrives.close()
	if b.group != nil {
		b.group.close()
	}
	if b.client != nil {
		b.client.Close()
	}
	if b.dialer != nil {
		b.dialer.Close()
	}
	b.gate.Lock()
	b.over = true
	b.gate.Unlock()
	b.late.Wait()
	return nil
}

// begin returns a context for a call that ends with it, with the handle and after
// callTimeout.
func (b *Backend) begin(ctx context.Context) (context.Context, context.CancelFunc, error) {
	return b.beginFor(ctx, callTimeout)
}

func (b *Backend) beginFor(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc, error) {
	if b.ended.Load() {
		return nil, nil, errClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("kafka: %w", err)
	}
	call, cancel := context.WithTimeout(ctx, most)
	stop := context.AfterFunc(b.closing, cancel)
	return call, func() { stop(); cancel() }, nil
}

// name is a new name of 22 characters, as Kafka's own IDs have.
func newName() string { return rand.Text()[:22] }

var errClosed = fmt.Errorf("kafka: %w", backend.ErrClosed)

var errNoLetter = fmt.Errorf("kafka: dead letter: %w", backend.ErrNotFound)

// cut reports what a call returns that has failed and whose context may have ended: the handle's end goes first.
func (b *Backend) cut(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case b.ended.Load():
		return errClosed
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		return fmt.Errorf("%w (%w)", ctx.Err(), err)
	}
	return err
}
