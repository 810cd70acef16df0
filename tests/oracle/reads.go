package oracle

import (
	"cmp"
	"slices"
	"sort"
)

// judge checks the answers of one topic, which its bindings now explain.
func (t *topic) judge(events []*Event) {
	floors := t.headFloors(events)
	t.judgeQueue(events)
	spans := t.announced
	for _, e := range events {
		if e.Outcome != OK {
			continue
		}
		switch e.Kind {
		case Write:
			if floor := floors.at(e.Invoke); !e.Deduped && e.First <= floor {
				t.violation("D3", e.First, "acknowledged although head was %d already", floor)
			}
			t.judgeHead(e, floors)
		case Read:
			t.judgeHead(e, floors)
			t.judgeRead(e, spans)
			if e.Tomb != nil && e.Tomb.Reason != "recreated" {
				spans = append(spans, span{e.Tomb.From, e.Tomb.To, e.Return})
			}
		case State:
			t.judgeHead(e, floors)
			t.judgeState(e)
		case Delete:
			t.judgeHead(e, floors)
		}
	}
	t.announced = merge(spans)
	t.head = max(t.head, floors.last())
}

// floorsByTime are heads in the order of the time at which they were known.
type floorsByTime struct {
	base  uint64
	times []int64
	heads []uint64 // running maximum
}

func (t *topic) headFloors(events []*Event) floorsByTime {
	f := floorsByTime{base: t.head}
	top := t.head
	for _, e := range events { // in order of Return
		if e.Outcome != OK || e.Head == 0 {
			continue
		}
		top = max(top, e.Head)
		f.times, f.heads = append(f.times, e.Return), append(f.heads, top)
	}
	return f
}

// at is the highest head that was known before an operation was sent.
func (f floorsByTime) at(invoke int64) uint64 {
	i := sort.Search(len(f.times), func(i int) bool { return f.times[i] > invoke })
	if i == 0 {
		return f.base
	}
	return f.heads[i-1]
}

func (f floorsByTime) last() uint64 {
	if len(f.heads) == 0 {
		return f.base
	}
	return f.heads[len(f.heads)-1]
}

func (t *topic) judgeHead(e *Event, floors floorsByTime) {
	if floor := floors.at(e.Invoke); e.Head < floor && !e.Deduped {
		t.violation("D3", 0, "head went back: a %s was answered with head %d after %d", e.Kind, e.Head, floor)
	}
}

// judgeRead checks one diff.
func (t *topic) judgeRead(e *Event, spans []span) {
	if e.Quiet && e.From == 0 {
		t.quiet = quietScan{open: true, shown: map[BatchID]uint64{}, seqs: map[uint64]bool{}}
	}
	t.judgeShape(e)
	t.judgeTombstone(e)
	shown := map[BatchID]bool{}
	for i := range e.Recs {
		r := &e.Recs[i]
		shown[r.Batch] = true
		b := t.bySeq[r.Seq]
		if b == nil {
			continue // reported when it could not be bound
		}
		t.judgeShown(b, r, e, spans)
	}
	t.judgeAbsent(e, shown)
}

// judgeShape checks that records and cursor of an answer fit together.
func (t *topic) judgeShape(e *Event) {
	prev, ts := e.From, int64(0)
	if e.Tomb != nil {
		prev = max(prev, e.Tomb.To)
		if e.Tomb.Reason == "recreated" {
			prev = 0
		}
	}
	for i := range e.Recs {
		r := &e.Recs[i]
		if r.Seq <= prev {
			t.violation("order", r.Seq, "shown behind %d (cursor %d, tombstone %+v)", prev, e.From, e.Tomb)
		}
		if r.TS < ts {
			t.violation("order", r.Seq, "$ts %d is older than that of the record before, %d", r.TS, ts)
		}
		prev, ts = r.Seq, r.TS
	}
	if e.Next < prev && e.Head >= e.Next && (e.Tomb == nil || e.Tomb.Reason != "recreated") {
		t.violation("order", e.Next, "next_from_seq lies before the last thing answered, %d", prev)
	}
	if e.Next > e.Head {
		t.violation("order", e.Next, "next_from_seq lies beyond head %d", e.Head)
	}
}

