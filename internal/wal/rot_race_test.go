//go:build race

package wal

// rotEvery is how far the damages of a file lie apart that are tried: the race detector
// makes them ten times as slow, and scripts/test.sh tries all without it.
const rotEvery = 13
