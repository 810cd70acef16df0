package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/wal"
)

// Manifest describes a backup: what is in it and how to tell that it is whole.
type Manifest struct {
	Format    int            `json:"format"`
	LSN       uint64         `json:"lsn"` // last operation that is in it
	CreatedMS int64          `json:"created_ms"`
	Files     []ManifestFile `json:"files"`
}

// ManifestFile is one file of a backup; Name has forward slashes.
type ManifestFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// ManifestName is the file that holds the Manifest.
const ManifestName = "MANIFEST.json"

// BackupRate is the default rate at which a server sends a backup, in bytes per
// second: slow enough that other clients do not notice.
const BackupRate = 32 << 20

// snapshotDir is where a snapshot links its tables. It lies in the data
// directory, since links do not cross file systems, and the next start removes
// what a killed process left: under a name that nobody gives to a folder of theirs.
const snapshotDir = ".weir-snapshot"

// Snapshot is the data directory as it was at one position of the log, while
// the engine goes on: the store as it was then, and the log behind it up to
// there. Close gives its space back. One snapshot is open at a time.
type Snapshot struct {
	LSN uint64 // last operation that is in it

	e     *Engine
	dir   string
	log   *wal.Snapshot
	files []snapshotFile
}

type snapshotFile struct {
	name string // with forward slashes
	size int64
	open func() (io.Reader, error) // closed after use if it is an io.Closer
}

