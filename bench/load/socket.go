package load

import "syscall"

// receiveBuffer is a dialer's control that asks for a receive buffer of n bytes
// before the connection is made, so that the window never exceeds it.
func receiveBuffer(n int) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		ctlErr := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, n)
		})
		if ctlErr != nil {
			return ctlErr
		}
		return err
	}
}
