//go:build race

package store

// flipEvery is how far the flipped bytes of a table lie apart: the detector makes
// a flip five times as long and finds nothing in them that it does not find in one.
const flipEvery = 5
