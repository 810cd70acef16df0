package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/backend"
)

// readEvery is how often a reader at the end looks for more.
const readEvery = 50 * time.Millisecond

// recordsTimeout bounds the wait for records: large ones may take long on a slow link, and brokers that say nothing are
// left sooner (internal/patient).
const recordsTimeout = time.Minute

var _ backend.Reader = (*Backend)(nil)

// Read returns records after a cursor, those of a partition in order and the partitions one
// after the other. What has been removed between the cursor and the first record is a gap.
// A cursor names the last record seen of each partition. Given the ID of one record only, it
// stands where a read from the start would: behind everything in the partitions before, and
// before everything in those behind.
func (b *Backend) Read(ctx context.Context, req backend.ReadRequest) (backend.Records, error) {
	if err := b.may(ctx); err != nil {
		return backend.Records{}, err
	}
	deadline := time.Now().Add(req.Block)
	at, err := parseCursor(req.After)
	if err != nil {
		return backend.Records{}, err
	}
	at.topic = b.cursors.topic(req.After)
	for {
		got, err := b.readBehind(ctx, &at, max(1, req.Max))
		left := time.Until(deadline)
		if err != nil || len(got.Records) > 0 || got.Gap != nil || left <= 0 {
			return got, b.cut(ctx, err)
		}
		select {
		case <-time.After(min(left, readEvery)):
		case <-ctx.Done():
			return got, nil
		case <-b.closing.Done():
			return got, errClosed
		}
	}
}

// cursor is the last offset seen of each partition.
type cursor struct {
	topic [16]byte // of which it is; zero: not known
	seen  map[int32]int64
	atEnd bool // of those that are not in seen; otherwise only of those before all that are
}

func parseCursor(text string) (cursor, error) {
	c := cursor{seen: map[int32]int64{}, atEnd: text == backend.CursorEnd}
	if text == backend.CursorStart || c.atEnd {
		return c, nil
	}
	for id := range strings.SplitSeq(text, ",") {
		partition, offset, ok := parseID(id)
		if !ok {
			return c, fmt.Errorf("kafka: cursor %q: want the ID of a record, PARTITION:OFFSET, or several with commas between them", text)
		}
		c.seen[partition] = offset
	}
	return c, nil
}

func (c *cursor) String() string {
	ids := make([]string, 0, len(c.seen))
	for _, p := range slices.Sorted(maps.Keys(c.seen)) {
		ids = append(ids, idOf(p, c.seen[p]))
	}
	return strings.Join(ids, ",")
}

// cursors are those that the handle has given last, with the topics that they are of: the text of one does not
// say it.
type cursors struct {
	mu    sync.Mutex
	of    map[string][16]byte
	order []string
}

// cursorsKept is for how many readers of a handle at the same time a topic made again is noticed for certain.
const cursorsKept = 100

func (c *cursors) topic(text string) [16]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[text]
}

func (c *cursors) note(text string, topic [16]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string][16]byte{}
	}
	if _, known := c.of[text]; known {
		c.order = slices.DeleteFunc(c.order, func(old string) bool { return old == text })
	} else if len(c.order) == cursorsKept {
		delete(c.of, c.order[0])
		c.order = c.order[1:]
	}
	c.of[text], c.order = topic, append(c.order, text)
}

// follow makes a cursor one of the topic that is there now, at whose start it stands if it was of another of this
// name. What it has seen of that is a gap, however far the new one goes.
func (c *cursor) follow(topic [16]byte, starts, ends map[int32]int64) *backend.Gap {
	another := c.topic != [16]byte{} && c.topic != topic
	c.topic = topic
	if !another {
		return nil
	}
	old := c.seen
	c.seen = map[int32]int64{}
	for p := range ends {
		c.seen[p] = starts[p] - 1
	}
	for _, p := range slices.Sorted(maps.Keys(old)) {
		if seen, there := c.seen[p]; old[p] > seen || !there && old[p] >= 0 {
			return &backend.Gap{From: idOf(p, old[p]), To: idOf(p, ends[p]-1), Reason: backend.GapRecreated}
		}
	}
	return nil
}

