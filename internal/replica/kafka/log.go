package kafka

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/internal/replica"
)

// Newest implements replica.Log. It reads the log to its end, from where the last call of
// Newest or Lead ended.
func (l *Log) Newest(ctx context.Context) (replica.Term, error) {
	end, err := l.toEnd(ctx)
	if err != nil || end.term == 0 {
		return replica.Term{}, wrap(err)
	}
	return replica.Term{Number: end.term, Node: end.node, Started: end.startedAt()}, nil
}

// toEnd walks to the end of the log.
func (l *Log) toEnd(ctx context.Context) (place, error) {
	if err := ctx.Err(); err != nil {
		return place{}, err
	}
	l.walking.Lock()
	defer l.walking.Unlock()
	err := l.walkOn(ctx)
	if errors.Is(err, replica.ErrTrimmed) { // where it was is no more
		l.end = place{}
		err = l.walkOn(ctx)
	}
	return l.end, err
}

// walkOn walks from l.end to the end of the log, or from the start of one that has lost its end.
func (l *Log) walkOn(ctx context.Context) error {
	b, err := l.bounds(ctx)
	if err != nil {
		return err
	}
	if l.end.next > b.end {
		l.end = place{}
	}
	if l.end.pos > 0 && b.epoch != l.end.epoch {
		if still, err := l.endCursor.still(ctx, &l.end); err != nil {
			return err
		} else if !still {
			l.end = place{}
		}
	}
	switch {
	case b.start == b.end: // all that there was is deleted, and no record to learn from
		if l.end.next < b.end {
			l.end = place{next: b.end}
		}
	case b.start > 0 && l.end.next <= b.start:
		if l.end, err = l.endCursor.first(ctx, b.start); err != nil {
			return err
		}
	}
	l.end.epoch = b.epoch
	return l.endCursor.walkTo(ctx, &l.end, b.end)
}

// bounds are the offsets of the first record and behind the last one. The log is led by another
// broker, or anew, if the epoch is another: it may have lost its end.
type bounds struct {
	start, end int64
	epoch      int32
}

// bounds asks for them. The partition's leader may not know of it yet, if it was made or has
// moved right now.
func (l *Log) bounds(ctx context.Context) (b bounds, err error) {
	waiting, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	for {
		b, err = l.boundsNow(ctx)
		if err == nil || !kerr.IsRetriable(err) || !l.pause(waiting) {
			return b, err
		}
	}
}

func (l *Log) boundsNow(ctx context.Context) (bounds, error) {
	starts, err := l.admin.ListStartOffsets(ctx, l.topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return bounds{}, err
	}
	ends, err := l.admin.ListEndOffsets(ctx, l.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return bounds{}, err
	}
	first, _ := starts.Lookup(l.topic, 0)
	last, _ := ends.Lookup(l.topic, 0)
	return bounds{first.Offset, last.Offset, last.LeaderEpoch}, nil
}

// Lead implements replica.Log.
func (l *Log) Lead(ctx context.Context, node string) (replica.Lead, error) {
	if len(node) > maxNode {
		node = node[:maxNode]
	}
	l.follow(nil)
	for {
		end, err := l.toEnd(ctx)
		if err != nil {
			return replica.Lead{}, wrap(err)
		}
		begin := record{term: end.term + 1, parts: 1, started: time.Now().UnixMilli(), node: node, data: []byte(rand.Text())}
		if err := l.begins(ctx, begin); err != nil {
			return replica.Lead{}, wrap(err)
		}
		if end, err = l.toEnd(ctx); err != nil {
			return replica.Lead{}, wrap(err)
		}
		if end.term < begin.term || end.begun != string(begin.data) {
			continue // another was quicker
		}
		lead := replica.Lead{Term: begin.term, End: end.pos}
		end.begun = ""
		l.follow(newLeader(l, end))
		return lead, nil
	}
}

