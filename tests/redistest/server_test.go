package redistest

import (
	"net"
	"testing"
	"time"
)

func TestServerComesBackOnItsPort(t *testing.T) {
	s := Start(t, Options{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	addr := s.Addr()
	if got := ask(t, addr, "SET k v"); got != "+OK\r\n" {
		t.Fatalf("SET: %q", got)
	}
	s.Kill()
	if c, err := net.Dial("tcp", addr); err == nil {
		c.Close()
		t.Fatal("a killed server accepts connections")
	}
	s.Restart()
	if got := ask(t, addr, "GET k"); got != "$1\r\nv\r\n" {
		t.Errorf("after kill and restart on %s: %q", s.Addr(), got)
	}
}

func TestPausedServerIsSilent(t *testing.T) {
	s := Start(t, Options{})
	s.Pause()
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = c.Write([]byte("PING\r\n"))
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := c.Read(make([]byte, 16)); err == nil {
		t.Fatalf("a paused server answered %d bytes", n)
	}
	s.Resume()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Read(make([]byte, 16)); err != nil {
		t.Fatalf("after Resume: %v", err)
	}
}

func TestEveryInstalledVersionStarts(t *testing.T) {
	for _, v := range Versions() {
		t.Run(v, func(t *testing.T) {
			if got := ask(t, Start(t, Options{Version: v}).Addr(), "PING"); got != "+PONG\r\n" {
				t.Errorf("PING: %q", got)
			}
		})
	}
}

// ask sends one inline command and returns the raw answer.
func ask(t *testing.T, addr, command string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Write([]byte(command + "\r\n")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 1024)
	n, err := c.Read(answer)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer[:n])
}
