package sched

import "math"

const (
	recencyPeak  = 500
	recencyHalf  = 30_000  // ms until half of it is left
	recencyFloor = 300_000 // ms; nothing is left from here on

	recencySteps = 64
	recencyBits  = 20 // behind the point
	manualLimit  = 1000
)

// halves holds the peak times 2 to the power of −i/64.
var halves = func() (table [recencySteps + 1]int64) {
	for i := range table {
		table[i] = int64(math.Round(math.Exp2(-float64(i)/recencySteps) * recencyPeak * (1 << recencyBits)))
	}
	return table
}()

// Recency returns the points of a topic that was read idleMS ms ago: 500, halved
// every 30 seconds, rounded, and 0 after five minutes. It does without floating
// point: the whole half-lives are a shift, and the table is interpolated because
// 64 steps alone would be off by more than one point.
func Recency(idleMS int64) int {
	if idleMS >= recencyFloor {
		return 0
	}
	idleMS = max(idleMS, 0)
	whole, rest := idleMS/recencyHalf, idleMS%recencyHalf*recencySteps
	step, part := rest/recencyHalf, rest%recencyHalf
	v := halves[step] - (halves[step]-halves[step+1])*part/recencyHalf
	shift := whole + recencyBits
	return int((v + 1<<(shift-1)) >> shift)
}

// Base returns the base priority of a topic: its own priority, held between −1000
// and 1000, if it has one; with auto its Recency; otherwise 0. idleMS is how many
// ms ago the topic was read, below 0 if it never was.
func Base(priority int64, hasPriority, auto bool, idleMS int64) int {
	switch {
	case hasPriority:
		return int(min(max(priority, -manualLimit), manualLimit))
	case auto && idleMS >= 0:
		return Recency(idleMS)
	}
	return 0
}
