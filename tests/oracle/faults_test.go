package oracle

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestCleanHistoryPasses(t *testing.T) {
	for range 20 { // what a crash takes of memory differs
		if found := Check(story(), time.Second); len(found) > 0 {
			t.Fatalf("%d violations, the first: %v", len(found), found[0])
		}
	}
}

func TestHistoryIsTheSameAfterWritingAndReading(t *testing.T) {
	want := story()
	var buf bytes.Buffer
	if err := WriteHistory(&buf, want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadHistory(&buf)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("history differs")
	}
}

// fault plants one broken promise in a history.
type fault struct {
	name  string
	rule  string // a rule that must be named
	plant func(h *history)
}

// history is a clean story with hands to damage it.
type history struct {
	t      *testing.T
	events []Event
}

// find returns the nth event (negative: from the end) that match accepts.
func (h *history) find(n int, match func(e *Event) bool) *Event {
	h.t.Helper()
	var at []int
	for i := range h.events {
		if match(&h.events[i]) {
			at = append(at, i)
		}
	}
	if n < 0 {
		n += len(at)
	}
	if n < 0 || n >= len(at) {
		h.t.Fatalf("no such event among %d", len(at))
	}
	return &h.events[at[n]]
}

// page is the nth quiet read of a topic that shows at least min records.
func (h *history) page(n int, topic string, min int) *Event {
	return h.find(n, func(e *Event) bool { return e.Kind == Read && e.Quiet && e.Topic == topic && len(e.Recs) >= min })
}

func (h *history) op(n int, kind Kind, topic string) *Event {
	return h.find(n, func(e *Event) bool { return e.Kind == kind && e.Topic == topic && e.Outcome == OK })
}

func (h *history) state(n int, topic string) *Event {
	return h.find(n, func(e *Event) bool { return e.Kind == State && e.Topic == topic })
}

// all goes over the events, those of backups included.
func (h *history) all(yield func(e *Event) bool) {
	for i := range h.events {
		e := &h.events[i]
		if !yield(e) {
			return
		}
		for k := range e.Copy {
			c := &e.Copy[k]
			c.Invoke = e.Invoke
			if !yield(c) {
				return
			}
		}
	}
}

// everywhere changes every later showing of a number.
func (h *history) everywhere(topic string, seq uint64, change func(r *Rec)) {
	for e := range h.all {
		for k := range e.Recs {
			if e.Topic == topic && e.Recs[k].Seq == seq {
				change(&e.Recs[k])
			}
		}
	}
}

// hide takes a number out of every read after a time, counters included.
func (h *history) hide(topic string, seq uint64, after int64) {
	for e := range h.all {
		if e.Topic != topic || e.Invoke < after {
			continue
		}
		n := len(e.Recs)
		e.Recs = slices.DeleteFunc(slices.Clone(e.Recs), func(r Rec) bool { return r.Seq == seq })
		if n != len(e.Recs) {
			continue
		}
		if e.Kind == State && e.Count > 0 {
			e.Count--
		}
	}
}

// hideBatch hides all records of a write from the first crash on.
func (h *history) hideBatch(e *Event) {
	for seq := e.First; seq <= e.Last; seq++ {
		h.hide(e.Topic, seq, firstCrash(h))
	}
}

func firstCrash(h *history) int64 {
	return h.find(0, func(e *Event) bool { return e.Kind == Crash }).Return
}

// items of a settled event: one that was accepted or not.
func item(h *history, n int, kind Kind, accepted bool) (*Event, *Item) {
	e := h.find(n, func(e *Event) bool {
		return e.Kind == kind && e.Topic == "q" && slices.ContainsFunc(e.Items, func(i Item) bool { return i.Accepted == accepted })
	})
	for i := range e.Items {
		if e.Items[i].Accepted == accepted {
			return e, &e.Items[i]
		}
	}
	return nil, nil
}

