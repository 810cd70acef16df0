package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weirmq/weir/backend"
)

var _ backend.Remover = (*Backend)(nil)

// Remove deletes the topic. The group stays: it may have others, and brokers forget an
// empty one.
func (b *Backend) Remove(ctx context.Context) error {
	call, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = asked(call, b, func(ctx context.Context) (kadm.DeleteTopicResponse, error) {
		return b.admin.DeleteTopic(ctx, b.set.topic)
	})
	b.topic.forget() // a question for the state of a topic that is gone holds up its whole group
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil
	}
	return b.cut(ctx, b.onTopic(err, "DELETE", b.set.topic))
}
