package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/weirmq/weir/internal/engine"
)

const (
	manifestName = "MANIFEST.json"
	// maxManifestBytes bounds what a manifest may make a command hold.
	maxManifestBytes = 64 << 20
)

// manifest says what a backup consists of.
type manifest struct {
	Format    int            `json:"format"`     // of the data directory it holds
	LSN       uint64         `json:"lsn"`        // last operation that is in it
	CreatedMS int64          `json:"created_ms"` // Unix ms
	Files     []manifestFile `json:"files"`      // every file but the manifest
}

type manifestFile struct {
	Name   string `json:"name"` // relative, with slashes
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

func (m *manifest) bytes() int64 {
	var n int64
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// readManifest reads and checks the manifest of a backup; no name in it leads
// out of the directory.
func readManifest(root *os.Root) (*manifest, error) {
	f, err := root.Open(manifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s holds no %s; it is not a whole backup", root.Name(), manifestName)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxManifestBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxManifestBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", manifestName, maxManifestBytes)
	}
	m := new(manifest)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", manifestName, err)
	}
	if m.Format < 1 || m.Format > engine.FormatVersion {
		return nil, fmt.Errorf("the backup has format %d, this weir reads formats 1 to %d: use a newer weir", m.Format, engine.FormatVersion)
	}
	seen := make(map[string]bool, len(m.Files))
	for _, f := range m.Files {
		if !fs.ValidPath(f.Name) || f.Name == "." || f.Name == manifestName || seen[f.Name] {
			return nil, fmt.Errorf("%s names the file %q, which cannot be", manifestName, f.Name)
		}
		seen[f.Name] = true
	}
	return m, nil
}

// checkComplete refuses files that the manifest does not name.
func (m *manifest) checkComplete(root *os.Root) error {
	known := map[string]bool{manifestName: true}
	for _, f := range m.Files {
		known[f.Name] = true
	}
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || known[name] {
			return err
		}
		return fmt.Errorf("%s: the file %s is not in %s", root.Name(), name, manifestName)
	})
}

// copyFile reads one file of the backup into w and
// fails unless size and checksum are the manifest's.
func (f *manifestFile) copyFile(root *os.Root, w io.Writer) error {
	in, err := root.Open(f.Name)
	if err != nil {
		return err
	}
	defer in.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(sum, w), in)
	if err != nil {
		return err
	}
	return f.same(root, n, hex.EncodeToString(sum.Sum(nil)))
}

// same fails unless size and checksum are the manifest's.
func (f *manifestFile) same(root *os.Root, size int64, sum string) error {
	if size != f.Size {
		return fmt.Errorf("%s/%s has %d bytes, its manifest says %d: the backup is damaged", root.Name(), f.Name, size, f.Size)
	}
	if !strings.EqualFold(sum, f.SHA256) {
		return fmt.Errorf("%s/%s has another checksum than its manifest says: the backup is damaged", root.Name(), f.Name)
	}
	return nil
}

// checkFiles checks every file of the backup in root, reading rate bytes per
// second at most, 0 for no limit.
func checkFiles(ctx context.Context, root *os.Root, rate int64) (*manifest, error) {
	m, err := readManifest(root)
	if err != nil {
		return nil, err
	}
	if err := m.checkComplete(root); err != nil {
		return nil, err
	}
	p := engine.Pace(ctx, rate)
	for i := range m.Files {
		if err := m.Files[i].copyFile(root, p); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// copied writes the files of a backup and notes what was written.
type copied struct {
	root  *os.Root
	files map[string]manifestFile
}

func (c *copied) add(name string, content io.Reader) error {
	sum := sha256.New()
	f := manifestFile{Name: name}
	err := writeFile(c.root, name, func(w io.Writer) (err error) {
		f.Size, err = io.Copy(io.MultiWriter(w, sum), content)
		return err
	})
	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	c.files[name] = f
	return err
}

// manifest returns the manifest that was written, if the other files are those
// that it names.
func (c *copied) manifest() (*manifest, error) {
	m, err := readManifest(c.root)
	if err != nil {
		return nil, err
	}
	if err := m.checkComplete(c.root); err != nil {
		return nil, err
	}
	for i := range m.Files {
		f := &m.Files[i]
		got, ok := c.files[f.Name]
		if !ok {
			return nil, fmt.Errorf("%s names the file %s, which did not come", manifestName, f.Name)
		}
		if err := f.same(c.root, got.Size, got.SHA256); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// writeFile makes a file of mode 0600 with its directories (0700) and syncs it.
func writeFile(root *os.Root, name string, fill func(io.Writer) error) error {
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(fill(f), f.Sync(), f.Close())
}

// syncDirs makes the entries of every directory in root durable.
func syncDirs(root *os.Root) error {
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return syncDir(filepath.Join(root.Name(), filepath.FromSlash(name)))
	})
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
