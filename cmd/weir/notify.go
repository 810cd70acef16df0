package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"
)

// notifier tells a supervisor how far the server is, by systemd's protocol: datagrams of
// lines KEY=VALUE to the socket that NOTIFY_SOCKET names. Without the variable nothing is
// sent. What cannot be sent is logged once: a supervisor that is not told gives up by its
// own timeout.
type notifier struct {
	socket string // a path, or a name behind @
	log    *slog.Logger
	failed bool
}

// standingBy is the state of a server that waits for another one to fail. To a supervisor
// it has started: how long it waits is nobody's fault.
const standingBy = "standing by: another server leads"

// notifyTimeout bounds a datagram to a supervisor that does not read.
const notifyTimeout = time.Second

func newNotifier(log *slog.Logger) *notifier {
	return &notifier{socket: os.Getenv("NOTIFY_SOCKET"), log: log}
}

// ready says that the start is complete.
func (n *notifier) ready(status string) { n.send("READY=1\nSTATUS=" + status) }

// starting says that the start goes on, and will say so again within every.
func (n *notifier) starting(every time.Duration, status string) {
	n.send(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d\nSTATUS=%s", (6 * every).Microseconds(), status))
}

// stopping says that the server ends.
func (n *notifier) stopping() { n.send("STOPPING=1\nSTATUS=stopping") }

func (n *notifier) send(state string) {
	if n.socket == "" {
		return
	}
	if err := n.write(state); err != nil && !n.failed {
		n.failed = true
		n.log.Warn("the supervisor cannot be told how far the server is", "NOTIFY_SOCKET", n.socket, "error", err)
	}
}

func (n *notifier) write(state string) error {
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(notifyTimeout)); err != nil {
		return err
	}
	_, err = c.Write([]byte(state))
	return err
}
