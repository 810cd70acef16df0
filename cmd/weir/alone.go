package main

import (
	"os"
	"path/filepath"
	"syscall"
)

// behindLinks returns where the symbolic links at path lead, to a file that need not be there: one
// that is replaced is replaced there, since that is what others read, and the links stay.
func behindLinks(path string) string {
	for range maxLinks {
		to, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Dir(path) + string(filepath.Separator) + to // not cleaned: the folder may be a link
		}
		path = to
	}
	return path
}

const maxLinks = 40 // as of Linux

// alone calls change while no other command of this machine changes the file at path, which it
// is told behind its links, in the same way. Where no lock can be had, as in a folder that is not
// there, it only calls it.
func alone(path string, change func(path string) error) error {
	path = behindLinks(path)
	lock, err := os.OpenFile(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		defer lock.Close()
		_ = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX) // some file systems have no locks
	}
	return change(path)
}
