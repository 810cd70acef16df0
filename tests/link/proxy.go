// Package link is the network between a test and its servers: a TCP proxy that can be slow,
// silent, cut or closed.
package link

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/weirmq/weir/tests/process"
)

// Proxy is a TCP proxy in front of a server that disturbs its connections. All
// its methods are safe for use by many goroutines and hold for connections that
// are open and for new ones until Heal.
type Proxy struct {
	listener net.Listener
	target   string
	ctx      context.Context // ended by Close
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	fault   Fault
	changed chan struct{} // closed at the next change of fault
	conns   map[*net.TCPConn]struct{}
	refuse  bool
}

// Fault is how a Proxy treats what it forwards. The zero value forwards at once.
type Fault struct {
	Latency  time.Duration // each chunk waits so long, on its way there and on its way back
	Rate     int           // bytes a second in each direction; 0 = no limit
	HoldUp   bool          // nothing is forwarded to the server
	HoldDown bool          // nothing is forwarded to the client: it asks and hears nothing
	Slice    int           // most bytes forwarded at once; 0 = as they come
}

// Blackhole is the fault of a network that swallows everything.
var Blackhole = Fault{HoldUp: true, HoldDown: true}

type direction bool

const (
	up   direction = true // to the server
	down direction = false
)

// NewProxy starts a proxy to target (host:port) that ends with the test.
func NewProxy(t process.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("link: proxy: %v", err)
	}
	p := &Proxy{
		listener: l, target: target,
		changed: make(chan struct{}), conns: map[*net.TCPConn]struct{}{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.running.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// Addr is where the proxy listens, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Connections is how many connections are open, on either side.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Set replaces the fault.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(f)
}

func (p *Proxy) set(f Fault) {
	p.fault = f
	close(p.changed)
	p.changed = make(chan struct{})
}

// Heal ends every fault; what was held is forwarded.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = false
	p.set(Fault{})
}

// Cut closes every open connection in an orderly way; what was held for it is
// lost. New ones are accepted.
func (p *Proxy) Cut() { p.closeAll(false) }

// Reset aborts every open connection with a TCP reset. New ones are accepted.
func (p *Proxy) Reset() { p.closeAll(true) }

// Refuse closes every connection, the new ones at once, until Heal.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	p.refuse = true
	p.mu.Unlock()
	p.Cut()
}

// Close ends the proxy and every connection.
func (p *Proxy) Close() {
	p.cancel()
	_ = p.listener.Close()
	p.closeAll(false)
	p.running.Wait()
}

func (p *Proxy) closeAll(reset bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if reset {
			_ = c.SetLinger(0)
		} else {
			_ = c.CloseWrite() // is seen at once; Close takes effect when who reads has let go
		}
		_ = c.Close()
	}
	clear(p.conns)
	p.set(p.fault) // wakes who holds something for them
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(c.(*net.TCPConn)) })
	}
}

func (p *Proxy) serve(client *net.TCPConn) {
	defer client.Close()
	if !p.add(client) {
		return
	}
	defer p.remove(client)
	var d net.Dialer
	conn, err := d.DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		return
	}
	server := conn.(*net.TCPConn)
	defer server.Close()
	if !p.add(server) {
		return
	}
	defer p.remove(server)
	var both sync.WaitGroup
	for _, way := range []struct {
		from, to *net.TCPConn
		dir      direction
	}{{client, server, up}, {server, client, down}} {
		both.Go(func() {
			p.forward(way.from, way.to, way.dir)
			// The end of one way ends the other: the clients do not half-close.
			_ = way.from.Close()
			_ = way.to.Close()
		})
	}
	both.Wait()
}

func (p *Proxy) add(c *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.ctx.Err() != nil {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) remove(c *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) forward(from, to *net.TCPConn, dir direction) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		for chunk := buf[:n]; len(chunk) > 0; {
			sent, werr := p.send(to, chunk, dir)
			if werr != nil {
				return
			}
			chunk = chunk[sent:]
		}
		if err != nil {
			return
		}
	}
}

var errCut = errors.New("cut")

// send forwards the first bytes of a chunk as the present fault wants it.
func (p *Proxy) send(to *net.TCPConn, chunk []byte, dir direction) (int, error) {
	f, err := p.await(to, dir)
	if err != nil {
		return 0, err
	}
	n := len(chunk)
	if f.Slice > 0 {
		n = min(n, f.Slice)
	}
	if f.Rate > 0 {
		n = min(n, max(1, f.Rate/100)) // a hundredth of a second's worth at once
	}
	delay := f.Latency
	if f.Rate > 0 {
		delay += time.Duration(n) * time.Second / time.Duration(f.Rate)
	}
	if !p.sleep(delay) {
		return 0, errCut
	}
	return to.Write(chunk[:n])
}

// await returns the present fault once it lets something pass.
func (p *Proxy) await(to *net.TCPConn, dir direction) (Fault, error) {
	for {
		p.mu.Lock()
		f, changed := p.fault, p.changed
		_, open := p.conns[to]
		p.mu.Unlock()
		held := dir == up && f.HoldUp || dir == down && f.HoldDown
		switch {
		case !open:
			return f, errCut
		case !held:
			return f, nil
		}
		select {
		case <-changed:
		case <-p.ctx.Done():
			return f, errCut
		}
	}
}

// sleep reports whether the proxy is still on after d.
func (p *Proxy) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-p.ctx.Done():
		return false
	}
}
