package queue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

// Bounds of one write, unless the server's max_batch_records or max_body_bytes is less; more
// messages go into several.
const (
	maxWriteRecords = 1000
	maxWriteBytes   = 4 << 20
)

// Append stores messages in order. Neighbouring messages without an idempotency key
// share a write, which is all or nothing; each message with a key has its own write,
// and those share a request.
func (b *Backend) Append(ctx context.Context, msgs []backend.Message) ([]backend.Appended, error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	a := appending{b: b, msgs: msgs, out: make([]backend.Appended, len(msgs))}
	return a.out, a.run(ctx)
}

// Gathering has concurrent appends share writes, and those with keys share requests.
func (b *Backend) Gathering() backend.Gathering {
	return backend.Gathering{Appends: 2, Keyed: true, Joint: true}
}

// Delays reports that a message can be delayed: each record of a queue has its own delay.
func (b *Backend) Delays() bool { return true }

// appending is the state of one Append.
type appending struct {
	b       *Backend
	msgs    []backend.Message
	out     []backend.Appended
	keyed   bool // the gathered messages have keys; false: none has one
	records []api.Record
	index   []int // the message of each of records
	bytes   int
	first   error // the first that went wrong
}

func (a *appending) run(ctx context.Context) error {
	for i := range a.msgs {
		m := &a.msgs[i]
		r, err := a.b.encode(m)
		if err != nil {
			a.lost(i, err)
			continue
		}
		keyed := m.IdempotencyKey != ""
		if keyed != a.keyed || len(a.records) >= a.b.mostRecords() || a.bytes+r.Size() > maxWriteBytes {
			a.flush(ctx)
		}
		a.keyed = keyed
		a.records, a.index, a.bytes = append(a.records, r), append(a.index, i), a.bytes+r.Size()
	}
	a.flush(ctx)
	return a.first
}

func (a *appending) lost(i int, err error) {
	a.out[i].Err = err
	if a.first == nil {
		a.first = err
	}
}

// flush writes the gathered messages.
func (a *appending) flush(ctx context.Context) {
	switch {
	case len(a.records) == 0:
	case a.keyed:
		a.each(ctx)
	default:
		a.store(ctx, &api.WriteRequest{Records: a.records}, a.index)
	}
	a.records, a.index, a.bytes = nil, nil, 0 // the service may still read them
}

// store makes one write of the messages in index. After an error nothing more is sent,
// except that invalid messages are simply left out.
func (a *appending) store(ctx context.Context, req *api.WriteRequest, index []int) {
	res, err := api.WriteResult{}, a.stopped(ctx)
	if err == nil {
		res, err = a.b.write(ctx, req)
	}
	if most := a.b.fewer(err, len(index)); most > 0 {
		for records := req.Records; len(index) > 0; {
			n, some := min(most, a.b.mostRecords(), len(index)), *req
			some.Records = records[:n]
			a.store(ctx, &some, index[:n])
			records, index = records[n:], index[n:]
		}
		return
	}
	a.stored(&res, err, index)
}

// mostRecords is how many records a request may have, as far as is known.
func (b *Backend) mostRecords() int { return int(cmp.Or(b.writeMost.Load(), maxWriteRecords)) }

// fewer returns how many records to send at once if a server, or a proxy in front of it, has refused
// n as too many or too large for one request, which has stored nothing; else 0.
func (b *Backend) fewer(err error, n int) int {
	many := api.IsCode(err, api.CodeBatchTooLarge)
	if n == 1 || !many && !api.IsCode(err, api.CodePayloadTooLarge) && !errors.Is(err, backend.ErrTooLarge) {
		return 0
	}
	if many {
		b.writeMost.Store(int64(n / 2))
	}
	return n / 2
}

func (a *appending) stored(res *api.WriteResult, err error, index []int) {
	err = a.b.fail(err, true)
	for n, i := range index {
		if err != nil {
			a.lost(i, err)
			continue
		}
		a.out[i] = backend.Appended{ID: formatSeq(res.FirstSeq + uint64(n)), Deduped: res.Deduped}
	}
}

