package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// judge looks at every message. What it takes for an explanation of a handler
// that ran again, in this order:
//
//   - the handler of the earlier run failed, as its message wants it;
//   - its process was killed before the later run was claimed, and the journal has
//     no end of the handler (killed at work) or no answer to its ack (killed before
//     the ack was answered);
//   - its lease ran out: a call of its process failed or took long while Redis was
//     away or the link slow, within a lease before the later run was claimed or an
//     ack was refused, and no ack had been answered with yes (lost to an outage);
//   - the same where its process, or Redis, stood still without being killed: the
//     machine was too busy (stood still).
//
// Nothing explains a run behind an answered ack. A delivery that counts for a dead
// letter needs one of the same explanations, or a handler that failed; one that is
// in no journal needs the kill of a process and the time of a lease.
//
// What the publish of a message returned has to be true: its ID, or that it is not stored.
// Only an unknown outcome may be either.
type judge struct {
	options
	*history
	kills   map[string]span // by process: from before the signal until it was gone
	outages []span          // of Redis
	slow    []span          // the link was
	kind    func(seq int) byte

	outcomes map[int]outcome
	sum      *summary
}

// letter is an entry of the dead letters.
type letter struct {
	attempts int
	reason   string
	at       int64
}

// Why a handler ran again.
const (
	whyFailed  = "failed as it had to"
	whyAtWork  = "killed at work"
	whyBefore  = "killed before its ack was answered"
	whyOutage  = "lease lost in an outage of Redis or on the slow link"
	whyStood   = "lease lost while the machine stood still"
	whyNothing = ""
)

func (j *judge) violation(format string, args ...any) {
	if len(j.sum.violations) < 100 {
		j.sum.violations = append(j.sum.violations, fmt.Sprintf(format, args...))
	}
	j.sum.violated++
}

// all judges the messages 0 to published-1.
func (j *judge) all(published int) {
	for _, f := range j.foreign {
		j.violation("the stream holds %s", f)
	}
	for seq, m := range j.messages {
		if seq < 0 || seq >= published {
			j.violation("message %d was never published", seq)
			continue
		}
		slices.SortFunc(m.runs, func(a, b *delivery) int {
			return cmp.Or(cmp.Compare(a.claimed, b.claimed), cmp.Compare(a.attempt, b.attempt))
		})
	}
	for seq := range published {
		m, said := j.messages[seq], j.outcomes[seq]
		if m == nil && said.err != nil {
			j.sum.unstored++
			continue
		}
		if m == nil {
			j.sum.lost++
			j.violation("message %d is lost: nobody ever got it", seq)
			continue
		}
		j.message(seq, m)
	}
}

func (j *judge) message(seq int, m *message) {
	if len(m.ids) > 1 {
		j.violation("message %d was stored %d times: %s", seq, len(m.ids), strings.Join(m.ids, " "))
		return
	}
	switch said := j.outcomes[seq]; {
	case said.err == nil && said.id != m.ids[0]:
		j.violation("message %d is stored as %s, and its publish returned %q", seq, m.ids[0], said.id)
	case said.unknown():
		j.sum.unsaid++
	case said.err != nil:
		j.violation("message %d is stored as %s, and its publish said that it is not: %v", seq, m.ids[0], said.err)
	}
	done, acked := false, false
	for _, d := range m.runs {
		done = done || d.result == resultDone
		acked = acked || d.acked > 0
		if d.begins > 1 {
			j.violation("message %d: delivery %d was begun %d times by %s", seq, d.attempt, d.begins, d.process)
		}
		if d.begun > 0 && d.attempt > j.limit {
			j.violation("message %d: delivery %d was handled, the limit is %d", seq, d.attempt, j.limit)
		}
	}
	switch {
	case len(m.letters) == 0 && !done:
		j.sum.lost++
		j.violation("message %d is lost: neither handled nor dead; %s", seq, j.story(m))
	case len(m.letters) == 0:
		j.sum.done++
	case len(m.letters) > 1:
		j.violation("message %d has %d dead letters", seq, len(m.letters))
	case acked:
		j.violation("message %d is both done and dead: its ack was answered; %s", seq, j.story(m))
	default:
		if done {
			j.sum.doneUnsaid++
		}
		j.letter(seq, m, m.letters[0])
	}
	j.repeats(seq, m)
}

// repeats wants an explanation for each run but the first.
func (j *judge) repeats(seq int, m *message) {
	var before *delivery
	for _, d := range m.runs {
		if d.begun == 0 {
			continue
		}
		if before != nil {
			why := j.why(before, d.asked, d.claimed)
			if why == whyNothing || before.process == d.process && before.attempt == d.attempt {
				j.violation("message %d ran again without a reason; %s", seq, j.story(m))
			}
			j.sum.repeats[why]++
			if j.kind(seq) == kindGood {
				j.sum.duplicates++
			}
		}
		before = d
	}
}

