package sim

import (
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/tests/crashfs"
)

// disk is a file system in memory that can fail and lose power. Like that of an
// operating system it forgets: see forgetful.
type disk struct {
	vfs.FS
	mem  *crashfs.FS
	hook atomic.Pointer[func(errorfs.Op) error]
}

func newDisk(mem *crashfs.FS) *disk {
	d := &disk{mem: mem}
	d.FS = forgetful{errorfs.Wrap(mem, errorfs.InjectorFunc(func(o errorfs.Op) error {
		if h := d.hook.Load(); h != nil && mutates(o.Kind) {
			return (*h)(o)
		}
		return nil
	}))}
	return d
}

// forgetful is a file system on which a failed sync leaves what was not on the
// disk marked as clean: later syncs of that file succeed and write nothing.
type forgetful struct{ vfs.FS }

type forgetfulFile struct {
	vfs.File
	forgot atomic.Bool
}

func (f forgetful) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return forgetting(f.FS.Create(name, c))
}

func (f forgetful) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return forgetting(f.FS.OpenReadWrite(name, c, opts...))
}

func (f forgetful) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return forgetting(f.FS.ReuseForWrite(from, to, c))
}

func forgetting(file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &forgetfulFile{File: file}, nil
}

func (f *forgetfulFile) synced(sync func() error) error {
	if f.forgot.Load() {
		return nil
	}
	err := sync()
	if err != nil {
		f.forgot.Store(true)
	}
	return err
}

func (f *forgetfulFile) Sync() error { return f.synced(f.File.Sync) }

func (f *forgetfulFile) SyncData() error { return f.synced(f.File.SyncData) }

func mutates(k errorfs.OpKind) bool {
	switch k {
	case errorfs.OpFileClose, errorfs.OpLock, errorfs.OpFileFlush:
		return false
	}
	return k.ReadOrWrite() == errorfs.OpIsWrite
}

// set installs what is asked before every call that changes something; nil is
// a disk without faults.
func (d *disk) set(h func(errorfs.Op) error) {
	if h == nil {
		d.hook.Store(nil)
		return
	}
	d.hook.Store(&h)
}

// failing fails the calls on the log that the kind of fault names.
func (d *disk) failing(kind string, err error) {
	d.set(func(o errorfs.Op) error {
		if !strings.Contains(o.Path, "/wal") {
			return nil
		}
		sync := isSync(o.Kind)
		if kind == "syncs" && !sync || kind == "writes" && sync {
			return nil
		}
		return err
	})
}

func isSync(k errorfs.OpKind) bool {
	return k == errorfs.OpFileSync || k == errorfs.OpFileSyncData
}

// sector is the unit in which an unsynced write survives.
const sector = 512

// cut is what a crash leaves now: everything that was synced, and keep percent
// of what was not, by sector of the log and by file elsewhere. What is kept
// depends on the seed and the place alone.
func (d *disk) cut(keep int, seed uint64) *crashfs.FS {
	all := vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}
	if keep == 100 {
		return d.mem.CrashClone(all)
	}
	base := d.mem.CrashClone(vfs.CrashCloneCfg{})
	if keep > 0 {
		m := merge{from: d.mem.CrashClone(all), to: base, keep: uint64(keep), seed: seed}
		m.dir("/")
	}
	return base.CrashClone(all) // forgets what is synced and what is not
}

// merge carries a part of one file system over to another.
type merge struct {
	from, to   *crashfs.FS
	keep, seed uint64
}

func (m *merge) kept(path string, at int64) bool {
	h := fnv.New64a()
	_, _ = io.WriteString(h, path)
	r := rand.New(rand.NewPCG(m.seed^h.Sum64(), uint64(at)))
	return r.Uint64N(100) < m.keep
}

func (m *merge) dir(path string) {
	names, err := m.from.List(path)
	must(err)
	slices.Sort(names)
	for _, name := range names {
		p := m.from.PathJoin(path, name)
		info, err := m.from.Stat(p)
		must(err)
		_, err = m.to.Stat(p)
		there := err == nil
		switch {
		case info.IsDir():
			if !there && !m.kept(p, -1) {
				continue
			}
			must(m.to.MkdirAll(p, 0o700))
			m.dir(p)
		case !there:
			if m.kept(p, -1) {
				m.write(p, m.read(m.from, p))
			}
		default:
			m.file(p)
		}
	}
}

func (m *merge) file(path string) {
	was, is := m.read(m.to, path), m.read(m.from, path)
	if !strings.Contains(path, "/wal/") || len(was) != len(is) {
		if m.kept(path, -1) {
			m.write(path, is)
		}
		return
	}
	// Sectors are counted from where the files part: how many groups the log made of what is
	// synced, and so where that ends, depends on the machine.
	first := 0
	for first < len(is) && was[first] == is[first] {
		first++
	}
	for at := first; at < len(is); at += sector {
		end := min(at+sector, len(is))
		if string(was[at:end]) != string(is[at:end]) && m.kept(path, int64(at-first)) {
			copy(was[at:end], is[at:end])
		}
	}
	m.write(path, was)
}

func (m *merge) read(fs vfs.FS, path string) []byte {
	f, err := fs.Open(path)
	must(err)
	defer f.Close()
	b, err := io.ReadAll(f)
	must(err)
	return b
}

func (m *merge) write(path string, b []byte) {
	f, err := m.to.Create(path, vfs.WriteCategoryUnspecified)
	must(err)
	_, err = f.Write(b)
	must(err)
	must(f.Close())
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
