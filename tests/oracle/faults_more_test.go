package oracle

import (
	"slices"
	"time"
)

// turnInto lets a copy show what another record holds, wherever it is shown.
func (h *history) turnInto(topic string, seq uint64, like Rec) {
	h.everywhere(topic, seq, func(r *Rec) {
		r.Batch, r.I, r.Size, r.Hash, r.Bytes, r.SourceSeq = like.Batch, like.I, like.Size, like.Hash, like.Bytes, like.SourceSeq
	})
}

var faultsOfRouters = []fault{
	{"a router skips a record", "route", func(h *history) { h.hide("copies", 3, 0) }},
	{"a filter's match is not copied", "route", func(h *history) { h.hide("some", 2, 0) }},
	{"a record is copied twice", "route", func(h *history) {
		h.turnInto("copies", 4, h.page(0, "copies", 5).Recs[2])
	}},
	{"copies stand in another order than their sources", "route", func(h *history) {
		recs := h.page(0, "copies", 5).Recs
		a, b := recs[2], recs[4]
		h.turnInto("copies", a.Seq, b)
		h.turnInto("copies", b.Seq, a)
	}},
	{"a copy of a record that the filter holds back", "route", func(h *history) {
		p := h.page(0, "some", 1)
		other := h.page(0, "src", 7)
		at := slices.IndexFunc(other.Recs, func(r Rec) bool { return r.Seq > 3 && PayloadOf(r.Batch, r.I, r.Size).Tag != "t1" })
		h.turnInto("some", p.Recs[0].Seq, other.Recs[at])
	}},
	{"a copy keeps the node that it should not", "D1", func(h *history) {
		p := h.page(0, "some", 1)
		r := &p.Recs[0]
		r.Hash = PayloadOf(r.Batch, r.I, r.Size).Hash() ^ 1
	}},
	{"a copy names another number of its source", "route", func(h *history) { h.page(0, "copies", 1).Recs[0].SourceSeq++ }},
	{"a copy of what was there before the router", "route", func(h *history) {
		old := h.page(0, "src", 3).Recs[0]
		old.SourceSeq = old.Seq
		h.turnInto("copies", 1, old)
	}},
	{"a copy of what its source never held", "route", func(h *history) {
		h.turnInto("copies", 2, h.page(0, "f", 3).Recs[1])
	}},
}

var faultsOfLives = []fault{
	{"a record is there again after its topic was made again", "D3", func(h *history) {
		old := h.page(0, "again", 3).Recs
		p := h.page(-1, "again", 2)
		seq, ts := p.Recs[1].Seq, p.Recs[1].TS
		p.Recs[1] = old[len(old)-1]
		p.Recs[1].Seq, p.Recs[1].TS = seq, ts
	}},
	{"a key outlives its topic", "idempotency", func(h *history) {
		h.find(1, func(e *Event) bool { return e.Kind == Write && e.Topic == "again" && e.Key != "" }).Deduped = true
	}},
	{"a lease outlives its topic", "Q2", func(h *history) {
		old := h.op(0, Claim, "again").Jobs[0].Lease
		h.op(0, Ack, "again").Items[0].Lease = old
	}},
	{"a number of a new topic goes on behind the old one's", "D3", func(h *history) {
		e := h.find(1, func(e *Event) bool { return e.Kind == Write && e.Topic == "again" && e.Key != "" })
		e.First, e.Last, e.Head = e.First+3, e.Last+3, e.Head+3
	}},
	{"a deleted topic is there after a kill", "life", func(h *history) {
		h.find(0, func(e *Event) bool { return e.Kind == State && e.Topic == "gone" }).Outcome = OK
	}},
	{"a topic is gone after a kill", "life", func(h *history) {
		e := h.find(0, func(e *Event) bool { return e.Kind == State && e.Topic == "again" })
		e.Outcome, e.Note = Fail, "404 topic_not_found"
	}},
	{"a topic that is there is not found", "life", func(h *history) {
		e := h.find(2, func(e *Event) bool { return e.Kind == Claim && e.Topic == "again" })
		e.Outcome, e.Note, e.Jobs = Fail, "404 topic_not_found", nil
	}},
	{"a deleted topic takes a write", "life", func(h *history) { h.op(0, Write, "f").Topic = "gone" }},
}

// settingOf is the read under the nth configuration of cfg, and the state after it.
func settingOf(h *history, n int) (read, state *Event) {
	match := func(k Kind) func(e *Event) bool {
		return func(e *Event) bool { return e.Kind == k && e.Topic == "cfg" && !e.Quiet }
	}
	return h.find(n, match(Read)), h.find(n, match(State))
}

