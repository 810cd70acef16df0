package redistest

import "syscall"

// dieWithParent lets a server end with a test process that was killed.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
