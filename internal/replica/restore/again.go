package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/weirmq/weir/internal/replica"
)

// attempts is how often a file of a copy is read before it is given up: for about six
// seconds. A server that has taken the lead must not end because one answer was torn.
const attempts = 8

// storeError is one that the store may not have the next time.
type storeError struct{ error }

func (e storeError) Unwrap() error { return e.error }

// again reads something of the copy until that succeeds, or is not to be mended by
// trying again. What two answers agree on is damage: one may have been damaged on its way.
func again(ctx context.Context, trouble func(error), read func() error) error {
	doubted := false
	for n, wait := 1, 50*time.Millisecond; ; n, wait = n+1, 2*wait {
		err := read()
		var passing storeError
		switch {
		case err == nil, ctx.Err() != nil:
			return err
		case errors.Is(err, replica.ErrDamaged) && !doubted:
			doubted = true
		case !errors.As(err, &passing), errors.Is(err, replica.ErrNotFound), errors.Is(err, replica.ErrRefused), n >= attempts:
			return err
		}
		if trouble != nil {
			trouble(err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait/2 + rand.N(wait)):
		}
	}
}

// list is Files.List.
func (c Copy) list(ctx context.Context, prefix string) (files []replica.File, err error) {
	err = again(ctx, c.Trouble, func() error {
		if files, err = c.Files.List(ctx, prefix); err != nil {
			return storeError{err}
		}
		return nil
	})
	return files, err
}

// get reads a file from its start with read, whose errors are those of something else
// than the store.
func (c Copy) get(ctx context.Context, name string, read func(io.Reader) error) error {
	trouble := c.Trouble
	if trouble != nil {
		trouble = func(err error) { c.Trouble(fmt.Errorf("%s: %w", name, err)) }
	}
	return again(ctx, trouble, func() error {
		in, err := c.Files.Get(ctx, name)
		if err != nil {
			return storeError{err}
		}
		defer in.Close()
		from := &source{Reader: in}
		if err = read(from); from.failed != nil {
			return storeError{from.failed}
		}
		return err
	})
}

// source remembers why it could not be read to its end.
type source struct {
	io.Reader
	failed error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if err != nil && err != io.EOF {
		s.failed = err
	}
	return n, err
}
