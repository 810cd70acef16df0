package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/internal/replica"
)

// fetchWait is how long a fetch waits for records, and by how much a broker is silent for longer before it is left.
const fetchWait = time.Second

// cursor reads records one after the other. It is for one goroutine at a time.
type cursor struct {
	log    *Log
	client *kgo.Client // nil: nothing was read yet
	next   int64       // of the record that comes next
	got    []*kgo.Record
}

// read returns the record at an offset below end, which is one that the topic has or had;
// or the one behind it, if there is none at the offset itself.
func (c *cursor) read(ctx context.Context, offset int64) (*kgo.Record, error) {
	if !c.standsAt(offset) {
		if err := c.seek(offset); err != nil {
			return nil, err
		}
	}
	for len(c.got) == 0 {
		fetches := c.client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var failed error
		fetches.EachError(func(_ string, _ int32, err error) { failed = err })
		if lost := (*kgo.ErrDataLoss)(nil); errors.Is(failed, kerr.OffsetOutOfRange) || errors.As(failed, &lost) {
			c.close()
			return nil, fmt.Errorf("%w: %w", replica.ErrTrimmed, failed)
		}
		if failed != nil && !kerr.IsRetriable(failed) {
			c.close()
			return nil, failed
		}
		c.got = fetches.Records()
	}
	r := c.got[0]
	c.got, c.next = c.got[1:], r.Offset+1
	return r, nil
}

// standsAt reports whether the client goes on at an offset, and notices if what was in front is lost.
func (c *cursor) standsAt(offset int64) bool { return c.client != nil && c.next == offset }

func (c *cursor) seek(offset int64) error {
	c.close()
	client, err := c.log.client(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.log.topic: {0: kgo.NewOffset().At(offset)}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxPartitionBytes(4<<20), kgo.MaxConcurrentFetches(1), kgo.FetchMaxWait(fetchWait),
	)
	c.client, c.next = client, offset
	return err
}

func (c *cursor) close() {
	if c.client != nil {
		c.client.Close()
	}
	c.client, c.got = nil, nil
}

// walk goes on from a place until it is behind an entry that counts, or at end: io.EOF.
func (c *cursor) walk(ctx context.Context, p *place, end int64) (data []byte, err error) {
	sure := p.pos == 0 // that what p is behind is there
	for p.next < end {
		k, err := c.read(ctx, p.next)
		if err != nil {
			return nil, err
		}
		r, ours := decode(k.Value)
		if data, counts := p.step(k.Offset, r, ours); counts {
			return data, nil
		}
		// An entry of a term whose beginning was not seen is void, or its term began where p is.
		if ours && !sure && r.number > 0 && r.term >= p.term && !p.leads(r) {
			if sure, err = c.still(ctx, p); err != nil {
				return nil, err
			} else if !sure {
				return nil, lostUpTo(p.pos)
			}
		}
	}
	return nil, io.EOF
}

// walkTo goes on from a place to end.
func (c *cursor) walkTo(ctx context.Context, p *place, end int64) error {
	for {
		switch _, err := c.walk(ctx, p, end); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// still reports whether the record that p is behind is there.
func (c *cursor) still(ctx context.Context, p *place) (bool, error) {
	at, err := c.first(ctx, int64(p.pos)-1)
	if errors.Is(err, replica.ErrDamaged) || errors.Is(err, replica.ErrTrimmed) {
		return false, nil
	}
	return at.same(p), err
}

// first returns the place behind the record at an offset, which counts.
func (c *cursor) first(ctx context.Context, offset int64) (p place, err error) {
	r, err := c.read(ctx, offset)
	if err != nil {
		return p, err
	}
	held, ours := decode(r.Value)
	if !ours || r.Offset != offset {
		return p, fmt.Errorf("%w: the record at %d of topic %s is not one of weir", replica.ErrDamaged, offset, c.log.topic)
	}
	p.resume(offset, held)
	return p, nil
}
