package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/internal/replica"
)

// leader appends the entries of one term.
type leader struct {
	log     *Log
	term    uint64
	node    string
	started int64
	slots   chan struct{} // holds a token of every entry under way
	over    chan struct{} // closed by stop
	ended   chan struct{} // closed when run has returned
	wake    chan struct{} // there is something to send
	acks    chan ack
	looks   chan look

	mu     sync.Mutex
	number uint64 // of the entry appended last
	queue  []*pending
	why    error

	// Of run:
	at       place // how far the log is known
	heardAt  time.Time
	cursor   cursor
	sent     uint64 // number of the entry sent last
	underWay int    // records
	failed   error
}

// pending is an entry that is not known to count.
type pending struct {
	number uint64
	parts  []record
	stored func(pos uint64, err error)
	detach func() bool // from its context
}

// ack is what Kafka said of a record.
type ack struct {
	record record
	offset int64
	err    error
}

func newLeader(log *Log, at place) *leader {
	return &leader{
		log: log, term: at.term, node: at.node, started: at.started, at: at, heardAt: time.Now(), cursor: cursor{log: log},
		slots: make(chan struct{}, replica.Window), over: make(chan struct{}), ended: make(chan struct{}),
		wake: make(chan struct{}, 1), acks: make(chan ack, 64), looks: make(chan look),
	}
}

func (l *leader) append(ctx context.Context, data []byte, stored func(pos uint64, err error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-l.over:
		return l.reason()
	}
	data = append([]byte(nil), data...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why != nil {
		return l.why
	}
	l.number++
	p := &pending{number: l.number, stored: stored, parts: l.split(l.number, data)}
	p.detach = context.AfterFunc(ctx, func() { l.stop(ctx.Err()) })
	l.queue = append(l.queue, p)
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return nil
}

// split cuts an entry into records that the topic takes.
func (l *leader) split(number uint64, data []byte) []record {
	size := l.log.chunk
	parts := max(1, (len(data)+size-1)/size)
	all := make([]record, parts)
	for i := range all {
		piece := data[min(len(data), i*size):min(len(data), (i+1)*size)]
		all[i] = record{term: l.term, number: number, part: uint32(i), parts: uint32(parts), started: l.started, node: l.node, data: piece}
	}
	return all
}

// stop ends the leader: what is not known to count fails with err.
func (l *leader) stop(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why == nil {
		l.why = err
		close(l.over)
	}
}

func (l *leader) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why
}

// run appends what is queued until the leader is stopped.
func (l *leader) run() {
	defer close(l.ended)
	ctx, cancel := context.WithCancel(l.log.closing)
	defer cancel()
	defer l.cursor.close()
	go func() {
		<-l.over
		cancel()
	}()
	for l.reason() == nil {
		select {
		case <-l.wake:
		case a := <-l.acks:
			l.heard(ctx, a)
		case q := <-l.looks:
			q.answer <- l.kept(ctx, q.from)
		case <-l.over:
		}
		if l.failed != nil && l.underWay == 0 {
			l.log.opt.Trouble(wrap(l.failed))
			l.madeAnew(ctx)
			l.pause()
			l.failed, l.sent = nil, l.at.number // again; what was stored nevertheless counts once
		}
		if l.failed == nil {
			l.send(ctx)
		}
	}
	l.mu.Lock()
	failed, why := l.queue, l.why
	l.queue = nil
	l.mu.Unlock()
	for _, p := range failed {
		p.detach()
		p.stored(0, why)
	}
}

func (l *leader) pause() {
	select {
	case <-l.over:
	case <-time.After(50*time.Millisecond + rand.N(200*time.Millisecond)):
	}
}

// send hands the producer what it does not have yet.
func (l *leader) send(ctx context.Context) {
	l.mu.Lock()
	var next []*pending
	for _, p := range l.queue {
		if p.number > l.sent {
			next = append(next, p)
		}
	}
	l.mu.Unlock()
	for _, p := range next {
		l.sent = p.number
		for _, r := range p.parts {
			l.underWay++
			l.log.producer.Produce(ctx, &kgo.Record{Topic: l.log.topic, Value: r.encode()}, func(k *kgo.Record, err error) {
				select {
				case l.acks <- ack{r, k.Offset, err}:
				case <-l.over:
				}
			})
		}
	}
}

// heard goes on to the record that Kafka has taken. If it came right behind the one before,
// that is all; otherwise what lies between is read.
func (l *leader) heard(ctx context.Context, a ack) {
	l.underWay--
	switch {
	case a.err != nil:
		l.failed = a.err
		return
	case a.offset == l.at.next:
		if still, err := l.still(ctx); err != nil {
			l.failed = err
			return
		} else if !still {
			_ = l.lost(ctx, fmt.Sprintf("position %d is another's", l.at.pos)) // the leader ends with it
			return
		}
		if _, counts := l.at.step(a.offset, a.record, true); counts {
			l.done(l.at.number, l.at.pos)
		}
	case a.offset > l.at.next:
		if err := l.gap(ctx, a.offset+1); err != nil {
			l.failed = err
			return
		}
	case a.record.number > l.at.number: // known as another one's place
		_ = l.lost(ctx, fmt.Sprintf("offset %d was given out again", a.offset)) // the leader ends with it
		return
	}
	if l.at.term == l.term && l.underWay == 0 && l.sent > l.at.number && l.failed == nil {
		l.failed = fmt.Errorf("the entries from %d on of term %d do not follow each other in the log", l.at.number+1, l.term)
	}
}

// still reports whether what the leader knows of the log is there, if it has heard nothing for a
// while: another may have filled what was lost meanwhile, up to the same offset.
func (l *leader) still(ctx context.Context) (bool, error) {
	now := time.Now()
	passed := max(now.Sub(l.heardAt), time.Duration(now.UnixNano()-l.heardAt.UnixNano())) // a machine may have slept
	if passed < time.Second {
		l.heardAt = now
		return true, nil
	}
	b, err := l.log.bounds(ctx)
	if err != nil {
		return false, err
	}
	if b.epoch != l.at.epoch {
		if still, err := l.cursor.still(ctx, &l.at); err != nil || !still {
			return false, err
		}
	}
	l.at.epoch, l.heardAt = b.epoch, now
	return true, nil
}

// gap reads up to end. Records of older leaders are void; one that begins a later term ends
// this one.
func (l *leader) gap(ctx context.Context, end int64) error {
	for {
		_, err := l.cursor.walk(ctx, &l.at, end)
		switch {
		case err != nil && l.at.next >= end:
			return nil
		case errors.Is(err, replica.ErrTrimmed):
			l.stop(fmt.Errorf("%w: %w", replica.ErrFenced, err))
			return nil
		case err != nil:
			return err
		case l.at.term != l.term:
			l.stop(replica.ErrFenced)
			return nil
		}
		l.done(l.at.number, l.at.pos)
	}
}

// done calls back for the entry with a number, which counts.
func (l *leader) done(number, pos uint64) {
	l.mu.Lock()
	if l.why != nil || len(l.queue) == 0 || l.queue[0].number != number {
		l.mu.Unlock()
		return
	}
	p := l.queue[0]
	l.queue = l.queue[1:]
	l.mu.Unlock()
	p.detach()
	<-l.slots
	p.stored(pos, nil)
}
