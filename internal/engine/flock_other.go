//go:build !(darwin || freebsd || linux || netbsd || openbsd || dragonfly)

package engine

// flock does nothing: the system cannot lock a directory, so the file LOCK has
// to do.
func flock(uintptr) error { return nil }
