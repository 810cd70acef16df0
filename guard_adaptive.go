package weir

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/admission"
)

// slowBelow is the share of refused messages up to which a publish that may wait is
// slowed before it is refused.
const slowBelow = 0.3

// forControl is the reading as the controller takes it.
func (r *reading) forControl(set *settings) admission.Reading {
	depth, known := r.depth()
	c := admission.Reading{
		At: r.at, Admitted: r.admitted, Known: known,
		// What is not due takes room, and waits for no worker.
		Waiting: depth - r.sig.Pending - r.sig.Delayed - r.sig.Retrying, Working: r.sig.Pending, Resting: r.sig.GivenBack, Limit: set.limit, Offered: r.offered,
		Paused: r.sig.Paused,
	}
	if c.Finished = r.done(); r.sig.Finished != nil {
		c.Origin = r.origin
	}
	if r.orphaned(set.LagTTL) {
		c.Working, c.Resting = 0, 0
	}
	return c
}

// tally adds what this process was offered to the counters of all processes, where the
// backend has such counters. It reports whether it has read the signal, too.
func (s *signals) tally(ctx context.Context, r *reading) (read bool) {
	var now *backend.Signal
	var err error
	if p := s.purse; p != nil {
		r.offered, err = p.keeper.TallyBudget(ctx, p.name, s.control.TakeOffered())
	} else if b, ok := s.backend.(backend.Tallier); ok {
		r.offered, now, err = b.Tally(ctx, s.control.TakeOffered())
	}
	if ctx.Err() == nil {
		r.uncounted = err
	}
	if now != nil {
		r.sig = *now
	}
	return now != nil
}

// tellCounted logs once that the processes cannot count together, unless the load cannot be
// read either, which is said elsewhere.
func (s *signals) tellCounted(set *settings, r *reading) {
	switch {
	case r.err != nil || backend.Retryable(r.uncounted):
	case r.uncounted == nil:
		s.alone.Store(false)
	case !s.alone.Swap(true):
		set.Logger.Warn("weir: each process holds the wait on its own: what all are offered cannot be counted", "error", r.uncounted)
	}
}

// expect takes the reading by which the adaptive guard judges a visit. The controller
// says how often there should be one; a publish waits only for one that is much older.
func (g *guard) expect(set *settings, v *visit) (err error) {
	control := g.signals.control
	if v.r, err = g.recent(v, max(set.LagCache, 4*control.Interval())); err != nil {
		return g.stopped(v, err)
	}
	if control.Due(v.now) {
		g.refresh(v.n)
	}
	_, known := v.r.depth()
	g.tellKnown(set, v.r, known)
	switch {
	case known:
		return nil
	case set.LagUnknown == UnknownHold && !set.shadow:
		return g.halt(set, v)
	case control.Cut().Holds(v.now, set.LagTTL):
		return nil
	}
	v.fade = 1
	if last := v.r.backlog.at; set.LagUnknown == UnknownDecay && !last.IsZero() {
		v.fade = 1 - math.Exp2(-v.now.Sub(last).Seconds()/set.LagTTL.Seconds())
	}
	return nil
}

// recent is look, but where the cut limits what comes between two readings it does not
// wait longer than patience for one: all that it keeps back would be appended at once when
// a backend that stood still goes on. The first reading is waited for: the cut may be that
// of another Stream.
func (g *guard) recent(v *visit, patience time.Duration) (*reading, error) {
	s := g.signals
	r, _ := s.current(v.now, patience)
	if r != nil || s.last.Load() == nil || !s.control.Cut().Holds(v.now, math.MaxInt64) {
		return g.look(v, v.now, patience)
	}
	f := g.refresh(v.n)
	if f == nil {
		return nil, ErrClosed
	}
	wait := time.NewTimer(patience - v.now.Sub(f.began))
	defer wait.Stop()
	select {
	case <-f.done:
	case <-wait.C:
	case <-v.ctx.Done():
		return nil, v.ctx.Err()
	case <-g.owner.life.Done():
		return nil, ErrClosed
	}
	return s.last.Load(), nil
}

