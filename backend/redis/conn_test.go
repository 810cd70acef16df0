package redis

import (
	"errors"
	"net"
	"testing"
	"time"
)

// An answer that has come in time is taken, though this process stood still until
// its time was over.
func TestAnAnswerIsTakenThoughThisProcessStoodStill(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const answer = "+OK\r\n"
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	all := calls{closing: t.Context()}
	c := all.adopt(dialed, "")
	defer c.Close()
	w := all.watch(t.Context(), time.Millisecond)
	defer w.end()
	deadline, _ := w.Deadline()
	if err := c.SetReadDeadline(deadline); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Write([]byte(answer)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(deadline) + 5*time.Millisecond) // as if stopped
	got := make([]byte, 64)
	if n, err := c.Read(got); err != nil || string(got[:n]) != answer {
		t.Errorf("%q, %v", got[:n], err)
	}
}

// A greeting that cannot be written was no call: the time was over, or the server had gone.
func TestAGreetingThatIsNotWrittenIsNoCall(t *testing.T) {
	all := calls{closing: t.Context()}
	for name, spoil := range map[string]func(c *conn, server net.Conn){
		"late": func(c *conn, _ net.Conn) { _ = c.SetWriteDeadline(time.Now().Add(-time.Second)) },
		"gone": func(_ *conn, server net.Conn) { _ = server.Close() },
	} {
		client, server := net.Pipe()
		defer server.Close()
		c := all.adopt(client, "")
		defer c.Close()
		spoil(c, server)
		_, err := c.Write([]byte("HELLO 3"))
		if stripped := errors.Unwrap(err); stripped == nil || !neverSent(stripped) {
			t.Errorf("%s: %v", name, err)
		}
		c.heard = true
		if _, err := c.Write([]byte("XADD")); err == nil || neverSent(err) {
			t.Errorf("%s, a call: %v", name, err)
		}
	}
}
