package redistest

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// line is a client that sends inline commands and reads one chunk for each.
type line struct {
	t *testing.T
	net.Conn
}

func dial(t *testing.T, addr string) line {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return line{t, c}
}

func (l line) ask(command string, wait time.Duration) (string, error) {
	_, _ = l.Write([]byte(command + "\r\n")) // an error shows in the read
	_ = l.SetReadDeadline(time.Now().Add(wait))
	answer := make([]byte, 1024)
	n, err := l.Read(answer)
	return string(answer[:n]), err
}

func TestProxyFaults(t *testing.T) {
	p := NewProxy(t, Start(t, Options{}).Addr())
	c := dial(t, p.Addr())
	if got, err := c.ask("PING", 30*time.Second); got != "+PONG\r\n" {
		t.Fatalf("undisturbed: %q, %v", got, err)
	}

	p.Set(Fault{Latency: 60 * time.Millisecond})
	begin := time.Now()
	if _, err := c.ask("PING", 30*time.Second); err != nil || time.Since(begin) < 110*time.Millisecond {
		t.Errorf("latency of 60 ms each way: answer after %v, %v", time.Since(begin), err)
	}

	p.Set(Fault{Rate: 1000})
	begin = time.Now()
	if _, err := c.ask("ECHO "+strings.Repeat("x", 100), 30*time.Second); err != nil || time.Since(begin) < 100*time.Millisecond {
		t.Errorf("100 bytes at 1000 a second: the answer begins after %v, %v", time.Since(begin), err)
	}

	c = dial(t, p.Addr())
	p.Set(Fault{HoldDown: true})
	if _, err := c.ask("SET k v", 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("held answer: %v", err)
	}
	p.Heal()
	if got, err := c.ask("GET k", 30*time.Second); !strings.HasPrefix(got, "+OK\r\n") {
		t.Errorf("after Heal, the held answer first: %q, %v", got, err)
	}
}

func TestProxyCuts(t *testing.T) {
	s := Start(t, Options{})
	p := NewProxy(t, s.Addr())

	c := dial(t, p.Addr())
	p.Set(Fault{HoldDown: true})
	_, _ = c.ask("SET k done", 20*time.Millisecond)
	p.Cut()
	if _, err := c.ask("PING", 30*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a cut connection: %v", err)
	}
	p.Heal()
	if got, err := dial(t, p.Addr()).ask("GET k", 30*time.Second); got != "$4\r\ndone\r\n" {
		t.Errorf("what the server did before the cut: %q, %v", got, err)
	}

	c = dial(t, p.Addr())
	_, _ = c.ask("PING", 30*time.Second)
	p.Reset()
	if _, err := c.ask("PING", 30*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a reset connection: %v", err)
	}

	p.Refuse()
	if _, err := dial(t, p.Addr()).ask("PING", 30*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a refused connection: %v", err)
	}
	p.Heal()
	if _, err := dial(t, p.Addr()).ask("PING", 30*time.Second); err != nil {
		t.Errorf("after Heal: %v", err)
	}
}
