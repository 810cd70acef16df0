//go:build !race

package engine

const (
	sweepShare   = 1
	verbShare    = 1
	busyBackups  = 6
	lostMachines = 5
)
