package scenario

import (
	"syscall"
	"time"
	"unsafe"
)

// endWithParent makes a process end with its parent.
func endWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// cpu is the processor time the process has used: utime + stime of
// /proc/PID/stat, read from the same counter through its POSIX clock, which
// counts nanoseconds instead of ticks of 10 ms.
func (p *proc) cpu() time.Duration {
	const cpuClockSched = 2
	var ts syscall.Timespec
	clock := ^p.cmd.Process.Pid<<3 | cpuClockSched
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
