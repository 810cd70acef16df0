package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// System is the redis-server of the system's PATH: 7.0 on Debian 12.
const System = "system"

// known are the versions that scripts/deps.sh installs, the oldest first.
var known = []string{"5.0.6", "6.2.5", System, "8.2.3", "valkey-8.1.8", "valkey-9.1.2"}

// Versions lists the servers that are installed, the oldest Redis first. System
// is always among them: without it Start says what to do.
func Versions() []string {
	var have []string
	for _, v := range known {
		if _, err := os.Stat(cached(v)); err == nil || v == System {
			have = append(have, v)
		}
	}
	return have
}

// Binary returns the path of a version's server.
func Binary(version string) (string, error) {
	if version == "" || version == System {
		path, err := exec.LookPath("redis-server")
		if err != nil {
			return "", fmt.Errorf("%w: run make deps, which installs it", err)
		}
		return path, nil
	}
	path := cached(version)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("version %q is not installed: run make deps; known: %s", version, strings.Join(known, ", "))
	}
	return path, nil
}

// cached is where scripts/deps.sh puts a version.
func cached(version string) string {
	dir := os.Getenv("XDG_CACHE_HOME")
	if dir == "" {
		dir = filepath.Join(os.Getenv("HOME"), ".cache")
	}
	return filepath.Join(dir, "weir", "redis", version, "redis-server")
}