// each writes each record under its message's key. If the topic is absent, the first
// record is written separately, which creates the topic.
func (a *appending) each(ctx context.Context) {
	reqs := make([]api.WriteRequest, len(a.records))
	for n := range reqs {
		reqs[n] = api.WriteRequest{
			Records: a.records[n : n+1], IdempotencyKey: []byte(shortKey(a.msgs[a.index[n]].IdempotencyKey)), HasIdempotencyKey: true,
		}
	}
	n := 0
	if a.b.absent.Load() {
		a.store(ctx, &reqs[n], a.index[n:n+1])
		n++
	}
	for len(reqs)-n > 1 && a.stopped(ctx) == nil {
		end := min(n+a.b.mostRecords(), len(reqs))
		made := a.together(ctx, reqs[n:end], a.index[n:end])
		if made == 0 {
			break
		}
		n += made
	}
	for ; n < len(reqs); n++ {
		a.store(ctx, &reqs[n], a.index[n:n+1])
	}
}

// together makes the writes in one request, and returns how many it made: none if the
// server is of an earlier version.
func (a *appending) together(ctx context.Context, reqs []api.WriteRequest, index []int) int {
	no := false
	for n := range reqs {
		reqs[n].Create = &no
	}
	out, err := a.b.svc.WriteEach(ctx, a.b.opt.Topic, reqs)
	if errors.Is(err, errors.ErrUnsupported) {
		return 0
	}
	if most := a.b.fewer(err, len(reqs)); most > 0 {
		return a.together(ctx, reqs[:most], index[:most])
	}
	if err != nil {
		a.stored(new(api.WriteResult), err, index)
		return len(reqs)
	}
	for n := range out {
		if api.IsCode(out[n].Err, api.CodeTopicNotFound) {
			a.store(ctx, &reqs[n], index[n:n+1]) // it was deleted in the meantime
			continue
		}
		a.stored(&out[n].WriteResult, out[n].Err, index[n:n+1])
	}
	return len(out)
}

// stopped returns an error if the context has ended or an earlier write of the same Append failed.
func (a *appending) stopped(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("not sent: %w", ctx.Err())
	}
	for i := range a.out {
		if err := a.out[i].Err; err != nil && backend.Retryable(err) && !sheds(err) {
			return fmt.Errorf("%w: not sent, because a message before it failed", backend.ErrUnavailable)
		}
	}
	return nil
}

// sheds reports whether a queue refused a message for its priority or its fair key,
// which says nothing about others.
func sheds(err error) bool {
	var full *backend.FullError
	return errors.As(err, &full) && full.Reason == backend.ReasonLoadShedding
}

// write appends records, creating the queue if it is absent.
func (b *Backend) write(ctx context.Context, req *api.WriteRequest) (api.WriteResult, error) {
	return b.writeTo(ctx, b.opt.Topic, req, true)
}

// writeTo writes to a topic. The configuration is sent only if the topic is known to be
// absent, because the call then needs more rights.
func (b *Backend) writeTo(ctx context.Context, name string, req *api.WriteRequest, queue bool) (api.WriteResult, error) {
	own := name == b.opt.Topic
	if !own || !b.absent.Load() {
		no := false
		req.Create, req.Config = &no, nil
		res, err := b.svc.Write(ctx, name, req)
		if !api.IsCode(err, api.CodeTopicNotFound) {
			return res, err
		}
	}
	yes, cfg := true, b.configFor(queue)
	req.Create, req.Config = &yes, &cfg
	res, err := b.svc.Write(ctx, name, req)
	if own && err == nil {
		b.absent.Store(false)
	}
	return res, err
}

// shortKey makes a key the contract accepts.
func shortKey(key string) string {
	if len(key) <= api.MaxIdempotencyKeyBytes && utf8.ValidString(key) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}
