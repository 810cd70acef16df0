package queue

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

var _ backend.Doctor = (*Backend)(nil)

// Severities of findings.
const (
	severe  = backend.SeverityError
	warning = backend.SeverityWarning
	info    = backend.SeverityInfo
)

// noWorker is how old the oldest message may get while no one holds any.
const noWorker = time.Minute

// Examine looks at the configuration and the contents of the queue and its dead-letter
// topic.
func (b *Backend) Examine(ctx context.Context) ([]backend.Finding, error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	found := findings{}
	st, err := b.svc.Topic(ctx, b.opt.Topic)
	missing := api.IsCode(err, api.CodeTopicNotFound)
	if err != nil && !missing {
		return nil, b.fail(err, false)
	}
	b.examineServer(ctx, &found)
	if missing {
		found.add("stream_missing", warning, fmt.Sprintf("there is no topic %q", b.opt.Topic), "publish once, or correct the name in the URL")
		return found, nil
	}
	if st.Config.Type != api.TypeQueue {
		found.add("log_topic", severe, "the topic is a log: nothing can be claimed from it", "a topic's type is fixed when it is created; publish to a topic of type queue, or follow this one with `weir tail`")
		return found, nil
	}
	found.config(&st.Config)
	if err := b.examineRecords(ctx, &found, &st); err != nil {
		return nil, b.fail(err, false)
	}
	dead, err := b.svc.Topic(ctx, b.info.DeadLetter)
	switch {
	case err == nil:
		found.deadLetters(b.info.DeadLetter, &dead)
	case !api.IsCode(err, api.CodeTopicNotFound):
		found.add("dead_letter_unreadable", warning, "the dead-letter topic cannot be read: "+err.Error(), "give the key access to names that begin with the queue's")
	}
	return found, nil
}

// writable is a Service that knows whether writes are refused.
type writable interface {
	Writable(ctx context.Context) (ok bool, why string, err error)
}

// copied is a Service that knows for how long the copy of its log has not been whole.
type copied interface {
	Behind(ctx context.Context) (time.Duration, error)
}

// copyBehind is how far behind a copy may be that follows every second.
const copyBehind = 10 * time.Second

// remedies says what findings are about and which commands help.
var remedies = map[string]struct {
	concern backend.Concern
	command string
}{
	"stream_missing": {backend.OfStream, ""},
	"log_topic":      {backend.OfStream, "weir tail URL"},

	"messages_lost":    {backend.OfLoss, "weir topic info URL"},
	"queue_ttl":        {backend.OfLoss, "weir topic set --ttl 0 URL"},
	"queue_cap_evicts": {backend.OfLoss, "weir topic set --discard reject URL"},

	"lag_rising": {backend.OfWorkers, startWorkers},
	"no_worker":  {backend.OfWorkers, startWorkers},

	"pending_old":               {backend.OfPending, look},
	"age_over_objective":        {backend.OfPending, look},
	"limit_without_dead_letter": {backend.OfPending, "weir topic set --max-deliveries 0 URL"},
	"server_moves_dead_letters": {backend.OfPending, "weir dlq ls URL"},

	"maxlen_near":            {backend.OfStorage, look},
	"queue_cap_refuses":      {backend.OfStorage, "weir topic info URL"},
	"no_idempotency":         {backend.OfStorage, "weir topic set --idempotency-window 1h URL"},
	"dead_letter_unreadable": {backend.OfStorage, "weir dlq ls URL"},
	"dead_letters_expire":    {backend.OfStorage, "weir dlq ls URL"},
	"dead_letters":           {backend.OfStorage, "weir dlq ls URL"},

	"writes_refused":     {backend.OfServer, look},
	"replica_behind":     {backend.OfServer, look},
	"slow_round_trip":    {backend.OfServer, look},
	"not_durable":        {backend.OfServer, "weir topic set --durability disk URL"},
	"leases_not_durable": {backend.OfServer, "weir topic set --leases-durable URL"},
}

const (
	look         = "weir sample --every 5s URL"
	startWorkers = "weir work URL -- CMD"
)

// Command returns the command line that helps with a finding; empty where only a server
// could be asked.
func (b *Backend) Command(code string) string {
	command := remedies[code].command
	if b.opt.Kind != "http" && strings.HasPrefix(command, "weir topic ") {
		return ""
	}
	return command
}

// Ping returns how long the service takes to return the state of the topic.
func (b *Backend) Ping(ctx context.Context) (time.Duration, error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	began := time.Now()
	if _, err = b.svc.Topic(ctx, b.opt.Topic); api.IsCode(err, api.CodeTopicNotFound) {
		err = nil // that is an answer too
	}
	return time.Since(began), b.fail(err, false)
}

type findings []backend.Finding

func (f *findings) add(code, severity, problem, advice string) {
	*f = append(*f, backend.Finding{Code: code, Severity: severity, Problem: problem, Advice: advice, Concern: remedies[code].concern})
}

