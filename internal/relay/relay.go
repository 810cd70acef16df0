// Package relay is a weir server without data: it stands in front of another server, its
// upstream, and serves that one's watch streams to many more listeners. Of each topic that
// a listener wants it has one subscription, over a WebSocket, with a key of its own; a
// mirror of the topic keeps what came last, and package push brings it to the listeners
// as it does on a server. What a listener misses beyond the mirror is read upstream.
//
// It remembers nothing that another relay would need: a session is in its wid, and whether
// a caller may read is asked upstream with the caller's key. Everything else is passed on.
//
// Locks: reads.mu → Relay.mu → link.mu, and Relay.mu → mirror.mu → the locks of push.
package relay

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/certs"
	"github.com/weirmq/weir/internal/engine/push"
)

// Options say what a relay stands in front of.
type Options struct {
	Upstream    string // http://host:port
	Certs       certs.Client
	Key         string // for the relay's own subscriptions; empty if the upstream has no keys
	Secret      string // signs sessions; relays that share it take each other's. Empty: a random one
	BufferBytes int64  // of one topic
	OpenToAll   bool   // the relay may be reached from elsewhere and still serve an upstream without keys
	Limits      api.Limits
	// MinHeartbeatMS is the shortest heartbeat of a stream.
	MinHeartbeatMS int64
	Logger         *slog.Logger
}

const (
	dialTimeout = 2 * time.Second
	// answerTimeout is how long the upstream may take to begin an answer: longer than the
	// longest long poll.
	answerTimeout = 60 * time.Second
	// askTimeout is how long what the relay asks for itself may wait for an answer, or for more of it.
	askTimeout = 5 * time.Second
	// lingers is how long a topic stays subscribed without a listener.
	lingers = 30 * time.Second
	// tidyEvery is how often streams that could not read upstream try again, and topics
	// that nobody wants are looked for.
	tidyEvery = 250 * time.Millisecond
	// mostReads is how many reads of missed records may run upstream at once.
	mostReads = 64
)

// Relay serves the streams of one upstream. Run has to be running.
type Relay struct {
	opt    Options
	base   *url.URL
	log    *slog.Logger
	via    string // names this relay in all that it sends
	client *http.Client
	sealer sealer
	room   push.Room
	asked  asked
	open   open
	reads  reads
	proxy  *httputil.ReverseProxy

	mu     sync.Mutex
	topics map[string]*mirror
	links  []*link
	ctx    context.Context // Run's; nil before and after
	work   sync.WaitGroup  // goroutines of links

	keyed  atomic.Bool // the upstream wants keys
	seen   atomic.Bool // the upstream was reached once, so keyed is known
	round  sync.Once   // it was logged that requests come back
	counts counts
}

// New returns a relay.
func New(opt Options) (*Relay, error) {
	base, err := url.Parse(opt.Upstream)
	if err != nil {
		return nil, fmt.Errorf("the upstream %q cannot be read; expected http://host:port", opt.Upstream)
	}
	conf, err := opt.Certs.Config()
	if err != nil {
		return nil, fmt.Errorf("the upstream: %w", err)
	}
	transport := &transport{via: rand.Text(), Transport: http.Transport{
		TLSClientConfig:       conf,
		DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: answerTimeout,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       90 * time.Second,
		DisableCompression:    true, // what is passed on stays as it is
	}}
	r := &Relay{
		opt: opt, base: base, log: opt.Logger, via: transport.via, sealer: newSealer(opt.Secret), topics: make(map[string]*mirror),
		client: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	r.asked.init()
	r.open.init()
	r.reads.init(r)
	r.proxy = r.newProxy()
	r.room.Init(push.Env{
		Find: r.find, Sync: func() error { return nil }, DrainTimeMS: func() int64 { return 0 }, Guard: guard,
		MaxTopics: opt.Limits.MaxWatchTopics, MaxSessions: opt.Limits.MaxWatchSessions, MaxHeld: opt.Limits.MaxInflightBytes,
	})
	return r, nil
}

// Upstream returns the address of the upstream, which holds no key.
func (r *Relay) Upstream() string { return r.base.Scheme + "://" + r.base.Host }

// Keyed reports whether the upstream wants keys; false until that is known.
func (r *Relay) Keyed() bool { return r.keyed.Load() }

// Serves returns an error while nothing may be asked of the upstream for anybody: it has no keys, or may
// have none, and whoever asks may be elsewhere.
func (r *Relay) Serves() error {
	switch {
	case r.opt.OpenToAll || r.keyed.Load():
		return nil
	case r.seen.Load():
		return api.Errorf(api.CodeNotReady, "%v", errOpen).With("upstream", r.Upstream())
	}
	return r.errAway()
}

var errOpen = errors.New("the upstream serves without keys, and this relay can be reached from elsewhere; " +
	"give the upstream WEIR_API_KEYS, or set WEIR_ALLOW_INSECURE_NO_AUTH=true for the relay")

// Run keeps the subscriptions until ctx ends.
func (r *Relay) Run(ctx context.Context) {
	r.mu.Lock()
	r.ctx = ctx
	r.addLink()
	r.work.Go(func() { r.recheck(ctx) })
	r.mu.Unlock()
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			r.tidy()
		case <-ctx.Done():
		}
	}
	r.mu.Lock()
	r.ctx = nil
	r.mu.Unlock()
	r.work.Wait()
	r.client.CloseIdleConnections()
}

