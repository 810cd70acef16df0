package process

import "syscall"

// dieWithParent lets a server end with a test process that was killed.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
