// Package governor turns how busy the server is into one number, the pressure,
// and the pressure into steps that slow down what can wait: gathering pushes,
// gathering commits, pausing the least important pushes, and at last refusing
// writes. It only computes; others do what State says. The numbers are those of
// scheduler 6.
package governor

import (
	"sync"
	"sync/atomic"
	"time"
)

// Inputs is what was measured since the sample before.
type Inputs struct {
	Depth   int // entries of the ready sets that could be visited now
	Workers int // that visit them
	PickUps int // entries visited since the sample before
	// MeanWait is how long these had waited, OldestWait how long the oldest
	// entry that could be visited waits by now.
	MeanWait, OldestWait time.Duration
	// BusyShare is of the time since the sample before, 0 to 1: of whatever does
	// blocking work and was busy most.
	BusyShare    float64
	Fill         float64 // of the ingest queue, 0 to 1
	DebtSegments int     // full log segments that wait to be sealed
	// WriteWait is how long writes waited for their acknowledgement because of
	// other writes.
	WriteWait time.Duration
}

// State is what a sample resulted in.
type State struct {
	Known                bool          // false before the first sample
	Pressure             float64       // 0 to 1
	Depth, Latency, Pool float64       // the signals it is made of, 0 to 1
	Rung                 int           // the highest step in force, 0 to 4
	CoalesceWindow       time.Duration // between two wake-ups of a topic's streams
	CommitWindow         time.Duration // a group of writes waits for company
	Deferring            bool          // the least important pushes pause
}

const (
	depthPerWorker = 256                   // entries that fill the depth signal
	latencyFull    = 25 * time.Millisecond // wait for a visit, or of a write, that fills its signal
	debtFull       = 4                     // segments that fill the pool signal
)

// Governor keeps the pressure from sample to sample.
type Governor struct {
	mu       sync.Mutex
	waited   float64 // ns, smoothed
	pool     float64 // of the last sample
	pressure float64
	pinned   bool
	full     bool // the ingest queue, at the last sample
	ladder   ladder
	state    atomic.Pointer[State]
}

// New returns a governor that has seen no load.
func New() *Governor {
	g := &Governor{}
	g.state.Store(&State{CommitWindow: commitWindow(0)})
	return g
}

// State returns the result of the last sample, without taking a lock.
func (g *Governor) State() State { return *g.state.Load() }

// Sample takes what was measured in the 100 ms since the sample before, and
// whether the ingest queue is full, and returns the state that follows.
func (g *Governor) Sample(in Inputs, ingestFull bool) State {
	g.mu.Lock()
	defer g.mu.Unlock()
	st := State{
		Depth:   unit(float64(in.Depth) / float64(depthPerWorker*max(in.Workers, 1))),
		Latency: g.latency(in),
	}
	now := pool(in)
	st.Pool, g.pool = max(now, g.pool), now
	g.full = ingestFull
	if !g.pinned {
		g.pressure = (g.pressure + max(st.Depth, st.Latency, st.Pool)) / 2
	}
	return g.publish(st)
}

// Pin holds the pressure at p from now on, whatever is measured, and lets it
// count as sustained. It is for tests.
func (g *Governor) Pin(p float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pinned, g.pressure = true, unit(p)
	g.publish(*g.state.Load())
}

// publish completes a state that has its signals.
func (g *Governor) publish(st State) State {
	st.Known = true
	st.Pressure = g.pressure
	st.Deferring = g.ladder.step(g.pressure, g.pinned)
	st.CoalesceWindow = coalesceWindow(g.pressure)
	st.CommitWindow = commitWindow(g.pressure)
	st.Rung = rung(g.pressure, st.Deferring, g.full)
	g.state.Store(&st)
	return st
}

// pool is the largest of the signals of blocking work. What is used up to half
// is not short. Load comes in waves, of a group that is released and comes back;
// so the larger of two samples counts: between two waves it is not calm.
func pool(in Inputs) float64 {
	return max(unit((in.BusyShare-0.5)*2), unit((in.Fill-0.5)*2),
		unit(float64(in.DebtSegments)/debtFull), unit(float64(in.WriteWait)/float64(latencyFull)))
}

// latency smooths the wait for a visit, with a half-life of one sample. What
// still waits counts too: else a hanging visit would look like no load.
func (g *Governor) latency(in Inputs) float64 {
	wait := in.OldestWait
	if in.PickUps > 0 {
		wait = max(wait, in.MeanWait)
	}
	wait = min(max(wait, 0), latencyFull)
	g.waited = (g.waited + float64(wait)) / 2
	return unit(g.waited / float64(latencyFull))
}

// unit holds x between 0 and 1; what is no number is 0.
func unit(x float64) float64 {
	if x > 0 {
		return min(x, 1)
	}
	return 0
}