// start runs f beside Run, which waits for it; false if Run is over.
func (r *Relay) start(f func(ctx context.Context)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx == nil {
		return false
	}
	ctx := r.ctx
	r.work.Go(func() { f(ctx) })
	return true
}

// addLink starts another link; mu is held.
func (r *Relay) addLink() *link {
	l := newLink(r, len(r.links) == 0)
	r.links = append(r.links, l)
	var ctx context.Context
	ctx, l.stop = context.WithCancel(r.ctx)
	r.work.Go(func() { l.run(ctx) })
	return l
}

// tidy lets streams that could not be read try again, and gives up topics and links that
// nobody wants.
func (r *Relay) tidy() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.topics {
		if m.again.CompareAndSwap(true, false) {
			m.topic.Again()
		}
		m.letGo()
		if m.unwanted(lingers) {
			delete(r.topics, m.name)
			m.link.drop(m)
		}
	}
	kept := r.links[:0]
	for _, l := range r.links {
		if !l.first && l.count() == 0 {
			l.stop()
			continue
		}
		kept = append(kept, l)
	}
	clear(r.links[len(kept):])
	r.links = kept
}

// find returns the mirror of a topic, locked, as push.Env wants it.
func (r *Relay) find(ctx context.Context, name string) (*push.Topic, error) {
	m, err := r.mirror(ctx, name, 0)
	if err != nil {
		return nil, err
	}
	return &m.topic, nil
}

// mirror returns the mirror of a topic, subscribed and locked. If its life is before the
// given one, that was created again or the upstream has an older state of it: the topic is
// subscribed anew to find out.
func (r *Relay) mirror(ctx context.Context, name string, life uint64) (*mirror, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for again := false; ; again = true {
		m, err := r.wanted(name)
		if err != nil {
			return nil, err
		}
		select {
		case <-m.ready:
		case <-ctx.Done():
			return nil, r.errAway()
		}
		if m.err != nil {
			return nil, m.err
		}
		m.mu.Lock()
		if !m.gone && (m.life >= life || again) {
			m.used = time.Now()
			return m, nil
		}
		over := m.gone
		m.mu.Unlock()
		if !over {
			r.ended(m) // the news that it was created again is on its way
		}
	}
}

// wanted returns the mirror of a topic, which may have to be subscribed first.
func (r *Relay) wanted(name string) (*mirror, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.topics[name]; m != nil {
		return m, nil
	}
	if r.ctx == nil {
		return nil, api.Errorf(api.CodeShuttingDown, "the relay is shutting down; try again on the next one")
	}
	m := newMirror(r, name)
	for _, l := range r.links {
		if l.take(m) {
			r.topics[name] = m
			return m, nil
		}
	}
	r.addLink().take(m)
	r.topics[name] = m
	return m, nil
}

// ended takes a mirror out, whose topic is gone or of another life; its streams look for
// the next one.
func (r *Relay) ended(m *mirror) {
	r.forget(m)
	m.mu.Lock()
	was := m.gone
	m.gone = true
	m.mu.Unlock()
	if !was {
		m.topic.Ended()
	}
}

// forget lets the next one who wants the topic subscribe it anew.
func (r *Relay) forget(m *mirror) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.topics[m.name] == m {
		delete(r.topics, m.name)
		m.link.drop(m)
	}
}

// errAway is the answer while the upstream cannot be reached.
func (r *Relay) errAway() error {
	return api.Errorf(api.CodeNotReady, "the relay cannot reach its upstream server; try again soon").With("upstream", r.Upstream())
}

// guard ends the process after a panic that would leave a lock held; net/http would go on.
func guard() {
	v := recover()
	if v == nil {
		return
	}
	end := fmt.Sprintf("the relay panicked, so the process ends: %v\n\n%s", v, debug.Stack())
	go func() { panic(end) }()
	select {}
}
