package engine

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/governor"
	"github.com/weirmq/weir/internal/engine/topic"
	"github.com/weirmq/weir/internal/wal"
)

// admit takes a slot of the bounded ingest queue for a write of so many encoded
// bytes. It waits up to the ingest timeout, or for ever if the writer asked not
// to be refused, and then answers throttled with the estimated drain time. A
// write that the disk has no room for is refused at once. waited excludes the
// time a patient writer waited where others are refused.
func (e *Engine) admit(ctx context.Context, bytes int64, patient bool) (waited time.Duration, refused error) {
	if err := e.space.room(bytes); err != nil {
		return 0, err
	}
	timeout := e.opt.IngestTimeout
	refuses := governor.Refuses(e.governor.State().Pressure)
	if refuses && e.log.Full() {
		timeout = 0
	}
	if patient {
		timeout = math.MaxInt64
	}
	begin := time.Now()
	err := e.log.Reserve(ctx, timeout)
	if !refuses && !governor.Refuses(e.governor.State().Pressure) {
		waited = time.Since(begin)
	}
	return waited, e.refusal(ctx, err)
}

// refusal turns what Reserve returned into the answer.
func (e *Engine) refusal(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, wal.ErrFull):
		return api.Errorf(api.CodeThrottled, "the ingest queue is full; try again after retry_after_ms").
			After(time.Duration(spread(e.drainTimeMS())) * time.Millisecond)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return storageError(err)
}

// drainTimeMS estimates how long the ingest queue takes to empty at the rate of
// the last sample, within [100, 5000].
func (e *Engine) drainTimeMS() int64 {
	depth, rate := e.log.Metrics().QueueDepth, e.rate.Load()
	if depth > 0 && rate == 0 {
		return 5000 // nothing moves
	}
	return min(5000, max(100, 1000*depth/max(1, rate)))
}

// spread moves a time by up to half, within the bounds of drainTimeMS: writers
// that were refused together must not all come back at the same moment.
func spread(ms int64) int64 {
	return min(5000, max(100, ms/2+rand.Int64N(ms)))
}

// roomFor refuses a write that does not fit into a topic with discard "reject".
func (e *Engine) roomFor(t *entry, b *batch, now int64) error {
	if err := e.expire(t, now); err != nil {
		return err
	}
	c := t.plannedConfig()
	if c.Discard != api.DiscardReject || c.CapRecords == 0 && c.CapBytes == 0 {
		return nil
	}
	if topic.OverCap(c, uint64(b.n), b.bytes) {
		return api.Errorf(api.CodeRecordTooLarge, "the write (%d records, %d bytes) is larger than topic %q may ever hold (cap_records %d, cap_bytes %d)",
			b.n, b.bytes, t.Name, c.CapRecords, c.CapBytes)
	}
	if topic.OverCap(c, t.PlannedCount()+uint64(b.n), t.PlannedBytes()+b.bytes) {
		return api.Errorf(api.CodeTopicFull, "topic %q is full; try again when its readers have made room", t.Name).
			With("topic", t.Name).With("cap_records", c.CapRecords).With("cap_bytes", c.CapBytes).
			With("head_seq", t.Head).With("earliest_seq", t.Earliest())
	}
	return nil
}

// takeBytes counts the bytes of a client's write against the total cap; racing
// writers never exceed it.
func (e *Engine) takeBytes(t *entry, n int64) bool {
	limit := e.opt.Limits.MaxTotalBytes
	if limit <= 0 {
		return true
	}
	if e.bytes.Add(n) > limit {
		e.bytes.Add(-n)
		return false
	}
	t.accounted += uint64(n)
	return true
}

// takeKey counts a key that is about to be remembered against the limit, and is
// as exact as takeBytes. Keys recovered from the log are counted, never
// refused.
func (e *Engine) takeKey(t *entry, now int64) bool {
	limit := e.opt.Limits.MaxIdempotencyKeys
	if e.keys.Load() >= limit && limit > 0 {
		t.Keys.Expire(now, t.Config.IdempotencyWindowMS, keysPerTurn)
		e.countKeys(t)
	}
	if e.keys.Add(1) > limit && limit > 0 {
		e.keys.Add(-1)
		return false
	}
	t.keyed.Add(1)
	return true
}
