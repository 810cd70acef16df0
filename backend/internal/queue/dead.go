package queue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

// tagDead is the prefix of the tag that names a single dead letter, so that it can be
// deleted by itself. The message's own tag is kept in its headers meanwhile.
const tagDead = "weir-dlq:"

// moveLease is the minimum time a move to the dead letters is given.
const moveLease = 10 * time.Second

// headerDeadEnqueued is when the message of a dead letter was published, Unix ms.
const headerDeadEnqueued = "weir-dead-enqueued"

// DeadLetter moves a delivery to the topic to: it renews the lease, writes a copy there
// under an idempotency key, and only then acknowledges the message. If the lease ends
// in between, both exist and the error wraps ErrOutcomeUnknown.
func (b *Backend) DeadLetter(ctx context.Context, d *backend.Delivery, to string, cause backend.Cause) error {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	lost, err := b.settleOne(ctx, d.Lease, api.Settlement{Kind: api.SettleExtend, Lease: max(time.Duration(b.reclaimAfter.Load()), moveLease)})
	if err != nil {
		return err
	}
	if lost {
		return fmt.Errorf("message %s: %w", d.ID, backend.ErrLeaseLost)
	}
	_, err = b.moveDead(ctx, d.Lease, d.Consumer, to, cause)
	return err
}

// moveDead moves the message of a lease that has just begun; holder is the last one to have
// it. It reads the record: a claim does not show all of it.
func (b *Backend) moveDead(ctx context.Context, l backend.Lease, holder, to string, cause backend.Cause) (backend.DeadLetter, error) {
	seq, _ := parseSeq(l.ID)
	r, _, err := b.record(ctx, b.opt.Topic, seq)
	if err != nil {
		return backend.DeadLetter{}, b.fail(err, false)
	}
	if r == nil {
		return backend.DeadLetter{}, fmt.Errorf("message %s: %w", l.ID, backend.ErrLeaseLost)
	}
	to = cmp.Or(to, b.info.DeadLetter)
	letter := backend.DeadLetter{
		Stream: b.opt.Topic, Group: Group, OriginID: l.ID, Attempts: cause.Attempts(l.Attempt),
		Reason: cause.Reason, Error: cutError(cause.Error), Consumer: holder, Enqueued: at(r.TS), DeadAt: time.Now(),
	}
	letter.Data, letter.Headers = decode(r)
	letter.Redrives, _ = strconv.Atoi(letter.Headers[backend.HeaderRedrives])
	delete(letter.Headers, backend.HeaderRedrives)
	res, err := b.writeLetter(ctx, to, &letter, r)
	if err != nil {
		return letter, fmt.Errorf("dead letter of message %s to %q: %w", l.ID, to, b.fail(err, true))
	}
	letter.ID = formatSeq(res.FirstSeq)
	lost, err := b.settleOne(ctx, l, api.Settlement{Kind: api.SettleAck})
	if err == nil && lost {
		err = backend.ErrOutcomeUnknown
	}
	if err != nil {
		return letter, fmt.Errorf("the dead letter of message %s is stored in %q, but the message may still be in the queue: %w", l.ID, to, err)
	}
	b.errs.forget([]backend.Lease{l})
	return letter, nil
}

func (b *Backend) settleOne(ctx context.Context, l backend.Lease, call api.Settlement) (lost bool, err error) {
	seq, ok := parseSeq(l.ID)
	if !ok {
		return false, badLease(l.ID)
	}
	call.Node, call.Seqs, call.Leases = l.Consumer, []uint64{seq}, []string{l.Token}
	skipped, err := b.svc.Settle(ctx, b.opt.Topic, &call)
	if api.IsCode(err, api.CodeTopicNotFound) {
		return true, nil
	}
	return len(skipped) > 0, b.fail(err, true)
}

// CheckDeadLetter refuses the queue itself, and what cannot be the name of a topic.
func (b *Backend) CheckDeadLetter(name string) error {
	switch name {
	case "":
		return nil // Info.DeadLetter
	case b.opt.Topic:
		return fmt.Errorf("%q is the queue itself, whose workers would get the dead letters: use another name, or none for %q", name, b.info.DeadLetter)
	}
	if err := api.CheckTopicName(name); err != nil {
		return errors.New(api.Sentence(err))
	}
	return nil
}

// writeLetter appends the dead letter of a record. The key includes the time of publishing, because
// the numbers of a queue that is deleted and created again start over.
func (b *Backend) writeLetter(ctx context.Context, to string, l *backend.DeadLetter, r *api.Record) (res api.WriteResult, err error) {
	if err := b.CheckDeadLetter(to); err != nil {
		return api.WriteResult{}, err
	}
	name := fmt.Sprintf("%s:%s-%d", l.Stream, l.OriginID, l.Enqueued.UnixMilli())
	for _, what := range []letterFacts{allFacts, withoutError, noFacts} {
		var record api.Record
		if record, err = letterRecord(l, r, what); err != nil {
			return res, err
		}
		record.Tag, record.HasTag = []byte(deadTag(name)), true
		res, err = b.writeKeyed(ctx, to, record, "dlq:"+name, false)
		if !isTooLarge(err) {
			break
		}
	}
	return res, err
}

// letterFacts is how much of what is known of a dead letter is stored with its message. The
// message comes first: one that cannot be moved would be delivered for ever.
type letterFacts int

const (
	allFacts letterFacts = iota
	withoutError
	noFacts // nor what a router or an earlier death has added: the service has accepted the message as it is
)

// isTooLarge reports whether a service has refused a record for its size, or its meta's.
func isTooLarge(err error) bool {
	return api.IsCode(err, api.CodeRecordTooLarge) || api.IsCode(err, api.CodeInvalidRequest) || api.IsCode(err, api.CodePayloadTooLarge)
}

