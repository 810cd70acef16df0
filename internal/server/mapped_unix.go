//go:build unix

package server

import "syscall"

// mapMemory returns size zeroed bytes outside the heap. Pages use memory only once they
// are written to; unmapMemory returns them to the system.
func mapMemory(size int) ([]byte, error) {
	return syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
}

func unmapMemory(b []byte) error { return syscall.Munmap(b) }
