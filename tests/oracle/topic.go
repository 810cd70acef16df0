package oracle

import (
	"slices"
	"sort"
	"time"
)

// Durability classes.
const (
	Ephemeral = "ephemeral"
	Memory    = "memory"
	Disk      = "disk"
	Fsync     = "fsync"
)

// recID names one record: for a dead letter, the queue and number it came from,
// too; for what a router copied, from is copied.
type recID struct {
	batch   BatchID
	i       int
	from    string
	fromSeq uint64
}

// binding is what is known about one sequence number.
type binding struct {
	id      recID
	size    int // of the batch
	hash    uint64
	bytes   int
	ts      int64
	born    int64  // earliest time it can have been stored
	known   int64  // acknowledged or shown by then
	gone    int64  // surely removed by then; 0 = not
	mayGone int64  // perhaps removed from then on; 0 = not
	acked   bool   // acknowledged as done by a worker
	class   string // the weakest in force when it may have been written
	mayLost bool   // a crash may have taken it, and no quiet read has looked yet
	lost    bool   // a crash took it, as a tombstone said
}

type batch struct {
	size     int
	first    uint64 // 0 = not seen
	invoke   int64
	sent     int64 // end of the last attempt
	attempts int
	failed   bool // every attempt failed: it must not exist
	absent   bool // a quiet read after a crash did not find it
	acked    bool
	delays   []int64 // ms, by place
}

// span is a range of numbers announced as lost, and when.
type span struct {
	from, to uint64
	at       int64
}

type topic struct {
	c           *Checker
	name        string
	cfg         Config // the newest
	settings    []setting
	ever        extremes
	before      extremes        // when the checker settled last
	deadLetters bool            // it receives the dead letters of some queue
	again       bool            // the name had a life before
	maybe       bool            // nobody knows whether it is there: its drop or creation was cut off
	loose       map[string]bool // leases granted by claims of nobody knows which life
	deletes     []*Event        // and acks that may have removed what nobody has seen yet
	feed        *route          // the router that copies into it, nil if none

	bySeq   map[uint64]*binding
	order   []uint64 // the keys of bySeq, ascending
	batches map[BatchID]*batch
	bySrc   map[recID]uint64 // dead letters: where each one is

	head      uint64 // highest head of former epochs
	announced []span // of former epochs
	powerCuts int
	crashes   int // since the last quiet read
	crashAt   int64
	removing  bool // some delete was sent
	deleting  bool // by number or tag: perhaps what nobody ever saw
	writes    bool // something was stored since the last crash
	mixed     bool // stored between two crashes that no quiet read separates

	scanned map[uint64]bool // what the last quiet read showed; nil if none since the last crash

	waiting  map[uint64]int64 // records with a delay: when their first claim was sent, 0 if there was none
	delaysTo uint64           // highest number that waiting was asked about
	cutOff   int64            // the newest claim without an answer, whose leases may live

	leases map[string]*lease   // by id
	bySeqL map[uint64][]*lease // of this life (or durable), in order of grant

	quiet quietScan
}

// quietScan collects the pages of one quiet read from cursor 0.
type quietScan struct {
	open         bool
	count, bytes uint64
	first        uint64
	lost         []uint64 // lost in the crash before
	maxSurvivor  uint64
	shown        map[BatchID]uint64 // a record of each batch that is there
	seqs         map[uint64]bool    // what is there
}

func newTopic(c *Checker, name string) *topic {
	return &topic{
		c: c, name: name, cfg: Config{Class: Disk},
		bySeq: map[uint64]*binding{}, batches: map[BatchID]*batch{}, bySrc: map[recID]uint64{},
		leases: map[string]*lease{}, bySeqL: map[uint64][]*lease{}, loose: map[string]bool{},
		ever: extremes{weakest: Fsync}, waiting: map[uint64]int64{},
	}
}

// bindAll learns which number holds which record.
func (t *topic) bindAll(events []*Event) {
	for _, e := range events {
		if e.Kind == Write {
			t.bindWrite(e)
		}
	}
	for _, e := range events {
		switch e.Kind {
		case Read:
			for i := range e.Recs {
				t.bindSeen(&e.Recs[i], e)
			}
		case Claim:
			for i := range e.Jobs {
				t.bindSeen(&e.Jobs[i].Rec, e)
			}
		}
	}
	t.sortOrder()
}

func (t *topic) sortOrder() { slices.Sort(t.order) }

