package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/replica"
)

// ErrInUse is wrapped by the error of Open for a directory that another process holds.
var ErrInUse = errors.New("in use by another process")

// FormatVersion is the version of the data directory's layout as a whole. All
// versions from 1 on are read; 2 added routers and the copies they make, 3 the
// tiers and fair keys of records, 4 the wait_slo_ms of queues,
// 5 what a key remembers of its records, 6 records that come with a delay,
// 7 watch sessions, 8 how the clocks stand.
const FormatVersion = 8

// format is the content of the file FORMAT.
type format struct {
	Format int    `json:"format"`
	Boot   string `json:"boot"`  // boot id of the last writer; empty until one has served
	Clean  bool   `json:"clean"` // the last writer closed the directory
}

// decodeFormat is strict: a FORMAT with a missing or unknown key is damaged,
// and must not be mistaken for that of an unused directory.
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

// Boots of a FORMAT that no machine has.
const (
	bootOfBackup = "backup"   // of a backup; see also replica.BootOfCopy
	bootOfLagged = "lagged"   // of a backup of a server whose copy lags
	bootOfRepair = "repaired" // of a FORMAT that had to be made anew
)

// errFormat says that FORMAT is missing or damaged, which repair can mend.
var errFormat = errors.New("FORMAT is missing or damaged")

// directory is a data directory that this process holds.
type directory struct {
	fs       vfs.FS
	path     string
	locks    []io.Closer
	boot     string
	format   int  // before this start; 0 if nothing was in it
	fresh    bool // nothing was in it
	copied   bool // it was made from a backup or a copy and has not served yet
	lagged   bool // it was, and fsync writes may have been acknowledged that are not in it
	backup   bool // it was, from a backup
	clean    bool // the last writer closed it
	sameBoot bool // the machine has not restarted since the last writer
	prepared bool // what markClean writes stands ready
}

// openDirectory takes the directory's lock and reads its FORMAT. A directory
// that is in use, of a newer format, or not weir's is refused.
func openDirectory(ctx context.Context, opt Options) (*directory, error) {
	fs, path := opt.FS, opt.Dir
	if err := makeDirectory(fs, path); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	// Looked at first, since the lock is a file in it.
	if _, err := ownDirectory(fs, path); err != nil {
		return nil, err
	}
	d, err := lockDirectory(fs, path, opt.BootID)
	if err != nil {
		return nil, err
	}
	if opt.Open != nil {
		if err := opt.Open(ctx); err != nil {
			d.release()
			return nil, err
		}
	}
	if err := d.readFormat(); err != nil {
		d.release()
		return nil, err
	}
	if err := d.checkParts(); err != nil {
		d.release()
		return nil, err
	}
	if err := d.begin(); err != nil {
		d.release()
		return nil, fmt.Errorf("data directory: %w", err)
	}
	return d, nil
}

// begin notes who holds the directory. If no server has used it yet, it clears
// what an interrupted first start left.
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
	// Links of a backup whose process was killed would keep space in use.
	if err := d.fs.RemoveAll(d.file(snapshotDir)); err != nil {
		return err
	}
	// What a start writes is little, and a server that does not start frees nothing on a full disk.
	if usage, err := d.fs.GetDiskUsage(d.path); err == nil && usage.AvailBytes < ballastBytes {
		_ = d.fs.Remove(d.file(ballastFile)) // as in hold: a disk may do without
	}
	pid := fmt.Append(nil, os.Getpid())
	err := replaceFile(d.fs, d.path, "PID", pid)
	if noRoom(err) && d.fs.Remove(d.file(ballastFile)) == nil { // inodes or a quota: bytes seemed to be free
		err = replaceFile(d.fs, d.path, "PID", pid)
	}
	return err
}

// markOpen says that this process writes the directory now. It comes after the
// recovery: if this process is killed before, the next one must recover from
// what the last writer left, not this one.
func (d *directory) markOpen() error {
	if err := d.write(false); err != nil {
		return err
	}
	// A full disk must not turn a stop into a crash: the FORMAT of a closed
	// directory is written now, and the rename at the stop takes no space.
	b, err := d.formatBytes(true)
	if err == nil {
		err = writeSynced(d.fs, d.file("FORMAT.tmp"), b)
	}
	d.prepared = err == nil
	return nil
}

