package redis

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirmq/weir/backend"
)

// Thresholds from which the doctor reports a problem.
const (
	stuckAfter   = 5 * time.Minute // without a sign of life; several times any usual reclaim_after
	deadConsumer = time.Hour       // without a command, nothing pending
	manyTimes    = 10              // deliveries without completion
	manyEntries  = 100_000         // stored
	mostlyDone   = 10              // stored entries per unfinished one
	memoryFull   = 0.9             // of maxmemory
)

var _ backend.Doctor = (*Backend)(nil)

// Examine looks for known problems of streams with about ten reads that stay cheap on a
// large stream. It changes nothing.
func (b *Backend) Examine(ctx context.Context) ([]backend.Finding, error) {
	e, err := b.exam(ctx)
	if err != nil {
		return nil, err
	}
	checks := []func(*exam) []backend.Finding{checkStream}
	if e.kind == "stream" {
		checks = append(checks, checkGroup, checkTrims)
	}
	if e.group != nil {
		checks = append(checks, checkPending, checkLag, checkConsumers, checkWorkers)
	}
	checks = append(checks, checkDue, checkDead, checkMemory, checkDurability)
	found := []backend.Finding{}
	for _, check := range checks {
		found = append(found, check(e)...)
	}
	return found, nil
}

// Severities of findings.
const (
	bad  = backend.SeverityError
	warn = backend.SeverityWarning
	note = backend.SeverityInfo
)

func one(code, severity, advice, problem string, args ...any) []backend.Finding {
	return []backend.Finding{{Code: code, Severity: severity, Problem: fmt.Sprintf(problem, args...), Advice: advice, Concern: remedies[code].concern}}
}

func checkStream(e *exam) []backend.Finding {
	switch e.kind {
	case "stream":
		return nil
	case "none":
		return one("stream_missing", warn, "publish once, or correct the name in the URL",
			"there is no stream %q", e.keys.stream)
	}
	return one("wrong_type", bad, "choose another name for the stream",
		"the key %q holds a %s, not a stream", e.keys.stream, e.kind)
}

func checkGroup(e *exam) (found []backend.Finding) {
	if e.group == nil {
		found = one("group_missing", warn,
			"start a worker, which creates it at the first entry, or correct the name in the URL",
			"the stream has no group %q; it has: %s", e.keys.group, cmp.Or(strings.Join(e.groups, ", "), "none"))
	}
	if done := e.length - e.work(); e.group != nil && e.length > manyEntries && done > mostlyDone*max(1, e.work()) {
		found = append(found, one("stream_grows", warn,
			"let a pool trim (?trim=on in the URL, --trim on, PoolConfig.Trim): it removes what every group has acknowledged, by default only from a stream that weir made itself",
			"%d entries are stored for %d with work left, %d MB", e.length, e.work(), e.bytes>>20)...)
	}
	return found
}

// checkTrims finds entries that were removed before everyone was done with them.
func checkTrims(e *exam) (found []backend.Finding) {
	if e.dropped > 0 {
		found = append(found, one("dropped_unacked", bad,
			"keep more (MaxLen), or bound the stream by refusing publishes; once it is dealt with, remove the fields dropped and dropped_last of that hash",
			"%d entries up to %s were removed on request before every group had acknowledged them", e.dropped, e.droppedLast)...)
	}
	if e.group == nil {
		return found
	}
	if e.goneCount > 0 {
		found = append(found, one("trimmed_unacked", bad,
			"look for XADD MAXLEN, XTRIM or XDEL in other programs: the data of these messages is lost; a worker that reclaims them removes them from the pending list and reports them as lost",
			"the data of at least %d pending entries is gone, the first is %s", e.goneCount, e.goneFirst)...)
	}
	return append(found, checkRemoved(e)...)
}

