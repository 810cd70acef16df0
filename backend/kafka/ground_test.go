package kafka_test

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/kafka"
	"github.com/weirmq/weir/tests/kafkatest"
)

// ground is a broker and what others than weir do on it.
type ground struct {
	*testing.T
	broker *kafkatest.Broker
	client *kgo.Client
	admin  *kadm.Client
}

func newGround(t *testing.T) *ground {
	t.Helper()
	broker := kafkatest.Start(t, kafkatest.Options{Settings: map[string]string{"group.share.record.lock.duration.ms": "15000"}})
	client := broker.Client()
	return &ground{t, broker, client, kadm.NewClient(client)}
}

// TestWhatOthersDoToTopicsAndGroups shares one broker; each part has topics and groups of its own.
func TestWhatOthersDoToTopicsAndGroups(t *testing.T) {
	t.Parallel()
	all := newGround(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *ground)
	}{
		{"a producer goes on with a topic made again", aProducerGoesOnWithATopicMadeAgain},
		{"workers go on with a topic made again", workersGoOnWithATopicMadeAgain},
		{"an ack says nothing of a topic made again", anAckSaysNothingOfATopicMadeAgain},
		{"the count of the finished goes on with a topic made again", theCountOfTheFinishedGoesOnWithATopicMadeAgain},
		{"an answer that is damaged on its way", anAnswerThatIsDamagedOnItsWay},
		{"the time of a record that has none", theTimeOfARecordThatHasNone},
		{"letters keep the records of others", lettersKeepTheRecordsOfOthers},
		{"a letter without a key", aLetterWithoutAKey},
		{"a group whose limit leaves nothing", aGroupWhoseLimitLeavesNothing},
		{"a group whose limit is lowered", aGroupWhoseLimitIsLowered},
		{"a consumer group of the newer protocol", aConsumerGroupOfTheNewerProtocol},
		{"a group taken from consumers of the newer protocol", aGroupTakenFromConsumersOfTheNewerProtocol},
		{"a group that renews no locks", aGroupThatRenewsNoLocks},
		{"nothing is lost while letters cannot be stored", nothingIsLostWhileLettersCannotBeStored},
		{"the largest messages become dead letters", theLargestMessagesBecomeDeadLetters},
		{"a topic of letters that is deleted", aTopicOfLettersThatIsDeleted},
		{"letters of a topic made again", lettersOfATopicMadeAgain},
		{"a long list of letters", aLongListOfLetters},
		{"a topic made again with other terms", aTopicMadeAgainWithOtherTerms},
		{"a topic that comes to take less", aTopicThatComesToTakeLess},
		{"the room in a ledger made again", theRoomInALedgerMadeAgain},
		{"a transaction that was given up", aTransactionThatWasGivenUp},
		{"a commit that a mirror copies", aCommitThatAMirrorCopies},
		{"a topic made again is a loss", aTopicMadeAgainIsALoss},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			part.run(t, all.on(t))
		})
	}
}

// on is the ground for a part of the test.
func (g *ground) on(t *testing.T) *ground { return &ground{t, g.broker, g.client, g.admin} }

func (g *ground) must(err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

func (g *ground) open(path string, opts ...kgo.Opt) *kafka.Backend {
	g.Helper()
	b := open(g, g.broker.URL()+"/"+path, opts...)
	g.Cleanup(func() { b.Close() })
	return b
}

// settingsOf are those of a topic, each a key=value.
func settingsOf(configs []string) map[string]*string {
	settings := map[string]*string{}
	for _, c := range configs {
		key, value, _ := strings.Cut(c, "=")
		settings[key] = &value
	}
	return settings
}

func (g *ground) create(topic string, configs ...string) {
	g.Helper()
	_, err := g.admin.CreateTopic(g.Context(), 1, 1, settingsOf(configs), topic)
	g.must(err)
	await(g, "the topic", func() bool {
		list, err := g.admin.ListTopics(g.Context(), topic)
		return err == nil && len(list[topic].Partitions) == 1
	})
}

func (g *ground) remove(topic string) {
	g.Helper()
	_, err := g.admin.DeleteTopics(g.Context(), topic)
	g.must(err)
	await(g, "the topic's end", func() bool {
		list, err := g.admin.ListTopics(g.Context(), topic)
		return err == nil && list[topic].Err != nil
	})
}

func (g *ground) put(r *kgo.Record) {
	g.Helper()
	g.must(g.client.ProduceSync(g.Context(), r).FirstErr())
}

// setGroup sets a configuration of a group.
func (g *ground) setGroup(group, key, value string) {
	g.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = key, &value
	resource.Configs = append(resource.Configs, config)
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(g.Context(), g.client)
	g.must(err)
	g.must(kerr.ErrorForCode(resp.Resources[0].ErrorCode))
}

func (g *ground) letters(b *kafka.Backend) []backend.DeadLetter {
	g.Helper()
	list, err := b.List(g.Context(), "", "", 100)
	g.must(err)
	return list
}

// comes claims from a handle, whatever fails meanwhile, until it has had n messages, and
// accepts them.
func (g *ground) comes(b *kafka.Backend, n int, within time.Duration) {
	g.Helper()
	var last error
	for end := time.Now().Add(within); n > 0; time.Sleep(20 * time.Millisecond) {
		got, err := b.Claim(g.Context(), claim(10))
		if err == nil && len(got.Deliveries) > 0 {
			_, err = b.Ack(g.Context(), leasesOf(got.Deliveries))
		}
		if n -= len(got.Deliveries); err != nil {
			last = err
		}
		if time.Now().After(end) {
			g.Fatalf("%d messages did not come within %s; the last error: %v", n, within, last)
		}
	}
}

var poison = backend.Cause{Reason: backend.ReasonPoison, Error: "no"}

func random(n int) []byte {
	data := make([]byte, n)
	rand.Read(data)
	return data
}
