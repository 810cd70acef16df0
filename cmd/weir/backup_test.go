package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirmq/weir/internal/engine"
)

// tarOf packs files, with a manifest unless there is one.
func tarOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	m := manifest{Format: engine.FormatVersion, LSN: 42}
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

var someFiles = map[string]string{"FORMAT": "1", "kv/000001.sst": "table", "log/a/1.wal": strings.Repeat("x", 100_000)}

func TestBackupThenRestoreGivesTheSameFiles(t *testing.T) {
	base := t.TempDir()
	dir, data := filepath.Join(base, "backups", "monday"), filepath.Join(base, "data")
	res := backupFrom(t, tarOf(t, someFiles), dir)
	if res.err != nil {
		t.Fatal(res.err)
	}
	if !strings.Contains(res.stdout, "3 files, 100006 bytes, in ") {
		t.Errorf("printed %q", res.stdout)
	}
	if err := os.Mkdir(data, 0o755); err != nil { // empty is as good as absent
		t.Fatal(err)
	}
	if res := runWeir(t, "", "restore", dir, "--data-dir", data); res.err != nil {
		t.Fatal(res.err)
	}
	for name, want := range someFiles {
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
	if res := backupFrom(t, tarOf(t, someFiles), dir); res.err == nil {
		t.Error("backup wrote over a backup")
	}
}

func TestABrokenBackupLeavesNothingBehind(t *testing.T) {
	whole := tarOf(t, someFiles)
	link := func() []byte {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		_ = w.WriteHeader(&tar.Header{Name: "kv", Linkname: "/etc", Typeflag: tar.TypeSymlink})
		_ = w.Close()
		return buf.Bytes()
	}
	for name, stream := range map[string][]byte{
		"broken off":         whole[:len(whole)/2],
		"no manifest":        tarRaw(t, someFiles, ""),
		"a newer format":     tarRaw(t, nil, `{"format":99}`),
		"no format":          tarRaw(t, nil, `{}`),
		"an unknown file":    tarRaw(t, someFiles, `{"format":1,"files":[]}`),
		"a missing file":     tarRaw(t, nil, `{"format":1,"files":[{"name":"a","size":1,"sha256":"00"}]}`),
		"another checksum":   bytes.Replace(whole, []byte("table"), []byte("tabel"), 1),
		"a path outside":     tarOf(t, map[string]string{"../outside": "x"}),
		"an absolute path":   tarOf(t, map[string]string{"/outside/file": "x"}),
		"a link":             link(),
		"a manifest outside": tarRaw(t, nil, `{"format":1,"files":[{"name":"../x","size":1,"sha256":"00"}]}`),
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

func TestRestoreRefusesADamagedBackup(t *testing.T) {
	base := t.TempDir()
	dir, data := filepath.Join(base, "backup"), filepath.Join(base, "data")
	if res := backupFrom(t, tarOf(t, someFiles), dir); res.err != nil {
		t.Fatal(res.err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kv/000001.sst"), []byte("tabel"), 0o600); err != nil {
		t.Fatal(err)
	}
	res := runWeir(t, "", "restore", dir, "--data-dir", data)
	if res.err == nil || !strings.Contains(res.err.Error(), "kv/000001.sst") {
		t.Errorf("error %v, want it to name the file", res.err)
	}
	if readable(data) {
		t.Error("a data directory was made of a damaged backup")
	}
}
