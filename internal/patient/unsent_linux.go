package patient

import (
	"net"
	"syscall"
	"unsafe"
)

// unsent is how many bytes that were written to a connection the other end's machine has not taken yet; 0: none, or
// not known.
func unsent(c net.Conn) int {
	for {
		within, wraps := c.(interface{ NetConn() net.Conn }) // as of TLS
		if !wraps {
			break
		}
		c = within.NetConn()
	}
	socket, is := c.(syscall.Conn)
	if !is {
		return 0
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	var n int32
	_ = raw.Control(func(fd uintptr) {
		_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&n)))
	})
	return int(n)
}
