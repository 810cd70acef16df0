package kafka

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A broker that stands still, or whose machine is gone, closes no connection. The client gives each request and each
// answer a time in which all of it has to be through; a connection that is patient makes that the time in which some
// of it has to come, so that it can be short without cutting off what is large on a slow network.
const (
	// mostPatience is how much longer a request or an answer may take in all, however it comes.
	mostPatience = time.Minute
	// piece is how much of a request is written before the time for the rest begins anew, in bytes.
	piece = 64 << 10
)

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// patiently returns the dialer that a client with the given options has, whose connections are patient, and what the
// options say about TLS; nil: nothing.
func patiently(opts []kgo.Opt) (dialer, *tls.Config, error) {
	ended, cancel := context.WithCancel(context.Background())
	cancel() // the client connects to nobody
	client, err := kgo.NewClient(append(slices.Clip(opts), kgo.WithContext(ended))...)
	if err != nil {
		return nil, nil, fmt.Errorf("kafka: options: %w", err)
	}
	defer client.Close()
	dial := client.OptValue(kgo.Dialer).(dialer)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return newPatient(c), nil
	}, client.OptValue(kgo.DialTLSConfig).(*tls.Config), nil
}

type patient struct {
	net.Conn
	reads, writes patience
}

func newPatient(c net.Conn) *patient {
	return &patient{c, patience{set: c.SetReadDeadline}, patience{set: c.SetWriteDeadline}}
}

// patience is a deadline that moves on with what comes through.
type patience struct {
	set   func(time.Time) error
	mu    sync.Mutex
	allow time.Duration // from one part to the next; 0: there is no deadline, or it has passed
	last  time.Time     // when all of it has to be through
}

func (p *patience) until(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allow, p.last = 0, t.Add(mostPatience)
	if !t.IsZero() {
		p.allow = max(0, time.Until(t))
	}
	return p.set(t)
}

func (p *patience) progressed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.allow > 0 {
		next := time.Now().Add(p.allow)
		if next.After(p.last) {
			next = p.last
		}
		_ = p.set(next)
	}
}

func (c *patient) SetReadDeadline(t time.Time) error  { return c.reads.until(t) }
func (c *patient) SetWriteDeadline(t time.Time) error { return c.writes.until(t) }

func (c *patient) SetDeadline(t time.Time) error {
	if err := c.reads.until(t); err != nil {
		return err
	}
	return c.writes.until(t)
}

func (c *patient) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.reads.progressed()
	}
	return n, err
}

func (c *patient) Write(b []byte) (n int, err error) {
	for {
		m, err := c.Conn.Write(b[n:min(n+piece, len(b))])
		if n += m; err != nil || n == len(b) {
			return n, err
		}
		c.writes.progressed()
	}
}
