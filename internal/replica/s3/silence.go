package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// silence is for how long a call may stand still before it is given up: the store lives, so
// its connection would never end.
const silence = time.Minute

// errSilent says why a call has ended.
var errSilent = errors.New("the store sends nothing")

// errDeaf says so, too.
var errDeaf = errors.New("the store takes nothing, or does not answer")

// patience is a transport that gives a call up when nothing of its body is taken, or comes of
// the answer, for a while.
type patience struct {
	http.RoundTripper
	limit *time.Duration
}

func (p patience) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	limit := *p.limit
	var answered atomic.Bool
	late := time.AfterFunc(limit, func() {
		if !answered.Load() { // the transport may still read a body of which nothing more is asked for
			cancel(errDeaf)
		}
	})
	r = r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &outgoing{r.Body, late, limit}
	}
	res, err := p.RoundTripper.RoundTrip(r)
	answered.Store(true)
	late.Stop()
	if err != nil {
		err = orSilent(ctx, limit, err)
		cancel(nil)
		return nil, err
	}
	late = time.AfterFunc(limit, func() { cancel(errSilent) })
	late.Stop()
	res.Body = &incoming{res.Body, ctx, cancel, limit, late}
	return res, nil
}

// outgoing is the body of a call, which the transport reads as it is taken.
type outgoing struct {
	io.ReadCloser
	late  *time.Timer // gives the call up
	limit time.Duration
}

func (o *outgoing) Read(b []byte) (int, error) {
	n, err := o.ReadCloser.Read(b)
	o.late.Reset(o.limit)
	return n, err
}

// incoming is the body of an answer.
type incoming struct {
	io.ReadCloser
	ctx    context.Context // of the call
	cancel context.CancelCauseFunc
	limit  time.Duration
	late   *time.Timer // gives the call up
}

func (i *incoming) Read(b []byte) (int, error) {
	i.late.Reset(i.limit)
	n, err := i.ReadCloser.Read(b)
	i.late.Stop()
	return n, orSilent(i.ctx, i.limit, err)
}

func (i *incoming) Close() error {
	i.late.Stop()
	err := i.ReadCloser.Close()
	i.cancel(nil)
	return err
}

// opened is an answer that ends its call.
type opened struct {
	io.ReadCloser
	end context.CancelCauseFunc
}

func (o *opened) Close() error {
	err := o.ReadCloser.Close()
	o.end(nil)
	return err
}

// orSilent returns err, and that the store stood still if that ended ctx.
func orSilent(ctx context.Context, limit time.Duration, err error) error {
	if why := context.Cause(ctx); err != nil && (errors.Is(why, errSilent) || errors.Is(why, errDeaf)) {
		return fmt.Errorf("%w (%v): %w", why, limit, err)
	}
	return err
}
