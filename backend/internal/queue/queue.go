// Package queue makes a backend of anything that offers the calls of a weir server: the
// engine in this process (backend/embedded) or a server elsewhere (backend/remote). It
// contains the mapping between messages and records, the blocking claim and the dead
// letters.
//
// A message is a record: its headers are the string members of meta, its ID is the
// record's number. Data that is compact JSON by the contract and not a string is stored
// as it is, visible to everyone who reads the topic. Other text becomes a JSON string,
// and bytes that are not text a base64 string with the member weir-encoding. Reading
// reverses this and returns the same bytes.
package queue

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

// Group is the only group of a queue.
const Group = "weir"

// Service is the set of calls a queue is built on. A call that returned because its
// context ended may go on reading its request. Errors the contract names are
// *api.Error; any other error wraps one of package backend or is the context's.
type Service interface {
	Topic(ctx context.Context, name string) (api.TopicState, error)
	PutTopic(ctx context.Context, name string, cfg api.Config) error
	Write(ctx context.Context, name string, req *api.WriteRequest) (api.WriteResult, error)
	// WriteEach makes many writes in their order, each with an outcome of its own; see
	// engine.WriteEach. They say the same of Create, and have no Config. With
	// errors.ErrUnsupported nothing was done, since the service has no such call.
	WriteEach(ctx context.Context, name string, reqs []api.WriteRequest) ([]api.WriteOutcome, error)
	// waited is how long it took until the jobs were leased, or req.WaitMS was over; 0 if
	// the service does not wait.
	Claim(ctx context.Context, name string, req *api.ClaimRequest) (_ []api.HeldJob, waited time.Duration, _ error)
	Settle(ctx context.Context, name string, req *api.Settlement) (skipped []uint64, err error)
	Diff(ctx context.Context, name string, req *api.DiffRequest) ([]api.Record, api.DiffResult, error)
	Delete(ctx context.Context, name string, req *api.DeleteRequest) (deleted uint64, err error)
	Tally(ctx context.Context, name string, add []uint32) (api.TallyResult, error)
	Pause(ctx context.Context, name string, paused bool) error
}

// Options are the parameters of New.
type Options struct {
	Topic string
	// Config is the configuration an absent topic is created with, by the first append
	// or claim.
	Config api.Config
	// Limits are checked before a message is sent.
	Limits api.Limits
	Kind   string // of Info: "embedded" or "http"
	Server string // of Info
	// Release is called once, when the last call after Close has ended.
	Release func() error
}

// Backend is one topic. It implements backend.Backend, Signaler, Reader,
// DeadLetters and Doctor.
type Backend struct {
	svc  Service
	opt  Options
	info backend.Info

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	calls  sync.WaitGroup

	absent       atomic.Bool  // the topic did not exist when last looked up, and nothing has been written since
	reclaimAfter atomic.Int64 // of the last claim, nanoseconds
	settleMost   atomic.Int64 // how many jobs a call may settle, once the server has refused more; 0: maxSettle
	writeMost    atomic.Int64 // likewise, how many records a request may have; 0: maxWriteRecords
	noTally      atomic.Pointer[denial]
	removes      atomic.Bool  // dead letters may be removed
	otherwise    atomic.Int64 // records that left the queue and were not done, by the last tally
	idle         idle
	errs         lastErrors

	mu struct {
		sync.Mutex
		closed bool
	}
}

var (
	_ backend.Backend     = (*Backend)(nil)
	_ backend.Delayer     = (*Backend)(nil)
	_ backend.Signaler    = (*Backend)(nil)
	_ backend.Reader      = (*Backend)(nil)
	_ backend.DeadLetters = (*Backend)(nil)
	_ backend.Locator     = (*Backend)(nil)
	_ backend.Tallier     = (*Backend)(nil)
	_ backend.Pauser      = (*Backend)(nil)
)

// New returns the backend of one topic. If the topic exists, Info has its durability
// class. An error in looking it up is left for the first call to report.
func New(ctx context.Context, svc Service, opt Options) (*Backend, error) {
	if !api.ValidTopicName(opt.Topic) || !api.ValidTopicName(opt.Topic+deadSuffix) {
		return nil, &backend.URLError{Err: fmt.Errorf("%q is not a topic name; it must start with a letter or digit, contain only these and . _ : - and have at most %d characters",
			opt.Topic, 255-len(deadSuffix))}
	}
	b := &Backend{svc: svc, opt: opt, info: backend.Info{
		Kind: opt.Kind, Stream: opt.Topic, Group: Group, DeadLetter: opt.Topic + deadSuffix,
		Durability: opt.Config.Durability.String(), Server: opt.Server,
	}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.reclaimAfter.Store(int64(defaultReclaimAfter))
	b.idle.init()
	look, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	st, err := svc.Topic(look, opt.Topic)
	if err == nil {
		b.info.Durability = st.Config.Durability.String()
	}
	b.absent.Store(api.IsCode(err, api.CodeTopicNotFound))
	if err = ctx.Err(); err != nil {
		err = fmt.Errorf("open topic %q, %s: %w", opt.Topic, opt.Server, err)
	}
	return b, err
}

const (
	deadSuffix = ".dlq"
	// lookTimeout bounds the lookup of the topic when a backend is opened.
	lookTimeout = 2 * time.Second
	// defaultReclaimAfter is used when a lease is extended before any claim.
	defaultReclaimAfter = 30 * time.Second
)

// Info describes the backend.
func (b *Backend) Info() backend.Info { return b.info }

// Place names the topic and what holds it.
func (b *Backend) Place() string { return b.opt.Kind + " " + b.opt.Server + " " + b.opt.Topic }

// Close ends the calls in progress, waits for them and releases the backend's
// resources. A second Close does nothing.
func (b *Backend) Close() error {
	b.mu.Lock()
	first := !b.mu.closed
	b.mu.closed = true
	b.mu.Unlock()
	b.cancel()
	b.calls.Wait()
	if !first || b.opt.Release == nil {
		return nil
	}
	return b.opt.Release()
}

// enter begins a call, whose context also ends with Close. The caller must call leave.
func (b *Backend) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.closed {
		return nil, nil, fmt.Errorf("stream %q: %w", b.opt.Topic, backend.ErrClosed)
	}
	b.calls.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(b.ctx, cancel)
	return ctx, func() { stop(); cancel(); b.calls.Done() }, nil
}

// configFor is the configuration of a topic that the backend creates.
func (b *Backend) configFor(queue bool) api.Config {
	cfg := b.opt.Config
	if !queue {
		cfg.Type, cfg.LeasesDurable = api.TypeLog, false
	}
	return cfg
}

// create creates the queue if it is absent. A topic that someone else has created in
// the meantime is left as it is, except in the moment between the two calls.
func (b *Backend) create(ctx context.Context) error {
	_, err := b.svc.Topic(ctx, b.opt.Topic)
	if !api.IsCode(err, api.CodeTopicNotFound) {
		return err
	}
	return b.svc.PutTopic(ctx, b.opt.Topic, b.configFor(true))
}

// fail turns an error of the service into one the seam promises; write says that the
// call may have changed something.
func (b *Backend) fail(err error, write bool) error {
	if err == nil {
		return nil
	}
	err = translate(err, write)
	if b.ctx.Err() != nil {
		return fmt.Errorf("%w: %w", backend.ErrClosed, err)
	}
	return err
}
