package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// oldest are the times of the records last read, by partition.
type oldest struct {
	mu    sync.Mutex
	topic [16]byte // that was read
	all   map[int32]stamp
	rest  time.Time // until then none is read
}

// A record comes with all of its batch. Where that is large and the link slow, reading when it was published would leave
// little of the link to the work: what took longer than slowStamps is not read again for stampsRest times as long.
const (
	slowStamps = time.Second
	stampsRest = 10
)

// stamp is when the record at an offset was published; zero if it does not say so.
type stamp struct {
	offset int64
	at     time.Time
	bytes  int // that came with it
}

var errResting = errors.New("kafka: when records were published is not read for now")

// oldestOf returns when the oldest unfinished record was published, as far as can be
// known; zero if it cannot. Partitions in which only holes are left, as compaction and
// transactions leave them, are taken out of w.
func (b *Backend) oldestOf(ctx context.Context, w *work, r *reading) time.Time {
	type answer struct {
		partition int32
		stamp     stamp
		none      bool
		err       error
	}
	answers := make(chan answer, len(w.parts))
	var unknown map[int32]int64
	began := time.Now()
	b.oldest.mu.Lock()
	if b.oldest.topic != w.topic { // it was deleted and made again
		b.oldest.all = nil
	}
	for p, at := range w.parts {
		offset := r.first(p, at)
		if known, there := b.oldest.all[p]; there && known.offset == offset {
			answers <- answer{partition: p, stamp: known}
			continue
		}
		if began.Before(b.oldest.rest) {
			answers <- answer{partition: p, err: errResting}
			continue
		}
		if unknown == nil {
			unknown = make(map[int32]int64, len(w.parts))
		}
		unknown[p] = offset
	}
	b.oldest.mu.Unlock()
	found := b.stampsAt(ctx, unknown)
	for p, offset := range unknown {
		if at, there := found[p]; there {
			answers <- answer{partition: p, stamp: at}
			continue
		}
		go func() {
			at, none, err := b.stampAt(ctx, p, offset)
			answers <- answer{p, at, none, err}
		}()
	}
	var first time.Time
	known := map[int32]stamp{}
	large := false
	for range len(w.parts) {
		a := <-answers
		large = large || a.stamp.bytes > stampBytes || a.err != nil && ctx.Err() != nil
		switch {
		case a.err != nil:
		case a.none:
			w.nothingIn(a.partition)
		default:
			known[a.partition] = a.stamp
			if at := a.stamp.at; !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	b.oldest.mu.Lock()
	b.oldest.topic, b.oldest.all = w.topic, known
	if took := time.Since(began); large && len(unknown) > 0 && took >= slowStamps {
		b.oldest.rest = began.Add((1 + stampsRest) * took)
	}
	b.oldest.mu.Unlock()
	return first
}

// nothingIn notes that what is left of a partition are holes.
func (w *work) nothingIn(partition int32) {
	if w.left != nil {
		left := *w.left - w.parts[partition].left
		w.left = &left
	}
	delete(w.parts, partition)
}

func (s *stamp) note(r *kgo.Record) { s.at = publishedAt(r) }

// stampBytes is how much of each partition is read with one request for several.
const stampBytes = 16 << 10

// stampsAt reads the times of the records at offsets of partitions with a request for each
// broker. Partitions whose first batch says nothing about it, or does not fit, are left out.
func (b *Backend) stampsAt(ctx context.Context, offsets map[int32]int64) map[int32]stamp {
	l, err := b.layout(ctx)
	if err != nil || len(offsets) < 2 {
		return nil
	}
	byLeader := map[int32][]kmsg.FetchRequestTopicPartition{}
	for partition, offset := range offsets {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, stampBytes
		if leader, there := l.leaders[partition]; there && leader >= 0 {
			byLeader[leader] = append(byLeader[leader], p)
		}
	}
	var mu sync.Mutex
	var wait sync.WaitGroup
	found := make(map[int32]stamp, len(offsets))
	for leader, parts := range byLeader {
		wait.Go(func() {
			answers, err := b.fetchOnce(ctx, b.set.topic, l.id, leader, parts, stampBytes*int32(len(parts)))
			if err != nil {
				return // each is asked for by itself
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range answers {
				p := &answers[i]
				at := stamp{offset: offsets[p.Partition], bytes: len(p.RecordBatches)}
				p.RecordBatches = firstBatch(p.RecordBatches)
				page, err := b.pageOf(b.set.topic, p, at.offset)
				if err == nil && len(page.records) > 0 {
					at.note(page.records[0])
					found[p.Partition] = at
				}
			}
		})
	}
	wait.Wait()
	return found
}

// firstBatch cuts off what follows the first batch of records.
func firstBatch(batches []byte) []byte {
	const head = 12 // an offset and the length of what follows
	if len(batches) < head {
		return nil
	}
	if n := head + int64(binary.BigEndian.Uint32(batches[8:])); n < int64(len(batches)) {
		return batches[:n]
	}
	return batches
}

// holes is how many pages without a record are read in search of one.
const holes = 8

// stampAt reads the time of the first record from an offset on. none says that there is none.
func (b *Backend) stampAt(ctx context.Context, partition int32, offset int64) (at stamp, none bool, err error) {
	l, err := b.layout(ctx)
	if err != nil {
		return stamp{}, false, err
	}
	at.offset = offset
	for range holes {
		p, err := b.read(ctx, b.set.topic, l, partition, offset, 1)
		at.bytes += p.bytes
		switch {
		case err != nil:
			return stamp{}, false, err
		case len(p.records) > 0:
			at.note(p.records[0])
			return at, false, nil
		case p.next >= p.high:
			return at, true, nil
		case p.next == offset:
			return at, false, nil
		}
		offset = p.next
	}
	return at, false, nil
}

// first returns where the oldest unfinished record of a partition is to be looked for. The
// group's start moves on only with the next acknowledgement after those that have finished
// what is behind it, which may be long after. What is held lies between the two ends of p;
// without any, the unfinished ones are the last.
func (r *reading) first(partition int32, p part) int64 {
	if !r.ours {
		return p.first // nobody says what is held
	}
	if held, there := r.held[partition]; there && held >= p.first {
		return min(held, p.last)
	}
	return p.last
}
