//go:build !linux || !(amd64 || arm64)

package wal

// ForgetCached does nothing: the system offers no way.
func ForgetCached(uintptr) {}
