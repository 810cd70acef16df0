package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/backend"
)

const (
	// redriveID begins the transactional IDs: one for each topic of dead letters, so that
	// whoever redrives takes the right to do so from whoever did before.
	redriveID = "weir-redrive."
	// redriveTimeout is when the broker gives up a transaction that was broken off.
	redriveTimeout = 10 * time.Second
	// stoneEvery is how often a redrive looks for its tombstone: a transaction's records
	// can be read a moment after it has been committed.
	stoneEvery = 2 * time.Millisecond
)

// redrives are the transactional producers, by the topic of dead letters.
type redrives struct {
	turn turn // of a redrive
	all  map[string]*kgo.Client
}

func (r *redrives) close() {
	_ = r.turn.take(context.Background()) // a redrive ends with the handle
	defer r.turn.give()
	for _, client := range r.all {
		client.Close()
	}
	r.all = nil
}

// drop closes a producer that has lost its right or whose state is not known.
func (r *redrives) drop(topic string) {
	if client := r.all[topic]; client != nil {
		client.Close()
		delete(r.all, topic)
	}
}

// Redrive appends the message again and removes the letter, in one transaction. Of two
// redrives of a topic the later one ends the other's transaction, and one that breaks off is
// given up by the broker. The message names the group it failed in, and weir's workers
// of others accept it unseen.
func (b *Backend) Redrive(ctx context.Context, from string, letter backend.DeadLetter) error {
	call, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	from = cmp.Or(from, b.set.deadLetter())
	if err := b.groupOf(call, &letter); err != nil {
		return b.cut(ctx, err)
	}
	if err := b.redrives.turn.take(call); err != nil {
		return b.cut(ctx, err)
	}
	defer b.redrives.turn.give()
	for try := 1; ; try++ {
		old := b.redrives.all[from] != nil
		err = b.redrive(call, from, &letter)
		if err != nil && !errors.Is(err, backend.ErrNotFound) {
			b.redrives.drop(from)
		}
		if old && errors.Is(err, backend.ErrStreamNotFound) {
			continue // the producer stays with a topic that was deleted and made again
		}
		// Who waits longest goes on.
		if !errors.Is(err, errContended) || !b.pause(call, rand.N(contendedWait*time.Duration(min(try, 8)))) {
			return b.cut(ctx, err)
		}
	}
}

// errContended is another redrive of the same dead letters.
var errContended = fmt.Errorf("another redrive of these dead letters is running: %w", backend.ErrUnavailable)

// contendedWait is how long a redrive waits at most after another has taken its right, for
// each time that has happened.
const contendedWait = 60 * time.Millisecond

// groupOf returns ErrGroupNotFound if the group of a letter is gone: nobody would handle what
// is sent to it.
func (b *Backend) groupOf(ctx context.Context, letter *backend.DeadLetter) error {
	if letter.Group == "" {
		return nil
	}
	for _, groupType := range []string{b.facts.groupType, groupShare, groupClassic} {
		if found, err := b.exists(ctx, groupType, letter.Group); found || err != nil && groupType == b.facts.groupType {
			return b.explain(err)
		}
	}
	return fmt.Errorf("kafka: %w: group %q, in which dead letter %s failed, is gone", backend.ErrGroupNotFound, letter.Group, letter.ID)
}

func (b *Backend) redrive(ctx context.Context, from string, letter *backend.DeadLetter) error {
	client, err := b.redriver(ctx, from)
	if err != nil {
		return b.explainRedrive(err)
	}
	// Only now: another redrive cannot take this letter any more unless it takes the
	// right from this one, whose transaction then fails.
	found, err := b.find(ctx, from, []string{letter.ID})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return errNoLetter
	}
	if err := removable(found[0]); err != nil {
		return err
	}
	again := b.againOf(found[0], letter.Group)
	if err := client.BeginTransaction(); err != nil {
		return b.explainRedrive(err)
	}
	stone := &kgo.Record{Topic: from, Key: found[0].Key, Partition: found[0].Partition}
	for _, result := range client.ProduceSync(ctx, again, stone) {
		if result.Err != nil {
			b.giveUp(client)
			return b.notThere(b.explainRedrive(b.onTopic(result.Err, rightWrite, result.Record.Topic)), result.Record.Topic)
		}
	}
	if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return b.explainRedrive(err)
	}
	return b.gone(ctx, from, letter.ID)
}

