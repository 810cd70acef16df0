package shard

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirmq/weir/backend"
)

// Delays reports whether the shards keep messages back until they are due; all are of one
// kind.
func (s *Stream) Delays() bool {
	d, ok := s.all()[0].Backend.(backend.Delayer)
	return ok && d.Delays()
}

// share is what goes to one shard.
type share struct {
	part  *part // nil: any
	index []int
}

// Append stores the messages without an idempotency key in one shard: of two drawn at
// random the one where less is waiting, or another one if that is down. A message with
// a key always goes to the same shard, one of those the stream began with.
func (s *Stream) Append(ctx context.Context, msgs []backend.Message) ([]backend.Appended, error) {
	if err := s.ensure(ctx); err != nil {
		return nil, err
	}
	shares := s.divide(msgs)
	if len(shares) == 1 {
		return s.appendTo(ctx, shares[0].part, msgs)
	}
	out := make([]backend.Appended, len(msgs))
	_, errs := fan(shares, func(_ int, sh share) (struct{}, error) {
		some := make([]backend.Message, len(sh.index))
		for n, i := range sh.index {
			some[n] = msgs[i]
		}
		stored, err := s.appendTo(ctx, sh.part, some)
		for n, i := range sh.index {
			if out[i].Err = err; n < len(stored) {
				out[i] = stored[n]
			}
		}
		return struct{}{}, err
	})
	return out, firstOf(errs)
}

// divide sorts the messages by where they go.
func (s *Stream) divide(msgs []backend.Message) []share {
	keyed := func(m backend.Message) bool { return m.IdempotencyKey != "" }
	if !slices.ContainsFunc(msgs, keyed) {
		return make([]share, 1)
	}
	all, first := s.all(), uint64(s.first.Load())
	var shares []share
	for i := range msgs {
		var p *part
		if keyed(msgs[i]) {
			p = all[home(msgs[i].IdempotencyKey, first)]
		}
		at := slices.IndexFunc(shares, func(sh share) bool { return sh.part == p })
		if at < 0 {
			at = len(shares)
			shares = append(shares, share{part: p})
		}
		shares[at].index = append(shares[at].index, i)
	}
	return shares
}

// home is the number of the shard that a key belongs to.
func home(key string, shards uint64) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	return h.Sum64() % shards
}

// appendTo appends to a shard; nil is the best one.
func (s *Stream) appendTo(ctx context.Context, to *part, msgs []backend.Message) (out []backend.Appended, err error) {
	for try, all := 0, s.all(); try < len(all); try++ {
		p := to
		if p == nil {
			p = pick(all)
		}
		began := time.Now()
		out, err = p.Append(ctx, msgs)
		if err != nil {
			p.failed(ctx, began, err)
			err = p.named(err)
			for i := range out {
				if out[i].Err != nil {
					out[i].Err = p.named(out[i].Err)
				}
			}
		}
		p.stored(out)
		if to != nil || !elsewhere(out, err) || ctx.Err() != nil {
			break
		}
	}
	return out, err
}

// stored counts what a shard has stored and makes the IDs those of the whole stream.
func (p *part) stored(out []backend.Appended) {
	n := int64(0)
	for i := range out {
		if out[i].Err != nil {
			continue
		}
		out[i].ID = p.prefix + out[i].ID
		if !out[i].Deduped {
			n++
		}
	}
	p.waiting.Add(n)
}

// elsewhere reports whether a failed append has certainly stored nothing, so that another
// shard may be tried.
func elsewhere(out []backend.Appended, err error) bool {
	if !errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrOutcomeUnknown) {
		return false
	}
	return !slices.ContainsFunc(out, func(a backend.Appended) bool {
		return a.Err == nil || errors.Is(a.Err, backend.ErrOutcomeUnknown)
	})
}

// pick returns, of two shards drawn at random, the one where less is waiting. The least
// of all would be the same for every producer until its next reading.
func pick(all []*part) *part {
	var ready [Most]*part
	n := 0
	now := int64(time.Since(began))
	for _, p := range all {
		if p.down.Load() == nil && p.ripe.Load() <= now {
			ready[n] = p
			n++
		}
	}
	switch n {
	case 0:
		return all[rand.IntN(len(all))]
	case 1:
		return ready[0]
	}
	a := rand.IntN(n)
	b := rand.IntN(n - 1)
	if b >= a {
		b++
	}
	if ready[b].waiting.Load() < ready[a].waiting.Load() {
		return ready[b]
	}
	return ready[a]
}

// leastWaiting is what a new shard is taken to hold until it is read.
func leastWaiting(all []*part) int64 {
	if len(all) == 0 {
		return 0
	}
	least := slices.MinFunc(all, func(a, b *part) int { return int(a.waiting.Load() - b.waiting.Load()) })
	return least.waiting.Load()
}