// makeDirectory creates a directory so that it survives a power cut.
func makeDirectory(fs vfs.FS, path string) error {
	var created []string
	for p := path; ; p = fs.PathDir(p) {
		if _, err := fs.Stat(p); err == nil || p == fs.PathDir(p) {
			break
		}
		created = append(created, p)
	}
	if len(created) == 0 {
		return nil // it may be a file, which ownDirectory says in words
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

// ownDirectory reports whether a server has used the directory. One that holds
// something else is refused.
func ownDirectory(fs vfs.FS, path string) (used bool, err error) {
	info, err := fs.Stat(path)
	if err != nil {
		return false, fmt.Errorf("data directory: %w", err)
	}
	if !info.IsDir() {
		return false, fmt.Errorf("data directory %s is a file: name the directory that holds FORMAT, wal and kv, or a new one", path)
	}
	names, err := fs.List(path)
	if err != nil {
		return false, fmt.Errorf("data directory: %w", err)
	}
	foreign := ""
	for _, n := range names {
		switch n = fs.PathBase(n); n {
		case "FORMAT", "wal", "kv":
			used = true
		case "LOCK", "PID", "REPLICA", "stage", "FORMAT.tmp", "PID.tmp", "REPLICA.tmp", ballastFile, "lost+found":
		case "TOKENS", "WEBHOOKS": // of package server, and of webhook
		default:
			if !strings.HasPrefix(n, ".") {
				foreign = n
			}
		}
	}
	if !used && foreign != "" {
		return false, fmt.Errorf("data directory %s holds %s and nothing of weir's: name an empty directory, or one that a server has used", path, foreign)
	}
	return used, nil
}

// lockDirectory takes the lock of an existing data directory.
func lockDirectory(fs vfs.FS, path, boot string) (*directory, error) {
	d := &directory{fs: fs, path: path, boot: boot}
	lock, err := fs.Lock(fs.PathJoin(path, "LOCK"))
	if err == nil {
		d.locks = append(d.locks, lock)
		err = d.lockItself()
	}
	if _, unopened := errors.AsType[*os.PathError](err); unopened {
		d.release()
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err != nil {
		d.release()
		return nil, fmt.Errorf("data directory %s is %w (its LOCK is held%s): stop that process or name another directory: %w", path, ErrInUse, d.holder(), err)
	}
	return d, nil
}

// lockItself locks the directory itself: LOCK is a file that somebody may
// remove under a running server. On file systems that cannot lock a directory,
// LOCK is all there is.
func (d *directory) lockItself() error {
	dir, err := d.fs.OpenDir(d.path)
	if err != nil {
		return err
	}
	d.locks = append(d.locks, dir)
	if fd := dir.Fd(); fd != vfs.InvalidFd {
		return flock(fd)
	}
	return nil
}

// hold returns a file system that leaves alone whatever is in the place of the directory once
// that is moved.
func (d *directory) hold() (vfs.FS, error) {
	if d.fs != vfs.Default {
		return d.fs, nil
	}
	dir, err := os.Open(d.path)
	if err != nil {
		return nil, err
	}
	d.fs, d.locks = heldFS{d.fs, d.path, dir}, append(d.locks, dir)
	return d.fs, nil
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
		if used, err := ownDirectory(d.fs, d.path); err != nil {
			return err
		} else if used {
			return fmt.Errorf("data directory %s holds records but no FORMAT file (%w): run `weir repair %s` or restore a backup", d.path, errFormat, d.path)
		}
		d.fresh, d.clean = true, true
		return nil
	}
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	f, err := decodeFormat(b)
	if err != nil || f.Format < 1 {
		return fmt.Errorf("data directory %s: %w: run `weir repair %s`", d.path, errFormat, d.path)
	}
	if f.Format > FormatVersion {
		return fmt.Errorf("data directory %s has format %d, this weir reads up to format %d: use a newer weir", d.path, f.Format, FormatVersion)
	}
	d.format, d.fresh, d.clean, d.sameBoot = f.Format, f.Boot == "", f.Clean, f.Boot == d.boot
	d.backup, d.lagged = f.Boot == bootOfBackup || f.Boot == bootOfLagged, f.Boot == replica.BootOfCopy || f.Boot == bootOfLagged
	d.copied = d.backup || d.lagged
	return nil
}

// checkParts refuses a used directory that lacks a part: it would start empty
// and give out numbers again.
func (d *directory) checkParts() error {
	for _, part := range []struct {
		name, holds string
		optional    bool
	}{
		{"kv", "MANIFEST-", d.fresh},
		{"wal", ".wal", d.fresh || d.copied},
	} {
		if part.optional {
			continue
		}
		names, err := d.fs.List(d.file(part.name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("data directory: %w", err)
		}
		if !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, part.holds) }) {
			return fmt.Errorf("data directory %s was used by a server, but its %s is missing or empty: mount it or put it back, or restore a backup into a new directory", d.path, part.name)
		}
	}
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
	for _, l := range d.locks {
		l.Close()
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
