package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/backend"
)

// explained is an error that says what it means.
type explained struct{ error }

func (e *explained) Unwrap() error { return e.error }

// explain wraps the error of this package that fits what the client or a broker said.
func (b *Backend) explain(err error) error {
	var before *explained
	switch {
	case err == nil, errors.As(err, &before), errors.Is(err, backend.ErrUnavailable), errors.Is(err, backend.ErrClosed):
		return err
	}
	return &explained{b.meaning(err)}
}

func (b *Backend) meaning(err error) error {
	var dial net.Error
	switch {
	case b.ended.Load(), errors.Is(err, kgo.ErrClientClosed):
		return errClosed
	case b.hungUp(err):
		return fmt.Errorf("kafka: %w: the connection was closed without an answer", backend.ErrUnavailable)
	}
	if why := b.set.misfit(err); why != nil {
		return fmt.Errorf("kafka: %w", &mismatch{why})
	}
	var lacking *denial
	if errors.As(err, &lacking) {
		return fmt.Errorf("kafka: %w: %w", backend.ErrForbidden, err)
	}
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return fmt.Errorf("kafka: %w: topic %q; create it, or add partitions=N to the URL", backend.ErrStreamNotFound, b.set.topic)
	case errors.Is(err, kerr.GroupIDNotFound):
		return fmt.Errorf("kafka: %w: %s group %q", backend.ErrGroupNotFound, b.facts.groupType, b.set.group)
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.GroupAuthorizationFailed),
		errors.Is(err, kerr.ClusterAuthorizationFailed):
		return fmt.Errorf("kafka: %w: %w", backend.ErrForbidden, err)
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return b.tooLarge(err, b.set.topic)
	case errors.Is(err, kerr.InvalidRecord):
		return fmt.Errorf("kafka: a compacted topic takes no message without a fair key, and removes unfinished ones; set cleanup.policy of topic %q to delete: %w", b.set.topic, err)
	case errors.Is(err, kerr.InvalidTimestamp):
		return fmt.Errorf("kafka: the clocks of this machine and of the broker differ by more than message.timestamp.before.max.ms or message.timestamp.after.max.ms of the topic allow; set them right: %w", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("kafka: %w: no answer in time: %w", backend.ErrUnavailable, err)
	case errors.As(err, &dial), kgo.IsRetryableBrokerErr(err), kerr.IsRetriable(err), unlisted(err):
		return fmt.Errorf("kafka: %w: %w", backend.ErrUnavailable, err)
	}
	return fmt.Errorf("kafka: %w", err)
}

// hungUp reports whether the connection was closed without an answer, as what stands in front
// of a broker does while that is away. The client does not try that again: before the handle
// has been opened it may mean that something else than Kafka answers.
func (b *Backend) hungUp(err error) bool {
	var closed *kgo.ErrFirstReadEOF
	return b.opened.Load() && errors.As(err, &closed)
}

// unlisted reports whether a request was for a broker that the others do not list any more, because it is
// down. The client has no name for the error.
func unlisted(err error) bool { return strings.HasSuffix(err.Error(), "unknown broker") }

// tooLarge says what a record for a topic exceeds.
func (b *Backend) tooLarge(err error, topic string) error {
	return fmt.Errorf("kafka: %w: more than the topic's max.message.bytes (%d as weir knows it), or than buffer_memory (%d): %w",
		backend.ErrTooLarge, b.batchBytes(topic), b.set.memory, err)
}
