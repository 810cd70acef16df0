// Package kafka keeps the shared log of a copy in a Kafka topic with one partition.
//
// Kafka fences nobody who appends, so the records say who leads. A leader begins with a record
// of a term above all in front of it; from there on, records of lower terms are void, and so is
// one that does not follow its leader's last. A leader knows that an entry counts when its
// offset follows that of the one before, or when it has read what lies between.
package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/internal/address"
	"github.com/weirmq/weir/internal/kafkalogin"
	"github.com/weirmq/weir/internal/patient"
)

// Options of a Log.
type Options struct {
	// ReadOnly is for a copy that is only looked at: its topic must be there.
	ReadOnly bool
	// Trouble, if set, is told the errors after which something is tried again.
	Trouble func(error)

	opening time.Duration // openTimeout
}

// Log is a replica.Log in a topic.
type Log struct {
	opt      Options
	topic    string
	options  []kgo.Opt
	dialer   *patient.Dialer
	chunk    int // most bytes of an entry in one record
	producer *kgo.Client
	admin    *kadm.Client
	warnings []string
	closing  context.Context
	close    context.CancelFunc

	mu     sync.Mutex
	leader *leader // nil: this Log does not lead

	walking   sync.Mutex // held with end and endCursor
	end       place
	endCursor cursor

	reading    sync.Mutex // held with read and readCursor
	read       place
	readCursor cursor
}

const (
	openTimeout  = 15 * time.Second
	againAfter   = time.Second
	mostMessage  = 1_000_000
	quietRetries = 3    // how often the client sends records again by itself, some seconds
	recordMargin = 1024 // for what is around an entry's bytes in a batch
)

// Open connects to the brokers of a URL, kafka://user:password@host:9092,host:9092/topic, or
// kafkas:// with TLS, and creates the topic if it is not there. What package kafkalogin reads
// is said in the same way as for a stream. Brokers that do not answer are waited for until ctx ends,
// unless the log is only read.
func Open(ctx context.Context, u *url.URL, opt Options) (*Log, error) {
	if opt.Trouble == nil {
		opt.Trouble = func(error) {}
	}
	l := &Log{opt: opt, topic: strings.Trim(u.Path, "/"), chunk: mostMessage - recordMargin}
	if l.topic == "" || strings.Contains(l.topic, "/") {
		return nil, errors.New("kafka: the URL names no topic; write kafka://host:9092/TOPIC")
	}
	hosts, connect, err := connection(u)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	l.closing, l.close = context.WithCancel(context.Background())
	options := slices.Concat(patient.Limits(), []kgo.Opt{kgo.ClientID("weir"), kgo.WithContext(l.closing)}, connect)
	l.dialer, err = patient.NewDialer(options)
	if err != nil {
		return nil, err
	}
	l.options = append(options, l.dialer.Options()...)
	l.endCursor.log, l.readCursor.log = l, l
	if err := l.beginAgain(ctx, hosts); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return l, nil
}

// connection is whom the client talks to, and how.
func connection(u *url.URL) (hosts []string, opts []kgo.Opt, err error) {
	query, err := address.Query(u.RawQuery, append([]string{"base"}, kafkalogin.Keys...)) // base= is read before
	if err != nil {
		return nil, nil, err
	}
	if hosts, err = address.Hosts(u.Host, "9092"); err != nil {
		return nil, nil, err
	}
	secure := u.Scheme == "kafkas"
	login, err := kafkalogin.Parse(u.User, query["sasl"], secure)
	if err != nil {
		return nil, nil, err
	}
	encryption, err := address.TLS(u.Scheme, "kafkas", query)
	if err != nil {
		return nil, nil, err
	}
	opts = append(login.Options(), kgo.SeedBrokers(hosts...))
	if encryption != nil {
		opts = append(opts, kgo.DialTLSConfig(encryption))
	}
	return hosts, opts, nil
}

func (l *Log) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(append([]kgo.Opt(nil), l.options...), opts...)...)
}

// beginAgain begins, and waits for brokers that do not answer: a server may start before they do.
func (l *Log) beginAgain(ctx context.Context, hosts []string) error {
	for {
		err := l.begin(ctx, hosts)
		var network net.Error
		away := errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) || kerr.IsRetriable(err)
		if err == nil || l.opt.ReadOnly || !away || ctx.Err() != nil {
			return err
		}
		l.producer.Close()
		l.opt.Trouble(fmt.Errorf("kafka: %w", err))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(againAfter):
		}
	}
}

// begin creates the topic and looks at what it promises.
func (l *Log) begin(ctx context.Context, hosts []string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(l.opt.opening, openTimeout))
	defer cancel()
	l.dialer.Await(ctx, hosts)
	// A record that is sent again may be there twice, which readers see; so it can be
	// cancelled, too, and given back for Trouble to hear of it before it is sent again.
	l.producer, err = l.client(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.DisableIdempotentWrite(), kgo.RecordRetries(quietRetries), kgo.MaxProduceRequestsInflightPerBroker(1),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytesFn(func(string) int32 { return int32(l.chunk + recordMargin) })) // the topic's, which examine reads
	if err != nil {
		return err
	}
	l.admin = kadm.NewClient(l.producer)
	topics, err := l.admin.ListTopics(ctx, l.topic)
	if err != nil {
		return err
	}
	if topic := topics[l.topic]; errors.Is(topic.Err, kerr.UnknownTopicOrPartition) {
		if l.opt.ReadOnly {
			return fmt.Errorf("there is no copy of weir: topic %s is not there", l.topic)
		}
		if err := l.create(ctx); err != nil {
			return fmt.Errorf("create topic %s: %w", l.topic, err)
		}
	} else if topic.Err != nil {
		return fmt.Errorf("topic %s: %w", l.topic, topic.Err)
	}
	return l.examine(ctx)
}

