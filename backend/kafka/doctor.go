package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirmq/weir/backend"
)

var _ backend.Doctor = (*Backend)(nil)

// Examine looks for known problems. It changes nothing.
func (b *Backend) Examine(ctx context.Context) ([]backend.Finding, error) {
	call, done, err := b.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	found := []backend.Finding{}
	add := func(f backend.Finding) { found = append(found, f) }
	b.checkReplicas(call, add)
	w, err := b.measure(call, false)
	switch {
	case errors.Is(err, backend.ErrStreamNotFound):
		add(backend.Finding{Code: "stream_missing", Severity: backend.SeverityWarning, Concern: backend.OfStream,
			Problem: fmt.Sprintf("there is no topic %q", b.set.topic),
			Advice:  "create it, add partitions=N to the URL so that weir does, or correct its name"})
		return found, nil
	case errors.Is(err, backend.ErrGroupNotFound):
		add(backend.Finding{Code: "group_missing", Severity: backend.SeverityWarning, Concern: backend.OfStream,
			Problem: fmt.Sprintf("the %s group %q has read nothing of the topic", b.facts.groupType, b.set.group),
			Advice:  "start a worker, or correct the name in the URL"})
	case err != nil && len(found) > 0: // where nothing can be stored, the brokers may not say where a partition ends
		return found, nil
	case err != nil:
		return nil, b.cut(ctx, err)
	}
	if w.left == nil && !w.away && err == nil {
		add(backend.Finding{Code: "lag_unknown", Severity: backend.SeverityWarning, Concern: backend.OfLag,
			Problem: "the brokers do not say how far the group is behind", Advice: "use Kafka 4.2 or newer on every broker"})
	}
	b.group.findings(call, add)
	add(backend.Finding{Code: "group_type", Severity: backend.SeverityInfo, Concern: backend.OfServer,
		Problem: fmt.Sprintf("group %q is a %s group (%s): %s", b.set.group, b.facts.groupType, b.facts.why, strings.Join(b.exceptions(), "; ")),
		Advice:  "see docs/KAFKA.md; group_type=share or group_type=classic in the URL forces one"})
	b.checkRetention(call, add)
	if t := b.terms.Load(); t != nil && t.compacted {
		add(backend.Finding{Code: "compacted", Severity: backend.SeverityWarning, Concern: backend.OfLoss,
			Problem: "the topic is compacted: of the messages with the same key the brokers keep the last one, and remove the others though nobody has finished them",
			Advice:  "set its cleanup.policy to delete, unless only the last message of each key matters"})
	}
	if b.durability() == "memory" {
		add(backend.Finding{Code: "unclean_election", Severity: backend.SeverityWarning, Concern: backend.OfServer,
			Problem: "a replica that lacks acknowledged records may become the leader (unclean.leader.election.enable)",
			Advice:  "set it to false for the topic"})
	}
	return found, nil
}

// checkReplicas looks for partitions in which nothing can be stored: who publishes is told only that there is no
// answer, since the brokers say so again and again until there are enough replicas.
func (b *Backend) checkReplicas(ctx context.Context, add func(backend.Finding)) {
	topics, err := named(ctx, b, b.admin.ListTopics, b.set.topic)
	if err != nil || topics[b.set.topic].Err != nil {
		return // measure says why
	}
	configs, _ := b.configs(ctx, b.set.topic)
	insync, _ := strconv.Atoi(valueOf(configs, "min.insync.replicas")) // what is not known is none
	all, few, short := topics[b.set.topic].Partitions, 0, false
	for _, p := range all {
		need := insync
		if !b.facts.strict {
			need = min(need, len(p.Replicas))
		}
		if p.Leader < 0 || len(p.ISR) < need {
			few++
		}
		short = short || insync > len(p.Replicas)
	}
	if few > 0 {
		advice := "start the brokers that are down; kafka-topics.sh --describe --under-min-isr-partitions names the partitions"
		if b.facts.strict && short {
			advice = "give the topic as many replicas as its min.insync.replicas says, which brokers before Kafka 3.7 ask for though there cannot be so many, or lower it"
		}
		add(backend.Finding{Code: "too_few_replicas", Severity: backend.SeverityError, Concern: backend.OfServer,
			Problem: fmt.Sprintf("%d of %d partitions have no leader, or fewer in-sync replicas than min.insync.replicas (%d): nothing can be stored in them, and publishes to them end without an answer", few, len(all), insync),
			Advice:  advice})
	}
}

// checkRetention looks for what was lost, and for what retention soon will remove unfinished.
func (b *Backend) checkRetention(ctx context.Context, add func(backend.Finding)) {
	got, err := b.retained(ctx, newLookout(false)) // what a diagnosis has found, the next one finds
	if err != nil {
		return // there is no group, or not enough may be read
	}
	lost := b.ledger.lostTotal()
	ranges, cut := b.ledger.cutsTold()
	for _, gap := range got.Gaps {
		if gap.Reason == backend.GapRemoved {
			lost += *gap.Missed
			continue
		}
		ranges, cut = append(ranges, gap.From+"–"+gap.To), cut+*gap.Missed
	}
	if len(ranges) > 0 {
		add(backend.Finding{Code: "messages_lost", Severity: backend.SeverityError, Concern: backend.OfLoss,
			Problem: fmt.Sprintf("the brokers have lost messages that they had acknowledged, %d of which group %q had not been given (%s)", cut, b.set.group, strings.Join(ranges, ", ")),
			Advice:  "give the topic three replicas and min.insync.replicas=2, and leave unclean.leader.election.enable off, unless it was deleted on purpose"})
	}
	if lost > 0 {
		add(backend.Finding{Code: "trimmed_unread", Severity: backend.SeverityError, Concern: backend.OfLoss,
			Problem: fmt.Sprintf("%d messages were removed before group %q had finished them", lost, b.set.group),
			Advice:  "raise retention.ms or retention.bytes of the topic, or add workers; the pools' logs name the offsets"})
	}
	if got.Limit != "" {
		problem := fmt.Sprintf("unfinished messages will soon be removed by the topic's %s", got.Limit)
		if !got.Due.IsZero() {
			problem += ", the oldest from " + got.Due.UTC().Format(time.RFC3339) + " on"
		}
		add(backend.Finding{Code: "retention_near", Severity: backend.SeverityWarning, Concern: backend.OfLoss,
			Problem: problem, Advice: "raise it, or add workers"})
	}
}

// Command has no command lines to offer.
func (b *Backend) Command(string) string { return "" }

// Ping returns how long a broker takes to answer.
func (b *Backend) Ping(ctx context.Context) (time.Duration, error) {
	call, done, err := b.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	start := time.Now()
	if err := b.client.Ping(call); err != nil {
		return 0, b.cut(ctx, b.explain(err))
	}
	return time.Since(start), nil
}
