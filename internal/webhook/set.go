// Package webhook delivers the jobs of queues to URLs: push subscriptions, for whoever has
// no worker. A webhook claims like a worker and settles by the answer that it gets, so
// delivery limit, dead letters, order and pause are those of the queue.
//
// What may be connected to is decided in one place, Reach, with each connection. What is
// configured is in a file of the data directory; see file.go.
package webhook

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/atomicfile"
)

// Queue is what webhooks need of the engine.
type Queue interface {
	Claim(ctx context.Context, topic string, req *api.ClaimRequest, visit func(*api.Job)) (api.ClaimResult, error)
	Ack(ctx context.Context, topic string, req *api.SettleRequest) (api.SettleResult, error)
	Nack(ctx context.Context, topic string, req *api.SettleRequest) (api.SettleResult, error)
}

type settleVerb func(ctx context.Context, topic string, req *api.SettleRequest) (api.SettleResult, error)

// Options are what a Set is made with.
type Options struct {
	File         string // where webhooks are kept
	Off          bool   // none is delivered, and none can be set
	Reach        Reach
	MaxNodeBytes int
	Logger       *slog.Logger
	Leads        func() bool // whether this server may hand out jobs; nil: always

	resolver  *net.Resolver                                             // of tests
	trust     *tls.Config                                               // of tests
	transport http.RoundTripper                                         // of tests; nil: a connection
	save      func(file string, all map[string]api.WebhookConfig) error // of tests; nil: save
}

// Set is all webhooks of a server. Its methods may be called from any goroutine.
type Set struct {
	opt     Options
	queue   Queue
	taking  context.Context // ends when no job is taken any more
	drain   context.CancelFunc
	cut     context.Context // ends when deliveries under way have to
	cutOff  context.CancelCauseFunc
	running sync.WaitGroup // of hooks

	// changing is held by whoever changes what is configured, file included; readers do
	// not wait for it.
	changing sync.Mutex

	mu struct {
		sync.Mutex
		hooks map[string]*hook
		err   error // why the webhooks are not known
	}
}

// New returns a set that knows no webhooks yet.
func New(opt Options) *Set {
	if opt.save == nil {
		opt.save = save
	}
	s := &Set{opt: opt}
	s.taking, s.drain = context.WithCancel(context.Background())
	s.cut, s.cutOff = context.WithCancelCause(context.Background())
	s.mu.hooks = make(map[string]*hook)
	return s
}

func (s *Set) leads() bool { return s.opt.Leads == nil || s.opt.Leads() }

// Start reads the file and begins to deliver the jobs of queue. It is called once; if the
// file cannot be read, it is left alone, nothing is delivered, and all calls fail.
func (s *Set) Start(queue Queue) {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.queue = queue
	if err := atomicfile.Clean(s.opt.File); err != nil {
		s.opt.Logger.Warn("a temporary file could not be removed", "error", err)
	}
	all, err := load(s.opt.File)
	if err != nil {
		s.opt.Logger.Error("webhooks are not delivered", "error", err)
	}
	if s.opt.Off && len(all) > 0 {
		s.opt.Logger.Warn("webhooks are off; none is delivered", "webhooks", len(all))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.err = err
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s.apply(name, all[name])
	}
}

// apply makes a webhook be as it is configured. The lock is held.
func (s *Set) apply(name string, cfg api.WebhookConfig) (created bool) {
	h := s.mu.hooks[name]
	if created = h == nil; created {
		h = newHook(s, name)
		s.mu.hooks[name] = h
	}
	refused := s.opt.Reach.Check(&cfg) // by settings that have changed since
	trip, idle := s.opt.transport, func() {}
	if trip == nil {
		t := newTransport(&s.opt.Reach, cfg.Concurrency, s.opt.resolver, s.opt.trust)
		trip, idle = t, t.CloseIdleConnections
	}
	h.configure(&cfg, !s.opt.Off && refused == nil, trip, idle)
	if refused != nil {
		h.mu.Lock()
		h.mu.state.LastError = api.Sentence(refused)
		h.mu.Unlock()
		s.opt.Logger.Warn("a webhook is not delivered", "webhook", name, "error", api.Sentence(refused))
	}
	if created && s.taking.Err() == nil {
		s.running.Go(h.run)
	}
	return created
}

