package patient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/tests/bubble"
)

// dialerOf returns a dialer whose dials do that.
func dialerOf(t *testing.T, dial Dial) *Dialer {
	t.Helper()
	d, err := NewDialer(append(Limits(), kgo.Dialer(dial)))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Only who has said nothing is taken for silent, not who refuses, nor whom the caller has not waited for.
func TestWhoIsTakenForSilent(t *testing.T) {
	for what, c := range map[string]struct {
		dial   Dial
		waits  time.Duration // the caller
		silent bool
	}{
		"nothing comes": {func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }, time.Hour, true},
		"as the system says it": {func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
		}, time.Hour, true},
		"the caller is gone": {func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }, time.Second, false},
		"refused":            {func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") }, time.Hour, false},
	} {
		bubble.Run(t, func(t *testing.T) {
			d := dialerOf(t, c.dial)
			defer d.Close()
			ctx, cancel := context.WithTimeout(t.Context(), c.waits)
			defer cancel()
			if _, err := d.connect(ctx, "tcp", "a:1"); err == nil || errors.Is(err, errSilent) {
				t.Errorf("%s: %v", what, err)
			}
			if _, err := d.connect(t.Context(), "tcp", "a:1"); errors.Is(err, errSilent) != c.silent {
				t.Errorf("%s: the next time it is %v", what, err)
			}
		})
	}
}

// A connection tells who has taken or given nothing in time, and nobody else.
func TestAConnectionTellsOfSilence(t *testing.T) {
	for what, c := range map[string]struct {
		do   func(c *conn, other net.Conn)
		told int
	}{
		"nothing is read":    {func(c *conn, _ net.Conn) { _, _ = c.Read(make([]byte, 1)) }, 1},
		"nothing is written": {func(c *conn, _ net.Conn) { _, _ = c.Write([]byte("x")) }, 1},
		"the caller is gone": {func(c *conn, _ net.Conn) {
			time.AfterFunc(time.Second, func() { c.SetDeadline(time.Now()) })
			_, _ = c.Read(make([]byte, 1))
		}, 0},
		"the other end is closed": {func(c *conn, other net.Conn) { other.Close(); _, _ = c.Read(make([]byte, 1)) }, 0},
	} {
		bubble.Run(t, func(t *testing.T) {
			mine, other := net.Pipe()
			told := 0
			p := newConn(mine, func() { told++ })
			p.SetDeadline(time.Now().Add(5 * time.Second))
			c.do(p, other)
			if told != c.told {
				t.Errorf("%s: it is told %d times, want %d", what, told, c.told)
			}
			mine.Close()
		})
	}
}

// As long as what was asked is still on its way an answer is not late; once that stands still, it is.
func TestAnAnswerIsNotLateWhileTheQuestionIsOnItsWay(t *testing.T) {
	const allowed = 4500 * time.Millisecond
	for what, c := range map[string]struct {
		moves time.Duration // for so long
		takes time.Duration
	}{
		"nothing moves":    {0, allowed},
		"it moves for 20s": {20 * time.Second, 20*time.Second + allowed},
		"it moves on":      {time.Hour, mostPatience + allowed},
	} {
		bubble.Run(t, func(t *testing.T) {
			mine, other := net.Pipe()
			defer other.Close()
			p := newConn(mine, func() {})
			began := time.Now()
			p.reads.left = func() int { return 1_000_000 - int(min(time.Since(began), c.moves)/time.Millisecond) }
			p.SetReadDeadline(began.Add(allowed))
			_, err := p.Read(make([]byte, 1))
			if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took != c.takes {
				t.Errorf("%s: %v after %s, want %s", what, err, took, c.takes)
			}
			mine.Close()
		})
	}
}

// Of several addresses the first that answers as a broker does is enough.
func TestAwaitWaitsForOneThatAnswers(t *testing.T) {
	const greeting = "\x00\x00\x00\x04\x00\x00\x00\x07"
	says := func(what string, after time.Duration) func(net.Conn) {
		return func(c net.Conn) {
			defer c.Close()
			_, _ = io.ReadFull(c, make([]byte, 14))
			time.Sleep(after)
			_, _ = io.WriteString(c, what)
		}
	}
	silent := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	for i, c := range []struct {
		brokers []func(net.Conn) // nil: it refuses
		takes   time.Duration
	}{
		{[]func(net.Conn){silent}, 0}, // the only one there is
		{[]func(net.Conn){silent, says(greeting, time.Second)}, time.Second},
		{[]func(net.Conn){nil, says("HTTP/1.1 400 Bad Request", time.Second), says(greeting, 3*time.Second)}, 3 * time.Second},
		{[]func(net.Conn){nil, says("HTTP/1.1 400 Bad Request", time.Second)}, time.Second},
		{[]func(net.Conn){silent, says("\x00\x00\x00\x04\x00\x00\x00\x08", 0)}, time.Minute}, // the caller's time
		{[]func(net.Conn){silent, silent}, time.Minute},
	} {
		bubble.Run(t, func(t *testing.T) {
			d := dialerOf(t, func(_ context.Context, _, addr string) (net.Conn, error) {
				var n int
				_, _ = fmt.Sscanf(addr, "b:%d", &n)
				if c.brokers[n] == nil {
					return nil, errors.New("connection refused")
				}
				mine, other := net.Pipe()
				go c.brokers[n](other)
				return mine, nil
			})
			var addrs []string
			for n := range c.brokers {
				addrs = append(addrs, fmt.Sprint("b:", n))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			d.Await(ctx, addrs)
			if took := time.Since(began); took != c.takes {
				t.Errorf("case %d: it waits for %s, want %s", i, took, c.takes)
			}
			began = time.Now()
			if d.Close(); time.Since(began) > 0 {
				t.Errorf("case %d: the end takes %s", i, time.Since(began))
			}
		})
	}
}
