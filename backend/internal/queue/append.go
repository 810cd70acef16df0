package queue

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"unicode/utf8"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

// Bounds of one write; more messages go into several.
const (
	maxWriteRecords = 1000
	maxWriteBytes   = 4 << 20
)

// Append stores messages in order. Neighbours without an idempotency key share
// a write, which is all or none; one with a key has its own.
func (b *Backend) Append(ctx context.Context, msgs []backend.Message) ([]backend.Appended, error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	a := appending{b: b, msgs: msgs, out: make([]backend.Appended, len(msgs))}
	return a.out, a.run(ctx)
}

// appending is one Append in the making.
type appending struct {
	b       *Backend
	msgs    []backend.Message
	out     []backend.Appended
	records []api.Record
	index   []int // which message each of records is
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
		if m.IdempotencyKey != "" || len(a.records) == maxWriteRecords || a.bytes+r.Size() > maxWriteBytes {
			a.flush(ctx, "")
		}
		a.records, a.index, a.bytes = append(a.records, r), append(a.index, i), a.bytes+r.Size()
		if m.IdempotencyKey != "" {
			a.flush(ctx, shortKey(m.IdempotencyKey))
		}
	}
	a.flush(ctx, "")
	return a.first
}

func (a *appending) lost(i int, err error) {
	a.out[i].Err = err
	if a.first == nil {
		a.first = err
	}
}

// flush writes what is gathered. Behind an error nothing more is sent, so that
// what is stored is a beginning of the batch; invalid messages are left out of it.
func (a *appending) flush(ctx context.Context, key string) {
	if len(a.records) == 0 {
		return
	}
	res, err := api.WriteResult{}, a.stopped()
	if err == nil {
		res, err = a.b.write(ctx, &api.WriteRequest{Records: a.records, IdempotencyKey: []byte(key), HasIdempotencyKey: key != ""})
		err = a.b.fail(err, true)
	}
	for n, i := range a.index {
		if err != nil {
			a.lost(i, err)
			continue
		}
		a.out[i] = backend.Appended{ID: formatSeq(res.FirstSeq + uint64(n)), Deduped: res.Deduped}
	}
	a.records, a.index, a.bytes = nil, nil, 0 // the service may still read them
}

// stopped returns an error if an earlier write of the same Append failed.
func (a *appending) stopped() error {
	for i := range a.out {
		if err := a.out[i].Err; err != nil && backend.Retryable(err) {
			return fmt.Errorf("%w: not sent, because a message before it failed", backend.ErrUnavailable)
		}
	}
	return nil
}

// write appends records, creating the queue if it is absent.
func (b *Backend) write(ctx context.Context, req *api.WriteRequest) (api.WriteResult, error) {
	return b.writeTo(ctx, b.opt.Topic, req, true)
}

// writeTo writes to a topic. The configuration goes along only once the topic
// is known to be absent: with it the call needs more rights.
func (b *Backend) writeTo(ctx context.Context, name string, req *api.WriteRequest, queue bool) (api.WriteResult, error) {
	no := false
	req.Create, req.Config = &no, nil
	res, err := b.svc.Write(ctx, name, req)
	if !api.IsCode(err, api.CodeTopicNotFound) {
		return res, err
	}
	yes, cfg := true, b.configFor(queue)
	req.Create, req.Config = &yes, &cfg
	return b.svc.Write(ctx, name, req)
}

// shortKey makes a key that the contract takes.
func shortKey(key string) string {
	if len(key) <= api.MaxIdempotencyKeyBytes && utf8.ValidString(key) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}
