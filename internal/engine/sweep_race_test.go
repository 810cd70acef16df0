//go:build race

package engine

// sweepShare is how many crash points and damages there are for each one that is tried: the race
// detector makes them ten times as slow, and scripts/test.sh tries all without it.
const sweepShare = 16

// verbShare is the same for what the verbs do where a place is damaged or cannot be read.
const verbShare = 4

// Rounds of what the detector makes as slow, likewise.
const (
	busyBackups  = 2
	lostMachines = 2
)
