package patient

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/tests/bubble"
)

// slow is a connection of which the other end takes and gives a piece every so often, n times.
func slow(t *testing.T, every time.Duration, n int) *conn {
	mine, other := net.Pipe()
	end := make(chan struct{})
	var ends sync.WaitGroup
	t.Cleanup(func() { mine.Close(); other.Close(); close(end); ends.Wait() })
	for _, pass := range []func() error{
		func() error { _, err := io.CopyN(io.Discard, other, piece); return err },
		func() error { _, err := other.Write([]byte("x")); return err },
	} {
		ends.Go(func() {
			for range n {
				select {
				case <-time.After(every):
				case <-end:
				}
				if pass() != nil {
					return
				}
			}
		})
	}
	return newConn(mine, func() {})
}

// What comes slowly may take its time, what has stopped may not, and neither goes on for ever.
func TestAPatientConnection(t *testing.T) {
	const allowed = 5 * time.Second
	for what, c := range map[string]struct {
		every time.Duration
		n     int           // pieces that come through, of 20
		takes time.Duration // until it succeeds, or fails
		fails bool
	}{
		"slow":                {3 * time.Second, 20, 20 * 3 * time.Second, false},
		"silent at once":      {time.Hour, 0, allowed, true},
		"silent halfway":      {3 * time.Second, 10, 10*3*time.Second + allowed, true},
		"slower than allowed": {6 * time.Second, 20, allowed, true},
		"endless":             {4 * time.Second, 20, allowed + mostPatience, true},
	} {
		for which, exchange := range map[string]func(*conn) error{
			"write": func(p *conn) error {
				p.SetWriteDeadline(time.Now().Add(allowed))
				_, err := p.Write(make([]byte, 20*piece))
				return err
			},
			"read": func(p *conn) error {
				p.SetReadDeadline(time.Now().Add(allowed))
				_, err := io.ReadFull(p, make([]byte, 20))
				return err
			},
		} {
			bubble.Run(t, func(t *testing.T) {
				p := slow(t, c.every, c.n)
				began := time.Now()
				err := exchange(p)
				if took := time.Since(began); took != c.takes || errors.Is(err, os.ErrDeadlineExceeded) != c.fails || err != nil && !c.fails {
					t.Errorf("%s, %s: %v after %s, want %s", what, which, err, took, c.takes)
				}
			})
		}
	}
}

// Who gives up moves the deadline to now.
func TestAPatientConnectionCanBeGivenUp(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := slow(t, 3*time.Second, 20)
		p.SetDeadline(time.Now().Add(5 * time.Second))
		time.AfterFunc(10*time.Second, func() { p.SetDeadline(time.Now()) })
		began := time.Now()
		if _, err := p.Write(make([]byte, 20*piece)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 10*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		p.SetDeadline(time.Time{})
		began = time.Now()
		if _, err := io.ReadFull(p, make([]byte, 3)); err != nil || time.Since(began) > 10*time.Second {
			t.Errorf("without a deadline: %v after %s", err, time.Since(began))
		}
	})
}

// The connections of a program's own dialer are patient, too.
func TestADialerOfTheProgramIsUsed(t *testing.T) {
	dialed := ""
	d, err := NewDialer([]kgo.Opt{kgo.Dialer(func(_ context.Context, _, addr string) (net.Conn, error) {
		dialed = addr
		c, _ := net.Pipe()
		return c, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.connect(t.Context(), "tcp", "a:1")
	if _, ok := c.(*conn); !ok || err != nil || dialed != "a:1" {
		t.Errorf("%T of %q, %v", c, dialed, err)
	}
}

// Nor does it take longer than a client's own.
func TestADialerOfTheProgramHasItsTime(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		d, err := NewDialer(append(Limits(), kgo.Dialer(func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})))
		if err != nil {
			t.Fatal(err)
		}
		for _, takes := range []time.Duration{Timeout, 0} { // it is known to be silent then
			began := time.Now()
			if _, err := d.connect(t.Context(), "tcp", "a:1"); err == nil || time.Since(began) != takes {
				t.Errorf("%v after %s, want %s", err, time.Since(began), takes)
			}
		}
		d.Close() // or the bubble waits for who watches
	})
}

// An address that nobody asks for any more is not greeted for ever: a broker's next machine may have another one.
func TestAnAddressThatIsLeftIsForgotten(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var dials atomic.Int64
		d, err := NewDialer(append(Limits(), kgo.Dialer(func(ctx context.Context, _, _ string) (net.Conn, error) {
			dials.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		})))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		connects := func() time.Duration {
			began := time.Now()
			if _, err := d.connect(t.Context(), "tcp", "a:1"); err == nil {
				t.Error("it connects to who is silent")
			}
			return time.Since(began)
		}
		connects()
		for range 6 {
			time.Sleep(5 * time.Minute)
			if took := connects(); took > 0 {
				t.Errorf("who is silent, and asked for, is waited for %s", took)
			}
		}
		time.Sleep(11 * time.Minute)
		dials.Store(0)
		time.Sleep(time.Hour)
		if n := dials.Load(); n > 0 {
			t.Errorf("who is left is greeted %d times in an hour", n)
		}
		if took := connects(); took != Timeout {
			t.Errorf("who was left for an hour is waited for %s", took)
		}
	})
}
