package kafka_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/kafka"
	"github.com/weirmq/weir/tests/kafkatest"
	"github.com/weirmq/weir/tests/link"
)

// TestOneAddressThatAnswersIsEnough, whatever the other ones in the URL do, and wherever it stands among them.
func TestOneAddressThatAnswersIsEnough(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{})
	nobody := link.NewProxy(t, broker.Addr())
	nobody.Close()
	for name, other := range map[string]string{"a machine that is gone": link.Gone(t), "a broker that stands still": link.Silent(t), "nobody listens": nobody.Addr()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 8 { // a client takes one at random
				for _, kind := range groupTypes {
					raw := "kafka://" + other + "," + broker.Addr() + "," + other + "/" + ofType(kind)
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					watch := stopwatch()
					b, err := kafka.Open(ctx, parsed(t, raw))
					took := watch()
					cancel()
					if err != nil || took > 3*time.Second {
						t.Fatalf("opened after %s: %v", took, err)
					}
					if _, err := b.Append(t.Context(), messages("x")); err != nil {
						t.Error(err)
					}
					if err := b.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// TestAWorkerBeginsBesideAnAddressThatIsGone: its own client may take that first.
func TestAWorkerBeginsBesideAnAddressThatIsGone(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{})
	gone := link.Gone(t)
	for _, kind := range groupTypes {
		for range 3 {
			b := open(t, "kafka://"+gone+","+broker.Addr()+"/"+ofType(kind))
			if _, err := b.Append(t.Context(), messages("x")); err != nil {
				t.Fatal(err)
			}
			watch := stopwatch()
			got := gather(t, b, 1)
			if took := watch(); took > 15*time.Second {
				t.Errorf("a %s worker has its first message after %s", kind, took)
			}
			settled(t, b, got)
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestTopicsAreMadeWhileTheControllerStandsStill, once the brokers have given it up, for which they take half a minute
// unless told otherwise.
func TestTopicsAreMadeWhileTheControllerStandsStill(t *testing.T) {
	t.Parallel()
	c := kafkatest.StartCluster(t, kafkatest.Options{Settings: map[string]string{"controller.socket.timeout.ms": "2000"}})
	b := open(t, c.URL()+"/made?partitions=1")
	defer b.Close()
	silent := c.Broker(c.Controller(c.Brokers[0].Client()))
	silent.Pause()
	defer silent.Resume()
	watch := stopwatch()
	await(t, "the first message", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := b.Append(ctx, messages("x"))
		if err != nil && !backend.Retryable(err) {
			t.Fatal(err)
		}
		return err == nil
	})
	if took := watch(); took > 25*time.Second {
		t.Errorf("the topic was made, and had its first message, after %s", took)
	}
}
