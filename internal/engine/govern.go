package engine

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/weirmq/weir/internal/engine/governor"
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
	tick := time.NewTicker(governorPeriod)
	defer tick.Stop()
	g := governing{e: e, at: time.Now()}
	for {
		g.step()
		select {
		case <-e.stop.Done():
			return
		case <-tick.C:
		}
	}
}

// governing is what the governor's loop keeps from sample to sample.
type governing struct {
	e                         *Engine
	at                        time.Time
	syncing, sealing, routing int64 // totals at the last sample
	last                      governor.State
	advised                   time.Time
}

func (g *governing) step() {
	e := g.e
	now := time.Now()
	w := e.log.Metrics()
	sample := e.sched.Sample(e.mono())
	st := e.governor.Sample(governor.Inputs{
		Depth: sample.Depth, Workers: e.sched.Shards(),
		MeanWait: sample.MeanWait, OldestWait: sample.OldestWait, PickUps: sample.PickUps,
		BusyShare: g.busy(now, w.FsyncMicros*1000), DebtSegments: w.DebtSegments,
	}, w.QueueDepth >= int64(e.opt.IngestSlots)) // a write would have to wait for a slot
	if st.CoalesceWindow != g.last.CoalesceWindow {
		e.sched.SetWindow(st.CoalesceWindow)
	}
	if st.CommitWindow != g.last.CommitWindow {
		e.log.SetWindow(st.CommitWindow)
	}
	if st.Deferring != g.last.Deferring {
		e.sched.SetDefer(st.Deferring, e.mono())
	}
	if st.Rung != g.last.Rung {
		e.opt.Logger.Info("governor: another rung", "rung", st.Rung, "before", g.last.Rung, "pressure", st.Pressure,
			"depth", st.Depth, "latency", st.Latency, "pool", st.Pool,
			"coalesce_window", st.CoalesceWindow, "commit_window", st.CommitWindow, "deferring", st.Deferring)
	}
	if st.Deferring && (!g.last.Deferring || now.Sub(g.advised) >= time.Second) {
		g.advised = now
		e.advise(now)
	}
	g.last = st
}

// busy is the share of the slots for blocking work that was in use since the
// last sample: the log's syncer, the segment builder, the dispatch workers
// while they copy for routers. The log's writer is one of its callers and
// counts with the syncer.
func (g *governing) busy(now time.Time, syncing int64) float64 {
	sealing, routing := g.e.push.sealing.Load(), g.e.push.routing.Load()
	used := syncing - g.syncing + sealing - g.sealing + routing - g.routing
	span := now.Sub(g.at)
	g.at, g.syncing, g.sealing, g.routing = now, syncing, sealing, routing
	if span <= 0 {
		return 0
	}
	slots := 2 + g.e.sched.Shards()
	return min(1, float64(used)/float64(span)/float64(slots))
}

// advise tells the streams of deferred topics that their pushes are paced.
func (e *Engine) advise(now time.Time) {
	for _, t := range e.reg.all() {
		if t.watchers.n.Load() == 0 || !e.sched.Deferred(&t.task) {
			continue
		}
		for _, w := range t.watchers.list(nil) {
			w.advise(now)
		}
	}
}
