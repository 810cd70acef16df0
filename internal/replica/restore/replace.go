package restore

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func (d *Directory) path(name string) string { return d.FS.PathJoin(d.Path, name) }

func (d *Directory) mirror(name string) string { return d.path(mirrorNames + name) }

// replace puts a finished mirror into the place of what the directory holds,
// which is set aside. Each step is noted first, so that a start after a kill
// knows what is complete.
func (d *Directory) replace(h *held, m *Mirror, term uint64, node string) error {
	n := &note{Term: term, Copy: h.copy, Led: node, Restoring: true}
	if h.used {
		aside, err := d.free(fmt.Sprintf("%s.stale-%d", d.FS.PathJoin(d.FS.PathDir(d.Path), d.FS.PathBase(d.Path)), h.note.Term))
		if err != nil {
			return err
		}
		n.Aside = aside
		if err := d.writeNote(*n); err != nil {
			return err
		}
		if err := d.setAside(n); err != nil {
			return err
		}
	} else if err := d.writeNote(*n); err != nil {
		return err
	}
	for _, name := range []string{"kv", "wal", "FORMAT"} {
		if err := d.FS.RemoveAll(d.path(name)); err != nil {
			return err
		}
		if err := d.FS.Rename(m.path(name), d.path(name)); err != nil {
			return err
		}
	}
	if err := d.sync(); err != nil {
		return err
	}
	if err := d.writeNote(note{Term: term, Copy: h.copy, Led: node}); err != nil {
		return err
	}
	return d.removeMirrors()
}

// free returns a name that nothing has: this one, or with a number behind it.
func (d *Directory) free(name string) (string, error) {
	for i := 1; ; i++ {
		try := name
		if i > 1 {
			try = fmt.Sprintf("%s-%d", name, i)
		}
		if _, err := d.FS.Stat(try); errors.Is(err, os.ErrNotExist) {
			return try, nil
		} else if err != nil {
			return "", err
		}
	}
}

// setAside moves what a server left in the directory to n.Aside, and notes in
// n that it has. A directory that is a mount point has it inside, and one beside which
// the server may not make another.
func (d *Directory) setAside(n *note) error {
	if err := d.moveTo(n.Aside); err != nil {
		inside := d.path("." + d.FS.PathBase(n.Aside))
		if d.FS.PathDir(n.Aside) == d.FS.PathDir(inside) {
			return err
		}
		if n.Aside, err = d.free(inside); err != nil {
			return err
		}
		if err := d.writeNote(*n); err != nil {
			return err
		}
		return d.setAside(n)
	}
	// The place that it has left comes last, or a power cut could leave it in neither.
	for _, dir := range []string{n.Aside, d.FS.PathDir(n.Aside), d.Path} {
		if err := d.syncDir(dir); err != nil {
			return err
		}
	}
	d.Logger.Warn("what was in the data directory is set aside, never to be used again: remove it when you have seen what you need of it", "directory", n.Aside)
	n.Aside = ""
	return d.writeNote(*n)
}

func (d *Directory) moveTo(aside string) error {
	if err := d.FS.MkdirAll(aside, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"FORMAT", "FORMAT.tmp", "kv", "wal", "stage"} {
		if err := d.FS.Rename(d.path(name), d.FS.PathJoin(aside, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// removeMirrors removes what was mirrored and is not needed any more.
func (d *Directory) removeMirrors() error {
	return errors.Join(d.FS.RemoveAll(d.mirror("a")), d.FS.RemoveAll(d.mirror("b")), d.FS.RemoveAll(d.mirror("c")))
}

func (d *Directory) readNote() (*note, error) {
	b, err := readFile(d.FS, d.path(noteName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	n := &note{}
	if err == nil {
		err = json.Unmarshal(b, n)
	}
	if err == nil && n.Sum != "" && n.Sum != n.sum() {
		err = errors.New("it is damaged")
	}
	if err != nil {
		return nil, fmt.Errorf("%s, which says what the directory has led: %w; move the directory away to begin from the copy", d.path(noteName), err)
	}
	return n, nil
}

// sum is the checksum of all other fields that have always been there.
func (n note) sum() string {
	n.Sum, n.Copy, n.Led = "", "", ""
	b, _ := json.Marshal(n)
	return fmt.Sprintf("%08x", crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

func (d *Directory) writeNote(n note) error {
	n.Sum = n.sum()
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err := writeFile(d.FS, d.path(noteName+".tmp"), append(b, '\n')); err != nil {
		return err
	}
	if err := d.FS.Rename(d.path(noteName+".tmp"), d.path(noteName)); err != nil {
		return err
	}
	return d.sync()
}

func (d *Directory) sync() error { return d.syncDir(d.Path) }

func (d *Directory) syncDir(path string) error {
	f, err := d.FS.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func readFile(fs vfs.FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

func writeFile(fs vfs.FS, name string, b []byte) error {
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