func (t *topic) judgeTombstone(e *Event) {
	g := e.Tomb
	if g == nil {
		return
	}
	if g.Reason == "recreated" && t.again && e.From > e.Head {
		return // a cursor of the life before
	}
	if g.Reason == "recreated" {
		t.violation("D3", 0, "cursor %d was answered as beyond the end (head %d): the topic forgot numbers", e.From, e.Head)
		return
	}
	if g.From != e.From+1 || g.To < g.From || g.To > e.Head {
		t.violation("order", g.From, "tombstone %d to %d does not fit cursor %d and head %d", g.From, g.To, e.From, e.Head)
	}
	if g.Reason == "source_trim" && t.sourceLoses() {
		return
	}
	if !t.lossy() && (!t.capped() && !t.sourceLoses() || g.Reason == "crash") && !(t.ever.weakest == Fsync && t.powerCuts > 0) {
		t.violation("D4", g.From, "tombstone to %d (%s) although nothing can be lost: class %s, no power cut", g.To, g.Reason, t.cfg.Class)
	}
}

// judgeShown checks that a shown record may be there.
func (t *topic) judgeShown(b *binding, r *Rec, e *Event, spans []span) {
	switch {
	case b.gone != 0 && b.gone <= e.Invoke:
		t.violation("D7", r.Seq, "removed, and shown again %d ms later", ms(e.Invoke-b.gone))
	case b.lost:
		t.violation("D4", r.Seq, "announced as lost, and shown again")
	case e.Quiet && b.mayLost && b.class == Ephemeral && t.cfg.Class == Ephemeral:
		t.violation("D5", r.Seq, "an ephemeral record outlived the crash")
	}
	if ttl := t.surelyTTL(e.Invoke, e.Return); ttl > 0 && ms(e.Invoke)-r.TS > int64(ttl)+clockSlack {
		t.violation("ttl", r.Seq, "shown %d ms after its time; ttl_ms is %d", ms(e.Invoke)-r.TS, ttl)
	}
	for _, s := range spans {
		if s.from <= r.Seq && r.Seq <= s.to && s.at <= e.Invoke {
			t.violation("D7", r.Seq, "announced as lost (%d to %d), and shown again", s.from, s.to)
			break
		}
	}
	if !e.Quiet {
		return
	}
	q := &t.quiet
	q.count++
	q.shown[r.Batch] = r.Seq
	q.seqs[r.Seq] = true
	q.bytes += uint64(r.Bytes)
	if q.first == 0 {
		q.first = r.Seq
	}
	if b.known <= t.crashAt {
		q.maxSurvivor = max(q.maxSurvivor, r.Seq)
	}
	b.mayLost = false
	if src := t.c.lifeWith(b.id.from, b.id.batch); src != nil && !src.lossy() {
		if job := src.bySeq[b.id.fromSeq]; job != nil && job.acked {
			t.violation("Q4", r.Seq, "is job %d of %s, which was acknowledged as done", b.id.fromSeq, b.id.from)
		}
	}
	if dead := t.deadLetterOf(r.Seq); dead != nil && !t.lossy() {
		t.violation("Q5", r.Seq, "is live and also a dead letter")
	}
}

// judgeAbsent checks every known record that a read passed over.
func (t *topic) judgeAbsent(e *Event, shown map[BatchID]bool) {
	i, covered, evictable := 0, e.From, t.evictable(e.Return, e.Return)
	if e.Tomb != nil && e.Tomb.Reason != "recreated" {
		covered = e.Tomb.To
	}
	for _, seq := range t.order[t.index(e.From):] {
		if seq > e.Next {
			break
		}
		for i < len(e.Recs) && e.Recs[i].Seq < seq {
			i++
		}
		if i < len(e.Recs) && e.Recs[i].Seq == seq {
			continue
		}
		b := t.bySeq[seq]
		if t.mayBeGone(b, seq, e) {
			continue
		}
		if seq <= covered {
			t.judgeCovered(b, seq, e, evictable)
			continue
		}
		switch {
		case b.id.from == "" && (shown[b.id.batch] || e.Quiet && t.quiet.shown[b.id.batch] > 0):
			t.violation("D6", seq, "record %d of batch %v is missing, others of it are there", b.id.i, b.id.batch)
		case b.known > e.Invoke:
		case b.lost || b.mayLost:
			t.violation(b.lossRule(), seq, "lost in a crash and not announced to cursor %d", e.From)
			b.forgive(e)
		default:
			t.violation(b.lossRule(), seq, "acknowledged or shown, and missing without tombstone (record %d of batch %v)", b.id.i, b.id.batch)
			b.forgive(e)
		}
	}
}