func (t *topic) bindWrite(e *Event) {
	b := t.batches[e.Batch]
	if b == nil {
		b = &batch{size: e.Size, invoke: e.Invoke, failed: true, delays: e.Delays}
		t.batches[e.Batch] = b
	}
	b.attempts++
	b.invoke, b.sent = min(b.invoke, e.Invoke), max(b.sent, e.Return)
	switch e.Outcome {
	case Fail:
		return
	case Unknown:
		b.failed, b.absent = false, false
		t.stored()
		return
	}
	t.stored()
	b.failed, b.absent = false, false
	if e.Deduped && b.attempts == 1 {
		t.violation("idempotency", e.First, "the first write with key %q was answered as a repeat", e.Key)
	}
	if e.Last-e.First+1 != uint64(e.Size) || e.First == 0 {
		t.violation("D6", e.First, "a write of %d records was answered with %d to %d", e.Size, e.First, e.Last)
		return
	}
	if !b.acked {
		b.acked = true
		t.c.tally.Acked[t.cfg.Class] += e.Size
	}
	for i := range e.Size {
		t.bind(e.First+uint64(i), recID{batch: e.Batch, i: i}, e.Size, b, e)
	}
}

func (t *topic) stored() {
	if t.crashes > 0 {
		t.mixed = true
	}
	t.writes = true
}

// bindSeen learns from a record that a reader or worker was shown.
func (t *topic) bindSeen(r *Rec, e *Event) {
	if r.Bad != "" {
		t.violation("D1", r.Seq, "data is not what any writer sent: %q", r.Bad)
		return
	}
	if r.From != "" {
		t.bindDead(r, e)
		return
	}
	b := t.batches[r.Batch]
	if r.Router != "" || b == nil && t.feed != nil {
		t.bindCopy(r, e)
		return
	}
	switch {
	case b == nil:
		t.violation("D3", r.Seq, "record %d of batch %v was never written here, or was forgotten as deleted", r.I, r.Batch)
		return
	case b.failed:
		t.violation("D6", r.Seq, "batch %v was refused, yet record %d is here", r.Batch, r.I)
		return
	case b.absent:
		t.violation("D6", r.Seq, "batch %v was not there after the crash and came back", r.Batch)
		return
	case r.Size != b.size || r.I >= r.Size:
		t.violation("D1", r.Seq, "data says record %d of %d, the batch has %d", r.I, r.Size, b.size)
		return
	}
	if r.Seq <= uint64(r.I) {
		t.violation("D6", r.Seq, "record %d of a batch cannot have this number", r.I)
		return
	}
	// A batch is visible as a whole or not at all, so one record tells of all.
	for i := range r.Size {
		t.bind(r.Seq-uint64(r.I)+uint64(i), recID{batch: r.Batch, i: i}, r.Size, b, e)
	}
	t.sameRecord(r, e)
}

func (t *topic) bindDead(r *Rec, e *Event) {
	id := recID{batch: r.Batch, i: r.I, from: r.From, fromSeq: r.FromSeq}
	if at, ok := t.bySrc[id]; ok && at != r.Seq {
		if old := t.bySeq[at]; !old.lost && !old.mayLost {
			t.violation("Q5", r.Seq, "job %d of %s is also dead letter %d", r.FromSeq, r.From, at)
		}
	}
	b := t.bySeq[r.Seq]
	switch {
	case b == nil:
		t.bySrc[id] = r.Seq
		p := PayloadOf(r.Batch, r.I, r.Size)
		p.Meta = ""
		t.bySeq[r.Seq] = &binding{id: id, size: r.Size, hash: p.Hash(), bytes: r.Bytes, ts: r.TS, born: e.Invoke, known: e.Return, class: t.ever.weakest}
		t.order = append(t.order, r.Seq)
	case b.id != id:
		t.violation("D3", r.Seq, "held job %d of %s and now job %d of %s", b.id.fromSeq, b.id.from, r.FromSeq, r.From)
		return
	}
	t.sameRecord(r, e)
}

func (t *topic) bind(seq uint64, id recID, size int, b *batch, e *Event) {
	if have := t.bySeq[seq]; have != nil {
		if have.id != id {
			t.violation("D3", seq, "given to record %d of batch %v and to record %d of batch %v", have.id.i, have.id.batch, id.i, id.batch)
			return
		}
		have.known = min(have.known, e.Return)
		return
	}
	if first := seq - uint64(id.i); b.first != first {
		if b.first != 0 && id.i == 0 {
			old := t.bySeq[b.first]
			if old != nil && !old.lost && !old.mayLost {
				t.violation("idempotency", seq, "batch %v is stored at %d and again at %d", id.batch, b.first, first)
			}
		}
		b.first = first
	}
	p := PayloadOf(id.batch, id.i, size)
	t.bySeq[seq] = &binding{id: id, size: size, hash: p.Hash(), bytes: len(p.Data) + len(p.Meta), born: b.invoke, known: e.Return,
		class: t.weakest(b.invoke, max(b.sent, e.Return))}
	t.order = append(t.order, seq)
}

