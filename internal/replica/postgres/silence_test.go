package postgres_test

import (
	"context"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/replica/postgres"
	"github.com/weirmq/weir/tests/link"
	"github.com/weirmq/weir/tests/postgrestest"
)

// troubled opens a log that soon gives up a silent database, and what it is told of that.
func troubled(t *testing.T, s *postgrestest.Server, addr string) (*postgres.Log, <-chan error) {
	t.Helper()
	u, err := url.Parse(s.URL(addr) + "&log=" + url.QueryEscape(t.Name()))
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 100)
	l, err := postgres.Open(t.Context(), u, postgres.WithSilence(postgres.Options{Trouble: func(err error) { told <- err }}, time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, told
}

func awaitTrouble(t *testing.T, told <-chan error, what string) {
	t.Helper()
	for late := time.After(30 * time.Second); ; {
		select {
		case err := <-told:
			if strings.Contains(err.Error(), what) {
				return
			}
		case <-late:
			t.Fatalf("nothing like %q was said within 30 s", what)
		}
	}
}

// A connection lives and brings nothing: what is asked is asked again on another one.
func TestASilentDatabaseIsAskedAgain(t *testing.T) {
	t.Parallel()
	s := postgrestest.Start(t, postgrestest.Options{})
	proxy := link.NewProxy(t, s.Addr())
	l, told := troubled(t, s, proxy.Addr())
	lead(t, l)
	store(t, l, "a")
	for what, f := range map[string]func(context.Context) error{
		"Newest": func(ctx context.Context) error { _, err := l.Newest(ctx); return err },
		"Read":   func(ctx context.Context) error { _, err := l.Read(ctx, 1); return err },
		"Trim":   func(ctx context.Context) error { return l.Trim(ctx, 1) },
		"Lead":   func(ctx context.Context) error { _, err := l.Lead(ctx, "node"); return err },
	} {
		proxy.Set(link.Fault{HoldDown: true})
		done := make(chan error, 1)
		go func() { done <- f(t.Context()) }()
		awaitTrouble(t, told, "says nothing")
		proxy.Heal()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s still waits", what)
		}
	}
}

// A leader's new connection falls silent before it is used.
func TestALeaderGivesUpASilentNewConnection(t *testing.T) {
	t.Parallel()
	s := postgrestest.Start(t, postgrestest.Options{})
	addr, mute := muted(t, s.Addr())
	l, told := troubled(t, s, addr)
	lead(t, l)
	store(t, l, "a")
	mute()
	stored := start(t, t.Context(), l, "b")
	awaitTrouble(t, told, "timeout")
	if o := await(t, stored); o.err != nil {
		t.Error(o.err)
	}
}

// muted is a way to the database. mute cuts its connections; the next one that is opened
// brings nothing once it was found to be to the server that takes writes.
func muted(t *testing.T, target string) (addr string, mute func()) {
	t.Helper()
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var open []net.Conn
	next := false
	cut := func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			_ = c.Close()
		}
		open = nil
	}
	t.Cleanup(func() { _ = in.Close(); cut() })
	serve := func(c net.Conn, silent bool) {
		out, err := net.Dial("tcp", target)
		if err != nil {
			_ = c.Close()
			return
		}
		mu.Lock()
		open = append(open, c, out)
		mu.Unlock()
		go func() { _, _ = copyTo(out, c, false) }()
		_, _ = copyTo(c, out, silent)
	}
	go func() {
		for {
			c, err := in.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			silent := next
			next = false
			mu.Unlock()
			go serve(c, silent)
		}
	}()
	return in.Addr().String(), func() {
		mu.Lock()
		next = true
		mu.Unlock()
		cut()
	}
}

// copyTo copies until a connection ends; with silent, up to the second answer that ends in
// ReadyForQuery.
func copyTo(to, from net.Conn, silent bool) (n int, err error) {
	defer to.Close()
	defer from.Close()
	for b, ready := make([]byte, 16<<10), 0; ; {
		n, err := from.Read(b)
		if err != nil {
			return n, err
		}
		if silent && ready == 2 {
			continue
		}
		if _, err := to.Write(b[:n]); err != nil {
			return n, err
		}
		if n >= 6 && b[n-6] == 'Z' {
			ready++
		}
	}
}
