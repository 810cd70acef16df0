package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/backend"
)

// DeadLetter stores a dead letter and then accepts the message. If the accept does not get
// through, the message may be delivered again although its letter is there: a second
// letter of it has the same key and takes the first one's place.
func (b *Backend) DeadLetter(ctx context.Context, d *backend.Delivery, to string, cause backend.Cause) error {
	if err := b.may(ctx); err != nil {
		return err
	}
	_, err := b.bury(ctx, d, to, cause)
	return err
}

// CheckDeadLetter refuses what cannot be the name of a topic, and the topics that weir uses for
// something else.
func (b *Backend) CheckDeadLetter(name string) error {
	switch name {
	case "":
		return nil // Info.DeadLetter
	case b.set.topic:
		return fmt.Errorf("%q is the stream itself, whose workers would get the dead letters: use another name, or none for %q", name, b.set.deadLetter())
	case b.set.ledger():
		return fmt.Errorf("%q is where weir's workers say what they hold, for a day: use another name, or none for %q", name, b.set.deadLetter())
	}
	if err := checkTopic(name); err != nil {
		return fmt.Errorf("kafka: dead letters: %w", err)
	}
	return nil
}

func (b *Backend) bury(ctx context.Context, d *backend.Delivery, to string, cause backend.Cause) (backend.DeadLetter, error) {
	to = cmp.Or(to, b.set.deadLetter())
	shelf := b.held
	var list []*held
	if lost := shelf.update([]backend.Lease{d.Lease}, func(_ int, h *held) {
		h.stage = burying
		list = append(list, h)
	}); len(lost) > 0 {
		return backend.DeadLetter{}, fmt.Errorf("kafka: message %s: %w", d.ID, backend.ErrLeaseLost)
	}
	published := list[0].record
	letter := backend.DeadLetter{
		Data: published.Value, Headers: headersOf(published), Stream: b.set.topic, Group: b.set.group, OriginID: d.ID,
		Attempts: cause.Attempts(d.Attempt), Reason: cause.Reason, Error: cutError(cause.Error), Consumer: d.Consumer,
		Enqueued: publishedAt(published), DeadAt: time.Now(),
	}
	letter.Redrives, _ = strconv.Atoi(letter.Headers[backend.HeaderRedrives])
	delete(letter.Headers, backend.HeaderRedrives) // the field holds it
	delete(letter.Headers, backend.HeaderRedriveGroup)
	id, err := b.store(ctx, to, &letter, published)
	if err != nil {
		shelf.back(list)
		return backend.DeadLetter{}, err
	}
	letter.ID = id
	shelf.each(list, func(h *held) { h.stage = settling })
	lost, err := b.group.say(ctx, list, saysAccept)
	if err != nil {
		return letter, b.cut(ctx, err)
	}
	if len(lost) > 0 {
		return letter, fmt.Errorf("kafka: message %s: %w", d.ID, backend.ErrLeaseLost)
	}
	return letter, nil
}

// store appends a dead letter to a topic, which it creates if it is missing.
func (b *Backend) store(ctx context.Context, to string, letter *backend.DeadLetter, published *kgo.Record) (id string, err error) {
	// The time, because a topic that is deleted and made again gives the same IDs.
	key := fmt.Sprintf("%s/%s/%s/%d", letter.Group, letter.Stream, letter.OriginID, letter.Enqueued.UnixMilli())
	for try := 1; ; try++ {
		if err := b.ensure(ctx, to, b.letterConfigs()); err != nil {
			return "", err
		}
		id, err := b.produceNext(ctx, letterRecord(to, []byte(key), letter, published))
		switch {
		case err == nil:
			return id, nil
		case !errors.Is(err, backend.ErrStreamNotFound) || try == leaderTries || !b.pause(ctx, leaderEvery): // the topic has been deleted
			return "", fmt.Errorf("dead letter to %q: %w", to, err)
		}
	}
}

// letterRoom is what a letter takes beside its message, at most.
const letterRoom = 64 << 10

// letterConfigs are those of a topic of dead letters that is made: it takes the largest message
// of the stream.
func (b *Backend) letterConfigs() map[string]string {
	configs := map[string]string{"cleanup.policy": "compact"}
	if most := b.maxMessage(); most > 0 {
		configs["max.message.bytes"] = strconv.Itoa(int(min(int64(most)+letterRoom, math.MaxInt32)))
	}
	return configs
}

// made are the topics that are known to exist beside the stream's, with how large their records
// may be; 0: nobody knows.
type made struct {
	mu  sync.Mutex // held for no call: a member's own topic and that of the dead letters wait for each other otherwise
	all map[string]int32
}

func (m *made) has(topic string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, there := m.all[topic]
	return there
}

func (m *made) forget(topic string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, topic)
}

func (m *made) limit(topic string) int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[topic]
}

func (m *made) add(topic string, largest int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[string]int32{}
	}
	m.all[topic] = largest
}

// ensure creates a topic of one partition unless it is there. Two calls may create it at
// the same time.
func (b *Backend) ensure(ctx context.Context, topic string, configs map[string]string) error {
	if b.made.has(topic) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	id := [16]byte{}
	l, err := b.layoutOf(ctx, topic)
	if err == nil {
		id = l.id
	} else if errors.Is(err, kerr.UnknownTopicOrPartition) {
		err = b.create(ctx, topic, 1, configs)
	}
	if err != nil {
		return b.explain(err)
	}
	b.ids.note(topic, id)
	most := int64(0)
	if topic != b.set.ledger() { // whose entries are small
		configs, _ := b.configs(ctx, topic) // what cannot be read is not known
		most = int64(largest(configs))
	}
	if most == 0 && id == [16]byte{} { // the broker that was asked has not heard yet of what was made
		most, _ = strconv.ParseInt(configs["max.message.bytes"], 10, 32) // what is not there is none
	}
	b.made.add(topic, int32(most))
	return nil
}

// cutError shortens an error to what is stored of it, between two characters.
func cutError(text string) string {
	if len(text) <= backend.MaxErrorBytes {
		return text
	}
	n := backend.MaxErrorBytes
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
