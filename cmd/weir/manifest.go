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
	"strings"

	"github.com/weirmq/weir/internal/engine"
)

const (
	manifestName = "MANIFEST.json"
	// maxManifestBytes limits the memory for a manifest.
	maxManifestBytes = 64 << 20
)

// manifest lists the files of a backup.
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

// readManifest reads and checks the manifest of a backup; no name in it points
// outside the directory.
func readManifest(root *os.Root) (*manifest, error) {
	f, err := root.Open(manifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s contains no %s; it is not a complete backup", root.Name(), manifestName)
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
			return nil, fmt.Errorf("%s contains an invalid file name, %q", manifestName, f.Name)
		}
		seen[f.Name] = true
	}
	return m, nil
}

// checkComplete rejects files that the manifest does not name.
func (m *manifest) checkComplete(root *os.Root) error {
	known := map[string]bool{manifestName: true}
	for _, f := range m.Files {
		known[f.Name] = true
	}
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && name == lostAndFound {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || known[name] {
			return err
		}
		return fmt.Errorf("%s: the file %s is not in %s", root.Name(), name, manifestName)
	})
}

// errFileDamaged is wrapped by the error of a file that is not what it was when the backup was made.
var errFileDamaged = errors.New("the backup is damaged")

// copyFile copies one file of the backup to w and fails unless its size and
// checksum match the manifest.
func (f *manifestFile) copyFile(root *os.Root, w io.Writer) error {
	in, err := root.Open(f.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s/%s is missing: %w", root.Name(), f.Name, errFileDamaged)
	}
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

// same fails unless size and checksum match the manifest.
func (f *manifestFile) same(root *os.Root, size int64, sum string) error {
	if size != f.Size {
		return fmt.Errorf("%s/%s has %d bytes, its manifest says %d: %w", root.Name(), f.Name, size, f.Size, errFileDamaged)
	}
	if !strings.EqualFold(sum, f.SHA256) {
		return fmt.Errorf("%s/%s does not have the checksum in its manifest: %w", root.Name(), f.Name, errFileDamaged)
	}
	return nil
}

// checkFiles checks every file of the backup in root, reading at most rate bytes
// per second; 0 is no limit.
func checkFiles(ctx context.Context, root *os.Root, rate int64, progress *copyProgress) (*manifest, error) {
	m, err := readManifest(root)
	if err != nil {
		return nil, err
	}
	if err := m.checkComplete(root); err != nil {
		return nil, err
	}
	to := io.MultiWriter(engine.Pace(ctx, rate), progress.counted("checked", m.bytes()))
	for i := range m.Files {
		if err := m.Files[i].copyFile(root, to); err != nil {
			return nil, err
		}
	}
	return m, nil
}
