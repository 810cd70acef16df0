package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// partialPrefix is the prefix of directories that a command is filling.
const partialPrefix = ".weir-partial-"

// lostAndFound is what a new file system has in it, for root alone.
const lostAndFound = "lost+found"

// freshDir fails unless dir is absent or an empty directory, apart from what a
// killed command left in it, and from what a file system puts there.
func freshDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), partialPrefix) && e.Name() != lostAndFound {
			return fmt.Errorf("%s is not empty; name a directory that is absent or empty", dir)
		}
	}
	return nil
}

// build calls fill on a temporary directory next to dir and renames it into place:
// dir is complete or absent, even after a crash. A mount point cannot be
// replaced: it is filled from a directory inside it, and complete once it holds the
// file last.
func build(dir, last string, fill func(root *os.Root) error) (err error) {
	if err := freshDir(dir); err != nil {
		return err
	}
	// What is replaced is the directory, not a link to it.
	if to, err := filepath.EvalSymlinks(dir); err == nil {
		dir = to
	} else if _, err := os.Lstat(dir); err == nil {
		return fmt.Errorf("%s is a link that leads nowhere; make the directory that it names, or remove it", dir)
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	base := parent
	removeLeftovers(dir)
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		base = dir
	}
	removeLeftovers(base)
	tmp, lock, err := partialDir(base)
	if err != nil {
		return err
	}
	defer lock.Close()
	defer func() {
		if err != nil || base == dir {
			os.RemoveAll(tmp)
		}
	}()
	root, err := os.OpenRoot(tmp)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := fill(root); err != nil {
		return err
	}
	if err := syncDirs(root); err != nil {
		return err
	}
	if base == dir {
		return moveUp(tmp, dir, last)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	return syncDir(parent)
}

// moveUp moves everything in tmp to dir; the file last comes last.
func moveUp(tmp, dir, last string) error {
	entries, err := os.ReadDir(tmp)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == last {
			continue
		}
		if err := os.Rename(filepath.Join(tmp, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(tmp, last), filepath.Join(dir, last)); err != nil {
		return err
	}
	return syncDir(dir)
}

// partialDir creates a directory to fill, which is locked while lock is
// open. A command that cleans up may remove it before it is locked; then
// partialDir creates another.
func partialDir(base string) (dir string, lock *os.File, err error) {
	for {
		if dir, err = os.MkdirTemp(base, partialPrefix+"*"); err != nil {
			return "", nil, err
		}
		if lock, err = os.Open(dir); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return "", nil, err
		}
		// Without locks in the file system, another command cannot take one either.
		_ = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if _, err = os.Stat(dir); err == nil {
			return dir, lock, nil
		}
		lock.Close()
	}
}

// removeLeftovers removes what killed commands left in base. It skips what a
// running command has locked, and what cannot be removed.
func removeLeftovers(base string) {
	entries, _ := os.ReadDir(base) // not by a pattern, which its name may look like
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), partialPrefix) {
			continue
		}
		name := filepath.Join(base, e.Name())
		dir, err := os.Open(name)
		if err != nil {
			continue
		}
		if syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			os.RemoveAll(name)
		}
		dir.Close()
	}
}
