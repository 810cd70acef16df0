package deploy

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// make install puts there what the packages put there, and leaves settings alone.
func TestInstallIsThePackage(t *testing.T) {
	clone, dest := t.TempDir(), t.TempDir()
	if err := os.CopyFS(filepath.Join(clone, "deploy"), os.DirFS(root)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(clone, "LICENSE"), read(t, root+"../LICENSE"))
	built := []string{"bin/weir", "bin/man/weir.1", "bin/man/weir-serve.1", "bin/completions/weir.bash", "bin/completions/weir.zsh", "bin/completions/weir.fish"}
	for _, name := range built {
		write(t, filepath.Join(clone, name), name)
	}
	write(t, filepath.Join(dest, "etc/weir/weir.yaml"), "data_dir: /mine\n")

	install := exec.Command("sh", filepath.Join(clone, "deploy/packages/install.sh"))
	install.Env = append(os.Environ(), "DESTDIR="+dest)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	release := documents(t, root+"goreleaser.yaml")[0]
	wanted := map[string]string{release.at("nfpms", 0, "bindir").String() + "/weir": "bin/weir"}
	for _, file := range release.at("nfpms", 0, "contents").list() {
		from, to := file.at("src").String(), file.at("dst").String()
		pages, err := filepath.Glob(filepath.Join(clone, from))
		if err != nil || len(pages) == 0 {
			t.Fatalf("goreleaser.yaml: nothing is %s (%v)", from, err)
		}
		for _, page := range pages {
			name, _ := filepath.Rel(clone, page)
			if strings.HasSuffix(to, "/") {
				wanted[to+filepath.Base(page)] = name
			} else {
				wanted[to] = name
			}
		}
	}
	var installed []string
	err := filepath.WalkDir(dest, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		to := strings.TrimPrefix(path, dest)
		installed = append(installed, to)
		if to == "/etc/weir/weir.yaml" {
			if text := read(t, path); text != "data_dir: /mine\n" {
				t.Errorf("%s was there and is now %q", to, text)
			}
			return nil
		}
		if from, ok := wanted[to]; !ok {
			t.Errorf("%s is installed, and in no package", to)
		} else if read(t, path) != read(t, filepath.Join(clone, from)) {
			t.Errorf("%s is not %s", to, from)
		}
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o644 && to != "/usr/bin/weir" || to == "/usr/bin/weir" && info.Mode().Perm() != 0o755 {
			t.Errorf("%s: mode %v, %v", to, info.Mode(), err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for to := range wanted {
		if !slices.Contains(installed, to) {
			t.Errorf("%s is in the packages, and not installed", to)
		}
	}
}

// What runs after the files of a package are in place does not fail where somebody has removed
// the settings: the package would stay half installed.
func TestAPackageIsConfiguredWithoutItsSettings(t *testing.T) {
	etc, bin := filepath.Join(t.TempDir(), "weir"), t.TempDir()
	for _, name := range []string{"systemd-sysusers", "getent", "chgrp", "systemctl"} { // they are root's
		write(t, filepath.Join(bin, name), "#!/bin/sh\n")
		if err := os.Chmod(filepath.Join(bin, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := strings.ReplaceAll(read(t, root+"packages/postinstall.sh"), "/etc/weir", etc)
	for _, settings := range []string{"", "weir.yaml"} {
		if err := os.MkdirAll(etc, 0o755); err != nil {
			t.Fatal(err)
		}
		if settings != "" {
			write(t, filepath.Join(etc, settings), "data_dir: /mine\n")
		}
		configure := exec.Command("sh", "-c", script)
		configure.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := configure.CombinedOutput(); err != nil {
			t.Errorf("with %q: %v\n%s", settings, err, out)
		}
		for _, name := range []string{"keys.json", settings} {
			if info, err := os.Stat(filepath.Join(etc, name)); name != "" && (err != nil || info.Mode().Perm() != 0o640) {
				t.Errorf("with %q: %s: %v, %v", settings, name, info, err)
			}
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
