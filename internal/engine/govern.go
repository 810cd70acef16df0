package engine

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/internal/engine/governor"
	"github.com/weirmq/weir/internal/wal"
)

const (
	agingTick      = 50 * time.Millisecond
	governorPeriod = 100 * time.Millisecond
)

// agingLoop lets what waits for its visit climb.
func (e *Engine) agingLoop() {
	tick := time.NewTicker(agingTick)
	defer tick.Stop()
	for {
		select {
		case <-e.stop.Done():
			return
		case <-tick.C:
			e.sched.Tick(e.mono())
		}
	}
}

// pinPressure is a test aid: WEIR_TEST_PRESSURE holds the pressure at a value.
func (e *Engine) pinPressure() error {
	v := os.Getenv("WEIR_TEST_PRESSURE")
	if v == "" {
		return nil
	}
	p, err := strconv.ParseFloat(v, 64)
	if err != nil || !(p >= 0 && p <= 1) {
		return fmt.Errorf("WEIR_TEST_PRESSURE is %q; give a number from 0 to 1", v)
	}
	e.governor.Pin(p)
	return nil
}

// governLoop samples the pressure and moves what it governs.
func (e *Engine) governLoop() {
	// No ticker: on a busy machine a late one would fire again at once, and a
	// sample over no time says nothing.
	timer := time.NewTimer(governorPeriod)
	defer timer.Stop()
	g := governing{e: e, at: time.Now()}
	for {
		g.step()
		timer.Reset(governorPeriod)
		select {
		case <-e.stop.Done():
			return
		case <-timer.C:
		}
	}
}

// tellRung is the least time between two lines of the log about the rung: writes that are refused now and then, while
// a store is away, change it with every sample.
const tellRung = time.Second

// governing is what the governor's loop keeps from sample to sample.
type governing struct {
	e       *Engine
	at      time.Time
	log     wal.Metrics // at the last sample
	spent   spent
	last    governor.State
	advised time.Time
	told    int // the rung that was logged last
	toldAt  time.Time
}

func (g *governing) step() {
	e := g.e
	now := time.Now()
	sample := e.sched.Sample(e.mono())
	in := governor.Inputs{Depth: sample.Depth, Workers: e.sched.Shards(),
		MeanWait: sample.MeanWait, OldestWait: sample.OldestWait, PickUps: sample.PickUps}
	full := g.measure(now, &in)
	st := e.governor.Sample(in, full)
	if st.CoalesceWindow != g.last.CoalesceWindow {
		e.sched.SetWindow(st.CoalesceWindow)
	}
	if st.CommitWindow != g.last.CommitWindow {
		e.log.SetWindow(st.CommitWindow)
	}
	if st.Deferring != g.last.Deferring {
		e.sched.SetDefer(st.Deferring, e.mono())
	}
	if st.Rung != g.told && now.Sub(g.toldAt) >= tellRung {
		e.opt.Logger.Info("governor: another rung", "rung", st.Rung, "before", g.told, "pressure", st.Pressure,
			"depth", st.Depth, "latency", st.Latency, "pool", st.Pool,
			"coalesce_window", st.CoalesceWindow, "commit_window", st.CommitWindow, "deferring", st.Deferring)
		g.told, g.toldAt = st.Rung, now
	}
	if st.Deferring && (!g.last.Deferring || now.Sub(g.advised) >= time.Second) {
		g.advised = now
		e.advise(now)
	}
	g.last = st
}

// workTime is time that work behind the verbs has used, in ns.
type workTime struct {
	routing atomic.Int64 // forwarding
	sealing atomic.Int64 // building tables, without the pacer's waits
}

// spent is time used since the start.
type spent struct {
	sealing, routing time.Duration
	waits            [2]waited
	still            time.Duration // in which no write finished though some were under way
}

// measure takes the inputs of the pool signal: each is what happened since the
// sample before. full says that a write would have to wait for room, or was
// refused.
func (g *governing) measure(now time.Time, in *governor.Inputs) (full bool) {
	e := g.e
	log := e.log.Metrics()
	next := spent{sealing: time.Duration(e.work.sealing.Load()), routing: time.Duration(e.work.routing.Load())}
	for i := range e.waits.done {
		next.waits[i] = e.waits.done[i].now()
	}
	stored := e.opt.Replica == nil || log.UnsyncedBytes > 0 // else it is the copy that they wait for
	if e.waits.under.Load() > 0 && next.waits == g.spent.waits && stored {
		next.still = g.spent.still + now.Sub(g.at)
	}
	before, was := g.spent, g.log
	span := float64(now.Sub(g.at))
	g.at, g.spent, g.log = now, next, log
	refused := log.SubmitFull != was.SubmitFull
	full = refused || log.QueueDepth >= int64(e.opt.IngestSlots)
	in.DebtSegments = log.DebtSegments
	if span <= 0 {
		return full
	}
	e.rate.Store(int64(float64(log.Frames-was.Frames) * float64(time.Second) / span))
	in.BusyShare = max(log.Writing-was.Writing, log.Syncing-was.Syncing, next.sealing-before.sealing,
		(next.routing-before.routing)/time.Duration(in.Workers)).Seconds() * float64(time.Second) / span
	in.Fill = float64(log.Full-was.Full) / span
	if refused {
		in.Fill = 1 // refused writes do not fill it
	}
	own := time.Duration(0) // the part of the wait that the sync itself takes
	if n := log.Fsyncs - was.Fsyncs; n > 0 {
		own = min(ownSync, 2*time.Duration((log.FsyncMicros-was.FsyncMicros)/n)*time.Microsecond)
	}
	in.WriteWait = max(next.still-governorPeriod, next.waits[waitSynced].mean(before.waits[waitSynced])-own, next.waits[waitOther].mean(before.waits[waitOther]))
	return full
}

// ownSync is the most that counts as the disk's own time: a write that comes
// during a sync waits for that sync and for its own.
const ownSync = 50 * time.Millisecond

// advise tells the streams of deferred topics that their pushes are paced.
func (e *Engine) advise(now time.Time) {
	for _, t := range e.reg.all() {
		if t.push.Watched() && e.sched.Deferred(&t.rank.task) {
			t.push.Advise(now)
		}
	}
}
