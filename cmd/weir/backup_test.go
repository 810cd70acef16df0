package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
)

// sound is a backup with records in the store and in the log: its files and the
// LSN that its manifest names.
func sound(t *testing.T) (files map[string]string, lsn uint64) {
	t.Helper()
	e, err := engine.Open(t.Context(), engine.Options{Dir: t.TempDir(), SegmentBytes: 64 << 10, IngestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for range 100 {
		req := api.WriteRequest{Records: []api.Record{{Data: []byte(`"` + strings.Repeat("x", 5000) + `"`)}}}
		if _, err := e.Write(t.Context(), "topic", &req); err != nil {
			t.Fatal(err)
		}
	}
	for e.Metrics().WAL.DebtSegments > 0 {
		time.Sleep(time.Millisecond)
	}
	dir := filepath.Join(t.TempDir(), "b")
	if err := e.Backup(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	var m manifest
	if err := json.Unmarshal([]byte(readFile(t, filepath.Join(dir, manifestName))), &m); err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	for _, f := range m.Files {
		files[f.Name] = readFile(t, filepath.Join(dir, f.Name))
	}
	return files, m.LSN
}

// tarOf packs files with a manifest.
func tarOf(t *testing.T, files map[string]string, lsn uint64) []byte {
	t.Helper()
	m := manifest{Format: engine.FormatVersion, LSN: lsn}
	for name, text := range files {
		sum := sha256.Sum256([]byte(text))
		m.Files = append(m.Files, manifestFile{name, int64(len(text)), hex.EncodeToString(sum[:])})
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return tarRaw(t, files, string(text))
}

func tarRaw(t *testing.T, files map[string]string, manifest string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(name, text string) {
		h := &tar.Header{Name: name, Mode: 0o777, Size: int64(len(text)), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		add(name, text)
	}
	if manifest != "" {
		add(manifestName, manifest)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// backupFrom runs `weir backup` against a server that answers with the stream.
func backupFrom(t *testing.T, stream []byte, dir string) result {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/admin/backup" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(stream)
	}))
	defer srv.Close()
	return runWeir(t, "", "backup", srv.URL, dir)
}

func TestBackupThenRestoreGivesTheSameFiles(t *testing.T) {
	base := t.TempDir()
	files, lsn := sound(t)
	dir, data := filepath.Join(base, "backups", "monday"), filepath.Join(base, "data")
	res := backupFrom(t, tarOf(t, files, lsn), dir)
	if res.err != nil {
		t.Fatal(res.err)
	}
	if !strings.Contains(res.stdout, fmt.Sprintf("%d files, ", len(files))) || !strings.Contains(res.stdout, "100 records in 1 topic read") {
		t.Errorf("printed %q", res.stdout)
	}
	if res := runWeir(t, "", "backup", "verify", dir); res.err != nil || !strings.Contains(res.stdout, "100 records in 1 topic read") {
		t.Errorf("verify: %v, %q", res.err, res.stdout)
	}
	if err := os.Mkdir(data, 0o755); err != nil { // empty is as good as absent
		t.Fatal(err)
	}
	if res := runWeir(t, "", "restore", dir, "--data-dir", data); res.err != nil || !strings.Contains(res.stdout, "100 records in 1 topic read") {
		t.Fatal(res.err, res.stdout)
	}
	for name, want := range files {
		path := filepath.Join(data, name)
		if got := readFile(t, path); got != want {
			t.Errorf("%s: %d bytes, want %d", name, len(got), len(want))
		}
		if st, err := os.Stat(path); err == nil && st.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o, want 600", name, st.Mode().Perm())
		}
	}
	if st, err := os.Stat(data); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v, want 700", st.Mode(), err)
	}
	if readable(filepath.Join(data, manifestName)) {
		t.Error("the manifest is in the data directory")
	}
	if res := runWeir(t, "", "restore", dir, "--data-dir", data); res.err == nil {
		t.Error("restore wrote over a data directory")
	}
	if res := backupFrom(t, tarOf(t, files, lsn), dir); res.err == nil {
		t.Error("backup wrote over a backup")
	}
}

func TestABrokenBackupLeavesNothingBehind(t *testing.T) {
	files, lsn := sound(t)
	whole := tarOf(t, files, lsn)
	with := func(name, text string) map[string]string {
		m := maps.Clone(files)
		m[name] = text
		return m
	}
	manifestOf := func(change func(*manifest)) string {
		m := manifest{Format: engine.FormatVersion, LSN: lsn}
		for name, text := range files {
			sum := sha256.Sum256([]byte(text))
			m.Files = append(m.Files, manifestFile{name, int64(len(text)), hex.EncodeToString(sum[:])})
		}
		change(&m)
		text, _ := json.Marshal(m)
		return string(text)
	}
	link := func() []byte {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		_ = w.WriteHeader(&tar.Header{Name: "kv", Linkname: "/etc", Typeflag: tar.TypeSymlink})
		_ = w.Close()
		return buf.Bytes()
	}
	damaged := maps.Clone(files)
	for name, text := range files {
		if strings.HasPrefix(name, "wal/") && len(text) > 10_000 {
			b := []byte(text)
			b[len(b)/2] ^= 1
			damaged[name] = string(b)
		}
	}
	for name, stream := range map[string][]byte{
		"broken off":         whole[:len(whole)/2],
		"more than it says":  tarOf(t, files, lsn-1),
		"no manifest":        tarRaw(t, files, ""),
		"a newer format":     tarRaw(t, files, manifestOf(func(m *manifest) { m.Format = 99 })),
		"no format":          tarRaw(t, files, manifestOf(func(m *manifest) { m.Format = 0 })),
		"an unknown file":    tarRaw(t, with("kv/more", ""), manifestOf(func(*manifest) {})),
		"a missing file":     tarRaw(t, files, manifestOf(func(m *manifest) { m.Files = append(m.Files, manifestFile{"a", 1, "00"}) })),
		"another checksum":   tarRaw(t, with("kv/CURRENT", "x"), manifestOf(func(m *manifest) { m.Files = append(m.Files, manifestFile{"kv/CURRENT", 1, "00"}) })),
		"a path outside":     tarOf(t, with("../outside", "x"), lsn),
		"an absolute path":   tarOf(t, with("/outside/file", "x"), lsn),
		"a link":             link(),
		"a manifest outside": tarRaw(t, files, manifestOf(func(m *manifest) { m.Files = append(m.Files, manifestFile{"../x", 1, "00"}) })),
		"a damaged record":   tarOf(t, damaged, lsn),
		"another position":   tarOf(t, files, lsn+1),
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			if res := backupFrom(t, stream, filepath.Join(base, "in", "backup")); res.err == nil {
				t.Error("no error")
			}
			left, err := os.ReadDir(filepath.Join(base, "in"))
			if err != nil || len(left) > 0 || readable(filepath.Join(base, "outside")) {
				t.Errorf("left behind: %v (%v)", left, err)
			}
		})
	}
}