// why explains that what d delivered was given to somebody else by a claim from
// asked to claimed.
func (j *judge) why(d *delivery, asked, claimed int64) string {
	lost := claimed
	if d.gone > 0 { // a claim whose answer nobody got may have come first
		lost = min(lost, d.gone)
	}
	lease := span{lost - int64(j.reclaimAfter), claimed}
	kill, killed := j.kills[d.process]
	switch {
	case d.result == resultFailed || d.result == resultPoison:
		return whyFailed
	case d.acked > 0 && d.acked < asked:
		return whyNothing
	case killed && kill.from <= claimed && d.acked == 0:
		if d.result == 0 {
			return whyAtWork
		}
		return whyBefore
	}
	for _, t := range j.troubles[d.process] {
		if t.meets(lease) && (meetsAny(j.outages, t) || meetsAny(j.slow, t)) {
			return whyOutage
		}
	}
	if meetsAny(j.stalls[d.process], lease) || meetsAny(j.stalls[prober], lease) {
		return whyStood
	}
	return whyNothing
}

// letter wants exactly as many deliveries as the limit, each of them somebody's,
// or a handler that said that no try can help.
func (j *judge) letter(seq int, m *message, l letter) {
	j.sum.dead++
	kind := j.kind(seq)
	if kind == kindPoison && l.reason == "poison" {
		if !slices.ContainsFunc(m.runs, func(d *delivery) bool { return d.result == resultPoison && d.attempt == l.attempts }) {
			j.violation("message %d is dead as poison, and no handler said so; %s", seq, j.story(m))
		}
		return
	}
	if l.reason != "max_deliveries" {
		j.violation("message %d is dead for the reason %q; %s", seq, l.reason, j.story(m))
		return
	}
	if l.attempts != j.limit {
		j.violation("message %d is dead after %d deliveries, the limit is %d; %s", seq, l.attempts, j.limit, j.story(m))
		return
	}
	if kind == kindGood {
		j.sum.deadByKills++
	}
	for attempt := 1; attempt <= l.attempts; attempt++ {
		if !j.accounted(m, attempt, l.at) {
			j.violation("message %d is dead, and its delivery %d was nobody's; %s", seq, attempt, j.story(m))
		}
	}
}

// accounted reports whether a delivery that counts was somebody's who did not
// finish it.
func (j *judge) accounted(m *message, attempt int, dead int64) bool {
	gap := span{idTime(m.ids[0]), dead + int64(time.Millisecond)}
	var asked int64
	for _, d := range m.runs {
		if d.attempt > attempt {
			gap.to, asked = min(gap.to, d.claimed), cmp.Or(asked, d.asked)
		} else if d.attempt < attempt {
			gap.from = max(gap.from, d.claimed, d.ended)
		}
	}
	seen := false
	for _, d := range m.runs {
		if d.attempt == attempt {
			seen = true
			if j.why(d, cmp.Or(asked, gap.to), gap.to) != whyNothing {
				return true
			}
		}
	}
	if seen || gap.to-gap.from < int64(j.reclaimAfter)*9/10 {
		return false
	}
	for _, kill := range j.kills {
		if kill.meets(gap) {
			j.sum.unseen++
			return true
		}
	}
	return false
}

// idTime is when Redis gave an ID, in Unix ns.
func idTime(id string) int64 {
	ms, _, _ := strings.Cut(id, "-")
	n, _ := strconv.ParseInt(ms, 10, 64)
	return n * int64(time.Millisecond)
}

// story tells what the journals know of a message.
func (j *judge) story(m *message) string {
	var b strings.Builder
	start := idTime(m.ids[0])
	at := func(t int64) string {
		if t == 0 {
			return "never"
		}
		return fmt.Sprintf("+%dms", (t-start)/int64(time.Millisecond))
	}
	fmt.Fprintf(&b, "ID %s", m.ids[0])
	for _, d := range m.runs {
		fmt.Fprintf(&b, "; delivery %d to %s: claimed %s to %s, begun %s, ended %s (%q), ack asked %s, answered %s",
			d.attempt, d.process, at(d.asked), at(d.claimed), at(d.begun), at(d.ended), d.result, at(d.ackAsked), at(d.acked))
		if kill, killed := j.kills[d.process]; killed {
			fmt.Fprintf(&b, ", killed %s", at(kill.from))
		}
	}
	for _, l := range m.letters {
		fmt.Fprintf(&b, "; dead after %d deliveries (%s) %s", l.attempts, l.reason, at(l.at))
	}
	return b.String()
}
