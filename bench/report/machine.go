package report

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
)

// Machine says where a run was made; figures of different machines do not
// compare.
type Machine struct {
	CPU         string  `json:"cpu"`
	Cores       int     `json:"cores"`
	MemoryMiB   int64   `json:"memory_mib"`
	Kernel      string  `json:"kernel"`
	Go          string  `json:"go"`
	FileSystem  string  `json:"file_system"` // of the data directories
	LoadAtStart float64 `json:"load_at_start"`
}

// ThisMachine describes the machine; dir is where the servers keep their data.
func ThisMachine(dir string) Machine {
	m := Machine{
		CPU:        strings.TrimSpace(field("/proc/cpuinfo", "model name")),
		Cores:      runtime.NumCPU(),
		Go:         runtime.Version(),
		FileSystem: fileSystem(dir),
	}
	fmt.Sscan(field("/proc/meminfo", "MemTotal"), &m.MemoryMiB)
	m.MemoryMiB >>= 10
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(text))
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Sscan(string(text), &m.LoadAtStart)
	}
	return m
}

// field returns what follows "name :" in a file of such lines.
func field(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		key, value, ok := strings.Cut(lines.Text(), ":")
		if ok && strings.TrimSpace(key) == name {
			return value
		}
	}
	return ""
}

func fileSystem(dir string) string {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return "unknown"
	}
	names := map[int64]string{
		0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs",
		0x01021994: "tmpfs", 0x794c7630: "overlayfs", 0x2FC12FC1: "zfs",
	}
	if name, ok := names[int64(st.Type)]; ok {
		return name
	}
	return fmt.Sprintf("0x%x", st.Type)
}