var faultsOfSettings = []fault{
	{"a changed configuration is forgotten", "config", func(h *history) {
		e := h.state(-1, "cfg")
		c := *e.Config
		c.CapRecords = 12
		e.Config = &c
	}},
	{"a lowered cap_records is not applied", "cap", func(h *history) {
		_, e := settingOf(h, 3)
		e.Count = 13
	}},
	{"a lowered cap_bytes is not applied", "cap", func(h *history) {
		_, e := settingOf(h, 2)
		e.Bytes = 3001
	}},
	{"a record is shown after its time", "ttl", func(h *history) {
		e, _ := settingOf(h, 4)
		old, _ := settingOf(h, 3)
		e.Tomb, e.Recs = nil, old.Recs[len(old.Recs)-1:]
	}},
	{"a cap takes more than it has to", "cap", func(h *history) {
		e, _ := settingOf(h, 1)
		e.Tomb.To, e.Recs = e.Head, nil
	}},
	{"what was synced is lost after the class became weaker", "D1", func(h *history) {
		e := h.find(0, func(e *Event) bool { return e.Kind == Read && e.Quiet && e.Topic == "cls" })
		e.Tomb, e.Recs = &Tomb{1, 3, "crash"}, nil
	}},
}

// inBackup is the first read of a topic in the first backup, or its state.
func (h *history) inBackup(kind Kind, topic string, min int) *Event {
	b := h.find(0, func(e *Event) bool { return e.Kind == Backup })
	for i := range b.Copy {
		if e := &b.Copy[i]; e.Kind == kind && e.Topic == topic && len(e.Recs) >= min {
			return e
		}
	}
	h.t.Fatalf("no such event in the backup")
	return nil
}

// lackInBackup takes records of a write out of the first backup.
func (h *history) lackInBackup(w *Event, seqs ...uint64) {
	b := h.find(0, func(e *Event) bool { return e.Kind == Backup })
	for i := range b.Copy {
		e := &b.Copy[i]
		if e.Topic != w.Topic {
			continue
		}
		for k := range slices.Backward(e.Recs) {
			if r := e.Recs[k]; slices.Contains(seqs, r.Seq) {
				e.Recs = slices.Delete(slices.Clone(e.Recs), k, k+1)
			}
		}
	}
}

// duringBackup is a write sent while the first backup was taken.
func (h *history) duringBackup(topic string) *Event {
	b := h.find(0, func(e *Event) bool { return e.Kind == Backup })
	return h.find(0, func(e *Event) bool { return e.Kind == Write && e.Topic == topic && e.Invoke >= b.Invoke })
}

var faultsOfBackups = []fault{
	{"a backup lacks what was acknowledged before it", "backup", func(h *history) {
		w := h.find(1, func(e *Event) bool { return e.Kind == Write && e.Topic == "d" })
		h.lackInBackup(w, w.First, w.First+1, w.First+2)
	}},
	{"a backup lacks what was acknowledged before something that it holds", "backup", func(h *history) {
		w := h.duringBackup("f")
		h.lackInBackup(w, w.First, w.Last)
		for i := range h.events { // nothing else betrays it
			if h.events[i].Kind == Backup {
				for k := range h.events[i].Copy {
					if e := &h.events[i].Copy[k]; e.Topic == "f" && e.Kind == State {
						e.Kind = Ready
					}
				}
			}
		}
	}},
	{"a backup has half of a batch", "backup", func(h *history) {
		w := h.duringBackup("d")
		h.lackInBackup(w, w.First)
	}},
	{"a backup holds what was deleted", "backup", func(h *history) {
		e := h.inBackup(Read, "f", 2)
		old := h.find(0, func(e *Event) bool { return e.Kind == Read && e.Topic == "f" && !e.Quiet }).Recs[0]
		e.Recs = append([]Rec{old}, e.Recs...)
	}},
	{"a backup holds what was written after it", "backup", func(h *history) {
		e := h.inBackup(Read, "f", 2)
		w := h.op(-1, Write, "f")
		r := e.Recs[len(e.Recs)-1]
		p := PayloadOf(w.Batch, 0, w.Size)
		r.Seq, r.Batch, r.I, r.Size, r.Hash, r.TS = w.First, w.Batch, 0, w.Size, p.Hash(), w.Return/int64(time.Millisecond)
		e.Recs = append(slices.Clone(e.Recs), r)
	}},
	{"a topic is not in the backup", "backup", func(h *history) {
		b := h.find(0, func(e *Event) bool { return e.Kind == Backup })
		b.Copy = slices.DeleteFunc(slices.Clone(b.Copy), func(e Event) bool { return e.Topic == "d" })
	}},
	{"the counters of a backup do not fit", "backup", func(h *history) { h.inBackup(State, "d", 0).Count++ }},
	{"a restored backup does not copy", "backup", func(h *history) {
		e := h.inBackup(Read, "copies", 3)
		e.Recs = slices.Delete(slices.Clone(e.Recs), 1, 2)
	}},
}
