package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// silence is for how long an answer may stand still before it is given up: the store lives, so
// its connection would never end.
const silence = time.Minute

// errSilent says why a body has ended.
var errSilent = errors.New("the store sends nothing")

// patient is the body of an answer that is given up when nothing comes for a while.
type patient struct {
	io.ReadCloser
	ctx    context.Context // of the call
	cancel context.CancelCauseFunc
	limit  time.Duration
	late   *time.Timer // cancels the call
}

func (p *patient) Read(b []byte) (int, error) {
	p.late.Reset(p.limit)
	n, err := p.ReadCloser.Read(b)
	p.late.Stop()
	return n, orSilent(p.ctx, p.limit, err)
}

func (p *patient) Close() error {
	p.late.Stop()
	err := p.ReadCloser.Close()
	p.cancel(nil)
	return err
}

// orSilent returns err, and that the store was silent if that ended ctx.
func orSilent(ctx context.Context, limit time.Duration, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		return fmt.Errorf("%w (%v): %w", errSilent, limit, err)
	}
	return err
}

// patiently opens a body whose reads are given up after limit.
func patiently(ctx context.Context, limit time.Duration, open func(context.Context) (io.ReadCloser, error)) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(limit, func() { cancel(errSilent) })
	in, err := open(ctx)
	late.Stop()
	if err != nil {
		err = orSilent(ctx, limit, err)
		cancel(nil)
		return nil, err
	}
	return &patient{in, ctx, cancel, limit, late}, nil
}