var faults = []fault{
	{"an acknowledged fsync record is gone after a kill", "D1", func(h *history) {
		h.hideBatch(h.op(-1, Write, "f"))
	}},
	{"an acknowledged disk record is gone after a kill", "D4", func(h *history) {
		h.hideBatch(h.op(1, Write, "d"))
	}},
	{"records disappear without any crash", "D1", func(h *history) {
		for seq := uint64(7); seq < 10; seq++ {
			h.hide("f", seq, h.op(3, Read, "f").Invoke)
		}
	}},
	{"a number is acknowledged to two writers", "D3", func(h *history) {
		a, b := h.op(1, Write, "f"), h.op(2, Write, "f")
		b.First, b.Last = a.First, a.Last
	}},
	{"a shown number later shows another record", "D3", func(h *history) {
		p := h.page(-1, "f", 6)
		p.Recs[0].Batch, p.Recs[0].I, p.Recs[0].Size, p.Recs[0].Hash = p.Recs[5].Batch, p.Recs[5].I, p.Recs[5].Size, p.Recs[5].Hash
	}},
	{"head goes back after a crash", "D3", func(h *history) {
		e := h.state(-1, "e")
		e.Head -= 3
		e.Earliest = e.Head + 1
	}},
	{"a write after a crash starts below the head", "D3", func(h *history) {
		e := h.find(-4, func(e *Event) bool { return e.Kind == Write && e.Topic == "e" })
		e.First, e.Last, e.Head = 1, 3, 3
	}},
	{"the topic has forgotten its numbers", "D3", func(h *history) {
		p := h.page(-1, "d", 1)
		p.Tomb = &Tomb{1, 0, "recreated"}
	}},
	{"data comes back as null", "D1", func(h *history) {
		p := h.page(0, "f", 2)
		p.Recs[1].Bad = "null"
	}},
	{"one byte of data differs", "D1", func(h *history) { h.page(0, "d", 2).Recs[0].Hash ^= 4 }},
	{"$ts changes", "D1", func(h *history) { h.page(0, "f", 1).Recs[0].TS++ }},
	{"half of an acknowledged batch is shown", "D6", func(h *history) {
		e := h.op(-1, Write, "f")
		h.hide("f", e.First+1, firstCrash(h))
	}},
	{"half of a batch of unknown outcome is there", "D6", func(h *history) {
		e := h.find(0, func(e *Event) bool { return e.Kind == Write && e.Outcome == Unknown })
		for r := range h.all {
			r.Recs = slices.DeleteFunc(slices.Clone(r.Recs), func(r Rec) bool { return r.Batch == e.Batch && r.I > 1 })
		}
	}},
	{"a refused batch is shown", "D6", func(h *history) {
		e := h.op(0, Write, "f")
		e.Outcome, e.First, e.Last, e.Head = Fail, 0, 0, 0
	}},
	{"a batch is acknowledged with too few numbers", "D6", func(h *history) { h.op(0, Write, "d").Last-- }},
	{"a power cut takes disk records older than the flush interval", "D4", func(h *history) {
		h.slowFlush()
	}},
	{"a power cut takes an earlier disk record and keeps a later one", "D4", func(h *history) {
		h.loseMiddle("d")
	}},
	{"what a power cut took is not announced", "D4", func(h *history) { h.noTombs("d") }},
	{"what a kill took of memory is not announced", "D5", func(h *history) { h.noTombs("m") }},
	{"what a kill took of ephemeral is not announced", "D5", func(h *history) { h.noTombs("e") }},
	{"an ephemeral record outlives a kill", "D5", func(h *history) {
		shown := h.find(3, func(e *Event) bool { return e.Kind == Read && e.Topic == "e" }).Recs
		p := h.find(0, func(e *Event) bool { return e.Kind == Read && e.Quiet && e.Topic == "e" })
		p.Recs, p.Tomb = slices.Clone(shown), nil
	}},
	{"a tombstone where nothing can be lost", "D4", func(h *history) { h.page(0, "f", 1).Tomb = &Tomb{1, 1, "crash"} }},
	{"a deleted record comes back", "D7", func(h *history) {
		var old Rec
		h.everywhere("f", 1, func(r *Rec) { old = *r })
		p := h.page(-3, "f", 1)
		p.Recs = append([]Rec{old}, p.Recs...)
	}},
	{"an acked job is claimed again", "D7", func(h *history) {
		acked := h.find(0, func(e *Event) bool { return e.Kind == Claim && e.Topic == "q" && len(e.Jobs) > 0 }).Jobs[0]
		last := h.find(-1, func(e *Event) bool { return e.Kind == Claim && e.Topic == "q" && len(e.Jobs) > 0 })
		acked.Lease = "lease_ffff"
		last.Jobs = append([]Job{acked}, last.Jobs...)
	}},
	{"a job is under two live leases", "Q1", func(h *history) {
		first := h.find(0, func(e *Event) bool { return e.Kind == Claim && e.Topic == "q" && len(e.Jobs) > 0 })
		h.insertClaim(first, "lease_fffe")
	}},
	{"an ack with a superseded lease is accepted", "Q2", func(h *history) {
		_, it := item(h, 1, Ack, false)
		it.Accepted = true
	}},
	{"an ended lease is extended", "Q2", func(h *history) {
		_, it := item(h, 0, Extend, true)
		e := h.find(0, func(e *Event) bool { return e.Kind == Extend && e.Topic == "q" })
		e.Invoke += int64(time.Hour)
		e.Return += int64(time.Hour)
		it.Deadline += 3_600_000
	}},
	{"an ack with a live lease is refused", "Q2", func(h *history) {
		_, it := item(h, 0, Extend, true)
		it.Accepted = false
	}},
	{"a lease id is given twice", "Q2", func(h *history) {
		e := h.find(0, func(e *Event) bool { return e.Kind == Claim && e.Topic == "q" && len(e.Jobs) > 2 })
		e.Jobs[2].Lease = e.Jobs[1].Lease
	}},
	{"a job is acked and also a dead letter", "Q4", func(h *history) {
		_, it := item(h, 0, Ack, true)
		r := &h.page(0, "q.dlq", 1).Recs[0]
		seq, from := r.Seq, it.Seq
		h.everywhere("q.dlq", seq, func(r *Rec) { r.FromSeq = from })
	}},
	{"a job is neither acked nor a dead letter nor live", "D1", func(h *history) {
		p := h.page(0, "q.dlq", 1)
		h.everywhere("q.dlq", p.Recs[0].Seq, func(r *Rec) { r.FromSeq = 1 << 40 })
	}},
	{"a job is twice a dead letter", "Q5", func(h *history) {
		p := h.page(-1, "q.dlq", 2)
		id := p.Recs[0]
		h.everywhere("q.dlq", p.Recs[1].Seq, func(r *Rec) { r.FromSeq, r.Batch, r.I = id.FromSeq, id.Batch, id.I })
	}},
	{"a job is delivered too often", "Q6", func(h *history) {
		h.find(1, func(e *Event) bool { return e.Kind == Claim && e.Topic == "q" && len(e.Jobs) > 0 }).Jobs[0].Deliveries = 3
	}},
	{"a repeat with a key is stored again", "idempotency", func(h *history) {
		e := h.find(0, func(e *Event) bool { return e.Deduped })
		e.First, e.Last, e.Head, e.Deduped = e.Head+1, e.Head+2, e.Head+2, false
	}},
	{"a first write is answered as a repeat", "idempotency", func(h *history) { h.op(1, Write, "d").Deduped = true }},
	{"a capped topic holds too few", "cap", func(h *history) {
		p := h.page(-2, "cap", 3)
		p.Tomb.To = p.Recs[0].Seq
		p.Recs = p.Recs[1:]
		h.state(-1, "cap").Count--
		h.state(-1, "cap").Earliest++
	}},
	{"a capped topic holds too many", "cap", func(h *history) { h.state(-1, "cap").Count = 10 }},
	{"a reject queue lost a job to its cap", "D1", func(h *history) {
		p := h.page(-1, "rej", 2)
		p.Tomb = &Tomb{p.From + 1, p.Recs[0].Seq, "cap"}
		p.Recs = p.Recs[1:]
	}},
	{"bytes of the state do not fit", "state", func(h *history) { h.state(-1, "d").Bytes++ }},
	{"earliest_seq of the state does not fit", "state", func(h *history) { h.state(-1, "f").Earliest-- }},
	{"records in the wrong order", "order", func(h *history) {
		p := h.page(0, "d", 2)
		p.Recs[0], p.Recs[1] = p.Recs[1], p.Recs[0]
	}},
	{"a batch that a crash took comes back", "D6", func(h *history) { h.ghost() }},
}

