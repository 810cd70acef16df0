package oracle

import (
	"cmp"
	"math"
	"slices"
)

// lease is one delivery of a job.
type lease struct {
	seq      uint64
	id       string
	lo, hi   int64 // granted between these times
	deadline int64 // epoch ms
	former   bool  // granted before a crash that ended it
	unsure   bool  // that crash may have left it
	uses     []use
}

// use is one ack, nack or extend that named the lease.
type use struct {
	kind     Kind
	lo, hi   int64
	outcome  Outcome
	accepted bool
	deadline int64 // after an extend, epoch ms
}

// judgeQueue checks claims and what became of their leases.
func (t *topic) judgeQueue(events []*Event) {
	t.judgeDelays(events)
	touched := map[uint64]bool{}
	for _, e := range events {
		for i := range e.Jobs {
			t.grant(&e.Jobs[i], e)
			touched[e.Jobs[i].Seq] = true
		}
	}
	for _, e := range events {
		switch e.Kind {
		case Ack, Nack, Extend:
			for _, it := range e.Items {
				if l := t.leases[it.Lease]; l != nil && l.seq == it.Seq {
					l.uses = append(l.uses, use{e.Kind, e.Invoke, e.Return, e.Outcome, it.Accepted, it.Deadline})
				} else if it.Accepted && !t.loose[it.Lease] {
					t.violation("Q2", it.Seq, "%s with lease %q, which was not granted for it, was accepted", e.Kind, it.Lease)
				}
			}
		}
	}
	for seq := range touched {
		t.judgeOverlap(seq)
	}
	for _, e := range events {
		switch e.Kind {
		case Ack, Nack, Extend:
			for _, it := range e.Items {
				if l := t.leases[it.Lease]; l != nil && l.seq == it.Seq && e.Outcome == OK {
					t.judgeUse(l, e, it)
				}
			}
		}
	}
}

func (t *topic) grant(j *Job, e *Event) {
	if old := t.leases[j.Lease]; old != nil || j.Lease == "" {
		t.violation("Q2", j.Seq, "lease id %q was granted before", j.Lease)
		return
	}
	l := &lease{seq: j.Seq, id: j.Lease, lo: e.Invoke, hi: e.Return, deadline: j.Deadline}
	t.leases[j.Lease] = l
	t.bySeqL[j.Seq] = append(t.bySeqL[j.Seq], l)
	if b := t.bySeq[j.Seq]; b != nil {
		if b.gone != 0 && b.gone <= e.Invoke {
			t.violation("D7", j.Seq, "acknowledged as done, and claimed again %d ms later", ms(e.Invoke-b.gone))
		}
		if b.lost {
			t.violation("D4", j.Seq, "announced as lost, and claimed")
		}
	}
	if most := t.mostDeliveries(e.Invoke, e.Return); j.Deliveries < 1 || most > 0 && j.Deliveries > most {
		t.violation("Q6", j.Seq, "delivery %d of at most %d", j.Deliveries, most)
	}
	if d := t.deadLetterOf(j.Seq); d != nil && d.known <= e.Invoke && !t.lossy() {
		t.violation("Q5", j.Seq, "is a dead letter, and claimed")
	}
}

// judgeOverlap looks for two leases of one job that both lived.
func (t *topic) judgeOverlap(seq uint64) {
	ls := t.bySeqL[seq]
	slices.SortStableFunc(ls, func(a, b *lease) int { return cmp.Compare(a.hi, b.hi) })
	for i := 1; i < len(ls); i++ {
		a, b := ls[i-1], ls[i]
		if a.mayEndBefore(b) || b.lo < a.hi && b.mayEndBefore(a) {
			continue
		}
		t.violation("Q1", seq, "lease %s was granted while %s lived until %d", b.id, a.id, a.deadline)
	}
}

// mayEndBefore reports whether l can have ended before next was granted.
func (l *lease) mayEndBefore(next *lease) bool {
	for _, u := range l.uses {
		released := u.kind != Extend && (u.accepted || u.outcome == Unknown)
		if released && u.lo < next.hi {
			return true
		}
	}
	return l.earliestEnd(next.lo) <= ms(next.hi)+clockSlack
}

// earliestEnd is the first time, in epoch ms, at which the lease can end by its
// deadline, as far as extensions answered by now (ns) are sure.
func (l *lease) earliestEnd(now int64) int64 {
	end := l.deadline
	for _, u := range l.uses {
		switch {
		case u.kind == Extend && u.outcome == Unknown: // it may have shortened it
			end = min(end, ms(u.lo))
		case u.kind != Extend || !u.accepted:
		case u.hi <= now:
			end = u.deadline
		default:
			end = min(end, u.deadline)
		}
	}
	return end
}

// latestEnd is the last time, in epoch ms, at which the lease can still live.
func (l *lease) latestEnd(now int64) int64 {
	end := l.deadline
	for _, u := range l.uses {
		switch {
		case u.kind != Extend || u.lo >= now:
		case u.outcome == Unknown:
			return math.MaxInt64 - clockSlack
		case u.accepted:
			end = max(end, u.deadline)
		}
	}
	return end
}

// judgeUse checks whether an ack, nack or extend was rightly accepted or skipped.
func (t *topic) judgeUse(l *lease, e *Event, it Item) {
	if !it.Accepted {
		t.judgeRefused(l, e)
		return
	}
	if l.unsure {
		return
	}
	if l.former {
		t.violation("Q2", l.seq, "%s with lease %s from before the crash was accepted", e.Kind, l.id)
	}
	for _, o := range t.bySeqL[l.seq] {
		if o != l && o.lo >= l.hi && o.hi <= e.Invoke {
			t.violation("Q2", l.seq, "%s with lease %s was accepted after %s had been granted", e.Kind, l.id, o.id)
			return
		}
	}
	if end := l.latestEnd(e.Invoke); end+clockSlack < ms(e.Invoke) {
		t.violation("Q2", l.seq, "%s with lease %s was accepted %d ms after its end", e.Kind, l.id, ms(e.Invoke)-end)
	}
	for _, u := range l.uses {
		if u.kind != Extend && u.accepted && u.hi <= e.Invoke {
			t.violation("Q2", l.seq, "%s with lease %s was accepted after a %s had ended it", e.Kind, l.id, u.kind)
			return
		}
	}
	if d := t.deadLetterOf(l.seq); e.Kind == Ack && d != nil && !t.lossy() {
		t.violation("Q4", l.seq, "acknowledged as done, and also a dead letter")
	}
}

// judgeRefused finds a holder that was sent away while its lease surely lived.
func (t *topic) judgeRefused(l *lease, e *Event) {
	b := t.bySeq[l.seq]
	if l.former || b == nil || t.capped() || l.earliestEnd(e.Invoke) <= ms(e.Return)+clockSlack {
		return
	}
	for _, u := range l.uses {
		if u.kind != Extend && u.lo < e.Return && (u.accepted || u.outcome == Unknown) {
			return
		}
	}
	if b.mayGone != 0 && b.mayGone <= e.Return || b.lost || b.mayLost {
		return
	}
	t.violation("Q2", l.seq, "%s with the live lease %s was refused %d ms before its end", e.Kind, l.id, l.earliestEnd(e.Invoke)-ms(e.Return))
}
