package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
)

// facts is what the brokers are, read when the handle is opened.
type facts struct {
	server    string
	groupType string // groupShare or groupClassic
	why       string // it is that
	// strict: min.insync.replicas counts even where a partition has fewer replicas.
	strict bool
}

// terms are what the topic promises and takes, read when the handle is opened or, of a topic that is
// made later, before the first append.
type terms struct {
	durability string
	maxMessage int32 // its max.message.bytes; 0: unknown
	compacted  bool  // of the records with one key it keeps the last
}

// Types of groups, as Kafka names them.
const (
	groupShare   = "share"
	groupClassic = "classic"
)

var errNoShare = errors.New("the brokers offer no share groups: these need Kafka 4.2 or newer with the feature share.version at 1 or above " +
	"(kafka-features.sh upgrade --feature share.version=1); leave group_type out of the URL to use a classic consumer group")

// renewVersion is the version of ShareAcknowledge that can renew a lock.
const renewVersion = 2

// Fetch of version 13 came with Kafka 3.1, and of version 16 with 3.7, from which on brokers ask for no more
// in-sync replicas than there can be (KAFKA-15583).
const (
	fetchVersion  = 13
	cappedVersion = 16
)

var errOld = errors.New("the brokers are too old: weir needs Kafka 3.1 or newer, and 4.2 for share groups")

// examine reads what the brokers offer and refuses them if it is not enough.
func (b *Backend) examine(ctx context.Context) (facts, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "weir", "1"
	resp, err := req.RequestWith(ctx, b.requests())
	if err != nil {
		return facts{}, err
	}
	var f facts
	var shareVersion int16
	for _, feature := range resp.FinalizedFeatures {
		switch feature.Name {
		case "share.version":
			shareVersion = feature.MaxVersionLevel
		case "metadata.version":
			f.server = "Kafka, metadata version " + strconv.Itoa(int(feature.MaxVersionLevel))
		}
	}
	f.server = cmp.Or(f.server, "Kafka")
	renews, current, capped := false, false, false
	acknowledge, fetch := kmsg.NewShareAcknowledgeRequest(), kmsg.NewFetchRequest()
	for _, key := range resp.ApiKeys {
		current = current || key.ApiKey == fetch.Key() && key.MaxVersion >= fetchVersion
		capped = capped || key.ApiKey == fetch.Key() && key.MaxVersion >= cappedVersion
		renews = renews || key.ApiKey == acknowledge.Key() && key.MaxVersion >= renewVersion
	}
	if !current {
		return facts{}, &mismatch{errOld}
	}
	f.strict = !capped
	offered := shareVersion >= 1 && renews
	switch {
	case b.set.groupType == groupShare && !offered:
		return facts{}, errNoShare
	case b.set.groupType != "":
		f.groupType, f.why = b.set.groupType, "the URL asks for it"
	case offered:
		f.groupType, f.why = groupShare, fmt.Sprintf("the brokers have share.version %d", shareVersion)
	default:
		f.groupType, f.why = groupClassic, "the brokers offer no share groups: these need Kafka 4.2 with the feature share.version at 1 or above"
	}
	return f, b.readTerms(ctx)
}

// examineWithin is examine for a context that counts: the client does not look at it before a
// new connection has had its first answer.
func (b *Backend) examineWithin(ctx context.Context) (facts, error) {
	type result struct {
		facts facts
		err   error
	}
	done := make(chan result, 1)
	go func() {
		f, err := b.examine(ctx)
		done <- result{f, err}
	}()
	select {
	case r := <-done:
		return r.facts, r.err
	case <-ctx.Done():
		return facts{}, ctx.Err()
	}
}