// create creates the topic, with three replicas if there are three brokers.
func (l *Log) create(ctx context.Context) error {
	brokers, err := l.admin.ListBrokers(ctx)
	if err != nil {
		return err
	}
	settings := map[string]*string{}
	for key, value := range unlimited {
		settings[key] = &value
	}
	replicas, enough, no := int16(1), "2", "false"
	settings["unclean.leader.election.enable"] = &no
	if len(brokers) >= 3 {
		replicas, settings["min.insync.replicas"] = 3, &enough
	}
	_, err = l.admin.CreateTopic(ctx, 1, replicas, settings, l.topic)
	if errors.Is(err, kerr.TopicAlreadyExists) {
		return nil
	}
	return err
}

// unlimited is how a topic has to be set to keep everything until Trim.
var unlimited = map[string]string{"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}

// examine refuses a topic that would lose entries by itself, and notes what else can be lost.
func (l *Log) examine(ctx context.Context) error {
	config, err := l.settings(ctx)
	if err != nil {
		return err
	}
	for key, want := range unlimited {
		if config[key] != want {
			return fmt.Errorf("topic %s has %s=%s and would lose the log by itself; set %s=%s", l.topic, key, config[key], key, want)
		}
	}
	if most, err := strconv.Atoi(config["max.message.bytes"]); err == nil {
		if most < 4*recordMargin {
			return fmt.Errorf("topic %s has max.message.bytes=%d; set at least %d", l.topic, most, 4*recordMargin)
		}
		l.chunk = min(most, mostMessage) - recordMargin
	}
	topic, err := l.known(ctx)
	if err != nil {
		return err
	}
	if n := len(topic.Partitions); n != 1 {
		return fmt.Errorf("topic %s has %d partitions; the log needs a topic with one", l.topic, n)
	}
	replicas := len(topic.Partitions[0].Replicas)
	if inSync, _ := strconv.Atoi(config["min.insync.replicas"]); replicas < 3 || inSync < 2 {
		l.warnings = append(l.warnings, fmt.Sprintf("topic %s has %d replicas and min.insync.replicas=%d: losing one broker may lose the log; three replicas and min.insync.replicas=2 survive that", l.topic, replicas, inSync))
	}
	if config["unclean.leader.election.enable"] == "true" {
		l.warnings = append(l.warnings, fmt.Sprintf("topic %s has unclean.leader.election.enable=true: a broker that lacks entries may come to lead; set it to false", l.topic))
	}
	return nil
}

// settings waits until the brokers know the topic, which may have been created right now.
func (l *Log) settings(ctx context.Context) (map[string]string, error) {
	for {
		all, err := l.admin.DescribeTopicConfigs(ctx, l.topic)
		if err == nil && len(all) == 1 {
			err = all[0].Err
		}
		if err == nil {
			values := map[string]string{}
			for _, c := range all[0].Configs {
				values[c.Key] = c.MaybeValue()
			}
			return values, nil
		}
		if !errors.Is(err, kerr.UnknownTopicOrPartition) || !l.pause(ctx) {
			return nil, fmt.Errorf("settings of topic %s: %w", l.topic, err)
		}
	}
}

func (l *Log) known(ctx context.Context) (kadm.TopicDetail, error) {
	for {
		topics, err := l.admin.ListTopics(ctx, l.topic)
		if err != nil {
			return kadm.TopicDetail{}, err
		}
		topic := topics[l.topic]
		if topic.Err == nil && len(topic.Partitions) > 0 && topic.Partitions[0].Err == nil {
			return topic, nil
		}
		if !l.pause(ctx) {
			return kadm.TopicDetail{}, fmt.Errorf("topic %s: %w", l.topic, errors.Join(ctx.Err(), topic.Err))
		}
	}
}

func (l *Log) pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(20 * time.Millisecond):
		return true
	}
}

// Warnings says, for people, what the brokers may lose. It is as it was at Open.
func (l *Log) Warnings() []string { return l.warnings }

// Close ends all connections. What is not known to count fails.
func (l *Log) Close() error {
	l.mu.Lock()
	old := l.leader
	l.mu.Unlock()
	if old != nil {
		old.stop(errClosed)
		<-old.ended
	}
	l.close()
	l.walking.Lock()
	l.endCursor.close()
	l.walking.Unlock()
	l.reading.Lock()
	l.readCursor.close()
	l.reading.Unlock()
	if l.producer != nil {
		l.producer.Close()
	}
	l.dialer.Close()
	return nil
}

var errClosed = errors.New("kafka: the log is closed")
