// Package dir keeps a copy in a directory: of another disk, or of a file system
// over the network that knows hard links and is not NFS.
package dir

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/slots"
)

// Store is the objects and files below a directory. Whatever has a name there is
// whole and synced: it was written in the folder tmp, and linked or renamed.
type Store struct {
	root   root
	synced sync.Map // folders that are, into the one above
	sweep  sync.Once
}

const temporary = "tmp"

// Open returns the store in a directory that exists: if it is a mount that is missing, a copy must
// not begin below it.
func Open(at string) (*Store, error) {
	st, err := os.Stat(at)
	if err != nil {
		return nil, fmt.Errorf("the directory of the copy: %w; create it, or mount what belongs there", err)
	} else if !st.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", at)
	}
	if onNFS(at) {
		return nil, fmt.Errorf("%s is on NFS, whose clients see each other's files late; keep the copy in a bucket (s3://) or on another file system", at)
	}
	return &Store{root: root{path: filepath.Clean(at), info: st}}, nil
}

// Close does nothing.
func (s *Store) Close() error { return nil }

// path returns where name is, if the directory is the one that was opened.
func (s *Store) path(name string) (string, error) {
	if !fs.ValidPath(name) || name == "." || name == temporary || strings.HasPrefix(name, temporary+"/") {
		return "", fmt.Errorf("replica: %q cannot be the name of a file of a copy", name)
	}
	return filepath.Join(s.root.path, filepath.FromSlash(name)), s.check()
}

// check returns an error unless the directory is the one that was opened.
func (s *Store) check() error {
	moved, err := s.root.check()
	if moved {
		s.synced.Clear()
	}
	return err
}

// Create links data under name unless there is something.
func (s *Store) Create(ctx context.Context, name string, data []byte) (err error) {
	defer refused(&err)
	to, err := s.path(name)
	if err != nil {
		return err
	}
	from, err := s.write(ctx, int64(len(data)), bytes.NewReader(data))
	if err != nil {
		return err
	}
	defer os.Remove(from)
	if err := s.folder(filepath.Dir(to)); err != nil {
		return err
	}
	linked := os.Link(from, to)
	if errors.Is(linked, fs.ErrExist) { // perhaps by this call's predecessor, which could not sync
		linked = slots.ErrExists
	} else if linked != nil {
		return linked
	}
	if err := syncDir(filepath.Dir(to)); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	return linked
}

// refused marks an error about a right that is missing.
func refused(err *error) {
	if errors.Is(*err, fs.ErrPermission) {
		*err = fmt.Errorf("%w: %w", replica.ErrRefused, *err)
	}
}

// Put renames the content to name.
func (s *Store) Put(ctx context.Context, name string, size int64, content io.Reader) (err error) {
	defer refused(&err)
	to, err := s.path(name)
	if err != nil {
		return err
	}
	from, err := s.write(ctx, size, content)
	if err != nil {
		return err
	}
	if err := s.folder(filepath.Dir(to)); err != nil {
		return errors.Join(err, os.Remove(from))
	}
	if err := os.Rename(from, to); err != nil {
		return errors.Join(err, os.Remove(from))
	}
	if err := syncDir(filepath.Dir(to)); err != nil {
		return err
	}
	return s.check()
}

// write writes and syncs a temporary file of exactly size bytes.
func (s *Store) write(ctx context.Context, size int64, content io.Reader) (name string, err error) {
	if err := s.folder(filepath.Join(s.root.path, temporary)); err != nil {
		return "", err
	}
	s.sweep.Do(s.sweepTemporary)
	f, err := os.OpenFile(filepath.Join(s.root.path, temporary, rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	n, err := io.Copy(f, io.LimitReader(reader{ctx, content}, size+1))
	if err == nil && n != size {
		err = fmt.Errorf("replica: a file of %d bytes was announced, and is longer or ended after %d", size, n)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// abandoned is for how long nobody has written to a temporary file whose writer was killed.
const abandoned = time.Hour

// sweepTemporary removes what killed processes have left, so that one that is killed each time while it
// makes a base does not fill the disk. What cannot be removed stays.
func (s *Store) sweepTemporary() {
	entries, _ := os.ReadDir(filepath.Join(s.root.path, temporary))
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > abandoned {
			_ = os.Remove(filepath.Join(s.root.path, temporary, e.Name()))
		}
	}
}

// reader ends with its context.
type reader struct {
	ctx context.Context
	io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// folder creates a directory and those above it below the root, each synced into the
// one above. One that is there may be from a call, or a process, that could not sync it.
func (s *Store) folder(name string) error {
	if name == s.root.path {
		return nil
	}
	err := os.Mkdir(name, 0o700)
	if _, synced := s.synced.Load(name); synced && errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err := s.folder(filepath.Dir(name)); err != nil {
		return err
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = os.Mkdir(name, 0o700)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := syncDir(filepath.Dir(name)); err != nil {
		return err
	}
	s.synced.Store(name, true)
	return nil
}

func syncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Get opens the file.
func (s *Store) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	at, err := s.path(name)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := os.Open(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", replica.ErrNotFound, name)
	}
	return f, err
}

// Delete removes the file.
func (s *Store) Delete(ctx context.Context, name string) error {
	at, err := s.path(name)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// List returns the files whose names begin with prefix.
func (s *Store) List(ctx context.Context, prefix string) ([]replica.File, error) {
	return s.ListAfter(ctx, prefix, "", 0)
}

// ListAfter returns the first most files behind after, all if most is 0.
func (s *Store) ListAfter(ctx context.Context, prefix, after string, most int) ([]replica.File, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	names, err := s.names(ctx, prefix, after)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var files []replica.File
	for _, name := range names {
		if most > 0 && len(files) == most {
			break
		}
		st, err := os.Stat(filepath.Join(s.root.path, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		files = append(files, replica.File{Name: name, Size: st.Size(), Changed: st.ModTime().Round(time.Microsecond)})
	}
	return files, nil
}

// names returns the names of the files, in no order.
func (s *Store) names(ctx context.Context, prefix, after string) (all []string, err error) {
	below := filepath.Join(s.root.path, filepath.FromSlash(path.Dir(prefix+"x")))
	err = filepath.WalkDir(below, func(at string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		name, err := filepath.Rel(s.root.path, at)
		name = filepath.ToSlash(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && name == temporary:
			return fs.SkipDir
		case !d.IsDir() && strings.HasPrefix(name, prefix) && name > after:
			all = append(all, name)
		}
		return nil
	})
	return all, err
}
