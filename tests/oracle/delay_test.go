package oracle

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/oracle/fake"
)

// claimOf is the claim that first handed out a record with this delay in the nth batch of a topic, and the place of its job.
func (h *history) claimOf(topic string, n int, delay int64) (*Event, int) {
	w := h.find(2*n, func(e *Event) bool { return e.Kind == Write && e.Topic == topic && len(e.Delays) > 0 })
	seq := w.First + uint64(slices.Index(w.Delays, delay))
	is := func(j Job) bool { return j.Seq == seq }
	e := h.find(0, func(e *Event) bool { return e.Kind == Claim && e.Topic == topic && slices.ContainsFunc(e.Jobs, is) })
	return e, slices.IndexFunc(e.Jobs, is)
}

// withhold takes a job out of a claim and of the ack behind it.
func (h *history) withhold(topic string, n int, delay int64) {
	e, i := h.claimOf(topic, n, delay)
	j := e.Jobs[i]
	e.Jobs = slices.Delete(slices.Clone(e.Jobs), i, i+1)
	for k := range h.events {
		if a := &h.events[k]; a.Kind == Ack && a.Topic == topic {
			a.Items = slices.DeleteFunc(slices.Clone(a.Items), func(it Item) bool { return it.Lease == j.Lease })
		}
	}
}

// advance moves the claim of a job to another one, which was sent before.
func (h *history) advance(topic string, n int, delay int64, to func(e *Event) bool) {
	e, i := h.claimOf(topic, n, delay)
	j := e.Jobs[i]
	h.withhold(topic, n, delay)
	early := h.find(0, to)
	early.Jobs = append(slices.Clone(early.Jobs), j)
}

func claimAfter(topic string, after int64) func(e *Event) bool {
	return func(e *Event) bool { return e.Kind == Claim && e.Topic == topic && e.Invoke > after }
}

var faultsOfDelays = []fault{
	{"a delayed record is claimed at once", "delay", func(h *history) {
		w := h.op(0, Write, "later")
		h.advance("later", 0, 200, claimAfter("later", w.Return))
	}},
	{"a delay is forgotten in a crash", "delay", func(h *history) {
		w := h.op(0, Write, "later")
		w.Delays = slices.Clone(w.Delays)
		w.Delays[2] = 50_000 // it was claimed in front of that, behind the crash
	}},
	{"a delay is forgotten in a crash that keeps the leases", "delay", func(h *history) {
		w := h.op(0, Write, "later-kept")
		w.Delays = slices.Clone(w.Delays)
		w.Delays[2] = 50_000
	}},
	{"a delay begins anew in a crash", "delay", func(h *history) { h.withhold("later", 0, 5000) }},
	{"a job misses its time", "delay", func(h *history) { h.withhold("later-kept", 1, 30) }},
	{"a job of the class memory misses its time", "delay", func(h *history) { h.withhold("later-memory", 0, 200) }},
	{"a repeat with a key is stored again, with its delay", "idempotency", func(h *history) {
		e := h.find(1, func(e *Event) bool { return e.Kind == Write && e.Topic == "later" && len(e.Delays) > 0 })
		n := uint64(e.Size)
		e.First, e.Last, e.Head, e.Deduped = e.Head+1, e.Head+n, e.Head+n, false
	}},
	{"an acknowledged delayed record is gone after a kill", "D4", func(h *history) {
		w := h.op(0, Write, "later")
		h.hide("later", w.Last, firstCrash(h))
	}},
}

// The same faults in a server.
func TestAServerThatBreaksDelaysIsFound(t *testing.T) {
	for _, breaks := range []string{"", fake.IgnoreDelay, fake.ForgetDelay, fake.DelayAgain, fake.DelayBatch, fake.DelayRepeat, fake.NeverDue} {
		s := newSim()
		s.server.Break = breaks
		s.put("q", Config{Queue: true, Class: Disk, LeaseMS: 100})
		for round := range 30 {
			s.later("q", round)
			s.crash(round%2 == 1)
			s.quiet("q")
			s.now = s.now.Add(3 * time.Second)
		}
		found := Check(s.log, time.Second)
		named := slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == "delay" })
		if named != (breaks != "") || breaks == "" && len(found) > 0 {
			t.Error(fmt.Sprintf("%q: %d violations", breaks, len(found)), found[:min(3, len(found))])
		}
	}
}
