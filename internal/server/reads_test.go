package server

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/bubble"
)

// read is what became of a read, and when it was over.
type read struct {
	n    int
	late bool
	err  bool // another error
	at   time.Duration
}

// Whatever deadlines are set before and while it is read, a connection ends its reads as one
// does that is given each of them.
func TestReadsEndAtTheirDeadlines(t *testing.T) {
	type conn interface {
		Read([]byte) (int, error)
		SetReadDeadline(time.Time) error
	}
	play := func(seed uint64, wrap func(net.Conn) conn) (got []read) {
		bubble.Run(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			begin := time.Now()
			here, there := net.Pipe()
			c := wrap(here)
			var send, meanwhile []time.Duration
			some := func(n int) time.Duration {
				return time.Duration(random.IntN(n))*time.Second + time.Duration(random.IntN(900)+1)*time.Microsecond
			}
			for range 12 {
				send = append(send, some(60))
				meanwhile = append(meanwhile, some(60))
			}
			deadlines := make([]time.Duration, 40)
			for i := range deadlines {
				deadlines[i] = time.Duration(random.IntN(9)-2) * 500 * time.Millisecond
			}
			set := func(i int) {
				d := deadlines[i%len(deadlines)]
				if d == 0 {
					c.SetReadDeadline(time.Time{})
				} else {
					c.SetReadDeadline(time.Now().Add(d))
				}
			}
			slices.Sort(send)
			slices.Sort(meanwhile)
			var others sync.WaitGroup
			others.Go(func() {
				for _, at := range send {
					time.Sleep(at - time.Since(begin))
					there.Write([]byte("ab"))
				}
				time.Sleep(100*time.Second - time.Since(begin))
				there.Close()
			})
			others.Go(func() {
				for i, at := range meanwhile {
					time.Sleep(at - time.Since(begin))
					set(3 * i)
				}
			})
			for i, buf := 0, make([]byte, 2); time.Since(begin) < 90*time.Second; i++ {
				if i%3 > 0 {
					set(i)
				}
				n, err := c.Read(buf)
				late := errors.Is(err, os.ErrDeadlineExceeded)
				got = append(got, read{n, late, err != nil && !late, time.Since(begin)})
				if err != nil && !late {
					break
				}
				time.Sleep(time.Duration(i%4) * 300 * time.Millisecond)
			}
			here.Close()
			others.Wait()
		})
		return got
	}
	for seed := range uint64(100) {
		want := play(seed, func(c net.Conn) conn { return c })
		got := play(seed, func(c net.Conn) conn { return &oneWriteConn{Conn: c, reads: reads{conn: c}} })
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d:\n%v, want\n%v", seed, got, want)
		}
	}
}

// A read of one byte waits a little before it asks the connection, but not once it is cut off, the
// connection is closed, or the request may take long.
func TestAReadOfOneByteRests(t *testing.T) {
	past := time.Unix(1, 0)
	for _, c := range []struct {
		name   string
		before func(*oneWriteConn)
		during func(*oneWriteConn)
		n      int
		err    error
		soon   bool
	}{
		{name: "undisturbed", n: 1},
		{name: "cut off before", before: func(c *oneWriteConn) { c.SetReadDeadline(past) }, err: os.ErrDeadlineExceeded, soon: true},
		{name: "cut off", during: func(c *oneWriteConn) { c.SetReadDeadline(past) }, err: os.ErrDeadlineExceeded, soon: true},
		{name: "cut off twice", during: func(c *oneWriteConn) { c.SetReadDeadline(past); c.SetReadDeadline(past) }, err: os.ErrDeadlineExceeded, soon: true},
		{name: "given time", during: func(c *oneWriteConn) { c.SetReadDeadline(time.Now().Add(time.Hour)) }, n: 1},
		{name: "given all time before", before: func(c *oneWriteConn) { c.SetReadDeadline(time.Time{}) }, n: 1, soon: true},
		{name: "given all time", during: func(c *oneWriteConn) { c.SetReadDeadline(time.Time{}) }, n: 1, soon: true},
		{name: "closed before", before: func(c *oneWriteConn) { c.Close() }, err: net.ErrClosed, soon: true},
		{name: "closed", during: func(c *oneWriteConn) { c.Close() }, err: net.ErrClosed, soon: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				here, there := net.Pipe()
				defer there.Close()
				one := &oneWriteConn{Conn: here, reads: reads{conn: here}}
				one.SetReadDeadline(time.Now().Add(time.Minute)) // as net/http does
				go there.Write([]byte("abc"))
				// The first begins the ticks, the second finds them, the third begins them again.
				for _, pause := range []time.Duration{0, goneAfter / 3, 5 * goneAfter} {
					time.Sleep(pause)
					if c.before != nil {
						c.before(one)
					}
					begin := time.Now()
					var meanwhile sync.WaitGroup
					if c.during != nil {
						meanwhile.Go(func() { time.Sleep(time.Millisecond); c.during(one) })
					}
					n, err := one.Read(make([]byte, 1))
					if errors.Is(c.err, net.ErrClosed) && err != nil && n == 0 {
						err = net.ErrClosed // whatever a pipe says
					}
					if n != c.n || !errors.Is(err, c.err) {
						t.Fatalf("%d bytes, %v; want %d, %v", n, err, c.n, c.err)
					}
					if took := time.Since(begin); c.soon && took > time.Millisecond || !c.soon && (took < goneAfter || took > 2*goneAfter) {
						t.Errorf("it took %v", took)
					}
					meanwhile.Wait()
					one.SetReadDeadline(time.Now().Add(time.Minute))
				}
				one.Close()
			})
		})
	}
}

// The context of a request ends when its client goes away, however long the handler works.
func TestAHandlerLearnsThatItsClientHasGone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	begun, gone := make(chan struct{}), make(chan struct{})
	srv := &http.Server{ConnContext: withConn, IdleTimeout: time.Minute, ReadTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			return
		}
		r.Body.Read(make([]byte, 100))
		close(begun)
		<-r.Context().Done()
		close(gone)
	})}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(oneWriteListener{l}) }()
	defer func() { srv.Close(); <-served }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 500)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Write([]byte("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab")); err != nil {
		t.Fatal(err)
	}
	<-begun
	c.Close()
	<-gone
}
