package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// copied writes the files of a backup and records what it wrote.
type copied struct {
	root    *os.Root
	files   map[string]manifestFile
	counted io.Writer // of the bytes
}

func (c *copied) add(name string, content io.Reader) error {
	sum := sha256.New()
	f := manifestFile{Name: name}
	err := writeFile(c.root, name, func(w io.Writer) (err error) {
		f.Size, err = io.Copy(io.MultiWriter(w, sum, c.counted), content)
		return err
	})
	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	c.files[name] = f
	return err
}

// manifest returns the manifest that was written if it matches the other files.
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
			return nil, fmt.Errorf("%s names the file %s, which is missing from the stream", manifestName, f.Name)
		}
		if err := f.same(c.root, got.Size, got.SHA256); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// writeFile creates a file of mode 0600 and its directories (0700), and syncs it.
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
