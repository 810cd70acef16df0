package engine

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirmq/weir/internal/admission"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
)

// overload decides which writes a queue with a wait_slo_ms still takes. It exists from
// the first write on that finds one. The topic's lock is held around every call.
type overload struct {
	control *admission.Controller
	slo     time.Duration
	parts   []admission.Part // scratch
	tiers   [api.Tiers]api.TierCount
}

// overload returns what decides for the queue, nil if nothing does.
func (e *Engine) overload(t *entry) *overload {
	if t.jobs == nil {
		return nil
	}
	slo := time.Duration(t.plannedConfig().WaitSLOMS) * time.Millisecond
	o := t.jobs.overload
	switch {
	case slo == 0:
		t.jobs.overload = nil
		return nil
	case o == nil:
		o = &overload{control: admission.New(slo), slo: slo}
		t.jobs.overload = o
	case o.slo != slo:
		o.slo = slo
		o.control.Configure(slo)
	}
	return o
}

// measure takes a reading of the queue if one is due.
func (e *Engine) measure(t *entry, o *overload, now time.Time) {
	if o.control.Due(now) {
		e.update(t, o, now, t.Config.Paused)
	}
}

// resumed tells the controller of a pause that is over: if nobody wrote to the queue or looked
// at it meanwhile, it would hold the workers to be as slow as they were in it.
func (e *Engine) resumed(t *entry) {
	if o := t.jobs.overload; o != nil {
		e.update(t, o, time.Now(), true)
	}
}

// update gives the controller a reading of the queue.
func (e *Engine) update(t *entry, o *overload, now time.Time, paused bool) {
	c := t.jobCounters(e.leaseClock())
	r := admission.Reading{
		At: now, Admitted: o.control.Admitted(), Known: true,
		// What is on its way to the log is let through already.
		Waiting:  int64(c.Ready + t.PlannedHead() - t.Head),
		Working:  int64(c.InFlight),
		Finished: t.jobs.q.Finished(),
		Paused:   paused,
	}
	if cfg := t.plannedConfig(); cfg.Discard == api.DiscardReject {
		r.Limit = int64(min(cfg.CapRecords, 1<<62))
	}
	o.control.Update(r, now)
}

// judge decides about a client's write, as a whole. It is the last check: what it lets
// through counts as admitted.
func (e *Engine) judge(t *entry, w *writing) error {
	o := e.overload(t)
	if o == nil || w.judged {
		return nil
	}
	now := time.Now()
	e.measure(t, o, now)
	o.gather(w.batch, now)
	if w.patient {
		o.control.Register(o.parts)
	} else if !o.control.OfferAll(now, o.parts) {
		o.count(true)
		cut := o.control.Cut()
		what := cut.Describe(fmt.Sprintf("wait_slo_ms is %d", o.slo.Milliseconds()), tierOf(cut.Tier).String())
		return api.Errorf(api.CodeThrottled, "queue %q has more to do than its workers can: %s; try again after retry_after_ms", t.Name, what).
			With(api.DetailReason, api.ReasonLoadShedding).After(scatter(o.control.RetryAfter(now, o.parts[0].Bin)))
	}
	o.count(false)
	w.judged = true
	return nil
}

// scatter moves a time by up to half, so that those refused together do not come back
// together.
func scatter(d time.Duration) time.Duration {
	return max(time.Millisecond, time.Duration(float64(d)*(0.5+rand.Float64())))
}

// gather puts the batch's records into the controller's bins, but for those that are due
// when what waits now is done: the cut says nothing of how long they will wait.
func (o *overload) gather(b *batch, now time.Time) {
	hour := now.Unix() / 3600
	o.parts = o.parts[:0]
	plain := uint32(b.n)
	for i := range b.flows {
		s := &b.flows[i]
		n := uint32(s.To - s.From + 1)
		plain -= n
		o.parts = append(o.parts, admission.Part{Bin: binOf(s.Flow, hour), N: n})
	}
	for i := range b.delays {
		switch d := &b.delays[i]; {
		case time.Duration(d.ms)*time.Millisecond > o.slo:
			plain--
		case !d.flow.Plain():
			plain--
			o.parts = append(o.parts, admission.Part{Bin: binOf(d.flow, hour), N: 1})
		}
	}
	if plain > 0 {
		o.parts = append(o.parts, admission.Part{Bin: binOf(op.Flow{}, hour), N: plain})
	}
}

func binOf(f op.Flow, hour int64) int {
	return admission.Bin(int(api.TierCritical-f.Tier), f.Key, hour)
}

// count counts what was decided about the gathered records.
func (o *overload) count(refused bool) {
	for _, p := range o.parts {
		n := &o.tiers[tierOf(p.Tier()).Rank()]
		n.Offered += int64(p.N)
		if refused {
			n.Refused += int64(p.N)
		}
	}
}

// overloadState says what the queue takes now, nil if nothing is decided there.
func (e *Engine) overloadState(t *entry) *api.Overload {
	o := e.overload(t)
	if o == nil {
		return nil
	}
	e.measure(t, o, time.Now())
	cut := o.control.Cut()
	return &api.Overload{
		Wait: cut.Wait, Drain: cut.Drain, Refused: cut.Refused, Lowest: tierOf(cut.Tier), Tiers: o.tiers,
	}
}

// tierOf is a tier as the controller counts them, from the highest down.
func tierOf(n int) api.Tier { return api.TierCritical - api.Tier(n) }
