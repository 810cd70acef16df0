package dir_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/dir"
	"github.com/weirmq/weir/internal/replica/slots"
)

// mounted is a copy in a directory from which it can be taken away, as a file system from where
// it is mounted.
func mounted(t *testing.T) (s *dir.Store, at, away string) {
	t.Helper()
	at = filepath.Join(t.TempDir(), "mnt")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := dir.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Create(t.Context(), "FORMAT", []byte("this copy")); err != nil {
		t.Fatal(err)
	}
	if err := s.Create(t.Context(), "log/1", []byte("entry")); err != nil {
		t.Fatal(err)
	}
	away = at + ".away"
	if err := os.Rename(at, away); err != nil {
		t.Fatal(err)
	}
	return s, at, away
}

// works reports whether every call does what it is to do, and fails the test if some do.
func works(t *testing.T, s *dir.Store) bool {
	t.Helper()
	ctx := t.Context()
	ok, calls := 0, map[string]func(context.Context) error{
		"Create": func(ctx context.Context) error {
			if err := s.Create(ctx, "log/2", []byte("next")); !errors.Is(err, slots.ErrExists) {
				return err
			}
			return nil
		},
		"Put": func(ctx context.Context) error { return s.Put(ctx, "kv/1", 5, strings.NewReader("table")) },
		"Get": func(ctx context.Context) error {
			in, err := s.Get(ctx, "log/1")
			if err == nil {
				in.Close()
			}
			return err
		},
		"List":   func(ctx context.Context) error { _, err := s.List(ctx, "log/"); return err },
		"Delete": func(ctx context.Context) error { return s.Delete(ctx, "log/3") },
	}
	for name, call := range calls {
		err := call(ctx)
		if err == nil {
			ok++
		} else if errors.Is(err, replica.ErrNotFound) || errors.Is(err, slots.ErrExists) || errors.Is(err, replica.ErrRefused) {
			t.Errorf("%s: %v, which says something of the copy, or is not tried again", name, err)
		}
	}
	if ok > 0 && ok < len(calls) {
		t.Errorf("%d of %d calls do something", ok, len(calls))
	}
	return ok > 0
}

// What is written where the copy's file system is not mounted any more is on the disk that the copy is to
// outlive, and hidden as soon as it is mounted again.
func TestACopyIsNotGoneOnWithWhereItIsNotMounted(t *testing.T) {
	s, at, away := mounted(t)
	if works(t, s) {
		t.Error("the copy goes on without its directory")
	}
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if works(t, s) {
		t.Error("the copy goes on in another directory")
	}
	if left, err := os.ReadDir(at); err != nil || len(left) > 0 {
		t.Errorf("in the other directory there are %v, %v", left, err)
	}
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(away, at); err != nil {
		t.Fatal(err)
	}
	if !works(t, s) {
		t.Error("the copy does not go on in its directory")
	}
}

// A file system that is mounted again may have another number.
func TestACopyThatIsMountedAgainIsKnownByItsFormat(t *testing.T) {
	s, at, away := mounted(t)
	if err := os.CopyFS(at, os.DirFS(away)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "FORMAT"), []byte("another copy"), 0o600); err != nil {
		t.Fatal(err)
	}
	if works(t, s) {
		t.Error("the copy goes on in another one")
	}
	if err := os.WriteFile(filepath.Join(at, "FORMAT"), []byte("this copy"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !works(t, s) {
		t.Error("the copy does not go on where it is mounted again")
	}
}