// Snapshot takes a snapshot once the previous one is closed. It holds
// everything acknowledged before the call. Only the sealing of segments waits
// for it, while files are being linked. The caller must close it soon.
func (e *Engine) Snapshot(ctx context.Context) (*Snapshot, error) {
	defer guard()
	if err := e.usable(); err != nil {
		return nil, err
	}
	if err := e.copying.lock(ctx, e.stop); err != nil {
		return nil, err
	}
	s := &Snapshot{e: e, dir: e.dir.file(snapshotDir)}
	if err := s.take(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Snapshot) take(ctx context.Context) error {
	fs := s.e.opt.FS
	if err := fs.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if err := fs.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if err := s.freeze(ctx); err != nil {
		return err
	}
	// The copy counts as one that was not closed, from another machine: when it
	// is opened, numbers handed out after the snapshot are announced as lost.
	boot := bootOfBackup
	if s.e.copyLags() {
		boot = bootOfLagged
	}
	b, err := json.Marshal(format{Format: FormatVersion, Boot: boot})
	if err != nil {
		return err
	}
	s.addBytes("FORMAT", append(b, '\n'))
	for i := range s.log.Files {
		f := &s.log.Files[i]
		s.files = append(s.files, snapshotFile{name: path.Join("wal", f.Name), size: f.Size,
			open: func() (io.Reader, error) { return f.Open(), nil }})
	}
	return s.addStore()
}

// freeze notes the position of the log and links the tables. Sealing is held
// meanwhile, so that the store matches the position: its tables leave out
// records deleted by operations that only the log has, and the log up to the
// position has all of those.
func (s *Snapshot) freeze(ctx context.Context) error {
	e := s.e
	if err := e.sealing.lock(ctx, e.stop); err != nil {
		return err
	}
	defer e.sealing.Unlock()
	log, err := e.log.Snapshot(e.store.Applied())
	if err != nil {
		return storageError(err)
	}
	s.log, s.LSN = log, log.LSN
	if err := e.store.Checkpoint(e.opt.FS.PathJoin(s.dir, "kv")); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

func (s *Snapshot) addBytes(name string, b []byte) {
	s.files = append(s.files, snapshotFile{name: name, size: int64(len(b)),
		open: func() (io.Reader, error) { return strings.NewReader(string(b)), nil }})
}

// addStore lists the files of the store.
func (s *Snapshot) addStore() error {
	fs := s.e.opt.FS
	kv := fs.PathJoin(s.dir, "kv")
	names, err := fs.List(kv)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	slices.Sort(names)
	for _, name := range names {
		full := fs.PathJoin(kv, name)
		info, err := fs.Stat(full)
		if err != nil {
			return fmt.Errorf("backup: %w", err)
		}
		s.files = append(s.files, snapshotFile{name: path.Join("kv", name), size: info.Size(),
			open: func() (io.Reader, error) { return fs.Open(full, vfs.SequentialReadsOption) }})
	}
	return nil
}

// Copy calls each for every file with its name (forward slashes), its size and
// its content, which each must read to the end. The last one is the manifest,
// named ManifestName. Together they are a data directory that can be opened.
// Copy reads at most perSecond bytes per second; 0 is no limit.
func (s *Snapshot) Copy(ctx context.Context, perSecond int64, each func(name string, size int64, content io.Reader) error) error {
	defer guard()
	m := Manifest{Format: FormatVersion, LSN: s.LSN, CreatedMS: time.Now().UnixMilli()}
	r := &pacedReader{rate: newRate(ctx, s.e.stop, perSecond)}
	for i := range s.files {
		f := &s.files[i]
		sum, err := f.copy(r, func(content io.Reader) error { return each(f.name, f.size, content) })
		if err != nil {
			return fmt.Errorf("backup: %s: %w", f.name, err)
		}
		m.Files = append(m.Files, ManifestFile{Name: f.name, Size: f.size, SHA256: sum})
	}
	b, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	return each(ManifestName, int64(len(b)), strings.NewReader(string(b)))
}

// copy hands the file's content to a function, at the rate of r, and returns its SHA-256.
func (f *snapshotFile) copy(r *pacedReader, to func(content io.Reader) error) (sum string, err error) {
	from, err := f.open()
	if err != nil {
		return "", err
	}
	if c, ok := from.(io.Closer); ok {
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	h := sha256.New()
	r.from, r.n = io.TeeReader(from, h), 0
	if err := to(r); err != nil {
		return "", err
	}
	if r.n != f.size {
		return "", fmt.Errorf("%d of %d bytes were read", r.n, f.size)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Close removes the links and lets the next snapshot begin.
func (s *Snapshot) Close() error {
	defer guard()
	if s.log != nil {
		s.log.Close()
	}
	err := s.e.opt.FS.RemoveAll(s.dir)
	s.e.copying.Unlock()
	if err != nil {
		return fmt.Errorf("backup: its links could not be removed (the next backup tries again): %w", err)
	}
	return nil
}

// pacedReader reads one file after the other, at a rate over all of them.
type pacedReader struct {
	rate *rate
	from io.Reader
	n    int64 // of this file
}

func (r *pacedReader) Read(p []byte) (int, error) {
	if err := r.rate.wait(); err != nil {
		return 0, err
	}
	n, err := r.from.Read(p[:min(len(p), paceRead)])
	r.n += int64(n)
	r.rate.total += int64(n)
	return n, err
}

// Backup writes the engine's data at one position of the log into dir, which
// must not exist, while the engine goes on. It holds everything acknowledged
// before the call. When Backup returns, all of it is on disk; after an error
// dir may hold a part, without a manifest.
func (e *Engine) Backup(ctx context.Context, dir string) error {
	defer guard()
	fs := e.opt.FS
	if _, err := fs.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		return errors.Join(fmt.Errorf("backup: %s exists; name a directory that does not", dir), err)
	}
	s, err := e.Snapshot(ctx)
	if err != nil {
		return err
	}
	err = s.Copy(ctx, 0, func(name string, _ int64, content io.Reader) error {
		return writeBackupFile(fs, fs.PathJoin(dir, path.Dir(name)), path.Base(name), content)
	})
	return errors.Join(err, s.Close())
}

func writeBackupFile(fs vfs.FS, dir, name string, content io.Reader) error {
	if err := makeDirectory(fs, dir); err != nil {
		return err
	}
	f, err := fs.Create(fs.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return syncDir(fs, dir)
}