// putBackup writes a backup without checking it.
func putBackup(t *testing.T, dir string, files map[string]string, lsn uint64) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := unpack(bytes.NewReader(tarOf(t, files, lsn)), &copied{root: root, files: map[string]manifestFile{}, counted: io.Discard}); err != nil {
		t.Fatal(err)
	}
}

func TestADamagedBackupIsToldAndNotRestored(t *testing.T) {
	files, lsn := sound(t)
	for _, of := range []string{"wal/", "kv/"} {
		name, text := "", ""
		for n, x := range files {
			if strings.HasPrefix(n, of) && len(x) > len(text) {
				name, text = n, x
			}
		}
		for _, known := range []bool{false, true} { // whether the manifest has the damaged file's checksum
			base := t.TempDir()
			dir, data := filepath.Join(base, "backup"), filepath.Join(base, "data")
			b := []byte(text)
			b[len(b)*2/3] ^= 4
			bad := maps.Clone(files)
			bad[name] = string(b)
			if known {
				putBackup(t, dir, bad, lsn)
			} else {
				putBackup(t, dir, files, lsn)
				if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			check := runWeir(t, "", "backup", "verify", dir)
			res := runWeir(t, "", "restore", dir, "--data-dir", data)
			if check.err == nil || res.err == nil || readable(data) {
				t.Errorf("%s damaged: verify says %v, restore %v", name, check.err, res.err)
			}
			if !known && !strings.Contains(check.err.Error(), name) {
				t.Errorf("error %v, want it to name %s", check.err, name)
			}
		}
	}
}

func TestADamagedBackupIsRestoredIfThatIsAskedFor(t *testing.T) {
	files, lsn := sound(t)
	base := t.TempDir()
	dir, data := filepath.Join(base, "backup"), filepath.Join(base, "data")
	putBackup(t, dir, files, lsn+1)
	if res := runWeir(t, "", "restore", dir, "--data-dir", data); res.err == nil || !strings.Contains(res.err.Error(), "--no-verify") {
		t.Errorf("error %v, want it to name --no-verify", res.err)
	}
	if res := runWeir(t, "", "restore", "--no-verify", dir, "--data-dir", data); res.err != nil {
		t.Error(res.err)
	}
	e, err := engine.Open(t.Context(), engine.Options{Dir: data})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// What is left of a backup whose disk has let it rot is restored if there is no other: weir repair
// says what that is, and marks it, and a server starts.
func TestARottenBackupIsRestoredIfThatIsAskedFor(t *testing.T) {
	files, lsn := sound(t)
	for what, rot := range map[string]func(b []byte) []byte{
		"a bit": func(b []byte) []byte { b[len(b)*2/3] ^= 4; return b },
		"all":   func([]byte) []byte { return nil },
	} {
		base := t.TempDir()
		dir, data := filepath.Join(base, "backup"), filepath.Join(base, "data")
		putBackup(t, dir, files, lsn)
		name := ""
		for n, x := range files {
			if strings.HasPrefix(n, "wal/") && len(x) > len(files[name]) {
				name = n
			}
		}
		err := os.Remove(filepath.Join(dir, name))
		if b := rot([]byte(files[name])); b != nil {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), b, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		if res := runWeir(t, "", "restore", dir, "--data-dir", data); res.err == nil || !strings.Contains(res.err.Error(), name) || !strings.Contains(res.err.Error(), "--no-verify") {
			t.Errorf("%s: error %v, want it to name %s and --no-verify", what, res.err, name)
		}
		res := runWeir(t, "", "restore", "--no-verify", dir, "--data-dir", data)
		if res.err != nil || !strings.Contains(res.stderr, name) || !strings.Contains(res.stderr, "weir repair "+data) {
			t.Errorf("%s: error %v, said\n%s", what, res.err, res.stderr)
		}
		if res := runWeir(t, "", "repair", "--mark", data); res.err != nil {
			t.Errorf("%s: repair: %v %s", what, res.err, res.stdout)
		}
	}
}

func TestWhatAKilledCommandLeftIsRemovedByTheNext(t *testing.T) {
	files, lsn := sound(t)
	base := t.TempDir()
	left := filepath.Join(base, partialPrefix+"1")
	if err := os.MkdirAll(filepath.Join(left, "kv"), 0o700); err != nil {
		t.Fatal(err)
	}
	running, lock, err := partialDir(base)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if res := backupFrom(t, tarOf(t, files, lsn), filepath.Join(base, "b")); res.err != nil {
		t.Fatal(res.err)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a killed command left is there: %v", err)
	}
	if _, err := os.Stat(running); err != nil {
		t.Errorf("what a running command fills is gone: %v", err)
	}
	// In the directory itself, as in a mount point.
	dir := filepath.Join(base, "mount")
	if err := os.MkdirAll(filepath.Join(dir, partialPrefix+"1", "kv"), 0o700); err != nil {
		t.Fatal(err)
	}
	if res := backupFrom(t, tarOf(t, files, lsn), dir); res.err != nil {
		t.Fatal(res.err)
	}
	if res := runWeir(t, "", "backup", "verify", dir); res.err != nil {
		t.Error(res.err)
	}
}

// The name of a folder may look like a pattern.
func TestWhatAKilledCommandLeftInAFolderWithBracketsIsRemoved(t *testing.T) {
	files, lsn := sound(t)
	base := filepath.Join(t.TempDir(), "weir[prod]*")
	left := filepath.Join(base, partialPrefix+"1")
	if err := os.MkdirAll(filepath.Join(left, "kv"), 0o700); err != nil {
		t.Fatal(err)
	}
	if res := backupFrom(t, tarOf(t, files, lsn), filepath.Join(base, "b")); res.err != nil {
		t.Fatal(res.err)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a killed command left is there: %v", err)
	}
}

func TestADirectoryThatCannotBeReplacedIsFilled(t *testing.T) {
	files, lsn := sound(t)
	base := t.TempDir()
	tmp, dir := filepath.Join(base, "tmp"), filepath.Join(base, "dir")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	putBackup(t, tmp, files, lsn)
	if err := moveUp(tmp, dir, manifestName); err != nil {
		t.Fatal(err)
	}
	if res := runWeir(t, "", "backup", "verify", dir); res.err != nil {
		t.Error(res.err)
	}
}

// A file system of its own has lost+found in it, which only root may read, from the beginning.
func TestAnEmptyFileSystemIsAnEmptyDirectory(t *testing.T) {
	files, lsn := sound(t)
	base := t.TempDir()
	backup, data := filepath.Join(base, "backup"), filepath.Join(base, "data")
	for _, dir := range []string{backup, data} {
		if err := os.MkdirAll(filepath.Join(dir, "lost+found", "#12"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "lost+found", "#13"), nil, 0o000); err != nil {
			t.Fatal(err)
		}
	}
	if res := backupFrom(t, tarOf(t, files, lsn), backup); res.err != nil {
		t.Fatal(res.err)
	}
	if res := runWeir(t, "", "backup", "verify", backup); res.err != nil {
		t.Error(res.err)
	}
	if res := runWeir(t, "", "restore", backup, "--data-dir", data); res.err != nil {
		t.Fatal(res.err)
	}
	e, err := engine.Open(t.Context(), engine.Options{Dir: data})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if res := runWeir(t, "", "restore", backup, "--data-dir", data); res.err == nil {
		t.Error("restore wrote over a data directory")
	}
}

func TestALinkToADirectoryStaysOne(t *testing.T) {
	files, lsn := sound(t)
	base := t.TempDir()
	backup := filepath.Join(base, "backup")
	putBackup(t, backup, files, lsn)
	for _, there := range []bool{true, false} {
		disk, link := filepath.Join(base, fmt.Sprint("disk", there)), filepath.Join(base, fmt.Sprint("link", there))
		if err := os.Mkdir(disk, 0o700); err != nil {
			t.Fatal(err)
		}
		to := disk
		if !there {
			to = filepath.Join(disk, "data")
		}
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
		res := runWeir(t, "", "restore", backup, "--data-dir", link)
		if st, err := os.Lstat(link); err != nil || st.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("the link is replaced: %v, %v", st.Mode(), err)
		}
		if restored := readable(filepath.Join(to, "FORMAT")); restored != there || (res.err == nil) != there {
			t.Errorf("restored where the link leads: %v, %v", restored, res.err)
		}
	}
}
