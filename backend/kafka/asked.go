package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// asked returns what do returns, or once ctx has ended its error. The library of the client
// waits for a connection that is being opened, for the answer to its first request included,
// up to ten seconds whatever the context. It goes on with that; Close waits for it.
func asked[T any](ctx context.Context, b *Backend, do func(context.Context) (T, error)) (T, error) {
	b.gate.RLock()
	if b.over { // the clients are closed and refuse
		b.gate.RUnlock()
		return do(ctx)
	}
	b.late.Add(1)
	b.gate.RUnlock()
	type answer struct {
		v   T
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		defer b.late.Done()
		v, err := do(ctx)
		answered <- answer{v, err}
	}()
	select {
	case a := <-answered:
		return a.v, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// named is asked for the calls of kadm about what has names.
func named[T any](ctx context.Context, b *Backend, do func(context.Context, ...string) (T, error), names ...string) (T, error) {
	return asked(ctx, b, func(ctx context.Context) (T, error) { return do(ctx, names...) })
}

// requestor is asked for requests of kmsg.
type requestor struct {
	b      *Backend
	client *kgo.Client
}

func (r requestor) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return asked(ctx, r.b, func(ctx context.Context) (kmsg.Response, error) { return r.client.Request(ctx, req) })
}

func (b *Backend) requests() kmsg.Requestor { return requestor{b, b.client} }
