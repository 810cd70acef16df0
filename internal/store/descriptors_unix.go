//go:build unix

package store

import "syscall"

// openTables returns how many tables are kept open: at most maxOpenTables, and an eighth of the
// descriptors that the process may have. Connections leave a quarter of those to the engine
// (server/descriptors_unix.go), and the log, seals and compactions have to find theirs beside.
func openTables() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return maxOpenTables
	}
	return max(1, int(min(uint64(limit.Cur)/8, maxOpenTables)))
}
