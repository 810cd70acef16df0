package oracle

// soon is how long a job may go on waiting behind its time, in ms: nothing but a busy machine
// keeps a worker from it then.
const soon = 100

// longestLease is how long a claim without an answer may keep a job from others, in ms.
const longestLease = 10_000

// delayOf is how long a record waits for its first claim, in ms.
func (t *topic) delayOf(b *binding) int64 {
	if b == nil || b.id.from != "" {
		return 0
	}
	if w := t.batches[b.id.batch]; w != nil && b.id.i < len(w.delays) {
		return w.delays[b.id.i]
	}
	return 0
}

// judgeDelays checks that no worker gets a record before its time, and that a worker who found
// less than it asked for has left out none whose time had come.
func (t *topic) judgeDelays(events []*Event) {
	for _, seq := range t.order[t.index(t.delaysTo):] {
		t.delaysTo = seq
		if t.delayOf(t.bySeq[seq]) > 0 {
			t.waiting[seq] = 0
		}
	}
	for _, e := range events {
		if e.Kind == Claim && e.Outcome == Unknown {
			t.cutOff = max(t.cutOff, e.Return)
		}
		for i := range e.Jobs {
			seq := e.Jobs[i].Seq
			b := t.bySeq[seq]
			delay := t.delayOf(b)
			if delay == 0 {
				continue
			}
			if early := ms(b.born) + delay - ms(e.Return); early > clockSlack {
				t.violation("delay", seq, "claimed %d ms before its time: delay_ms is %d", early, delay)
			}
			if at, first := t.waiting[seq]; first && (at == 0 || e.Invoke < at) {
				t.waiting[seq] = e.Invoke
			}
		}
	}
	for _, e := range events {
		if e.Kind == Claim && e.Outcome == OK && len(e.Jobs) < e.Max {
			t.judgeLeftOut(e)
		}
	}
	for seq, claimed := range t.waiting {
		if b := t.bySeq[seq]; claimed > 0 || b.gone != 0 || b.lost {
			delete(t.waiting, seq)
			if claimed > 0 {
				t.c.tally.Delayed++
			}
		}
	}
}

// judgeLeftOut finds a job that a claim should have got, and did not.
func (t *topic) judgeLeftOut(e *Event) {
	if t.capped() || t.maybe || len(t.loose) > 0 || t.cutOff > 0 && ms(e.Invoke) < ms(t.cutOff)+longestLease {
		return
	}
	for seq, claimed := range t.waiting {
		b := t.bySeq[seq]
		late := ms(e.Invoke) - ms(b.known) - t.delayOf(b)
		switch {
		case late <= soon, claimed > 0 && claimed < e.Return, b.mayGone != 0 && b.mayGone <= e.Return, b.lost, b.mayLost:
		default:
			t.violation("delay", seq, "not among the %d of %d jobs that a claim got %d ms behind its time: delay_ms is %d", len(e.Jobs), e.Max, late, t.delayOf(b))
			delete(t.waiting, seq) // one is enough
		}
	}
}
