package patient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Dial opens a connection.
type Dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// Dialer opens connections for clients, and remembers who is silent: a client asks any broker, and the addresses that it
// was given, in turn, and would spend the time of a whole call on a silent one each time that it comes to it.
type Dialer struct {
	// TLS is what the options say about it; nil: nothing.
	TLS    *tls.Config
	dial   Dial
	within time.Duration // a connection has to be there
	ctx    context.Context
	end    context.CancelFunc

	mu       sync.Mutex
	silent   map[string]*doubt
	closed   bool
	watching sync.WaitGroup
}

// doubt is an address that was silent, or may be.
type doubt struct {
	over   chan struct{} // closed once it is not silent, or nobody asks for it any more
	greets bool          // it answers as a broker does
	asked  time.Time     // when somebody wanted to connect last
}

// NewDialer returns the dialer of clients with the given options, whose connections are patient. A dialer among them has
// the time of DialTimeout, too.
func NewDialer(opts []kgo.Opt) (*Dialer, error) {
	ended, cancel := context.WithCancel(context.Background())
	cancel() // the client connects to nobody
	client, err := kgo.NewClient(append(slices.Clip(opts), kgo.WithContext(ended))...)
	if err != nil {
		return nil, fmt.Errorf("kafka: options: %w", err)
	}
	defer client.Close()
	d := &Dialer{
		TLS: client.OptValue(kgo.DialTLSConfig).(*tls.Config), dial: client.OptValue(kgo.Dialer).(Dial),
		within: client.OptValue(kgo.DialTimeout).(time.Duration), silent: map[string]*doubt{},
	}
	d.ctx, d.end = context.WithCancel(context.Background())
	return d, nil
}

// Close ends the watch on who is silent. It leaves connections open.
func (d *Dialer) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.end()
	d.watching.Wait()
}

// Options have a client use the dialer.
func (d *Dialer) Options() []kgo.Opt {
	return []kgo.Opt{kgo.Dialer(d.connect), kgo.DialTLSConfig(nil)} // which dial has
}

// Dial opens a connection that is not patient.
func (d *Dialer) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.within)
	defer cancel()
	return d.dial(ctx, network, addr)
}

var errSilent = errors.New("it was silent, and has not answered since")

func (d *Dialer) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	d.mu.Lock()
	doubt, silent := d.silent[addr]
	if silent {
		doubt.asked = time.Now()
	}
	d.mu.Unlock()
	if silent {
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%s: %w", addr, errSilent)}
	}
	c, err := d.Dial(ctx, network, addr)
	if err != nil {
		if ctx.Err() == nil && timedOut(err) {
			d.doubt(addr)
		}
		return nil, err
	}
	return newConn(c, func() { d.doubt(addr) }), nil
}

func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// doubt leaves an address alone until it answers, or refuses to.
func (d *Dialer) doubt(addr string) *doubt {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := d.silent[addr]; now != nil {
		return now
	}
	now := &doubt{over: make(chan struct{}), asked: time.Now()}
	if d.closed {
		close(now.over)
		return now
	}
	d.silent[addr] = now
	d.watching.Go(func() { d.watch(addr, now) })
	return now
}

const (
	// greetEvery is the pause before somebody who is silent is greeted again.
	greetEvery = 500 * time.Millisecond
	// forgetAfter is for how long nobody has asked for an address that is left: a broker's next machine may have
	// another one.
	forgetAfter = 10 * time.Minute
)

func (d *Dialer) watch(addr string, now *doubt) {
	for {
		greets, err := d.greet(addr)
		d.mu.Lock()
		over := !timedOut(err) || d.ctx.Err() != nil || time.Since(now.asked) > forgetAfter
		if over {
			delete(d.silent, addr)
			now.greets = greets
			close(now.over)
		}
		d.mu.Unlock()
		if over {
			return
		}
		select {
		case <-d.ctx.Done():
		case <-time.After(greetEvery):
		}
	}
}

func (d *Dialer) greet(addr string) (bool, error) {
	ctx, cancel := context.WithTimeout(d.ctx, Timeout)
	defer cancel()
	return Greets(ctx, d.Dial, addr)
}

// Await greets all of several addresses and waits until one of them has answered, none of them will, or ctx has ended.
func (d *Dialer) Await(ctx context.Context, addrs []string) {
	if len(addrs) < 2 {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	answers := make(chan bool, len(addrs))
	for _, addr := range addrs {
		now := d.doubt(addr)
		all.Go(func() {
			select {
			case <-now.over:
				answers <- now.greets
			case <-ctx.Done():
				answers <- false
			}
		})
	}
	for range addrs {
		if <-answers {
			return
		}
	}
}

// Greets asks for the versions that a broker knows, which it says before anybody has logged in.
func Greets(ctx context.Context, dial Dial, addr string) (bool, error) {
	// 10 bytes: ApiVersions (18) of version 0, correlation 7, no client ID.
	answer, err := Ask(ctx, dial, addr, "\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff")
	return len(answer) == 8 && answer[0] == 0 && answer[4:] == "\x00\x00\x00\x07", err // its length, the correlation
}

// Ask returns the first 8 bytes of an answer.
func Ask(ctx context.Context, dial Dial, addr, question string) (string, error) {
	c, err := dial(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })()
	if _, err = c.Write([]byte(question)); err != nil {
		return "", err
	}
	answer := make([]byte, 8)
	n, err := io.ReadFull(c, answer)
	return string(answer[:n]), err
}