// judgeCovered checks that a record under a tombstone may be lost.
func (t *topic) judgeCovered(b *binding, seq uint64, e *Event, evictable uint64) {
	switch {
	case b.lost:
	case seq <= evictable:
		b.mayLost = false
	case b.mayLost:
		if e.Quiet {
			b.mayLost, b.lost = false, true
			t.quiet.lost = append(t.quiet.lost, seq)
			t.c.tally.Lost[b.class]++
		}
	case t.capped():
		t.violation("cap", seq, "evicted although only %d records can lie above it (limits %+v)", len(t.order)-t.index(seq), t.ever)
		b.forgive(e)
	case b.known <= e.Invoke:
		t.violation(b.lossRule(), seq, "lost (tombstone %+v) although class %s keeps it", *e.Tomb, t.cfg.Class)
		b.forgive(e)
	}
}

// forgive keeps one loss from being reported by every later read.
func (b *binding) forgive(e *Event) { b.mayGone, b.mayLost = e.Invoke, false }

func (t *topic) mayBeGone(b *binding, seq uint64, e *Event) bool {
	if b.mayGone != 0 && b.mayGone <= e.Return {
		return true
	}
	if t.ever.deadLetter == "" {
		return false
	}
	return !e.Quiet || t.deadLetterOf(seq) != nil
}

// deadLetterOf is the dead letter made of job seq of this queue, nil if none.
func (t *topic) deadLetterOf(seq uint64) *binding {
	d, job := t.c.topics[t.ever.deadLetter], t.bySeq[seq]
	if t.ever.deadLetter == "" || d == nil || job == nil {
		return nil
	}
	return d.bySeq[d.bySrc[recID{batch: job.id.batch, i: job.id.i, from: t.name, fromSeq: seq}]]
}

func (b *binding) lossRule() string {
	switch b.class {
	case Fsync:
		return "D1"
	case Disk:
		return "D4"
	}
	return "D5"
}

// judgeState checks the counters of a topic; after a quiet read, exactly.
func (t *topic) judgeState(e *Event) {
	t.judgeSettings(e)
	if !e.Quiet || !t.quiet.open {
		return
	}
	q := &t.quiet
	aging := t.ever.ttl > 0 // records may have gone since
	if (e.Count != q.count || e.Bytes != q.bytes) && !(aging && e.Count <= q.count && e.Bytes <= q.bytes) {
		t.violation("state", 0, "count %d and bytes %d, a full read shows %d and %d", e.Count, e.Bytes, q.count, q.bytes)
	}
	first := q.first
	if first == 0 {
		first = e.Head + 1
	}
	if e.Earliest != first && !(aging && e.Earliest > first) {
		t.violation("state", 0, "earliest_seq is %d, a full read starts at %d", e.Earliest, first)
	}
	t.judgeCap(q)
	t.judgeLosses(q)
	for _, b := range t.batches {
		if b.first == 0 && t.crashes > 0 && b.sent <= e.Invoke {
			b.absent = true
		}
	}
	t.scanned = q.seqs
	t.crashes, t.mixed, t.writes = 0, false, false
	*q = quietScan{}
}

// judgeCap checks that a capped topic without deletes holds exactly its newest.
func (t *topic) judgeCap(q *quietScan) {
	least := t.ever.capRecords
	if least == 0 || least != t.cfg.CapRecords || t.ever.changed || t.ever.capBytes > 0 || t.ever.ttl > 0 || t.removing || t.lossy() || t.cfg.Queue {
		return
	}
	if want := min(least, uint64(len(t.order))); q.count != want {
		t.violation("cap", 0, "holds %d records, %d were stored and the cap is %d: want %d", q.count, len(t.order), least, want)
	}
}

// judgeLosses checks that a crash took the newest records only and no part of
// a batch.
func (t *topic) judgeLosses(q *quietScan) {
	if t.capped() {
		return
	}
	for _, seq := range q.lost {
		b := t.bySeq[seq]
		if seq < q.maxSurvivor && !t.mixed {
			t.violation(b.lossRule(), seq, "lost in a crash that kept the later %d", q.maxSurvivor)
		}
		if at, ok := q.shown[b.id.batch]; ok && b.id.from == "" {
			t.violation("D6", seq, "record %d of batch %v is lost in a crash, seq %d of it is there", b.id.i, b.id.batch, at)
		}
	}
}

// merge joins overlapping and neighbouring ranges.
func merge(spans []span) []span {
	if len(spans) < 2 {
		return spans
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	out := spans[:1]
	for _, s := range spans[1:] {
		last := &out[len(out)-1]
		if s.from > last.to+1 {
			out = append(out, s)
			continue
		}
		last.to, last.at = max(last.to, s.to), max(last.at, s.at)
	}
	return out
}
