// Package atomicfile replaces small files in one step: whoever reads one finds all of the old
// text or all of the new, and so does the next start after a power cut.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// ErrUnsynced is wrapped by the errors of writes after which the new text is in place, but a
// power cut may bring back the old.
var ErrUnsynced = errors.New("the file is replaced, but its folder could not be synced")

// Write makes the file be text, readable and writable by its owner alone.
func Write(path string, text []byte) error { return disk.write(path, text, false) }

// WriteUnsynced is Write that waits for no disk: for a file that is written often, and may be
// empty after a power cut.
func WriteUnsynced(path string, text []byte) error { return memory.write(path, text, false) }

// Rewrite is Write for a file that others may have to read: one that is there keeps its mode
// and, if the process may set them, its owner and group.
func Rewrite(path string, text []byte) error { return disk.write(path, text, true) }

// temporary is behind the name of the file in the names of its temporary files, which begin
// with a dot.
const temporary = ".new-"

// Clean removes what writes of the file have left that a crash has broken off. No write of it
// may be under way.
func Clean(path string) error {
	dir := filepath.Dir(path)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasPrefix(e.Name(), "."+filepath.Base(path)+temporary) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// Replaceable returns an error if something other than a regular file is at path. A device or a FIFO
// would be gone from the machine, and its readers would wait for ever.
func Replaceable(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file, so it is not replaced", path)
	}
	return nil
}

// steps are the calls that tests have fail.
type steps struct {
	put     func(f *os.File, text []byte) error // writes and syncs
	rename  func(from, to string) error
	syncDir func(dir string) error
}

var (
	disk   = steps{put: put, rename: os.Rename, syncDir: syncDir}
	memory = steps{put: putUnsynced, rename: os.Rename, syncDir: func(string) error { return nil }}
)

func (s steps) write(path string, text []byte, keep bool) error {
	if err := Replaceable(path); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+temporary+"*") // with mode 0600
	if err != nil {
		return err
	}
	if keep {
		err = keepOwner(tmp, path)
	}
	if err == nil {
		err = s.put(tmp, text)
	}
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = s.rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	if err := s.syncDir(dir); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsynced, err)
	}
	return nil
}

func put(f *os.File, text []byte) error {
	if err := putUnsynced(f, text); err != nil {
		return err
	}
	return f.Sync()
}

func putUnsynced(f *os.File, text []byte) error {
	_, err := f.Write(text)
	return err
}

// keepOwner gives f the mode, owner and group of the file at path, if there is one.
func keepOwner(f *os.File, path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	own(f, info)
	return f.Chmod(info.Mode().Perm()) // after own, which may have cleared bits
}

func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // no folder can be synced there
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