// checkRemoved reports what other programs have removed.
func checkRemoved(e *exam) []backend.Finding {
	unread, perhaps := e.lostUnread()
	switch removed := e.removed(); {
	case unread > 0 && !perhaps:
		return one("trimmed_unread", bad,
			"look for XADD MAXLEN, XTRIM or XDEL in other programs, and bound the stream by refusing publishes instead",
			"at least %d of %d entries were removed before the group read them: they are lost", unread, *e.added)
	case unread > 0:
		return one("begins_behind", warn,
			"make sure others had read them: a group created at 0 does not get what was removed earlier",
			"the group has read nothing yet, and %d of %d entries are removed already", unread, *e.added)
	case removed > 0 && e.cut:
		return one("cut_by_others", warn,
			"look for XADD MAXLEN or XTRIM in other programs, and let a pool trim instead (?trim=on, PoolConfig.Trim): it removes only what every group has acknowledged",
			"%d of %d entries were cut off by other programs' MAXLEN or MINID; the server does not tell whether they had been read by then", removed, *e.added)
	case removed > 0:
		return one("removed_by_others", note,
			"make sure that happens only after acknowledgement (MAXLEN on a work queue drops unfinished messages)",
			"%d entries were removed by programs other than weir", removed)
	}
	return nil
}

func checkPending(e *exam) (found []backend.Finding) {
	var idle, often, returned int
	var first pendingEntry
	for _, p := range e.pending {
		switch {
		case p.returned:
			returned++
		case p.idle >= stuckAfter:
			if idle++; idle == 1 {
				first = p
			}
		}
		if p.count >= manyTimes {
			often++
		}
	}
	if idle > 0 {
		found = append(found, one("stuck_pending", warn,
			"start a weir worker on this group: it reclaims what is left behind",
			"%d of the %d oldest pending entries have had no sign of life for %s or longer, the first is %s of consumer %q",
			idle, len(e.pending), stuckAfter, first.id, first.consumer)...)
	}
	if returned > 0 {
		found = append(found, one("given_back", note,
			"start workers: these messages are due, or become due after their delay",
			"%d of the %d oldest pending entries were given back and wait for their next delivery", returned, len(e.pending))...)
	}
	if often > 0 {
		found = append(found, one("no_limit", warn,
			"give every consumer of the group a delivery limit, as weir's pools have (MaxDeliveries)",
			"%d of the %d oldest pending entries have been delivered %d times or more", often, len(e.pending), manyTimes)...)
	}
	return found
}

func checkLag(e *exam) []backend.Finding {
	if e.group.lag != nil {
		return nil
	}
	if !e.group.hasLag {
		return one("lag_unsupported", note, "upgrade to Redis 7 or Valkey to have it",
			"this server reports neither how much a group has not read nor what was removed unread; weir counts the entries after its last delivered one instead")
	}
	behind := fmt.Sprintf("%d or more", countMost)
	if e.behind != nil {
		behind = strconv.FormatInt(*e.behind, 10)
	}
	return one("lag_unknown", warn,
		"unknown is not 0: look at XPENDING, the group's last-delivered-id and XINFO STREAM; the lag is known again once the group has read up to the newest entry; avoid XDEL and MAXLEN of unread entries",
		"the server has lost count of what the group has not read (%s by counting): unread entries were removed, or the group was created in the middle of the stream", behind)
}

func checkConsumers(e *exam) (found []backend.Finding) {
	var gone, holding []string
	returned := map[string]int{} // by whom; no one has them
	for _, p := range e.pending {
		if p.returned {
			returned[p.consumer]++
		}
	}
	for _, c := range e.consumers {
		switch {
		case c.pending == 0 && c.idle >= deadConsumer:
			gone = append(gone, c.name)
		case c.pending > returned[c.name] && c.idle >= stuckAfter:
			holding = append(holding, c.name)
		}
	}
	if len(gone) > 0 {
		found = append(found, one("dead_consumers", note, "remove them with XGROUP DELCONSUMER: nothing is pending for them",
			"%d of %d consumers have done nothing for %s or longer: %s", len(gone), len(e.consumers), deadConsumer, some(gone))...)
	}
	if len(holding) > 0 {
		found = append(found, one("dead_consumers_hold", warn,
			"let a weir worker reclaim what they hold; do not remove them before that, or it is dropped",
			"%d consumers that have done nothing for %s or longer hold messages: %s", len(holding), stuckAfter, some(holding))...)
	}
	return found
}

