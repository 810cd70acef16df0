//go:build race

package store

// flipEvery is how far the flipped bytes of a table lie apart: the detector makes
// a flip five times as long and finds nothing in them that it does not find in one.
const flipEvery = 40

// sealedOps is how many operations a segment has whose sealing may take little memory;
// scripts/test.sh seals the whole of it without the detector.
const sealedOps = 1000
