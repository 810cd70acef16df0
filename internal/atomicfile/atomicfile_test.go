package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var errPlanted = errors.New("planted")

// names returns what is in a folder.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func holds(t *testing.T, path, want string) {
	t.Helper()
	if text, err := os.ReadFile(path); err != nil || string(text) != want {
		t.Errorf("%s has %q, %v; want %q", path, text, err, want)
	}
}

func TestAWriteReplacesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "F")
	for _, text := range []string{"the first", "2"} {
		for _, write := range []func(string, []byte) error{Write, WriteUnsynced} {
			if err := write(path, []byte(text)); err != nil {
				t.Fatal(err)
			}
			holds(t, path, text)
			text += ", and more"
		}
	}
	if all := names(t, filepath.Dir(path)); len(all) != 1 {
		t.Errorf("the folder has %q", all)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
}

func TestARewriteKeepsTheMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "F")
	if err := Rewrite(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		write func(string, []byte) error
		want  os.FileMode
	}{{Rewrite, 0o644}, {Write, 0o600}} {
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := tt.write(path, []byte("text")); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != tt.want {
			t.Errorf("its mode is %v, %v; want %v", info.Mode(), err, tt.want)
		}
	}
}

// TestOnlyAFileIsReplaced writes to a device, by a link as /dev/stdout is one, and to a folder. Under
// its own name the device would be gone from the machine.
func TestOnlyAFileIsReplaced(t *testing.T) {
	dir := t.TempDir()
	device, folder := filepath.Join(dir, "device"), filepath.Join(dir, "folder")
	if err := errors.Join(os.Symlink(os.DevNull, device), os.Mkdir(folder, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{device, folder} {
		for name, write := range map[string]func(string, []byte) error{"Write": Write, "WriteUnsynced": WriteUnsynced, "Rewrite": Rewrite} {
			if err := write(path, []byte("new")); err == nil || !strings.Contains(err.Error(), path+" is no regular file") {
				t.Errorf("%s of the %s: %v", name, filepath.Base(path), err)
			}
		}
	}
	to, err := os.Readlink(device)
	if err != nil || to != os.DevNull {
		t.Errorf("the link leads to %q (%v)", to, err)
	}
	if left := names(t, dir); len(left) != 2 {
		t.Errorf("the folder has %q", left)
	}
}

func TestAFailedWriteLeavesTheOldFileAlone(t *testing.T) {
	for name, plant := range map[string]func(*steps){
		"half is written": func(s *steps) {
			s.put = func(f *os.File, text []byte) error {
				_, err := f.Write(text[:len(text)/2])
				return errors.Join(err, errPlanted)
			}
		},
		"no rename": func(s *steps) { s.rename = func(string, string) error { return errPlanted } },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "F")
			if err := Write(path, []byte("old")); err != nil {
				t.Fatal(err)
			}
			s := disk
			plant(&s)
			if err := s.write(path, []byte("new text"), false); !errors.Is(err, errPlanted) || errors.Is(err, ErrUnsynced) {
				t.Errorf("the error is %v", err)
			}
			holds(t, path, "old")
			if all := names(t, filepath.Dir(path)); len(all) != 1 {
				t.Errorf("the folder has %q", all)
			}
		})
	}
}

func TestAnUnsyncedFolderIsToldApart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "F")
	s := disk
	var synced []string
	s.syncDir = func(dir string) error {
		synced = append(synced, dir)
		return errPlanted
	}
	if err := s.write(path, []byte("new"), false); !errors.Is(err, ErrUnsynced) || !errors.Is(err, errPlanted) {
		t.Errorf("the error is %v", err)
	}
	holds(t, path, "new")
	if len(synced) != 1 || synced[0] != filepath.Dir(path) {
		t.Errorf("synced are %q", synced)
	}
}

func TestWhatACrashLeavesIsCleaned(t *testing.T) {
	path := filepath.Join(t.TempDir(), "F")
	if err := Write(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	beside := filepath.Join(filepath.Dir(path), ".FF.new-1") // of another file
	if err := os.WriteFile(beside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := disk
	s.rename = func(string, string) error { panic(errPlanted) } // as if the process ended here
	func() {
		defer func() { _ = recover() }()
		_ = s.write(path, []byte("new"), false)
	}()
	if all := names(t, filepath.Dir(path)); len(all) != 3 {
		t.Fatalf("the crash left %q", all)
	}
	if err := Clean(path); err != nil {
		t.Fatal(err)
	}
	if all := names(t, filepath.Dir(path)); len(all) != 2 || all[0] != ".FF.new-1" || all[1] != "F" {
		t.Errorf("the folder has %q", all)
	}
	holds(t, path, "old")
	if err := Clean(filepath.Join(t.TempDir(), "none", "F")); err != nil {
		t.Errorf("a folder that is not there: %v", err)
	}
}
