//go:build linux && (amd64 || arm64)

package wal

import "syscall"

// ForgetCached asks the system to drop its cache of a file, so that the next
// read comes from the disk.
func ForgetCached(fd uintptr) {
	const dontNeed = 4 // POSIX_FADV_DONTNEED
	_, _, _ = syscall.Syscall6(syscall.SYS_FADVISE64, fd, 0, 0, dontNeed, 0, 0)
}
