//go:build unix

package atomicfile

import (
	"io/fs"
	"os"
	"syscall"
)

// own gives f the owner and group of another file, if that is allowed.
func own(f *os.File, other fs.FileInfo) {
	if stat, ok := other.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(stat.Uid), int(stat.Gid)) // only root may
	}
}
