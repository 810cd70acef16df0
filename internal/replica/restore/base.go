package restore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/replica"
)

// downloads is how many files of a base are read at once.
const downloads = 4

// baseNames returns the names of all bases, oldest first.
func (c Copy) baseNames(ctx context.Context) ([]string, error) {
	files, err := c.list(ctx, replica.BasePrefix)
	if err != nil {
		return nil, fmt.Errorf("the bases of the copy: %w", err)
	}
	var names []string
	for _, f := range files {
		if strings.HasSuffix(f.Name, ".json") {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// newerThan returns the name of the newest base, if that goes on behind b; empty: it does not.
func (c Copy) newerThan(ctx context.Context, b *replica.Base) (string, error) {
	names, err := c.baseNames(ctx)
	if err != nil || len(names) == 0 || names[len(names)-1] <= replica.BaseName(b.After) {
		return "", err
	}
	return names[len(names)-1], nil
}

// errUnused is the error for a base that does not count.
var errUnused = errors.New("its leader did not go on behind it")

// readBase reads the description of a base.
func (c Copy) readBase(ctx context.Context, name string) (*replica.Base, error) {
	base, err := c.decodeBase(ctx, name)
	if err != nil || !base.Gap {
		return base, err
	}
	// It covers a gap of the log, and counts if its leader has begun to ship behind it.
	e, err := replica.Next(ctx, c.Log, base.After)
	if errors.Is(err, io.EOF) {
		// The entry in front of it was there when it was written down. A log that ends before that has lost what
		// says whether it counts, and then it is the most that is left.
		lost, failed := c.endsBefore(ctx, base.After)
		if failed != nil {
			return nil, fmt.Errorf("%s: %w", name, failed)
		}
		if lost {
			return base, nil
		}
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	g, bad := replica.DecodeGroup(e.Data)
	if err != nil || bad != nil || e.Term != base.Term || len(g.Pieces) > 0 || g.Last != base.LSN {
		return nil, fmt.Errorf("%s is not used: %w", name, errUnused)
	}
	return base, nil
}

// readable refuses a copy whose leader is of a newer version: each makes a base when it begins.
func (c Copy) readable(ctx context.Context) error {
	names, err := c.baseNames(ctx)
	if err != nil {
		return err
	}
	for _, name := range slices.Backward(names) {
		if base, err := c.decodeBase(ctx, name); err == nil {
			return c.reads(base)
		}
	}
	return ctx.Err() // what is wrong with them is told when they are needed
}

// reads refuses a base of a newer format.
func (c Copy) reads(b *replica.Base) error {
	if c.Format == 0 || b.Format <= c.Format {
		return nil
	}
	return fmt.Errorf("the copy has format %d, this weir reads up to format %d: %w", b.Format, c.Format, ErrNewer)
}

func (c Copy) decodeBase(ctx context.Context, name string) (*replica.Base, error) {
	var base replica.Base
	err := c.get(ctx, name, func(in io.Reader) error {
		b, err := io.ReadAll(in)
		if err == nil {
			base, err = replica.DecodeBase(name, b)
		}
		return err
	})
	if err != nil && !errors.Is(err, replica.ErrDamaged) {
		err = fmt.Errorf("%s: %w", name, err)
	}
	if err != nil {
		return nil, err
	}
	for _, f := range base.Files {
		dir, _, nested := strings.Cut(f.Name, "/")
		if !fs.ValidPath(f.Name) || f.Name != "FORMAT" && !(nested && (dir == "wal" || dir == "kv")) {
			return nil, fmt.Errorf("%w: %s names the file %q", replica.ErrDamaged, name, f.Name)
		}
	}
	return &base, nil
}

// brokenFile says which file of a base cannot be had as the base says it is.
type brokenFile struct {
	base string
	file replica.BaseFile
	err  error
}

func (e *brokenFile) Error() string {
	return fmt.Sprintf("%s of %s, which is the object %s of the copy: %v", e.file.Name, e.base, e.file.Object, e.err)
}

func (e *brokenFile) Unwrap() error { return e.err }

// asBroken returns the file without which no base can be built that has it; nil: err is about
// something else.
func asBroken(err error) *replica.BaseFile {
	var broken *brokenFile
	if errors.As(err, &broken) && replica.IsBroken(err) {
		return &broken.file
	}
	return nil
}

// sizeOf is how many bytes the files of a base have.
func sizeOf(b *replica.Base) (n int64) {
	for _, f := range b.Files {
		n += f.Size
	}
	return n
}

// needs reports whether the base has one of the files.
func needs(b *replica.Base, files []replica.BaseFile) bool {
	return slices.ContainsFunc(b.Files, func(f replica.BaseFile) bool { return slices.Contains(files, f) })
}

// errNoOther is the error for a copy all of whose bases have what is broken.
var errNoOther = errors.New("no other base does without it")

// fetch writes the files of the base into the directory. What have holds
// already is linked from there, if it is a file that never changes.
func (m *Mirror) fetch(ctx context.Context, have *Mirror) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, dir := range []string{"wal", "kv"} {
		if err := m.fs.MkdirAll(m.path(dir), 0o700); err != nil {
			return err
		}
	}
	held := have.immutable()
	next := make(chan *replica.BaseFile)
	var all sync.WaitGroup
	for range downloads {
		all.Go(func() {
			for f := range next {
				if from, ok := held[*f]; ok && m.fs.Link(from, m.path(f.Name)) == nil {
					m.read(f.Size)
					continue
				}
				if err := m.download(ctx, f); err != nil {
					cancel(&brokenFile{replica.BaseName(m.Base.After), *f, err})
				}
			}
		})
	}
	for i := range m.Base.Files {
		select {
		case next <- &m.Base.Files[i]:
		case <-ctx.Done():
		}
	}
	close(next)
	all.Wait()
	return context.Cause(ctx)
}

// immutable returns the files of the store in m, and where they are.
func (m *Mirror) immutable() map[replica.BaseFile]string {
	held := map[replica.BaseFile]string{}
	if m == nil {
		return held
	}
	for _, f := range m.Base.Files {
		if path.Dir(f.Name) == "kv" {
			held[f] = m.path(f.Name)
		}
	}
	return held
}

func (m *Mirror) download(ctx context.Context, f *replica.BaseFile) error {
	return m.copy.get(ctx, f.Object, func(in io.Reader) error {
		from := &counted{Reader: in, m: m}
		err := m.save(from, f)
		if err != nil {
			m.read(-from.n) // it is read again
		}
		return err
	})
}

// counted counts what is read for a mirror.
type counted struct {
	io.Reader
	m *Mirror
	n int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += int64(n)
	c.m.read(int64(n))
	return n, err
}

func (m *Mirror) save(in io.Reader, f *replica.BaseFile) error {
	to, err := m.fs.Create(m.path(f.Name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(to, io.TeeReader(in, sum))
	if err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return err
	}
	if n != f.Size || hex.EncodeToString(sum.Sum(nil)) != f.SHA256 {
		return fmt.Errorf("%w: it has %d bytes of %d, or another checksum", replica.ErrDamaged, n, f.Size)
	}
	return nil
}