// some lists the first few names.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
}

func checkWorkers(e *exam) []backend.Finding {
	if e.signal || e.work() == 0 {
		return nil
	}
	return one("no_workers", warn, "start workers; with only hand-written consumers this is expected",
		"%d messages are unfinished and no weir worker has published its load in %q", e.work(), e.keys.lag)
}

// checkDue finds delayed messages that nobody moves into the stream.
func checkDue(e *exam) []backend.Finding {
	if e.overdue < stuckAfter {
		return nil
	}
	return one("due_unmoved", warn,
		"start a weir worker on the stream: workers of versions without delays, and other programs, do not move them; a worker whose user may not says so in its log",
		"%d delayed messages are due, the first for %s, and nobody moves them from %q into the stream", e.due, e.overdue.Round(time.Second), e.keys.later)
}

func checkDead(e *exam) (found []backend.Finding) {
	switch e.deadKind {
	case "stream":
		if e.letters > 0 {
			found = one("dead_letters", note, "look at them with weir dlq ls, send them back with weir dlq redrive",
				"%d dead letters wait in %q", e.letters, e.keys.dead)
		}
	case "none":
		for _, p := range e.pending {
			if p.count > e.limit {
				return one("no_dead_letter", warn,
					"let weir workers do the group's reclaiming: they move such a message to the dead letters",
					"entry %s has been delivered %d times and there is no dead-letter stream %q", p.id, p.count, e.keys.dead)
			}
		}
	default:
		found = one("dead_letter_type", bad, "remove or rename that key: dead letters cannot be stored",
			"the key %q holds a %s, not a stream", e.keys.dead, e.deadKind)
	}
	return found
}

func checkMemory(e *exam) (found []backend.Finding) {
	switch policy := e.features.eviction; {
	case e.features.evictsStreams():
		found = one("eviction", bad, "set maxmemory-policy to noeviction: a full server then refuses to publish instead",
			"maxmemory-policy %s may remove the whole stream when memory runs out", policy)
	case policy != "":
		found = one("key_eviction", warn, "set maxmemory-policy to noeviction: a full server then refuses to publish instead",
			"maxmemory-policy %s removes idempotency keys before their time when memory runs out: a message that is published again is stored twice", policy)
	}
	used, _ := strconv.ParseFloat(infoField(e.memory, "used_memory"), 64)
	limit, _ := strconv.ParseFloat(infoField(e.memory, "maxmemory"), 64)
	if limit > 0 && used > memoryFull*limit {
		severity, when := warn, "will be"
		if used >= limit {
			severity, when = bad, "are"
		}
		found = append(found, one("memory_full", severity, "trim, raise maxmemory, or find what else uses the memory",
			"%.0f of %.0f MB of maxmemory are used: publishes %s refused", used/(1<<20), limit/(1<<20), when)...)
	}
	return found
}

func checkDurability(e *exam) []backend.Finding {
	const advice = "set appendonly yes, appendfsync always (fsync) or everysec (disk), and no-appendfsync-on-rewrite no"
	switch e.features.durability {
	case "fsync":
		return nil
	case "disk":
		return one("durability", note, "set appendfsync always if that second matters",
			"a power cut loses up to the last second of acknowledged messages (appendfsync everysec)")
	case "ephemeral":
		return one("durability", warn, advice, "a restart of the server loses every message: nothing is persisted")
	}
	return one("durability", warn, advice,
		"a crash loses acknowledged messages: there is no append-only file, it is not synced always, or CONFIG GET does not tell")
}
