package link

import (
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/weirmq/weir/tests/process"
)

// Gone is the address (host:port) of a machine that is gone: who connects to it hears nothing, not even that nobody
// listens. Its backlog is full, so the kernel answers no more of those who knock.
func Gone(t process.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatalf("link: gone: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatalf("link: gone: %v", err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatalf("link: gone: %v", err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatalf("link: gone: %v", err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(at.(*syscall.SockaddrInet4).Port))
	for range 10 {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatalf("link: gone: %s lets everybody in", addr)
	return ""
}

// Silent is the address of a server that stands still: it takes connections, and says nothing.
func Silent(t process.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("link: silent: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}
