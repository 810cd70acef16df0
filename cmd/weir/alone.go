package main

import (
	"os"
	"path/filepath"
	"syscall"
)

// alone calls change while no other command of this machine changes the file at path in the
// same way. Where no lock can be had, as in a folder that is not there, it only calls it.
func alone(path string, change func() error) error {
	lock, err := os.OpenFile(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		defer lock.Close()
		_ = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX) // some file systems have no locks
	}
	return change()
}
