//go:build unix

package server

import (
	"errors"
	"os"
	"syscall"
)

// engineDescriptors is how many file descriptors connections leave to the engine, most of them
// for tables, if that is not more than a quarter of what the process may have.
const engineDescriptors = 640

// noDescriptor returns an error if one more connection would take a descriptor that the engine
// may need: without one the log cannot begin its next file.
func noDescriptor() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return nil
	}
	f, err := os.Open(os.DevNull) // gets the lowest that is free
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return syscall.EMFILE // which net/http knows to pass
	}
	if err != nil {
		return nil
	}
	defer f.Close()
	if most := uint64(limit.Cur); uint64(f.Fd()) >= most-min(most/4, engineDescriptors) {
		return syscall.EMFILE
	}
	return nil
}
