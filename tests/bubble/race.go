//go:build race

package bubble

// detecting reports whether the race detector is on.
const detecting = true
