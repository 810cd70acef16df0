package redis

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

// Options say which stream a client is for. Stream is required; a zero field means its
// default. They are what Open takes from a URL, less what the client already knows.
type Options struct {
	Stream       string
	Group        string // "weir"
	Durability   string // the least class that is accepted: "fsync", "disk", "memory" or "ephemeral"; empty: any
	Signal       string // another name for the key of the workers' signal
	EnqueueField string // "enqueue_ts": the field that Stats takes ages from
	Trim         string // "auto": whether pools remove what every group has acknowledged; "on" or "off"
	Start        string // "0": a group that is new begins at the stream's first entry; "$": behind its last
	Create       string // "never": a claim does not create the group, which has to be there
}

// lentRecheck is how old the knowledge of a lent client's server may get: what New looked
// at may change with a connection that weir does not see.
const lentRecheck = 10 * time.Second

// New makes a backend of a client that the program already has: its TLS, credentials,
// pool, dialer, hooks and protocol version are used as they are. The client is a
// *redis.Client, also one behind Sentinels, or a *redis.ClusterClient. Close does not
// close it; it has to stay open until then.
//
// Of the client's retries none is used, because only weir knows what may be repeated, and
// a context ends a call whatever ContextTimeoutEnabled says; its connection is free again
// once the server has answered, or after ReadTimeout. Each waiting claim of a pool
// occupies a connection, and so does the wait for delayed messages, once there was one:
// PoolSize has to leave room for that. The client's hooks do not
// see what waits for messages, and in a Cluster only those of its nodes are called
// (ClusterOptions.OnNewNode).
//
// New looks at the server, as Open does, and refuses it for the same reasons.
func New(client redis.UniversalClient, o Options) (*Backend, error) {
	set, err := o.settings()
	if err != nil {
		return nil, fmt.Errorf("redis.Options: %w", err)
	}
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("redis.New: the client is nil")
	}
	b := newBackend(set)
	b.lent = true
	switch c := client.(type) {
	case *redis.Client:
		opt := c.Options()
		b.set.addrs, b.set.user, b.set.db, b.set.tls = []string{opt.Addr}, opt.Username, opt.DB, opt.TLSConfig
		b.client = c
	case *redis.ClusterClient:
		opt := c.Options()
		b.set.addrs, b.set.user, b.set.tls = opt.Addrs, opt.Username, opt.TLSConfig
		b.client, b.cluster = c, c
	default:
		return nil, fmt.Errorf("redis.New: a %T is neither a *redis.Client nor a *redis.ClusterClient", client)
	}
	// Behind Sentinels, or where the program finds the nodes itself, there is no address; another
	// client may be of other servers.
	b.place = b.set.place()
	if len(b.set.addrs) == 0 || b.set.addrs[0] == "FailoverClient" {
		b.place = fmt.Sprintf("redis client %p %s", client, b.keys.stream)
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := b.settle(ctx); err != nil {
		_ = b.Close()
		return nil, &backend.OpenError{
			Info: backend.Info{Kind: "redis", Stream: b.keys.stream, Group: b.keys.group},
			Err:  fmt.Errorf("redis.New: %s: %w", b.set.server(), err),
		}
	}
	b.opened.Store(true)
	return b, nil
}

// settings checks the options.
func (o Options) settings() (settings, error) {
	var s settings
	err := s.setStream(o)
	return s, err
}

// setStream takes over what is not about the connection.
func (s *settings) setStream(o Options) error {
	s.enqueued = cmp.Or(o.EnqueueField, backend.FieldEnqueued)
	if s.durability = o.Durability; s.durability != "" {
		if err := known("durability", s.durability, classes); err != nil {
			return err
		}
	}
	s.trim = cmp.Or(o.Trim, trimAuto)
	if err := known("trim", s.trim, []string{trimAuto, trimOn, trimOff}); err != nil {
		return err
	}
	if o.Start != "" {
		if err := known("start", o.Start, []string{startFirst, startNew}); err != nil {
			return err
		}
	}
	if o.Create != "" {
		if err := known("create", o.Create, []string{createNever}); err != nil {
			return err
		}
	}
	if s.create = o.Create; o.Start == startNew {
		s.start = startNew
	}
	var err error
	s.keys, err = namedKeys(o.Stream, o.Group, o.Signal)
	return err
}

// once is a command that go-redis sends once, whatever its MaxRetries: only weir knows
// what may be repeated.
type once struct{ redis.Cmder }

func (once) NoRetry() bool { return true }

// eachOnce wraps commands, which get the answers themselves.
func eachOnce(cmds []redis.Cmder) []redis.Cmder {
	wrapped := make([]redis.Cmder, len(cmds))
	for i, cmd := range cmds {
		wrapped[i] = once{cmd}
	}
	return wrapped
}

// aside makes a call on copies of the commands and their data, so that it can be left
// when ctx ends: go-redis waits for an answer regardless, and the connections of a lent
// client do not know whom they serve.
func (b *Backend) aside(ctx context.Context, cmds []redis.Cmder, call func(context.Context, []redis.Cmder) error) error {
	if b.closing.Err() != nil {
		err := fmt.Errorf("redis: %w", backend.ErrClosed)
		setError(cmds, err)
		return err
	}
	if ctx.Done() == nil {
		return call(ctx, cmds)
	}
	own := make([]redis.Cmder, len(cmds))
	for i, cmd := range cmds {
		own[i] = cmd.Clone()
		copyData(own[i].Args())
	}
	answered := make(chan error, 1)
	go func() {
		w := b.calls.watch(ctx, callTimeout)
		defer w.end()
		answered <- call(w, own)
	}()
	err, ok := b.answer(ctx, answered, unansweredBy(cmds))
	if !ok {
		setError(cmds, err)
		return err
	}
	for i, cmd := range cmds {
		reflect.ValueOf(cmd).Elem().Set(reflect.ValueOf(own[i]).Elem())
	}
	return err
}

// copyData replaces the bytes among the arguments, which are the caller's.
func copyData(args []any) {
	for i, arg := range args {
		if data, is := arg.([]byte); is {
			args[i] = bytes.Clone(data)
		}
	}
}

// answer waits for a call until ctx ends, and for a last moment. A missing one is unanswered.
func (b *Backend) answer(ctx context.Context, answered <-chan error, unanswered error) (_ error, ok bool) {
	select {
	case err := <-answered:
		return err, true
	case <-ctx.Done():
	case <-b.closing.Done():
		return fmt.Errorf("redis: %w: %w", backend.ErrClosed, unanswered), false
	}
	last := time.NewTimer(lastMoment)
	defer last.Stop()
	select {
	case err := <-answered:
		return err, true
	case <-last.C:
		return fmt.Errorf("redis: %w: %w", unanswered, whyEnded(ctx)), false
	}
}

// unfit looks again at the server of a lent client and says why it is not acceptable any
// more.
func (b *Backend) unfit(ctx context.Context) error {
	if !younger(&b.detected, lentRecheck) {
		b.stale.Store(true)
	}
	if err := b.current(ctx).check(b.set); err != nil {
		return fmt.Errorf("redis: %w: the server has changed: %w", backend.ErrUnavailable, err)
	}
	return nil
}

var errPlainClient = errors.New("the server is a node of a Cluster and the client is not: make it with redis.NewClusterClient")
