package main

import (
	"os"
	"syscall"
)

// unread reports whether what is written to f can reach nobody any more: the other
// end of its pipe, socket or terminal is gone.
func unread(f *os.File) bool {
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	err = conn.Control(func(fd uintptr) { gone = hungUp(int(fd)) })
	return err == nil && gone
}

func hungUp(fd int) bool {
	poll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return false
	}
	defer syscall.Close(poll)
	// Errors and hangups are reported without being asked for; a file cannot be added.
	if syscall.EpollCtl(poll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{}) != nil {
		return false
	}
	var events [1]syscall.EpollEvent
	for {
		n, err := syscall.EpollWait(poll, events[:], 0)
		if err != syscall.EINTR {
			return n > 0
		}
	}
}
