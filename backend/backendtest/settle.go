package backendtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirmq/weir/backend"
)

func (s *suite) settleCases() []testCase {
	return []testCase{
		{"an acked message is gone", ackedIsGone},
		{"500 acks at once", ackMany},
		{"settling nothing is no error", settleNothing},
		{"a lease that is extended is kept and not counted", extendKeeps},
		{"an extend of a message that is done says so", extendOfDone},
		{"a superseded ack changes nothing", supersededAck},
		{"a superseded nack changes nothing", supersededNack},
		{"a superseded extend changes nothing", supersededExtend},
		{"a superseded lease of the same consumer changes nothing", supersededBySameName},
		{"one lost lease in a batch leaves the others alone", supersededInABatch},
		{"consumers of a handle have leases of their own", ownLeases},
	}
}

func ackedIsGone(f *fixture) {
	a, b := f.two()
	f.publish(a, numbered(0, 2)...)
	got := f.claim(a, "a", 2)
	f.ack(a, got[0])
	f.nack(a, backend.Return{Lease: got[1].Lease})
	again := f.gather(b, request("b", 5), 1).Deliveries
	if len(again) != 1 || again[0].ID != got[1].ID {
		f.Errorf("of %s the first was acked, then came %s", describe(got), describe(again))
	}
	f.ack(b, again...)
	f.done(b)
}

func ackMany(f *fixture) {
	b := f.open()
	f.publish(b, numbered(0, 500)...)
	f.ack(b, f.gather(b, request("a", 500), 500).Deliveries...)
	f.done(b)
}

func settleNothing(f *fixture) {
	b := f.open()
	lost, err := b.Ack(f.ctx(), nil)
	lost2, err2 := b.Nack(f.ctx(), nil)
	lost3, err3 := b.Extend(f.ctx(), nil, held)
	if err != nil || err2 != nil || err3 != nil || len(lost)+len(lost2)+len(lost3) > 0 {
		f.Errorf("ack %v, %v; nack %v, %v; extend %v, %v", lost, err, lost2, err2, lost3, err3)
	}
}

// extendKeeps: a slow worker holds on for four times ReclaimAfter while another
// claims all the time.
func extendKeeps(f *fixture) {
	lease := max(f.short, 600*time.Millisecond)
	f.inTime(lease, func() (string, time.Duration) {
		a, b := f.two()
		f.nothing(b, request("b", 1), "the stream is new") // it is in the group now
		f.publish(a, text("slow")...)
		req := request("a", 1)
		req.ReclaimAfter = lease
		d := f.gather(a, req, 1).Deliveries[0]
		req.Consumer, req.Block = "b", 0
		extended, longest := d.Since, time.Duration(0)
		for start := time.Now(); time.Since(start) < 4*lease; {
			now := time.Now()
			lost, err := a.Extend(f.ctx(), []backend.Lease{d.Lease}, lease)
			longest, extended = max(longest, time.Since(extended)), now
			if err != nil || len(lost) > 0 {
				return fmt.Sprintf("extend: lost %v, %v", lost, err), longest
			}
			got, err := b.Claim(f.ctx(), req)
			if err != nil || len(got.Deliveries) > 0 {
				return fmt.Sprintf("a message that its worker extends was taken over: %s, %v", describe(got.Deliveries), err), max(longest, time.Since(extended))
			}
			time.Sleep(lease / 10)
		}
		next := f.gather(b, req, 1).Deliveries
		if len(next) != 1 || next[0].Attempt != 2 {
			return fmt.Sprintf("after many extends of attempt 1 came %s", describe(next)), 0
		}
		return "", 0
	})
}

func extendOfDone(f *fixture) {
	b := f.open()
	f.publish(b, numbered(0, 2)...)
	got := f.claim(b, "a", 2)
	f.ack(b, got[0])
	lost, err := b.Extend(f.ctx(), leases(got), held)
	if err != nil || !slices.Equal(lost, []string{got[0].ID}) {
		f.Errorf("extend of a done and a held message: lost %v, %v", lost, err)
	}
}

