package kafka_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/backend/kafka"
)

// An error may pass several calls that say what it means; its text tells it once.
func TestAnErrorIsExplainedOnce(t *testing.T) {
	for _, err := range []error{
		kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.GroupIDNotFound, kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed,
		kerr.ClusterAuthorizationFailed, kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp,
		kerr.NotLeaderForPartition, kerr.InvalidConfig, kgo.ErrClientClosed, context.Canceled, context.DeadlineExceeded, errors.New("odd"),
	} {
		again := kafka.Explain(kafka.Explain(err))
		if n := strings.Count(again.Error(), "kafka: "); n != 1 {
			t.Errorf("%v: %d times in %q", err, n, again)
		}
	}
}
