//go:build darwin || freebsd || linux || netbsd || openbsd || dragonfly

package engine

import "syscall"

// flock locks an open directory until it is closed; an error means that another
// process holds it. Not every file system can lock one.
func flock(fd uintptr) error {
	if err := syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB); err == syscall.EWOULDBLOCK {
		return err
	}
	return nil
}