// superseded lets a's lease run out, b take the message over, a settle it late,
// and checks that b still holds it and can complete it.
func superseded(f *fixture, consumer string, late func(a backend.Backend, old backend.Lease) (lost []string, err error)) {
	f.inTime(f.short, func() (string, time.Duration) {
		a, b := f.two()
		f.publish(a, text("x")...)
		old := f.gather(a, f.shortRequest("a", 1), 1).Deliveries[0]
		mine := f.gather(b, f.shortRequest(consumer, 1), 1).Deliveries
		if len(mine) != 1 {
			return "the orphan did not come", 0
		}
		lost, err := late(a, old.Lease)
		if err != nil || !slices.Equal(lost, []string{old.ID}) {
			return fmt.Sprintf("late by a superseded lease: lost %v, %v; want lost %s", lost, err, old.ID), 0
		}
		req := f.shortRequest("c", 1)
		req.Block = 0
		got, err := a.Claim(f.ctx(), req)
		if err != nil || len(got.Deliveries) > 0 {
			return fmt.Sprintf("the holder's message was claimable after it: %s, %v", describe(got.Deliveries), err), time.Since(mine[0].Since)
		}
		lost, err = b.Ack(f.ctx(), leases(mine))
		if err != nil || len(lost) > 0 {
			return fmt.Sprintf("the holder's ack after it: lost %v, %v", lost, err), time.Since(mine[0].Since)
		}
		f.done(b)
		return "", 0
	})
}

func supersededAck(f *fixture) {
	superseded(f, "b", func(a backend.Backend, old backend.Lease) ([]string, error) {
		return a.Ack(f.ctx(), []backend.Lease{old})
	})
}

func supersededNack(f *fixture) {
	superseded(f, "b", func(a backend.Backend, old backend.Lease) ([]string, error) {
		return a.Nack(f.ctx(), []backend.Return{{Lease: old, Error: "late"}})
	})
}

func supersededExtend(f *fixture) {
	superseded(f, "b", func(a backend.Backend, old backend.Lease) ([]string, error) {
		return a.Extend(f.ctx(), []backend.Lease{old}, f.short)
	})
}

func supersededBySameName(f *fixture) {
	superseded(f, "a", func(a backend.Backend, old backend.Lease) ([]string, error) {
		return a.Ack(f.ctx(), []backend.Lease{old})
	})
}

func supersededInABatch(f *fixture) {
	f.inTime(f.short, func() (string, time.Duration) {
		a, b := f.two()
		f.publish(a, numbered(0, 1)...)
		old := f.gather(a, f.shortRequest("a", 1), 1).Deliveries[0]
		held := f.gather(b, f.shortRequest("b", 1), 1).Deliveries
		if len(held) != 1 {
			return "the orphan did not come", 0
		}
		f.publish(a, numbered(1, 3)...)
		fresh := f.gather(a, f.shortRequest("a", 2), 2).Deliveries
		lost, err := a.Ack(f.ctx(), append(leases(fresh), old.Lease))
		if err != nil || !slices.Equal(lost, []string{old.ID}) {
			return fmt.Sprintf("acked %s and superseded %s: lost %v, %v", describe(fresh), old.ID, lost, err), time.Since(held[0].Since)
		}
		if pending := f.statsWhen(a, func(s backend.Stats) bool { return s.Pending == 1 }).Pending; pending != 1 {
			return fmt.Sprintf("one message is held, pending is %d", pending), time.Since(held[0].Since)
		}
		return "", 0
	})
}

