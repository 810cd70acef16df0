package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
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

// Backup writes a consistent copy of the data directory into dir, which must
// not exist, while the engine goes on. Everything acknowledged before the call
// is in it. On an error dir may hold a part of a backup, without a manifest.
func (e *Engine) Backup(ctx context.Context, dir string) error {
	defer guard()
	if err := e.usable(); err != nil {
		return err
	}
	e.sealing.Lock()
	defer e.sealing.Unlock()
	// Everything acknowledged so far moves into the store, which then changes
	// no more while sealing is held: the backup needs no part of the log.
	if err := e.log.Rotate(); err != nil {
		return storageError(err)
	}
	for {
		seg, ok := e.log.OldestSealed()
		if !ok {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := e.sealHeld(seg, paceBackup); err != nil {
			return fmt.Errorf("backup: %w", err)
		}
	}
	fs := e.opt.FS
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if err := e.store.Checkpoint(fs.PathJoin(dir, "kv")); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	// The copy counts as not closed, on another machine: what was handed out
	// after it is announced as lost when it is used.
	b, err := json.Marshal(format{Format: FormatVersion, Boot: "backup"})
	if err != nil {
		return err
	}
	if err := replaceFile(fs, dir, "FORMAT", append(b, '\n')); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return e.writeManifest(ctx, dir)
}

func (e *Engine) writeManifest(ctx context.Context, dir string) error {
	m := Manifest{Format: FormatVersion, LSN: e.store.Applied(), CreatedMS: time.Now().UnixMilli()}
	if err := listFiles(ctx, e.opt.FS, dir, "", &m.Files); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	b, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	if err := replaceFile(e.opt.FS, dir, ManifestName, append(b, '\n')); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

// listFiles sums every file below dir.
func listFiles(ctx context.Context, fs vfs.FS, dir, below string, files *[]ManifestFile) error {
	names, err := fs.List(fs.PathJoin(dir, below))
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		rel := path.Join(below, name)
		full := fs.PathJoin(dir, rel)
		info, err := fs.Stat(full)
		if err != nil {
			return err
		}
		if info.IsDir() {
			if err := listFiles(ctx, fs, dir, rel, files); err != nil {
				return err
			}
			continue
		}
		f, err := fs.Open(full)
		if err != nil {
			return err
		}
		sum := sha256.New()
		n, err := io.Copy(sum, f)
		f.Close()
		if err != nil {
			return err
		}
		*files = append(*files, ManifestFile{Name: rel, Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))})
	}
	return nil
}
