//go:build !linux

package scenario

import (
	"syscall"
	"time"
)

func endWithParent() *syscall.SysProcAttr { return nil }

func (p *proc) cpu() time.Duration { return 0 }
