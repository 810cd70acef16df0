package postgres_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/weirmq/weir/tests/postgrestest"
)

// forgetful forwards connections to a database, and cuts one in front of the answer to a commit
// each time it is told to.
func forgetful(t *testing.T, target string) (addr string, forget *atomic.Int32) {
	t.Helper()
	forget = new(atomic.Int32)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	serve := func(client net.Conn) {
		defer client.Close()
		server, err := net.Dial("tcp", target)
		if err != nil {
			return
		}
		defer server.Close()
		var cut atomic.Bool
		go func() {
			defer server.Close()
			buf := make([]byte, 64<<10)
			for {
				n, err := client.Read(buf)
				if bytes.Contains(buf[:n], []byte("commit")) && forget.Load() > 0 {
					forget.Add(-1)
					cut.Store(true)
				}
				if _, failed := server.Write(buf[:n]); err != nil || failed != nil {
					return
				}
			}
		}()
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if cut.Load() || err != nil {
				return
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			client, err := l.Accept()
			if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
				return
			}
			if err == nil {
				go serve(client)
			}
		}
	}()
	return l.Addr().String(), forget
}

// The answer to a Lead may be lost. Whoever asks again has that term already, unless another has
// taken one since: with a second one of its own a server would look, to itself, like one that
// somebody else has led behind.
func TestALeadWhoseAnswersAreLostTakesOneTerm(t *testing.T) {
	t.Parallel()
	s := postgrestest.Start(t, postgrestest.Options{})
	addr, forget := forgetful(t, s.Addr())
	l := open(t, s, addr)
	for term := uint64(1); term < 4; term++ {
		forget.Store(int32(term))
		got := lead(t, l)
		if got.Term != term {
			t.Errorf("the answer was lost %d times, and the term is %d, want %d", term, got.Term, term)
		}
		if forget.Load() != 0 {
			t.Error("no answer was lost")
		}
		store(t, l, "entry")
	}
	if got := read(t, l); len(got) != 3 {
		t.Errorf("the log holds %q, want an entry of each term", got)
	}
	// Another one takes the next term while the answer is on its way.
	other := open(t, s, s.Addr())
	if got := lead(t, other); got.Term != 4 {
		t.Errorf("the other one has term %d", got.Term)
	}
	forget.Store(1)
	if got := lead(t, l); got.Term != 5 {
		t.Errorf("behind another one the term is %d, want 5", got.Term)
	}
	store(t, l, "last")
}
