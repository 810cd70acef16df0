package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/backend"
)

// Append stores messages, those of a partition in order. An IdempotencyKey is known to the
// handle that has used it and to no other: Kafka keeps none. What has no answer when ctx ends is of unknown outcome: it stays in the
// producer's buffer and is stored once the broker answers. It is never taken back, because
// a client that gives up a record whose outcome it does not know may give its number to the
// next one, which the broker then drops as a repeat.
func (b *Backend) Append(ctx context.Context, msgs []backend.Message) ([]backend.Appended, error) {
	if b.ended.Load() {
		return nil, errClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	if len(msgs) == 0 {
		return nil, nil
	}
	if err := b.there(ctx); err != nil {
		return nil, b.cut(ctx, err)
	}
	var err error
	var one [1]*kgo.Record
	records := one[:]
	if len(msgs) > 1 {
		records = make([]*kgo.Record, len(msgs))
	}
	now := time.Now()
	for i := range msgs {
		if records[i], err = recordOf(b.set.topic, &msgs[i], now); err != nil {
			return nil, err
		}
	}
	p := newPending(len(records))
	for i, r := range records {
		key := msgs[i].IdempotencyKey
		if key == "" {
			b.send(r, func(id string, err error) {
				if err == nil {
					recycle(r)
				}
				p.answer(i, id, err, false)
			})
			continue
		}
		f, known := b.keys.begin(key)
		if !known {
			b.send(r, func(id string, err error) {
				if err != nil {
					b.keys.forget(key)
				}
				f.land(id, err)
			})
		}
		f.await(func(id string, err error) { p.answer(i, id, err, known) })
	}
	return b.wait(ctx, p)
}

// answerTimeout bounds the wait for answers of a call whose context has no deadline.
const answerTimeout = 30 * time.Second

// there makes sure that the topic exists, for which a producer would wait, and that its terms are known:
// the client asks once how large a batch may be.
func (b *Backend) there(ctx context.Context) error {
	if b.topic.known() && b.terms.Load() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := b.created(ctx); err != nil {
		return err
	}
	for {
		_, err := b.layout(ctx)
		if err = b.sureOfAll(ctx, err); errors.Is(err, errUnheard) {
			continue
		}
		if err == nil && b.terms.Load() == nil {
			err = b.explain(b.readTerms(ctx))
		}
		if !errors.Is(err, kerr.LeaderNotAvailable) && (err != nil || b.terms.Load() != nil) { // said of a topic that is new
			return err
		}
		if !b.pause(ctx, leaderEvery) {
			return err
		}
	}
}

// produce sends records and waits for their answers, until ctx ends.
func (b *Backend) produce(ctx context.Context, records []*kgo.Record) ([]backend.Appended, error) {
	p := newPending(len(records))
	for i, r := range records {
		b.send(r, func(id string, err error) { p.answer(i, id, err, false) })
	}
	return b.wait(ctx, p)
}

// produceNext is produce of one record, behind the one with the same key before it. As long as that has no answer,
// none is added: while the brokers that have the topic are away, what its writers try again and again would fill
// the buffer, which is the stream's, too. Into a topic that takes less than the client joins, one goes at a time.
func (b *Backend) produceNext(ctx context.Context, r *kgo.Record) (id string, err error) {
	key := r.Topic
	if most := b.made.limit(r.Topic); most == 0 || most >= defaultBatch {
		key += " " + string(r.Key)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := b.unanswered.begin(ctx, key); err != nil {
		return "", err
	}
	p := newPending(1)
	b.send(r, func(id string, err error) {
		b.unanswered.end(key)
		p.answer(0, id, err, false)
	})
	results, err := b.wait(ctx, p)
	return results[0].ID, err
}

// unanswered are the records on their way, by topic and key.
type unanswered struct {
	mu  sync.Mutex
	all map[string]chan struct{} // closed when there is an answer
}

// begin waits until the one before has its answer.
func (u *unanswered) begin(ctx context.Context, key string) error {
	for {
		u.mu.Lock()
		before := u.all[key]
		if before == nil {
			if u.all == nil {
				u.all = map[string]chan struct{}{}
			}
			u.all[key] = make(chan struct{})
		}
		u.mu.Unlock()
		if before == nil {
			return nil
		}
		select {
		case <-before:
		case <-ctx.Done():
			return fmt.Errorf("kafka: %w: what was written before has no answer yet: %w", backend.ErrUnavailable, ctx.Err())
		}
	}
}

func (u *unanswered) end(key string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	close(u.all[key])
	delete(u.all, key)
}

// send passes a record to the producer; tell is called once its fate is known, and at once
// if the buffer is full: the producer tells of that later, perhaps after the caller's time.
func (b *Backend) send(r *kgo.Record, tell func(id string, err error)) {
	size := sizeOf(r)
	if size <= b.set.memory && int(b.client.BufferedProduceBytes()+b.lanes.waiting.Load())+size > b.set.memory {
		tell("", b.explainAppend(kgo.ErrMaxBuffered, r.Topic))
		return
	}
	b.ride(r, size+leastRecord, func(r *kgo.Record, err error) {
		if err != nil {
			if errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.UnknownTopicOrPartition) {
				b.made.forget(r.Topic)
				b.renewSoon(r.Topic)
			}
			tell("", b.explainAppend(b.onTopic(err, rightWrite, r.Topic), r.Topic))
			return
		}
		tell(idOf(r.Partition, r.Offset), nil)
	})
}

// sizeOf returns what a record takes of a buffer.
func sizeOf(r *kgo.Record) int {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// timers of appends that have their answer.
var timers sync.Pool

func (b *Backend) wait(ctx context.Context, p *pending) ([]backend.Appended, error) {
	// A kept timer costs less than a context of its own. Close needs no case: it ends the
	// producer, which answers for everything in its buffer.
	timer, _ := timers.Get().(*time.Timer)
	if timer == nil {
		timer = time.NewTimer(answerTimeout)
	} else {
		timer.Reset(answerTimeout)
	}
	defer func() {
		timer.Stop()
		timers.Put(timer)
	}()
	late := false
	select {
	case <-p.done:
	case <-ctx.Done():
	case <-timer.C:
		late = true
	}
	why := ctx.Err()
	if why == nil && late {
		why = context.DeadlineExceeded
	}
	return p.take(why)
}

// pending is an append on its way.
type pending struct {
	mu      sync.Mutex
	results []backend.Appended
	left    int
	taken   bool
	done    chan struct{}
	one     [1]backend.Appended
}

func newPending(n int) *pending {
	p := &pending{left: n, done: make(chan struct{})}
	if n == 1 {
		p.results = p.one[:]
	} else {
		p.results = make([]backend.Appended, n)
	}
	return p
}

func (p *pending) answer(i int, id string, err error, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken {
		return
	}
	p.results[i] = backend.Appended{ID: id, Err: err, Deduped: known && err == nil}
	if p.left--; p.left == 0 {
		close(p.done)
	}
}

// take returns the results; what has none is unknown, because of why if that is not nil.
func (p *pending) take(why error) ([]backend.Appended, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken = true
	var first error
	for i := range p.results {
		r := &p.results[i]
		if r.Err == nil && r.ID == "" {
			r.Err = fmt.Errorf("kafka: %w: no answer to the append", backend.ErrOutcomeUnknown)
			if why != nil {
				r.Err = fmt.Errorf("%w: %w", r.Err, why)
			}
		}
		if first == nil || errors.Is(r.Err, backend.ErrOutcomeUnknown) && !errors.Is(first, backend.ErrOutcomeUnknown) {
			first = r.Err
		}
	}
	return p.results, first
}

// notThere names the topic that is missing, if that is why and it is not the stream's.
func (b *Backend) notThere(err error, topic string) error {
	if errors.Is(err, backend.ErrStreamNotFound) && topic != b.set.topic {
		return fmt.Errorf("kafka: %w: topic %q", backend.ErrStreamNotFound, topic)
	}
	return err
}

// explainAppend tells what was never sent from what may be stored.
func (b *Backend) explainAppend(err error, topic string) error {
	switch {
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return b.tooLarge(err, topic)
	case errors.Is(err, kgo.ErrMaxBuffered):
		return &backend.FullError{Reason: backend.ReasonBufferFull, Err: fmt.Errorf("kafka: %d bytes wait to be sent (buffer_memory): %w", b.set.memory, err)}
	case errors.Is(err, kgo.ErrClientClosed), errors.Is(err, context.Canceled):
		return fmt.Errorf("kafka: %w: %w", backend.ErrOutcomeUnknown, backend.ErrClosed)
	}
	said := b.notThere(b.explain(err), topic)
	var refusal *kerr.Error
	refused := errors.As(err, &refusal) && !refusal.Retriable && refusal != kerr.UnknownServerError // which a broker may say after it stored
	if refused || errors.Is(said, backend.ErrStreamNotFound) {
		return said
	}
	return fmt.Errorf("%w: %w", backend.ErrOutcomeUnknown, said)
}
