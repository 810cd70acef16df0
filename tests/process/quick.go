package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// QuickDir returns a directory in memory, if the machine has room there, which is removed with the
// test. What waits for its disk at each step stands still on one that others keep busy.
func QuickDir(t TB) string {
	t.Helper()
	const memory, room = "/dev/shm", 1 << 30
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); err != nil || int64(fs.Bavail)*int64(fs.Bsize) < room {
		return t.TempDir()
	}
	const prefix = "weir-test-"
	old, _ := filepath.Glob(filepath.Join(memory, prefix+"*"))
	for _, dir := range old { // of test processes that were killed
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), prefix), "-")
		if pid, err := strconv.Atoi(number); err == nil && syscall.Kill(pid, 0) == syscall.ESRCH {
			_ = os.RemoveAll(dir)
		}
	}
	dir, err := os.MkdirTemp(memory, fmt.Sprint(prefix, os.Getpid(), "-"))
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // nobody needs it any more
	return dir
}
