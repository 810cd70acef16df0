package kafka_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
)

// aTopicThatComesToTakeLess than it did when the handle was opened, as one looks from the start to a user who may not
// see its configuration: what is published at once is refused together, although it takes each of them.
func aTopicThatComesToTakeLess(t *testing.T, g *ground) {
	g.create("less")
	b := g.open("less")
	_, err := b.Append(t.Context(), []backend.Message{{Data: []byte("first")}})
	g.must(err)
	g.must(g.alter("less", "max.message.bytes", "20000"))
	before := 0
	await(g, "the broker to take less", func() bool { // it has answered before it does
		err := g.client.ProduceSync(t.Context(), &kgo.Record{Topic: "less", Value: random(30_000)}).FirstErr()
		if err == nil {
			before++
		}
		return errors.Is(err, kerr.MessageTooLarge)
	})
	const writers, each, large = 8, 25, 5
	var wait sync.WaitGroup
	for w := range writers {
		wait.Go(func() {
			for range each {
				if _, err := b.Append(t.Context(), []backend.Message{{Data: random(3000)}}); err != nil {
					t.Errorf("a message of 3,000 bytes is refused where 20,000 are taken: %v", err)
					return
				}
			}
		})
		if w >= large {
			continue
		}
		wait.Go(func() { // beside the others: what is too large is that alone
			if _, err := b.Append(t.Context(), []backend.Message{{Data: random(30_000)}}); !errors.Is(err, backend.ErrTooLarge) {
				t.Errorf("a message of 30,000 bytes: %v; want %v", err, backend.ErrTooLarge)
			}
		})
	}
	wait.Wait()
	many := make([]backend.Message, 100)
	for i := range many {
		many[i].Data = append(random(2990), fmt.Sprintf("%010d", i)...)
	}
	many[50].Data = nil
	_, err = b.Append(t.Context(), many)
	g.must(err)
	var last []backend.Record
	count := 0
	for after := backend.CursorStart; ; {
		got, err := b.Read(t.Context(), backend.ReadRequest{After: after, Max: 100})
		g.must(err)
		if len(got.Records) == 0 {
			break
		}
		count += len(got.Records)
		last = append(last, got.Records...)
		last, after = last[max(0, len(last)-len(many)):], got.Next
	}
	if want := 1 + before + writers*each + len(many); count != want {
		t.Errorf("%d messages are stored, want %d", count, want)
	}
	for i := range last {
		if string(last[i].Data) != string(many[i].Data) {
			t.Fatalf("number %d of a batch is another one", i)
		}
	}
}

// alter sets a configuration of a topic.
func (g *ground) alter(topic, key, value string) error {
	altered, err := g.admin.AlterTopicConfigs(g.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topic)
	if err != nil {
		return err
	}
	return altered[0].Err
}

// TestAHandleIsClosedWhileRecordsWaitForRoom: all of them have been refused together, and the one that goes again first
// gets no answer. Every call is told, and nothing is left of them.
func TestAHandleIsClosedWhileRecordsWaitForRoom(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupClassic)
	f.publish(b, 0, 1)
	asked, goOn := make(chan struct{}), make(chan struct{})
	defer close(goOn)
	requests := 0
	f.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if requests++; requests == 2 {
			close(asked)
		}
		if requests > 1 {
			f.SleepControl(func() { <-goOn })
			return nil, nil, false
		}
		produce := req.(*kmsg.ProduceRequest)
		resp := produce.ResponseKind().(*kmsg.ProduceResponse)
		for _, in := range produce.Topics {
			out := kmsg.NewProduceResponseTopic()
			out.Topic, out.TopicID = in.Topic, in.TopicID
			for _, p := range in.Partitions {
				part := kmsg.NewProduceResponseTopicPartition()
				part.Partition, part.ErrorCode = p.Partition, kerr.MessageTooLarge.Code
				out.Partitions = append(out.Partitions, part)
			}
			resp.Topics = append(resp.Topics, out)
		}
		return resp, nil, true
	})
	told := make(chan error, 1)
	go func() {
		many := make([]backend.Message, 300)
		for i := range many {
			many[i].Data = random(3000)
		}
		_, err := b.Append(t.Context(), many)
		told <- err
	}()
	<-asked
	closed := make(chan error, 1)
	go func() { closed <- b.Close() }()
	for _, what := range []chan error{closed, told} {
		select {
		case <-what:
		case <-time.After(time.Minute):
			t.Fatal("the handle is being closed, and something waits for ever")
		}
	}
}