// redriver returns the transactional producer of a topic of dead letters.
func (b *Backend) redriver(ctx context.Context, from string) (*kgo.Client, error) {
	if client := b.redrives.all[from]; client != nil {
		return client, nil
	}
	client, err := b.newClient(kgo.TransactionalID(redriveID+from), kgo.TransactionTimeout(redriveTimeout), kgo.ProducerBatchMaxBytesFn(b.batchBytes))
	if err != nil {
		return nil, err
	}
	// This takes the right from others, and ends what they have left.
	if _, _, err := client.ProducerID(ctx); err != nil {
		client.Close()
		return nil, b.onTransaction(err, redriveID+from)
	}
	if b.redrives.all == nil {
		b.redrives.all = map[string]*kgo.Client{}
	}
	b.redrives.all[from] = client
	return client, nil
}

// giveUp aborts a transaction. If that does not get there, the broker aborts it.
func (b *Backend) giveUp(client *kgo.Client) {
	ctx, cancel := context.WithTimeout(b.closing, time.Second)
	defer cancel()
	_ = client.EndTransaction(ctx, kgo.TryAbort)
}

// gone waits until a letter cannot be read any more.
func (b *Backend) gone(ctx context.Context, from, id string) error {
	for {
		found, err := b.find(ctx, from, []string{id})
		if err != nil || len(found) == 0 || !b.pause(ctx, stoneEvery) {
			return nil // it is done; the letter is found no more in a moment
		}
	}
}

// againOf makes the message of a letter.
func (b *Backend) againOf(r *kgo.Record, group string) *kgo.Record {
	stored := letterOf(r)
	again := &kgo.Record{Topic: cmp.Or(stored.Stream, b.set.topic), Value: stored.Data, Timestamp: time.Now()}
	add := func(name, value string) {
		again.Headers = append(again.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	for _, h := range r.Headers {
		switch h.Key {
		case headerKey:
			again.Key = h.Value
		case headerNull:
			again.Value = nil
		}
	}
	for name, value := range stored.Headers {
		if name == backend.HeaderDeadline {
			continue // it might expire again at once
		}
		if name == backend.HeaderFairKey && again.Key == nil {
			again.Key = []byte(value)
		}
		add(name, value)
	}
	add(backend.HeaderRedrives, strconv.Itoa(stored.Redrives+1))
	if group != "" {
		add(backend.HeaderRedriveGroup, group)
	}
	return again
}

// explainRedrive says whether to try again. What was refused was not stored, and if the
// answer to a commit is missing, the next try finds out.
func (b *Backend) explainRedrive(err error) error {
	switch {
	case errors.Is(err, kerr.InvalidProducerEpoch), errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.ConcurrentTransactions),
		errors.Is(err, kerr.InvalidTxnState), errors.Is(err, kerr.UnknownServerError), // brokers say this, too, if another takes the right at that moment
		errors.Is(err, kerr.InvalidProducerIDMapping), errors.Is(err, kerr.UnknownProducerID), // they have forgotten a producer that was idle for long
		errors.Is(err, kerr.TransactionAbortable), errors.Is(err, kerr.OutOfOrderSequenceNumber), // the next transaction may get through
		errors.Is(err, kgo.ErrClientClosed) && !b.ended.Load():
		return fmt.Errorf("kafka: %w: %w", errContended, err)
	}
	said := b.explain(err)
	if errors.Is(said, backend.ErrUnavailable) {
		return fmt.Errorf("%w: %w", backend.ErrOutcomeUnknown, said)
	}
	return said
}
