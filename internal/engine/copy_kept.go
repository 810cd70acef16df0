package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirmq/weir/internal/replica"
)

// keptLook is how often it is looked whether the store still has what the copy needs: nothing
// else does while nothing is written.
const keptLook = time.Minute

// kept finds out whether the copy's log and its newest base are still there. It returns an
// error if a base has to be made; of a store that does not answer others tell.
func (c *copier) kept(ctx context.Context) error {
	b, from := c.newest, uint64(0)
	if b != nil {
		from = b.After
	}
	if log, ok := c.r.Log.(interface {
		Kept(ctx context.Context, from uint64) error
	}); ok {
		switch err := log.Kept(ctx, from); {
		case errors.Is(err, replica.ErrFenced):
			c.failed(err)
			return nil
		case errors.Is(err, replica.ErrDamaged):
			return errors.Join(err, c.signed(ctx))
		}
	}
	if b == nil {
		return nil
	}
	sizes := map[string]int64{}
	for _, prefix := range []string{replica.BasePrefix, tablePrefix, logPrefix} {
		files, err := c.r.Files.List(ctx, prefix)
		if err != nil {
			return nil
		}
		for _, f := range files {
			sizes[f.Name] = f.Size
		}
	}
	name := replica.BaseName(b.After)
	if _, there := sizes[name]; !there {
		return fmt.Errorf("%s is not there any more: somebody, or a rule of the store, removes objects of the copy", name)
	}
	for _, f := range b.Files {
		if size, there := sizes[f.Object]; !there || size != f.Size {
			return fmt.Errorf("%s, which %s needs, is not there any more: somebody, or a rule of the store, removes objects of the copy", f.Object, name)
		}
	}
	return nil
}

// signed appends a sign of life: a base goes on behind an entry that is there.
func (c *copier) signed(ctx context.Context) error {
	done := make(chan struct{})
	select {
	case c.signs <- done:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
