package kafka

import (
	"context"
	"encoding/base64"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// layoutAge is how long the layout of a topic is taken to hold.
const layoutAge = 10 * time.Second

// layout is where the partitions of the topic are.
type layout struct {
	id      [16]byte
	leaders map[int32]int32 // partition → broker
}

// led reports whether any partition has a leader.
func (l *layout) led() bool {
	for _, leader := range l.leaders {
		if leader >= 0 {
			return true
		}
	}
	return false
}

// topicCache is the last layout read.
type topicCache struct {
	brokers atomic.Int32 // how many there were when they were asked last

	mu   sync.Mutex
	last *layout
	at   time.Time
}

func (c *topicCache) known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last != nil
}

// forget makes the next call of Backend.layout ask.
func (c *topicCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Time{}
}

// doubt makes the next call ask unless the last answer is new.
func (c *topicCache) doubt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) > retryEvery {
		c.at = time.Time{}
	}
}

// layout returns where the topic's partitions are. The error is ErrStreamNotFound if there
// is no such topic.
func (b *Backend) layout(ctx context.Context) (*layout, error) {
	b.topic.mu.Lock()
	last, at := b.topic.last, b.topic.at
	b.topic.mu.Unlock()
	if last != nil && time.Since(at) < layoutAge {
		return last, nil
	}
	l, err := b.layoutOf(ctx, b.set.topic)
	if err != nil {
		return nil, b.explain(err)
	}
	b.ids.note(b.set.topic, l.id)
	b.topic.mu.Lock()
	defer b.topic.mu.Unlock()
	if last = b.topic.last; last != nil && last.id != l.id {
		b.held.anew() // before anybody can take what it has for the new topic's
	}
	b.topic.last, b.topic.at = l, time.Now()
	return l, nil
}

// id is the ID of the topic as the ledger has it; empty: not known.
func (c *topicCache) id() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		return ""
	}
	return topicID(c.last.id)
}

func topicID(id [16]byte) string {
	if id == [16]byte{} {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// sameTopic compares two of these; entries of older versions have none.
func sameTopic(a, b string) bool { return a == b || a == "" || b == "" }

func (b *Backend) layoutOf(ctx context.Context, name string) (*layout, error) {
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &name
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, b.requests())
	if b.hungUp(err) { // the next broker in turn knows as well
		resp, err = req.RequestWith(ctx, b.requests())
	}
	if err != nil {
		return nil, err
	}
	b.topic.brokers.Store(int32(len(resp.Brokers)))
	if len(resp.Topics) != 1 {
		return nil, kerr.UnknownTopicOrPartition
	}
	t := resp.Topics[0]
	if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
		return nil, b.onTopic(err, rightDescribe, name)
	}
	l := &layout{id: t.TopicID, leaders: make(map[int32]int32, len(t.Partitions))}
	for _, p := range t.Partitions {
		l.leaders[p.Partition] = p.Leader
	}
	return l, nil
}

// topicIDs are the topics that the producer was begun with, by name; of one that weir has made
// the ID is not known.
type topicIDs struct {
	mu  sync.Mutex
	all map[string][16]byte
}

// note keeps the first ID of a name.
func (t *topicIDs) note(name string, id [16]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[string][16]byte{}
	}
	if _, known := t.all[name]; !known {
		t.all[name] = id
	}
}

// renew notes a new ID and reports whether it is another one.
func (t *topicIDs) renew(name string, id [16]byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.all[name]
	t.all[name] = id
	return old != id
}

// renewSoon has one topic at a time renewed, not by the caller, for whom the client waits. Records
// fail by the thousand; those of a topic that was not renewed will say so again.
func (b *Backend) renewSoon(name string) {
	if !b.renewing.CompareAndSwap(false, true) {
		return
	}
	if !b.spawn(func() { b.renewTopic(name); b.renewing.Store(false) }) {
		b.renewing.Store(false)
	}
}

// renewTopic makes the producer go on with a topic that was deleted and made again: the client
// stays with the first one. As long as it is the same topic, nothing may be forgotten: the
// brokers would take the next records for repeats.
func (b *Backend) renewTopic(name string) {
	ctx, cancel := context.WithTimeout(b.closing, callTimeout)
	defer cancel()
	if l, err := b.layoutOf(ctx, name); err == nil && b.ids.renew(name, l.id) {
		if name == b.set.topic {
			_ = b.readTerms(ctx) // those of the first stay if the second's cannot be read
		}
		b.client.PurgeTopicsFromClient(name)
		b.topic.forget()
	}
}
