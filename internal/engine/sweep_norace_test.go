//go:build !race

package engine

const sweepShare = 1
