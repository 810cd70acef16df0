package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrInUse is wrapped by the error of Open for a directory that another process holds.
var ErrInUse = errors.New("in use by another process")

// FormatVersion is the version of the data directory's layout as a whole. All
// versions from 1 on are read; 2 added routers and the copies they make.
const FormatVersion = 2

// format is the content of the file FORMAT.
type format struct {
	Format int    `json:"format"`
	Boot   string `json:"boot"`  // boot id of the last writer; empty until one has served
	Clean  bool   `json:"clean"` // the last writer closed the directory
}

// decodeFormat is strict: a FORMAT with a key missing or unknown is damaged,
// and must not be taken for that of a directory that was never used.
func decodeFormat(b []byte) (format, error) {
	var f struct {
		Format *int    `json:"format"`
		Boot   *string `json:"boot"`
		Clean  *bool   `json:"clean"`
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return format{}, err
	}
	if f.Format == nil || f.Boot == nil || f.Clean == nil {
		return format{}, errors.New("a key is missing")
	}
	return format{Format: *f.Format, Boot: *f.Boot, Clean: *f.Clean}, nil
}

// directory is a data directory that this process holds.
type directory struct {
	fs       vfs.FS
	path     string
	lock     io.Closer
	boot     string
	fresh    bool // nothing was in it
	clean    bool // the last writer closed it
	sameBoot bool // the machine has not restarted since the last writer
	prepared bool // what markClean writes stands ready
}

// openDirectory takes the directory's lock and reads its FORMAT. A directory
// that is in use, of a newer format, or not weir's is refused.
func openDirectory(fs vfs.FS, path, boot string) (*directory, error) {
	if err := makeDirectory(fs, path); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	d, err := lockDirectory(fs, path, boot)
	if err != nil {
		return nil, err
	}
	if err := d.readFormat(); err != nil {
		d.release()
		return nil, err
	}
	if err := d.begin(); err != nil {
		d.release()
		return nil, fmt.Errorf("data directory: %w", err)
	}
	return d, nil
}

// begin notes who holds the directory and, if it was never open, starts it
// anew: what a first start left that was cut short served nobody.
func (d *directory) begin() error {
	if d.fresh {
		for _, name := range []string{"wal", "kv", "stage"} {
			if err := d.fs.RemoveAll(d.file(name)); err != nil {
				return err
			}
		}
		if err := d.writeFormat(format{Format: FormatVersion, Clean: true}); err != nil {
			return err
		}
	}
	// What a backup had linked when its process was killed keeps space for nobody.
	if err := d.fs.RemoveAll(d.file(snapshotDir)); err != nil {
		return err
	}
	return replaceFile(d.fs, d.path, "PID", fmt.Append(nil, os.Getpid()))
}

// markOpen says that this process writes the directory now. It comes after
// the recovery: one that was killed halfway has to be made again with what the
// last writer left, not with what this one would have.
func (d *directory) markOpen() error {
	if err := d.write(false); err != nil {
		return err
	}
	// A disk that is full by then must not turn a stop into a crash: what says that
	// the directory was closed is written now, and a rename takes no space.
	b, err := d.formatBytes(true)
	if err == nil {
		err = writeSynced(d.fs, d.file("FORMAT.tmp"), b)
	}
	d.prepared = err == nil
	return nil
}

// makeDirectory creates a directory that survives a power cut.
func makeDirectory(fs vfs.FS, path string) error {
	var created []string
	for p := path; ; p = fs.PathDir(p) {
		if _, err := fs.Stat(p); err == nil || p == fs.PathDir(p) {
			break
		}
		created = append(created, p)
	}
	if err := fs.MkdirAll(path, 0o700); err != nil {
		return err
	}
	for _, p := range created {
		if err := syncDir(fs, fs.PathDir(p)); err != nil {
			return err
		}
	}
	return nil
}

// lockDirectory takes the lock of an existing data directory.
func lockDirectory(fs vfs.FS, path, boot string) (*directory, error) {
	d := &directory{fs: fs, path: path, boot: boot}
	lock, err := fs.Lock(fs.PathJoin(path, "LOCK"))
	if err != nil {
		return nil, fmt.Errorf("data directory %s is %w (its LOCK is held%s): stop that process or name another directory: %w", path, ErrInUse, d.holder(), err)
	}
	d.lock = lock
	return d, nil
}

func (d *directory) file(name string) string { return d.fs.PathJoin(d.path, name) }

// holder names the process that holds the lock, if it wrote its number.
func (d *directory) holder() string {
	b, err := readFile(d.fs, d.file("PID"))
	if err != nil || len(b) == 0 {
		return ""
	}
	return " by pid " + string(b)
}

func (d *directory) readFormat() error {
	b, err := readFile(d.fs, d.file("FORMAT"))
	if errors.Is(err, os.ErrNotExist) {
		names, err := d.fs.List(d.path)
		if err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
		for _, n := range names {
			if n == "wal" || n == "kv" {
				return fmt.Errorf("data directory %s holds %s but no FORMAT file: run `weir repair %s` or restore a backup", d.path, n, d.path)
			}
		}
		d.fresh, d.clean = true, true
		return nil
	}
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	f, err := decodeFormat(b)
	if err != nil || f.Format < 1 {
		return fmt.Errorf("data directory %s: FORMAT is damaged: run `weir repair %s`", d.path, d.path)
	}
	if f.Format > FormatVersion {
		return fmt.Errorf("data directory %s has format %d, this weir reads up to format %d: use a newer weir", d.path, f.Format, FormatVersion)
	}
	d.fresh, d.clean, d.sameBoot = f.Boot == "", f.Clean, f.Boot == d.boot
	return nil
}

func (d *directory) write(clean bool) error {
	return d.writeFormat(format{Format: FormatVersion, Boot: d.boot, Clean: clean})
}

func (d *directory) formatBytes(clean bool) ([]byte, error) {
	b, err := json.Marshal(format{Format: FormatVersion, Boot: d.boot, Clean: clean})
	return append(b, '\n'), err
}

// writeFormat replaces FORMAT in one step.
func (d *directory) writeFormat(f format) error {
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if err := replaceFile(d.fs, d.path, "FORMAT", append(b, '\n')); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	return nil
}

// markClean says that the directory was closed.
func (d *directory) markClean() error {
	if !d.prepared {
		return d.write(true)
	}
	d.prepared = false
	if err := d.fs.Rename(d.file("FORMAT.tmp"), d.file("FORMAT")); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	return syncDir(d.fs, d.path)
}

func (d *directory) release() {
	if d.lock != nil {
		d.lock.Close()
	}
}

func readFile(fs vfs.FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// replaceFile writes a file of the directory durably, all or nothing.
func replaceFile(fs vfs.FS, dir, name string, content []byte) error {
	tmp := fs.PathJoin(dir, name+".tmp")
	if err := writeSynced(fs, tmp, content); err != nil {
		return err
	}
	if err := fs.Rename(tmp, fs.PathJoin(dir, name)); err != nil {
		return err
	}
	return syncDir(fs, dir)
}

// writeSynced writes a whole file and syncs it.
func writeSynced(fs vfs.FS, name string, content []byte) error {
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}
