//go:build unix

package server

import "syscall"

// mapMemory returns size zeroed bytes outside of the heap. Pages cost memory
// only once they are written to, and go back to the system with unmapMemory.
func mapMemory(size int) ([]byte, error) {
	return syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
}

func unmapMemory(b []byte) error { return syscall.Munmap(b) }
