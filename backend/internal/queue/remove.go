package queue

import (
	"context"
	"errors"

	"github.com/weirmq/weir/backend"
)

var _ backend.Remover = (*Backend)(nil)

// remover is a Service that can delete a topic; an absent one is no error.
type remover interface {
	RemoveTopic(ctx context.Context, name string) error
}

// Remove deletes the topic and the routers from and to it.
func (b *Backend) Remove(ctx context.Context) error {
	svc, ok := b.svc.(remover)
	if !ok {
		return errors.New("this service deletes no topics")
	}
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return b.fail(svc.RemoveTopic(ctx, b.opt.Topic), true)
}