func TestEveryPlantedFaultIsFound(t *testing.T) {
	all := slices.Concat(faults, faultsOfRouters, faultsOfLives, faultsOfSettings, faultsOfBackups, faultsOfDelays)
	for _, f := range all {
		t.Run(f.name, func(t *testing.T) {
			h := &history{t: t, events: story()}
			f.plant(h)
			found := Check(h.events, time.Second)
			if !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == f.rule }) {
				t.Errorf("no violation of %s among %d: %v", f.rule, len(found), found[:min(3, len(found))])
			}
		})
	}
	t.Logf("%d faults planted", len(all))
}

// slowFlush moves all writes of d before the power cut two seconds further from it.
func (h *history) slowFlush() {
	cut := h.find(0, func(e *Event) bool { return e.Kind == Crash && e.Power })
	at := cut.Invoke
	for i := range h.events {
		e := &h.events[i]
		if e.Invoke >= at {
			e.Invoke += int64(2 * time.Second)
			e.Return += int64(2 * time.Second)
		}
	}
}

// loseMiddle hides the first record of d that the power cut could take.
func (h *history) loseMiddle(topic string) {
	cut := h.find(0, func(e *Event) bool { return e.Kind == Crash && e.Power })
	early := h.find(0, func(e *Event) bool {
		return e.Kind == Write && e.Topic == topic && e.Outcome == OK && e.Invoke > cut.Invoke-int64(900*time.Millisecond) && e.First > 20
	})
	first := h.find(0, func(e *Event) bool {
		return e.Kind == Read && e.Quiet && e.Topic == topic && e.Invoke > cut.Invoke && e.From < early.First && e.Next >= early.First
	})
	first.From, first.Tomb = early.First-1, &Tomb{early.First, early.Last, "crash"}
	first.Recs = slices.DeleteFunc(slices.Clone(first.Recs), func(r Rec) bool { return r.Seq <= early.Last })
	first.Next = max(first.Next, early.Last)
}

func (h *history) noTombs(topic string) {
	for i := range h.events {
		if h.events[i].Topic == topic {
			h.events[i].Tomb = nil
		}
	}
}

// insertClaim adds a second claim of the first job right behind a claim.
func (h *history) insertClaim(e *Event, id string) {
	c := *e
	c.Jobs = slices.Clone(e.Jobs[4:5])
	c.Jobs[0].Lease = id
	c.Invoke, c.Return = e.Return, e.Return+1
	h.events = append([]Event{}, h.events...)
	i := slices.IndexFunc(h.events, func(x Event) bool { return x.Invoke == e.Invoke && x.Kind == Claim })
	h.events = slices.Insert(h.events, i+1, c)
}

// ghost lets the batch of unknown outcome show up only after the second crash.
func (h *history) ghost() {
	e := h.find(0, func(e *Event) bool { return e.Kind == Write && e.Outcome == Unknown })
	crashes := 0
	for r := range h.all {
		if r.Kind == Crash {
			crashes++
		}
		if crashes < 2 && r.Topic == "d" {
			r.Recs = slices.DeleteFunc(slices.Clone(r.Recs), func(r Rec) bool { return r.Batch == e.Batch })
		}
	}
}