// sameRecord compares a shown record with what is known of its number.
func (t *topic) sameRecord(r *Rec, e *Event) {
	b := t.bySeq[r.Seq]
	if b == nil {
		return
	}
	hash := b.hash
	if e.Kind == Claim { // a claimed job does not show its node
		p := PayloadOf(b.id.batch, b.id.i, b.size)
		p.Node = ""
		hash = p.Hash()
	}
	if r.Hash != hash {
		t.violation("D1", r.Seq, "data, tag, node or meta differ from what was written (record %d of batch %v)", r.I, r.Batch)
	}
	switch {
	case b.ts == 0:
		b.ts = r.TS
	case b.ts != r.TS:
		t.violation("D1", r.Seq, "$ts was %d and is %d", b.ts, r.TS)
	}
}

// removals learns from deletes and acks which records are gone.
func (t *topic) removals(events []*Event) {
	defer func() {
		for _, e := range events {
			if !t.whole(e) { // a crash may undo it for what was there
				p := perhaps(e)
				if e.Outcome == OK {
					p.Items = slices.DeleteFunc(slices.Clone(e.Items), func(it Item) bool { return !it.Accepted })
				}
				t.deletes = append(t.deletes, p)
			}
		}
		t.deletes = slices.DeleteFunc(t.deletes, t.whole)
	}()
	for _, e := range append(slices.Clone(t.deletes), events...) {
		switch {
		case e.Outcome == Fail:
		case e.Kind == Delete:
			t.removing, t.deleting = true, true
			for _, seq := range t.order {
				b := t.bySeq[seq]
				if e.Before > 0 && seq >= e.Before {
					break
				}
				if e.Tag != "" && PayloadOf(b.id.batch, b.id.i, b.size).Tag != e.Tag {
					continue
				}
				b.remove(e)
			}
		case e.Kind == Ack:
			for _, it := range e.Items {
				if b := t.bySeq[it.Seq]; b != nil && (it.Accepted || e.Outcome == Unknown) {
					t.removing = true
					b.remove(e)
					b.acked = b.acked || e.Outcome == OK
				}
			}
		}
	}
}

// whole says of an event that it is no delete and no ack, or that all it can have
// removed is known by now: a write of unknown outcome may not have been seen yet, also by
// whoever acknowledged its records, if nobody knows in which life they were claimed.
func (t *topic) whole(e *Event) bool {
	switch {
	case e.Outcome == Fail:
		return true
	case e.Kind == Ack:
		if !slices.ContainsFunc(e.Items, func(it Item) bool { return t.bySeq[it.Seq] == nil && (it.Accepted || e.Outcome == Unknown) }) {
			return true
		}
	case e.Kind != Delete:
		return true
	}
	for _, b := range t.batches {
		if b.first == 0 && !b.failed && !b.absent && b.invoke < e.Return {
			return false
		}
	}
	return true
}

func (b *binding) remove(e *Event) {
	if b.born > e.Return {
		return
	}
	if b.mayGone == 0 || e.Invoke < b.mayGone {
		b.mayGone = e.Invoke
	}
	if e.Outcome == OK && b.known <= e.Invoke && (b.gone == 0 || e.Return < b.gone) {
		b.gone = e.Return
	}
}

// crash moves what the crash may have undone back to uncertain.
func (t *topic) crash(e *Event) {
	t.crashes++
	t.crashAt = e.Invoke
	t.scanned = nil
	if e.Power {
		t.powerCuts++
	}
	t.crashLeases()
	for _, b := range t.bySeq {
		if since, may := t.taken(b.class, e); may && b.known >= since && !b.lost {
			b.mayLost = true
		}
	}
	since, may := t.taken(t.ever.weakest, e)
	if !may {
		return
	}
	for _, b := range t.bySeq {
		if b.gone >= since {
			b.gone = 0
		}
	}
	if t.capped() {
		t.announced = nil // the write that moved the floor may be undone with it
	}
}

// taken says whether a crash may take what was written in a class, and since when.
func (t *topic) taken(class string, e *Event) (since int64, may bool) {
	switch class {
	case Fsync:
		return 0, false
	case Disk:
		return e.Invoke - int64(t.c.diskFlush), e.Power
	}
	return 0, true
}

// crashLeases ends the leases of a crash, unless they are durable. If that was
// changed since they may have been granted, nobody knows.
func (t *topic) crashLeases() {
	if t.ever.durable && !t.ever.volatile {
		return
	}
	t.cutOff = 0
	for _, l := range t.leases {
		l.former, l.unsure = true, t.ever.durable
	}
	clear(t.bySeqL)
}

// lossy reports whether the crashes so far can have taken records.
func (t *topic) lossy() bool {
	switch t.ever.weakest {
	case Fsync:
		return false
	case Disk:
		return t.powerCuts > 0
	}
	return true
}

// index is the place of the first known number above seq.
func (t *topic) index(seq uint64) int {
	return sort.Search(len(t.order), func(i int) bool { return t.order[i] > seq })
}

func ms(ns int64) int64 { return ns / int64(time.Millisecond) }