// place gives every partition a place.
func (c *cursor) place(starts, ends map[int32]int64) {
	first := int32(0)
	if len(c.seen) > 0 {
		first = slices.Min(slices.Collect(maps.Keys(c.seen)))
	}
	for p, end := range ends {
		switch _, there := c.seen[p]; {
		case there:
		case c.atEnd, p < first:
			c.seen[p] = end - 1
		default:
			c.seen[p] = starts[p] - 1
		}
	}
	c.atEnd = false
}

// gap returns what is missing in front of the cursor, and moves it over.
func (c *cursor) gap(partition int32, start, end int64) *backend.Gap {
	seen := c.seen[partition]
	switch {
	case seen < start-1:
		c.seen[partition] = start - 1
		missed := start - 1 - seen
		return &backend.Gap{From: idOf(partition, seen), To: idOf(partition, start-1), Reason: backend.GapRemoved, Missed: &missed}
	case seen >= end:
		c.seen[partition] = start - 1
		return &backend.Gap{From: idOf(partition, seen), To: idOf(partition, end-1), Reason: backend.GapRecreated}
	}
	return nil
}

// readBehind reads once and moves the cursor.
func (b *Backend) readBehind(ctx context.Context, at *cursor, most int) (backend.Records, error) {
	began := time.Now()
	records, end, err := b.beginFor(ctx, recordsTimeout)
	if err != nil {
		return backend.Records{}, err
	}
	defer end()
	ctx, done, err := b.begin(records)
	if err != nil {
		return backend.Records{}, err
	}
	defer done()
	l, err := b.layout(ctx)
	if err != nil {
		return backend.Records{}, err
	}
	var starts, ends map[int32]int64
	var noStarts, noEnds error
	var wait sync.WaitGroup
	wait.Go(func() { ends, noEnds = b.offsets(ctx, l, atEnd) })
	wait.Go(func() { starts, noStarts = b.offsets(ctx, l, atStart) })
	wait.Wait()
	for _, err := range []error{noEnds, noStarts} {
		if err != nil {
			return backend.Records{}, err
		}
	}
	var got backend.Records
	defer func() {
		if got.Next != "" {
			b.cursors.note(got.Next, l.id)
		}
	}()
	if got.Gap = at.follow(l.id, starts, ends); got.Gap != nil {
		got.Next = at.String()
		return got, nil
	}
	at.place(starts, ends)
	partitions := slices.Sorted(maps.Keys(ends))
	for _, p := range partitions {
		if got.Gap = at.gap(p, starts[p], ends[p]); got.Gap != nil {
			got.Next = at.String()
			return got, nil
		}
	}
	for _, p := range partitions {
		err := b.readPartition(records, l, at, p, ends[p], most, began.Add(callTimeout), &got)
		if err != nil && len(got.Records) > 0 {
			break // the next read says it
		}
		if err != nil {
			return backend.Records{}, b.explain(err)
		}
	}
	got.Next = at.String()
	return got, nil
}

// readPartition adds a partition's records before end, until there are most, or some and it is late: who reads over a slow
// link is not to wait for what is behind them.
func (b *Backend) readPartition(ctx context.Context, l *layout, at *cursor, partition int32, end int64, most int, late time.Time, into *backend.Records) error {
	for len(into.Records) < most && at.seen[partition] < end-1 {
		if len(into.Records) > 0 && time.Now().After(late) {
			return nil
		}
		from := at.seen[partition] + 1
		p, err := b.read(ctx, b.set.topic, l, partition, from, pageBytes)
		if err != nil {
			return err
		}
		if p.by.id != l.id { // made again since, which the next look finds
			b.topic.forget()
			return nil
		}
		if p.start > from { // removed since the starts were asked for: a gap, which the next look finds
			return nil
		}
		for _, r := range p.records {
			if len(into.Records) == most {
				return nil
			}
			into.Records = append(into.Records, readOf(r))
			at.seen[partition] = r.Offset
		}
		if p.next == from { // what comes next belongs to a transaction that has not ended
			return nil
		}
		at.seen[partition] = p.next - 1
	}
	return nil
}

func readOf(r *kgo.Record) backend.Record {
	data := slices.Clone(r.Value)
	if data == nil {
		data = []byte{}
	}
	return backend.Record{ID: idOf(r.Partition, r.Offset), Data: data, Headers: headersOf(r), At: publishedAt(r)}
}