// deadTag makes the tag of a letter. Several queues may share a topic of dead
// letters, so name says which queue's message it is.
func deadTag(name string) string {
	if tag := tagDead + name; len(tag) <= api.DefaultLimits().MaxTagBytes {
		return tag
	}
	sum := sha256.Sum256([]byte(name))
	return tagDead + hex.EncodeToString(sum[:])
}

// letterRecord makes the record of a dead letter: that of its message, with what is known of it
// in meta.
func letterRecord(l *backend.DeadLetter, of *api.Record, what letterFacts) (r api.Record, err error) {
	facts := make(map[string]string, 12)
	if l.Redrives > 0 {
		facts[backend.HeaderRedrives] = strconv.Itoa(l.Redrives)
	}
	if what != noFacts {
		facts[backend.HeaderDeadStream] = l.Stream
		facts[backend.HeaderDeadGroup] = l.Group
		facts[backend.HeaderDeadID] = l.OriginID
		facts[backend.HeaderDeadAttempts] = strconv.Itoa(l.Attempts)
		facts[backend.HeaderDeadReason] = l.Reason
		facts[backend.HeaderDeadAt] = strconv.FormatInt(l.DeadAt.UnixMilli(), 10)
		if l.Consumer != "" {
			facts[backend.HeaderDeadConsumer] = l.Consumer
		}
		if !l.Enqueued.IsZero() {
			facts[headerDeadEnqueued] = strconv.FormatInt(l.Enqueued.UnixMilli(), 10)
		}
		if of.HasTag {
			facts[backend.HeaderTag] = string(of.Tag)
		}
	}
	if what == allFacts && l.Error != "" {
		facts[backend.HeaderDeadError] = l.Error
	}
	r = sentOn(of)
	if what == noFacts {
		r.Meta, err = changeMeta(api.UnstampedMeta(of.Meta), facts, metaDeadFrom, metaDeadDeliveries, metaDeadSeq)
	} else {
		r.Meta, err = changeMeta(of.Meta, facts)
	}
	return r, err
}

// sentOn is what a record that is sent on keeps: its data as it was written, which is more than
// a Delivery says of it.
func sentOn(r *api.Record) api.Record {
	return api.Record{Data: r.Data, Tier: r.Tier, FairKey: r.FairKey, Node: r.Node, HasNode: r.HasNode}
}

// cutError truncates a text that is stored with a message, at a character boundary.
func cutError(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= backend.MaxErrorBytes {
		return text
	}
	return strings.ToValidUTF8(text[:backend.MaxErrorBytes], "")
}

// deadHeaders are the headers a dead letter has in addition to its message's.
var deadHeaders = []string{
	backend.HeaderDeadStream, backend.HeaderDeadGroup, backend.HeaderDeadID, backend.HeaderDeadAttempts,
	backend.HeaderDeadReason, backend.HeaderDeadError, backend.HeaderDeadConsumer, backend.HeaderDeadAt,
	headerDeadEnqueued, backend.HeaderRedrives, metaDeadFrom, metaDeadDeliveries, metaDeadSeq,
}

// Members of meta in a dead letter moved by the server itself.
const (
	metaDeadFrom       = "$dead_letter_from"
	metaDeadDeliveries = "$dead_letter_deliveries"
	metaDeadSeq        = "$dead_letter_src_seq"
)

// readLetter turns a record of a dead-letter topic into a letter.
func readLetter(r *api.Record) backend.DeadLetter {
	own := isOwnLetter(r)
	data, h := decodeLetter(r, own)
	l := backend.DeadLetter{
		ID: formatSeq(r.Seq), Data: data, Stream: h[backend.HeaderDeadStream], Group: h[backend.HeaderDeadGroup], OriginID: h[backend.HeaderDeadID],
		Reason: h[backend.HeaderDeadReason], Error: h[backend.HeaderDeadError], Consumer: h[backend.HeaderDeadConsumer], DeadAt: at(r.TS),
	}
	l.Attempts, _ = strconv.Atoi(h[backend.HeaderDeadAttempts])
	l.Redrives, _ = strconv.Atoi(h[backend.HeaderRedrives])
	if ms, err := strconv.ParseInt(h[headerDeadEnqueued], 10, 64); err == nil {
		l.Enqueued = at(ms)
	}
	if from, ok := h[metaDeadFrom]; ok && !own {
		l.Stream, l.Group, l.OriginID, l.Reason = from, Group, h[metaDeadSeq], backend.ReasonMaxDeliveries
		l.Attempts, _ = strconv.Atoi(h[metaDeadDeliveries])
	}
	for _, name := range deadHeaders {
		delete(h, name)
	}
	if len(h) > 0 {
		l.Headers = h
	}
	return l
}

// isOwnLetter reports whether this library wrote the letter, so that its tag is unique.
func isOwnLetter(r *api.Record) bool {
	return r.HasTag && strings.HasPrefix(string(r.Tag), tagDead)
}

func decodeLetter(r *api.Record, own bool) ([]byte, map[string]string) {
	plain := *r
	if own {
		plain.HasTag = false // the message's own is among the headers
	}
	data, h := decode(&plain)
	if h == nil {
		h = make(map[string]string)
	}
	return data, h
}

// sortedIDs returns the numbers of ids, sorted.
func sortedIDs(ids []string) ([]uint64, error) {
	seqs := make([]uint64, len(ids))
	for i, id := range ids {
		seq, ok := parseSeq(id)
		if !ok {
			return nil, fmt.Errorf("%q is not the ID of a dead letter; it is a number", id)
		}
		seqs[i] = seq
	}
	slices.Sort(seqs)
	return slices.Compact(seqs), nil
}