// config looks for settings that lose messages or hide their loss.
func (f *findings) config(c *api.Config) {
	if c.TTLMS > 0 {
		f.add("queue_ttl", severe, fmt.Sprintf("messages are removed %s after they were published, done or not", ofMillis(c.TTLMS)),
			"set ttl_ms to 0 and watch the oldest age instead")
	}
	if c.CapRecords > 0 || c.CapBytes > 0 {
		if c.Discard == api.DiscardReject {
			f.add("queue_cap_refuses", info, fmt.Sprintf("publishing is refused (422) above %s", capText(c)), "keep the guard's limits below it")
		} else {
			f.add("queue_cap_evicts", severe, fmt.Sprintf("above %s the oldest messages are removed, done or not", capText(c)), "set discard to reject, or remove the cap")
		}
	}
	if c.MaxDeliveries > 0 && !c.HasDeadLetter {
		f.add("limit_without_dead_letter", warning, fmt.Sprintf("max_deliveries is %d but there is no dead_letter, so the server redelivers for ever", c.MaxDeliveries),
			"set dead_letter, or leave the limit to the pool's MaxDeliveries")
	}
	if c.MaxDeliveries > 0 && c.HasDeadLetter {
		f.add("server_moves_dead_letters", info, fmt.Sprintf("the server itself moves messages to %q after %d deliveries, without the handler's error", c.DeadLetter, c.MaxDeliveries),
			"if its workers are pools of weir, leave the limit to their MaxDeliveries (max_deliveries 0): their dead letters include the error and can be sent back one by one")
	}
	if c.IdempotencyWindowMS == 0 {
		f.add("no_idempotency", warning, "idempotency keys are ignored: repeating a publish after a lost answer stores the message twice", "set idempotency_window_ms")
	}
	if c.Durability < api.Disk {
		f.add("not_durable", info, fmt.Sprintf("the class is %s: messages do not survive the end of the server's process", c.Durability), "set durability to disk or fsync if they should")
	} else if !c.LeasesDurable {
		f.add("leases_not_durable", info, "a restart of the server forgets leases and counts deliveries from 0", "set leases_durable if a message may crash its workers or take longer than a restart")
	}
}

func capText(c *api.Config) string {
	switch {
	case c.CapBytes == 0:
		return fmt.Sprintf("%d records", c.CapRecords)
	case c.CapRecords == 0:
		return fmt.Sprintf("%d bytes", c.CapBytes)
	}
	return fmt.Sprintf("%d records or %d bytes", c.CapRecords, c.CapBytes)
}

// examineRecords looks for losses, and for work that no one does.
func (b *Backend) examineRecords(ctx context.Context, f *findings, st *api.TopicState) error {
	records, res, err := b.svc.Diff(ctx, b.opt.Topic, &api.DiffRequest{Limit: 1, OmitData: true, MaxBatchBytes: 1})
	if err != nil {
		return err
	}
	if t := res.Tombstone; t != nil {
		f.add("messages_lost", severe, fmt.Sprintf("messages %d to %d were removed, some perhaps before they were done (%s)", t.GapFrom, t.GapTo, t.Reason),
			"remove the cause; what is gone has to be published again from its source")
	}
	if len(records) == 0 || st.Queue.InFlight > 0 {
		return nil
	}
	if age := b.now().Sub(time.UnixMilli(records[0].TS)); age > noWorker {
		f.add("no_worker", warning, fmt.Sprintf("%d messages are waiting, the oldest for %s, and no one holds any", st.Count, age.Round(time.Second)),
			"start workers, or find out why they do not claim")
	}
	return nil
}

// deadLetters looks at the dead-letter topic.
func (f *findings) deadLetters(name string, st *api.TopicState) {
	c := &st.Config
	if c.TTLMS > 0 || (c.CapRecords > 0 || c.CapBytes > 0) && c.Discard == api.DiscardOld {
		f.add("dead_letters_expire", warning, fmt.Sprintf("dead letters in %q are removed by a time to live or a cap", name), "remove ttl_ms and the caps, or purge the letters you have looked at")
	}
	if st.Count > 0 {
		f.add("dead_letters", warning, fmt.Sprintf("%d dead letters in %q", st.Count, name), "look at them with `weir dlq ls`, then redrive or purge them")
	}
}

// examineServer looks at what concerns every topic of the server, whatever this one is.
func (b *Backend) examineServer(ctx context.Context, found *findings) {
	if w, ok := b.svc.(writable); ok {
		if ok, why, err := w.Writable(ctx); err == nil && !ok {
			found.add("writes_refused", severe, "the server refuses writes: "+why, "look for the error in the server's log; if the disk is full, free space, or delete topics that nobody needs: acks and deletes work meanwhile")
		}
	}
	if c, ok := b.svc.(copied); ok {
		if behind, err := c.Behind(ctx); err == nil && behind > copyBehind {
			found.add("replica_behind", severe, fmt.Sprintf("the copy of the server's log is %s behind: losing the machine now loses that much", behind.Round(time.Second)),
				"look in the server's log for the error of the copy's store, and bring that back; the copy then catches up by itself")
		}
	}
}
