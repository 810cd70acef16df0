package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/open"
)

// partitions of every topic.
const partitions = 4

func (b *bench) create(ctx context.Context, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.broker.Addr()))
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = kadm.NewClient(client).CreateTopic(ctx, partitions, 1, nil, topic)
	return err
}

// fill makes a topic with the jobs of a turn, of 256 bytes each.
func (b *bench) fill(ctx context.Context, topic string) error {
	if err := b.create(ctx, topic); err != nil {
		return err
	}
	return b.produce(ctx, topic, b.jobs)
}

// produce does not compress: the payload is always the same, and a single fetch would bring
// all of it before a consumer's clock starts.
func (b *bench) produce(ctx context.Context, topic string, n int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.broker.Addr()), kgo.DefaultProduceTopic(topic), kgo.MaxBufferedRecords(n),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return err
	}
	defer client.Close()
	payload := []byte(strings.Repeat("x", 256))
	var failed atomic.Pointer[error]
	for range n {
		client.Produce(ctx, &kgo.Record{Value: payload}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// clock counts jobs from the first one on: joining a group takes a second or two that
// depend on its heartbeats alone.
type clock struct {
	jobs  int64
	count atomic.Int64
	first atomic.Int64
	took  atomic.Int64
}

// add counts n jobs and reports whether these were the last. It looks at the time for the
// first and the last ones only.
func (c *clock) add(n int) bool {
	done := c.count.Add(int64(n))
	if done == int64(n) {
		c.first.Store(time.Now().UnixNano())
	}
	if done < c.jobs {
		return false
	}
	return c.took.CompareAndSwap(0, time.Now().UnixNano()-c.first.Load())
}

func (c *clock) rate() float64 { return float64(c.jobs) / time.Duration(c.took.Load()).Seconds() }

// consumer does all jobs of a topic in a group of the name and returns its rate.
type consumer func(ctx context.Context, b *bench, topic, group string) (float64, error)

// pooled compares a pool of 64 workers in a group of a type with another consumer. Each turn
// is a new group that does all of the row's topic, which has scale times the usual jobs.
func pooled(groupType string, scale int, peer consumer) func(context.Context, *bench) (turn, turn, func(), error) {
	return func(ctx context.Context, b *bench) (turn, turn, func(), error) {
		own := *b
		own.jobs *= scale
		topic := fmt.Sprintf("pool-%d", b.topics.Add(1))
		if err := own.fill(ctx, topic); err != nil {
			return nil, nil, nil, err
		}
		n := 0
		side := func(do consumer) turn {
			return func(ctx context.Context) (float64, error) {
				n++
				return do(ctx, &own, topic, fmt.Sprintf("%s-%d", topic, n))
			}
		}
		return side(pool(groupType)), side(peer), func() {}, nil
	}
}

func pool(groupType string) consumer {
	return func(ctx context.Context, b *bench, topic, group string) (float64, error) {
		return b.pool(ctx, topic, group, groupType)
	}
}

func (b *bench) pool(ctx context.Context, topic, group, groupType string) (float64, error) {
	s, err := open.URL(ctx, b.broker.URL()+"/"+topic+"?group_type="+groupType+"&group="+group)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c := clock{jobs: int64(b.jobs)}
	p, err := weir.NewPool(s, func(context.Context, *weir.Delivery) error {
		if c.add(1) {
			stop()
		}
		return nil
	}, weir.PoolConfig{Workers: 64, Batch: most})
	if err != nil {
		return 0, err
	}
	if err := p.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return 0, err
	}
	return c.rate(), nil
}

// most is how many messages both sides get at once.
const most = 500

// shareLoop is what one writes by hand: poll, do all of it, accept all of it.
func shareLoop(ctx context.Context, b *bench, topic, group string) (float64, error) {
	if err := b.fromTheFirst(ctx, group); err != nil {
		return 0, err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(b.broker.Addr()), kgo.ConsumeTopics(topic), kgo.ShareGroup(group),
		kgo.ShareMaxRecords(most), kgo.ShareMaxRecordsStrict(), kgo.ShareAckCallback(func(*kgo.Client, kgo.ShareAckResults) {}))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	c := clock{jobs: int64(b.jobs)}
	for {
		fetches := client.PollRecords(ctx, most)
		if err := fetches.Err(); err != nil {
			return 0, err
		}
		fetches.EachRecord(func(r *kgo.Record) { r.Ack(kgo.AckAccept) })
		if err := client.FlushAcks(ctx); err != nil {
			return 0, err
		}
		if n := fetches.NumRecords(); n > 0 && c.add(n) {
			return c.rate(), nil
		}
	}
}

// classicLoop is the same in a classic group: poll, do all of it, commit.
func classicLoop(ctx context.Context, b *bench, topic, group string) (float64, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.broker.Addr()), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	c := clock{jobs: int64(b.jobs)}
	for {
		fetches := client.PollRecords(ctx, most)
		if err := fetches.Err(); err != nil {
			return 0, err
		}
		if err := client.CommitRecords(ctx, fetches.Records()...); err != nil {
			return 0, err
		}
		if n := fetches.NumRecords(); n > 0 && c.add(n) {
			return c.rate(), nil
		}
	}
}

// watermill is watermill-kafka, in a process of its own: its client is a module that weir
// does not need.
func watermill(ctx context.Context, b *bench, topic, group string) (float64, error) {
	path := filepath.Join(b.dir, "weirpeers")
	if _, err := os.Stat(path); err != nil {
		build := exec.CommandContext(ctx, "go", "build", "-o", path, ".")
		build.Dir = filepath.Join("bench", "peers")
		if text, err := build.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("build weirpeers: %w: %.500s", err, text)
		}
	}
	peer := exec.CommandContext(ctx, path, "watermill-kafka", "-addr", b.broker.Addr(), "-topic", topic, "-group", group, "-jobs", strconv.Itoa(b.jobs))
	peer.Stderr = os.Stderr
	out, err := peer.Output()
	if err != nil {
		return 0, fmt.Errorf("weirpeers: %w", err)
	}
	_, line, _ := strings.Cut(string(out), "\n") // the first says that it has begun
	var found struct {
		Ops     int64
		Seconds float64
	}
	if err := json.Unmarshal([]byte(line), &found); err != nil {
		return 0, fmt.Errorf("weirpeers: %w", err)
	}
	return float64(found.Ops) / found.Seconds, nil
}

// fromTheFirst makes a share group begin at the first record.
func (b *bench) fromTheFirst(ctx context.Context, group string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.broker.Addr()))
	if err != nil {
		return err
	}
	defer client.Close()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	config, value := kmsg.NewIncrementalAlterConfigsRequestResourceConfig(), "earliest"
	config.Name, config.Value = "share.auto.offset.reset", &value
	resource.Configs = append(resource.Configs, config)
	req.Resources = append(req.Resources, resource)
	_, err = req.RequestWith(ctx, client)
	return err
}
