package dir_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/dir"
	"github.com/weirmq/weir/internal/replica/slots"
)

// A copy is written for years: nothing that is on its way stays, whether it arrives or not, and
// what a killed process has left is no file of the copy.
func TestWhatIsOnItsWayLeavesNothing(t *testing.T) {
	root := t.TempDir()
	s, err := dir.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	ended, end := context.WithCancel(ctx)
	end()
	if err := s.Create(ctx, "log/1", []byte("entry")); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(ctx, "kv/1", 5, strings.NewReader("table")); err != nil {
		t.Fatal(err)
	}
	if err := s.Create(ctx, "log/1", []byte("other")); !errors.Is(err, slots.ErrExists) {
		t.Errorf("a name that is taken: %v", err)
	}
	for what, err := range map[string]error{
		"an object whose context has ended": s.Create(ended, "log/2", []byte("entry")),
		"a file that is longer":             s.Put(ctx, "kv/2", 4, strings.NewReader("table")),
		"a file that is shorter":            s.Put(ctx, "kv/2", 6, strings.NewReader("table")),
		"a file whose context has ended":    s.Put(ended, "kv/2", 5, strings.NewReader("table")),
	} {
		if err == nil {
			t.Errorf("%s was stored", what)
		}
	}
	left, err := os.ReadDir(filepath.Join(root, "tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
	if err := os.WriteFile(filepath.Join(root, "tmp", "killed"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := s.List(ctx, "")
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
	}
	if err != nil || !slices.Equal(names, []string{"kv/1", "log/1"}) {
		t.Errorf("the copy holds %q, %v", names, err)
	}
}

// A server that is killed each time while it makes a base must not fill the disk of its copy.
func TestWhatKilledProcessesHaveLeftIsRemoved(t *testing.T) {
	root := t.TempDir()
	tmp := filepath.Join(root, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{"killed": 2 * time.Hour, "running": 10 * time.Minute} {
		at := filepath.Join(tmp, name)
		if err := os.WriteFile(at, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(at, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := dir.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	left := func() (names []string) {
		entries, err := os.ReadDir(tmp)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if _, err := s.List(t.Context(), ""); err != nil || len(left()) != 2 {
		t.Errorf("who only looks leaves %q, %v", left(), err)
	}
	if err := s.Put(t.Context(), "kv/1", 5, strings.NewReader("table")); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(left(), []string{"running"}) {
		t.Errorf("who writes leaves %q", left())
	}
}

// Only a directory holds a copy, no name leads out of it or to what is not whole yet, and what is not there
// is told from what cannot be read.
func TestWhatIsNoCopyAndNoNameInOne(t *testing.T) {
	ctx, at := t.Context(), t.TempDir()
	if err := os.WriteFile(filepath.Join(at, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{filepath.Join(at, "file"), filepath.Join(at, "absent")} {
		if _, err := dir.Open(wrong); err == nil {
			t.Errorf("%s is opened", wrong)
		}
	}
	s, err := dir.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", ".", "..", "../a", "/a", "a/../b", "tmp", "tmp/a"} {
		for what, call := range map[string]func() error{
			"Create": func() error { return s.Create(ctx, name, nil) },
			"Put":    func() error { return s.Put(ctx, name, 0, strings.NewReader("")) },
			"Get":    func() error { _, err := s.Get(ctx, name); return err },
			"Delete": func() error { return s.Delete(ctx, name) },
		} {
			if err := call(); err == nil || errors.Is(err, replica.ErrNotFound) {
				t.Errorf("%s of %q: %v", what, name, err)
			}
		}
	}
	if _, err := s.Get(ctx, "log/1"); !errors.Is(err, replica.ErrNotFound) {
		t.Errorf("what is not there: %v", err)
	}
	for _, name := range []string{"log/1", "log/2", "log/3"} {
		if err := s.Create(ctx, name, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	files, err := s.ListAfter(ctx, "log/", "log/1", 1)
	if err != nil || len(files) != 1 || files[0].Name != "log/2" {
		t.Errorf("the first behind log/1: %+v, %v", files, err)
	}
}