// readTerms reads the topic's terms, if it is there; those of a topic that may not be looked at are
// disk and a size that nobody knows. Kafka acknowledges what all in-sync replicas have in memory: with
// two of them, it survives the loss of a machine.
func (b *Backend) readTerms(ctx context.Context) error {
	topics, err := named(ctx, b, b.admin.ListTopics, b.set.topic)
	if err != nil {
		return b.onTopic(err, rightDescribe, b.set.topic)
	}
	topic := topics[b.set.topic]
	if errors.Is(topic.Err, kerr.UnknownTopicOrPartition) {
		return nil
	}
	if topic.Err != nil {
		return b.onTopic(topic.Err, rightDescribe, b.set.topic)
	}
	t := terms{durability: "disk"}
	configs, err := b.configs(ctx, b.set.topic)
	if errors.Is(err, kerr.UnknownTopicOrPartition) { // a broker that has not heard of it yet
		return nil
	}
	if err != nil {
		return err
	}
	insync, _ := strconv.Atoi(valueOf(configs, "min.insync.replicas")) // what is no number is none
	switch {
	case valueOf(configs, "unclean.leader.election.enable") == "true":
		t.durability = "memory"
	case insync >= 2 && topic.Partitions.NumReplicas() >= 2:
		t.durability = "fsync"
	}
	t.maxMessage = largest(configs)
	t.compacted = strings.Contains(valueOf(configs, "cleanup.policy"), "compact")
	b.terms.Store(&t)
	return nil
}

// configs returns the configuration of a topic; none if it may not be looked at.
func (b *Backend) configs(ctx context.Context, topic string) ([]kadm.Config, error) {
	all, err := named(ctx, b, b.admin.DescribeTopicConfigs, topic)
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	config, err := all.On(topic, nil)
	if errors.Is(config.Err, kerr.UnknownTopicOrPartition) {
		return nil, config.Err
	}
	if err != nil || config.Err != nil {
		return nil, nil
	}
	return config.Configs, nil
}

// largest is how large the records of a topic with such a configuration may be; 0: unknown.
func largest(configs []kadm.Config) int32 {
	most, _ := strconv.ParseInt(valueOf(configs, "max.message.bytes"), 10, 32) // what is no number is none
	return int32(most)
}

// durability is the class of an acknowledged append; that of a topic that is not there yet is disk.
func (b *Backend) durability() string {
	if t := b.terms.Load(); t != nil {
		return t.durability
	}
	return "disk"
}

// maxMessage is how large a record of the topic may be; 0: unknown.
func (b *Backend) maxMessage() int32 {
	if t := b.terms.Load(); t != nil {
		return t.maxMessage
	}
	return 0
}

// Limits of a batch, of which a record is at least one.
const (
	defaultBatch = 1_000_012 // the client's, and below that of brokers
	leastBatch   = 512
)

// batchBytes is how large a batch for a topic may be: what the topic takes, if that is known. The
// client asks once for each topic, so a topic that takes little may say so itself: it may take
// more later.
func (b *Backend) batchBytes(topic string) int32 {
	most := max(b.made.limit(topic), defaultBatch)
	if known := b.maxMessage(); topic == b.set.topic && known > 0 {
		most = max(known, leastBatch)
	}
	return min(most, 1<<30)
}

func valueOf(configs []kadm.Config, key string) string {
	for _, c := range configs {
		if c.Key == key {
			return c.MaybeValue()
		}
	}
	return ""
}

// create makes a topic unless it is there.
func (b *Backend) create(ctx context.Context, topic string, partitions int32, configs map[string]string) error {
	settings := make(map[string]*string, len(configs))
	for key, value := range configs {
		settings[key] = &value
	}
	_, err := asked(ctx, b, func(ctx context.Context) (kadm.CreateTopicResponse, error) {
		return b.admin.CreateTopic(ctx, partitions, b.set.replication, settings, topic)
	})
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("create topic %q: %w", topic, b.onTopic(err, rightCreate, topic))
	}
	return nil
}

// created makes the stream's topic if the URL says so.
func (b *Backend) created(ctx context.Context) error {
	if b.set.partitions == 0 || b.topic.known() {
		return nil
	}
	if _, err := b.layout(ctx); !errors.Is(err, backend.ErrStreamNotFound) {
		return err
	}
	configs := map[string]string{}
	if b.set.retention > 0 {
		configs["retention.ms"] = strconv.FormatInt(b.set.retention.Milliseconds(), 10)
	}
	if err := b.create(ctx, b.set.topic, b.set.partitions, configs); err != nil {
		return b.explain(err)
	}
	for { // the brokers hear of it a little later
		_, err := b.layout(ctx)
		if !errors.Is(err, backend.ErrStreamNotFound) {
			return err
		}
		if !b.pause(ctx, createdEvery) {
			return fmt.Errorf("kafka: %w: topic %q has been created, but the brokers do not know it yet", backend.ErrUnavailable, b.set.topic)
		}
	}
}

const createdEvery = 20 * time.Millisecond