// begins appends the record that begins a term until the brokers have taken it: of several the
// first one counts.
func (l *Log) begins(ctx context.Context, begin record) error {
	for {
		err := l.producer.ProduceSync(ctx, &kgo.Record{Topic: l.topic, Value: begin.encode()}).FirstErr()
		if !kerr.IsRetriable(err) && !errors.Is(err, kgo.ErrRecordRetries) {
			return err
		}
		l.opt.Trouble(wrap(err))
		if !l.pause(ctx) {
			return ctx.Err()
		}
	}
}

// follow replaces the leader.
func (l *Log) follow(next *leader) {
	l.mu.Lock()
	old := l.leader
	l.leader = next
	l.mu.Unlock()
	if old != nil {
		old.stop(replica.ErrFenced)
		<-old.ended
	}
	if next != nil {
		go next.run()
	}
}

// Append implements replica.Log.
func (l *Log) Append(ctx context.Context, data []byte, stored func(pos uint64, err error)) error {
	l.mu.Lock()
	leader := l.leader
	l.mu.Unlock()
	if leader == nil {
		return errors.New("kafka: Append without Lead")
	}
	return leader.append(ctx, data, stored)
}

// Read implements replica.Log.
func (l *Log) Read(ctx context.Context, after uint64) (replica.Entry, error) {
	if err := ctx.Err(); err != nil {
		return replica.Entry{}, err
	}
	l.reading.Lock()
	defer l.reading.Unlock()
	b, err := l.bounds(ctx)
	if err != nil {
		return replica.Entry{}, wrap(err)
	}
	if b.start > int64(after) || after > 0 && b.start > int64(after)-1 {
		return replica.Entry{}, replica.ErrTrimmed
	}
	at := l.read
	known := at.pos == after && at.next > 0 && at.part == 0
	switch {
	case int64(after) > b.end:
		return replica.Entry{}, l.endsBefore(ctx, after)
	case after == 0:
		at = place{}
	case !known || b.epoch != at.epoch || !l.readCursor.standsAt(at.next):
		if at, err = l.readCursor.first(ctx, int64(after)-1); err != nil {
			return replica.Entry{}, wrap(err)
		}
		if known && !at.same(&l.read) {
			return replica.Entry{}, lostUpTo(after)
		}
	}
	at.epoch = b.epoch
	data, err := l.readCursor.walk(ctx, &at, b.end)
	if errors.Is(err, io.EOF) {
		return replica.Entry{}, err
	}
	if err != nil {
		return replica.Entry{}, wrap(err)
	}
	l.read = at
	return replica.Entry{Pos: at.pos, Term: at.term, Data: data}, nil
}

// endsBefore is what Read returns for a place behind the end of the log: once another leads, what
// was lost there does not come back.
func (l *Log) endsBefore(ctx context.Context, after uint64) error {
	newest, err := l.toEnd(ctx)
	switch {
	case err != nil:
		return wrap(err)
	case l.read.pos == after && newest.term > l.read.term:
		return lostUpTo(after)
	}
	return io.EOF
}

func lostUpTo(pos uint64) error {
	return fmt.Errorf("kafka: %w: the brokers have lost records up to position %d, which they had confirmed, and another server leads", replica.ErrTrimmed, pos)
}

// End implements replica.Log. Of a topic whose records are all gone it is known where they ended.
func (l *Log) End(ctx context.Context) (uint64, error) {
	end, err := l.toEnd(ctx)
	if end.pos == 0 && end.next > 0 {
		return uint64(end.next), wrap(err)
	}
	return end.pos, wrap(err)
}

// Trim implements replica.Log. The record at upTo stays: a reader that comes from there learns
// from it which records count.
func (l *Log) Trim(ctx context.Context, upTo uint64) error {
	end, err := l.toEnd(ctx)
	if err != nil || end.pos == 0 {
		return wrap(err)
	}
	b, err := l.bounds(ctx)
	if upTo = min(upTo, end.pos); err != nil || int64(upTo)-1 <= b.start {
		return wrap(err)
	}
	offsets := kadm.Offsets{}
	offsets.AddOffset(l.topic, 0, int64(upTo)-1, -1)
	done, err := l.admin.DeleteRecords(ctx, offsets)
	if err == nil {
		err = done.Error()
	}
	return wrap(err)
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("kafka: %w", err)
}
