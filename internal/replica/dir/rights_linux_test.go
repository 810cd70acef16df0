package dir_test

import (
	"cmp"
	"errors"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/dir"
	"github.com/weirmq/weir/internal/replica/slots"
)

const nobody = 65534

// opened returns a store whose directory is somebody's for whom rights count.
func opened(t *testing.T) (*dir.Store, string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "copy")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := dir.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return s, root
}

// mortal calls f as somebody who is not root.
func mortal(t *testing.T, root string, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	for name := root; name != filepath.Clean(os.TempDir()); name = filepath.Dir(name) {
		if err := os.Chown(name, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		err := syscall.Setfsuid(nobody)
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// An entry is not stored while its name, or that of a folder on the way to it, is not synced: it may
// be gone after a power cut, however often it was asked for.
func TestAnEntryIsNotThereUntilItsNameIsSynced(t *testing.T) {
	for _, in := range []string{"log", ""} {
		s, root := opened(t)
		mortal(t, root, func() {
			if err := s.Create(t.Context(), path.Join(cmp.Or(in, "other"), "1"), []byte("1")); err != nil {
				t.Error(err)
			}
			at := filepath.Join(root, in)
			if err := os.Chmod(at, 0o300); err != nil { // a name can be made there, and not synced
				t.Error(err)
			}
			for range 3 {
				if err := s.Create(t.Context(), "log/2", []byte("2")); err == nil || errors.Is(err, slots.ErrExists) {
					t.Errorf("with a directory %q that cannot be synced: %v", in, err)
				}
				if err := s.Put(t.Context(), path.Join(in, "kv/3"), 1, strings.NewReader("3")); err == nil {
					t.Errorf("with a directory %q that cannot be synced a file was put", in)
				}
			}
			if err := os.Chmod(at, 0o700); err != nil {
				t.Error(err)
			}
			if err := s.Create(t.Context(), "log/2", []byte("2")); err != nil && !errors.Is(err, slots.ErrExists) {
				t.Errorf("then: %v", err)
			}
		})
	}
}

// A right that is missing is not mended by trying again, wherever it is.
func TestADirectoryThatMayNotBeWrittenToRefuses(t *testing.T) {
	for name, locked := range map[string]string{"nothing is there": "", "it has been written to": "tmp", "the folder of the file": "log"} {
		s, root := opened(t)
		mortal(t, root, func() {
			if locked != "" {
				if err := s.Create(t.Context(), "log/1", []byte("1")); err != nil {
					t.Error(err)
				}
			}
			at := filepath.Join(root, locked)
			if err := os.Chmod(at, 0o500); err != nil {
				t.Error(err)
			}
			defer os.Chmod(at, 0o700)
			for what, err := range map[string]error{
				"Create": s.Create(t.Context(), "log/2", []byte("2")),
				"Put":    s.Put(t.Context(), "log/3", 1, strings.NewReader("3")),
			} {
				if !errors.Is(err, replica.ErrRefused) {
					t.Errorf("%s: %s: %v", name, what, err)
				}
			}
		})
	}
}