// ownLeases: two pools of a process may have different leases, as when one takes the other's
// place because of new settings.
func ownLeases(f *fixture) {
	lease := max(f.short, time.Second)
	f.inTime(lease, func() (string, time.Duration) {
		b := f.open()
		f.publish(b, numbered(0, 2)...)
		brief, lasting := request("brief", 2), request("lasting", 1)
		brief.ReclaimAfter = lease
		got := f.gather(b, brief, 2).Deliveries
		lasting.Block = 0
		next, err := b.Claim(f.ctx(), lasting) // the last claim of the handle is of a long lease
		if err != nil || len(next.Deliveries) > 0 {
			return fmt.Sprintf("the other consumer has them, and a claim gave %s, %v", describe(next.Deliveries), err), time.Since(got[0].Since)
		}
		since := time.Now()
		lost, err := b.Extend(f.ctx(), leases(got[:1]), lease)
		if err != nil || len(lost) > 0 {
			return fmt.Sprintf("extend: lost %v, %v", lost, err), time.Since(got[0].Since)
		}
		if lost, err = b.Nack(f.ctx(), []backend.Return{{Lease: got[1].Lease, Delay: lease / 2}}); err != nil || len(lost) > 0 {
			return fmt.Sprintf("nack: lost %v, %v", lost, err), time.Since(got[1].Since)
		}
		next, err = b.Claim(f.ctx(), lasting)
		if err != nil || len(next.Deliveries) > 0 {
			return fmt.Sprintf("one is extended and one waits for its retry, and a claim gave %s, %v", describe(next.Deliveries), err), time.Since(since)
		}
		return "", 0
	})
	f.fresh()
	b := f.open()
	f.publish(b, numbered(0, 1)...)
	lasting := request("lasting", 1)
	d := f.gather(b, lasting, 1).Deliveries[0]
	f.nothing(b, f.shortRequest("brief", 1), "the other consumer has it")
	delay, start := 2*f.short, time.Now()
	f.nack(b, backend.Return{Lease: d.Lease, Delay: delay})
	next := f.gather(b, f.shortRequest("brief", 1), 1).Deliveries[0]
	if took := time.Since(start); next.ID != d.ID || took < delay-5*time.Millisecond || took > delay+f.prompt() {
		f.Errorf("given back for %s by who has long leases, it came after %s", delay, took)
	}
}

func (s *suite) nackCases() []testCase {
	return []testCase{
		{"a message given back can be claimed at once and counts", nackAtOnce},
		{"a nack delay shorter than ReclaimAfter is kept", func(f *fixture) { nackDelay(f, max(f.short, time.Second)/2, max(f.short, time.Second)) }},
		{"a nack delay longer than ReclaimAfter is kept", func(f *fixture) { nackDelay(f, 2*f.short+200*time.Millisecond, f.short) }},
		{"a delayed message does not keep others waiting", nackDelaysOne},
		{"what no handler started is not counted", notStarted},
		{"each nack of a batch has its own delay", nackBatch},
	}
}

func nackAtOnce(f *fixture) {
	a, b := f.two()
	f.publish(a, backend.Message{Data: []byte("x"), Headers: map[string]string{"k": "v"}})
	first := f.claim(a, "a", 1)[0]
	f.nack(a, backend.Return{Lease: first.Lease, Error: "no"})
	start := time.Now()
	d := f.claim(b, "b", 1)[0]
	if took := time.Since(start); took > f.prompt() || d.ID != first.ID || d.Attempt != 2 || string(d.Data) != "x" || d.Headers["k"] != "v" {
		f.Errorf("given back: %+v, then after %s %+v", first, took, d)
	}
	lost, err := a.Extend(f.ctx(), []backend.Lease{first.Lease}, held)
	if err != nil || len(lost) != 1 {
		f.Errorf("an extend after the nack: lost %v, %v", lost, err)
	}
	f.ack(b, d)
	f.done(b)
}