// known fails if what is configured is not known. The lock is held.
func (s *Set) known() error {
	if s.mu.err != nil {
		return &api.Error{Code: api.CodeInternal, Message: "the webhooks cannot be read; the server's log has the details", Err: s.mu.err}
	}
	return nil
}

// Put creates or replaces a webhook. Without a secret the old one stays; a new webhook
// gets one, which is returned.
func (s *Set) Put(name string, cfg api.WebhookConfig) (st api.WebhookState, created bool, secret string, err error) {
	if s.opt.Off {
		return st, false, "", api.Errorf(api.CodeForbidden, "webhooks are off; the setting webhooks turns them on: on, or auto with API keys")
	}
	if err := api.CheckWebhookName(name); err != nil {
		return st, false, "", err
	}
	if err := s.opt.Reach.Check(&cfg); err != nil {
		return st, false, "", err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	all, err := s.configured()
	if err != nil {
		return st, false, "", err
	}
	if cfg.Secret == "" {
		if cfg.Secret = all[name].Secret; cfg.Secret == "" {
			secret = newSecret()
			cfg.Secret = secret
		}
	}
	all[name] = cfg
	sum := 0
	for _, c := range all {
		sum += c.Concurrency
	}
	if sum > api.MaxWebhookDeliveries {
		return st, false, "", api.OverFixed("webhook_deliveries", api.MaxWebhookDeliveries)
	}
	kept := s.keep(all)
	if kept != nil && !errors.Is(kept, atomicfile.ErrUnsynced) {
		return st, false, "", kept
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	created = s.apply(name, cfg)
	return s.mu.hooks[name].stateNow(), created, secret, kept
}

// Delete deletes a webhook; deliveries under way end by themselves.
func (s *Set) Delete(name string) (deleted bool, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	all, err := s.configured()
	if err != nil {
		return false, err
	}
	if _, ok := all[name]; !ok {
		return false, nil
	}
	delete(all, name)
	kept := s.keep(all)
	if kept != nil && !errors.Is(kept, atomicfile.ErrUnsynced) {
		return false, kept
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.hooks[name].leave()
	delete(s.mu.hooks, name)
	return true, kept
}

// keep stores what is configured. An error that wraps atomicfile.ErrUnsynced is only told: the
// file has the change, and so would the next start.
func (s *Set) keep(all map[string]api.WebhookConfig) error {
	err := s.opt.save(s.opt.File, all)
	if err == nil {
		return nil
	}
	if errors.Is(err, atomicfile.ErrUnsynced) {
		return &api.Error{Code: api.CodeInternal, Err: err, Message: "the change is made, but a power cut may undo it: make it again (a new webhook: delete it first, to get its secret); the server's log has the details"}
	}
	return api.NotStored(err, "the webhooks could not be stored")
}

// configured returns what is set.
func (s *Set) configured() (map[string]api.WebhookConfig, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.known(); err != nil {
		return nil, err
	}
	all := make(map[string]api.WebhookConfig, len(s.mu.hooks)+1)
	for name, h := range s.mu.hooks {
		all[name] = h.stateNow().Config
	}
	return all, nil
}

// Get returns the state of a webhook.
func (s *Set) Get(name string) (api.WebhookState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.known(); err != nil {
		return api.WebhookState{}, err
	}
	h := s.mu.hooks[name]
	if h == nil {
		return api.WebhookState{}, api.WebhookNotFound(name)
	}
	return h.stateNow(), nil
}

// All returns the states of all webhooks by name.
func (s *Set) All() ([]api.WebhookState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []api.WebhookState
	for _, name := range slices.Sorted(maps.Keys(s.mu.hooks)) {
		all = append(all, s.mu.hooks[name].stateNow())
	}
	return all, s.known()
}

// Drain takes no more jobs. Deliveries under way go on.
func (s *Set) Drain() {
	s.mu.Lock() // so that nothing is started once Stop waits
	defer s.mu.Unlock()
	s.drain()
}

// Stop drains, gives deliveries under way that long, gives back what is not answered by
// then, and waits for everything.
func (s *Set) Stop(grace time.Duration) {
	s.Drain()
	cut := time.AfterFunc(grace, func() { s.cutOff(errStopped) })
	defer cut.Stop()
	s.running.Wait()
	s.cutOff(errStopped)
}

// newSecret makes a secret.
func newSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return fmt.Sprintf("whsec_%s", base64.RawURLEncoding.EncodeToString(b))
}