// admit refuses those of the batch's part that are above the cut. While few are
// refused, a publish that has the time sleeps once and is then judged again.
func (g *guard) admit(v *visit, b *batch) {
	set := g.settings.Load()
	if set.rules != GuardAdaptive || v.done {
		return
	}
	control := g.signals.control
	var above []int // of b.left
	for i := range b.left {
		m := &b.left[i]
		switch {
		case v.r != nil && v.r.aside || isLater(m, v.now, set.WaitSLO):
		case control.Offer(v.now, g.bin(m, v.now), control.Cut().TooLate(v.now, m.Deadline)):
		case v.fade > 0 && rand.Float64() < v.fade:
			control.Admit(1)
		default:
			above = append(above, i)
		}
	}
	switch {
	case len(above) == 0:
	case set.shadow:
		g.note(stageShedding, set, v, event{text: "publish would be refused: " + g.aboveCut(set), decision: string(LoadShedding)})
		control.Admit(len(above))
	default:
		g.deny(set, v, b, above)
	}
	if set.windowed() && b.from == 0 && len(b.left) > 0 {
		v.tier = int(Critical - b.left[0].Priority)
		if err := g.window(set, v); err != nil {
			b.fail(err)
		}
	}
}

// isLater reports whether a message is due when what waits now is done, so that the cut says
// nothing of how long it will wait: later than the longest wait.
func isLater(m *Message, now time.Time, slo time.Duration) bool {
	due, err := m.DueIn(now)
	return err == nil && due > slo
}

// deny refuses those of the messages above the cut that a second chance does not help.
func (g *guard) deny(set *settings, v *visit, b *batch, above []int) {
	above, err := g.slow(set, v, b, above)
	switch {
	case err != nil:
		b.drop(above, err)
	case len(above) > 0:
		g.refuse(set, v, b, above)
	}
}

// bin is where the controller counts a message that comes at now. Streams that share a
// budget count apart, so that each gets a fair part.
func (g *guard) bin(m *Message, now time.Time) int {
	key := m.FairKey
	if p := g.signals.purse; p != nil {
		key = p.stream + " " + key
	}
	return admission.Bin(int(Critical-m.Priority), key, now.Unix()/3600)
}

// slow gives a publish that may wait a second chance. It returns the messages that are
// still above the cut, or those that its end cut off.
func (g *guard) slow(set *settings, v *visit, b *batch, above []int) ([]int, error) {
	control := g.signals.control
	cut := control.Cut()
	if v.try || cut.Refused >= slowBelow || cut.Target == 0 {
		return above, nil
	}
	d := jittered(control.SlowFor(v.now))
	if until, ok := v.ctx.Deadline(); ok && until.Sub(v.now) < 2*d+cut.Wait {
		return above, nil
	}
	v.why = g.aboveCut(set)
	g.note(stageBackpressure, set, v, event{text: "publish sleeps: " + v.why, decision: string(SoftSleep), wait: d})
	if err := g.sleep(v, SoftSleep, d); err != nil {
		return above, err
	}
	now := time.Now()
	still := above[:0]
	for _, i := range above {
		m := &b.left[i]
		if control.Cut().TooLate(now, m.Deadline) || !control.Again(now, g.bin(m, v.now)) {
			still = append(still, i)
		}
	}
	return still, nil
}

// refuse ends the messages above the cut.
func (g *guard) refuse(set *settings, v *visit, b *batch, above []int) {
	what := g.aboveCut(set)
	g.note(stageShedding, set, v, event{text: "publish refused", decision: string(LoadShedding)})
	after := jittered(g.signals.control.RetryAfter(v.now, g.bin(&b.left[above[0]], v.now)))
	b.drop(above, g.refusal(set, v, LoadShedding, what, after, nil))
}

// cutText is what a cut is called under some settings.
type cutText struct {
	cut  *admission.Cut
	set  *settings
	text string
}

// aboveCut says what is refused. The text is made once for each cut.
func (g *guard) aboveCut(set *settings) string {
	cut := g.signals.control.Cut()
	if t := g.cutText.Load(); t != nil && t.cut == cut && t.set == set {
		return t.text
	}
	text := cut.Describe("wait_slo is "+g.signals.control.SLO().String(), (Critical - Priority(cut.Tier)).String())
	g.cutText.Store(&cutText{cut, set, text})
	return text
}