func nackDelay(f *fixture, delay, lease time.Duration) {
	f.inTime(lease, func() (string, time.Duration) {
		a, b := f.two()
		f.publish(a, text("x")...)
		req := request("a", 1)
		req.ReclaimAfter = lease
		for range 2 {
			req.Consumer = "a"
			d := f.gather(a, req, 1).Deliveries[0]
			given := time.Now()
			if lost, err := a.Nack(f.ctx(), []backend.Return{{Lease: d.Lease, Delay: delay, Error: "later"}}); err != nil || len(lost) > 0 {
				return fmt.Sprintf("nack: lost %v, %v", lost, err), time.Since(d.Since)
			}
			req.Consumer, req.Block = "b", 20*time.Millisecond
			next := f.gather(b, req, 1).Deliveries[0]
			if took := time.Since(given); took < delay-5*time.Millisecond || took > delay+lease+f.prompt() {
				return fmt.Sprintf("delay %s, ReclaimAfter %s: came after %s", delay, lease, took), 0
			}
			if next.ID != d.ID || next.Attempt != d.Attempt+1 || string(next.Data) != "x" {
				return fmt.Sprintf("after %+v came %+v", d.Lease, next.Lease), 0
			}
			if lost, err := b.Nack(f.ctx(), []backend.Return{{Lease: next.Lease}}); err != nil || len(lost) > 0 {
				return fmt.Sprintf("nack: lost %v, %v", lost, err), time.Since(next.Since)
			}
		}
		return "", 0
	})
}

func nackDelaysOne(f *fixture) {
	b := f.open()
	f.publish(b, numbered(0, 2)...)
	got := f.claim(b, "a", 2)
	lost, err := b.Nack(f.ctx(), []backend.Return{{Lease: got[0].Lease, Delay: time.Hour}, {Lease: got[1].Lease}})
	if err != nil || slices.Contains(lost, got[0].ID) {
		f.Fatalf("nack: lost %v, %v", lost, err)
	}
	f.publish(b, numbered(2, 3)...)
	rest := f.gather(b, f.shortRequest("b", 2), 2).Deliveries
	f.finish(b, f.shortRequest("b", 2), rest...)
	for _, d := range rest {
		if d.ID == got[0].ID {
			f.Error("a message delayed for an hour came at once")
		}
	}
	if stats := f.stats(b); stats.Pending+value(stats.Lag) != 1 {
		f.Errorf("one message waits for its time: pending %d, lag %s", stats.Pending, number(stats.Lag))
	}
}

func notStarted(f *fixture) {
	a, b := f.two()
	f.publish(a, text("x")...)
	for round := range 4 {
		req := request("a", 1)
		req.MaxDeliveries = 3
		counted := 0
		if f.h.CountsUnstarted {
			req.MaxDeliveries, counted = 4, round
		}
		got := f.gather(a, req, 1)
		if len(got.Deliveries) != 1 || got.Deliveries[0].Attempt != 1+counted {
			f.Fatalf("given back unstarted, it came as %s, dead %v", describe(got.Deliveries), got.Dead)
		}
		f.nack(a, backend.Return{Lease: got.Deliveries[0].Lease, NotStarted: true})
		a, b = b, a
	}
}

func nackBatch(f *fixture) {
	b := f.open()
	f.publish(b, numbered(0, 3)...)
	got := f.claim(b, "a", 3)
	start, delay := time.Now(), 3*f.short
	lost, err := b.Nack(f.ctx(), []backend.Return{
		{Lease: got[0].Lease, Delay: time.Hour}, {Lease: got[1].Lease, Delay: delay}, {Lease: got[2].Lease, NotStarted: true},
	})
	if err != nil || len(lost) > 0 {
		f.Fatalf("nack: lost %v, %v", lost, err)
	}
	want := map[string]time.Duration{got[1].ID: delay, got[2].ID: 0} // on a slow machine they come in any order
	for range 2 {
		next := f.claim(b, "b", 1)[0]
		f.ack(b, next)
		after, waits := want[next.ID]
		counted := next.ID == got[1].ID || f.h.CountsUnstarted
		if took := time.Since(start); !waits || took < after-5*time.Millisecond || (next.Attempt != 1) != counted {
			f.Errorf("after %s came %+v, want %s unstarted and %s after %s", took, next.Lease, got[2].ID, got[1].ID, delay)
		}
		delete(want, next.ID)
	}
}

func value(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}
