// Package load is weir's load generator: HTTP/1.1 over bare connections, one
// goroutine per connection, requests as prebuilt bytes and a response reader
// that knows only what a benchmark needs. It costs far less than net/http's
// client, so the servers under test and not the client set the pace, and the
// same generator drives both sides of every comparison.
package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// readBuffer holds the head of a response and what arrives with it.
const readBuffer = 64 << 10

// Conn is one keep-alive connection. It is used by one goroutine at a time.
type Conn struct {
	nc   net.Conn
	buf  []byte // unread bytes are buf[r:w]
	r, w int
	body []byte // the last body, reused by the next
}

// Dial connects to addr, host:port.
func Dial(ctx context.Context, addr string) (*Conn, error) { return DialTLS(ctx, addr, nil) }

// DialTLS is Dial over TLS, unless conf is nil.
func DialTLS(ctx context.Context, addr string, conf *tls.Config) (*Conn, error) {
	dial := new(net.Dialer).DialContext
	if conf != nil {
		dial = (&tls.Dialer{Config: conf}).DialContext
	}
	nc, err := dial(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("load: connect to %s: %w", addr, err)
	}
	return &Conn{nc: nc, buf: make([]byte, readBuffer)}, nil
}

// Close closes the connection. A request in flight fails.
func (c *Conn) Close() error { return c.nc.Close() }

// SetDeadline bounds every later read and write; the zero time lifts it.
func (c *Conn) SetDeadline(t time.Time) error { return c.nc.SetDeadline(t) }

// Request returns the bytes of one request. The host is a fixed loopback name,
// so the same bytes serve any port.
func Request(method, path string, body []byte) []byte {
	return AppendRequest(nil, method, path, body)
}

// AppendRequest appends the bytes of one request to dst.
func AppendRequest(dst []byte, method, path string, body []byte) []byte {
	return AppendRequestAs(dst, method, path, "application/json", body)
}

// AppendRequestAs is AppendRequest for a body of the given type.
func AppendRequestAs(dst []byte, method, path, contentType string, body []byte) []byte {
	dst = appendHead(dst, method, path, contentType, len(body))
	return append(dst, body...)
}

func appendHead(dst []byte, method, path, contentType string, length int) []byte {
	dst = append(dst, method...)
	dst = append(dst, ' ')
	dst = append(dst, path...)
	dst = append(dst, " HTTP/1.1\r\nHost: 127.0.0.1\r\n"...)
	if length > 0 {
		dst = append(append(dst, "Content-Type: "...), contentType...)
		dst = append(dst, "\r\nContent-Length: "...)
		dst = strconv.AppendInt(dst, int64(length), 10)
		dst = append(dst, "\r\n"...)
	} else if method == "POST" || method == "PUT" {
		dst = append(dst, "Content-Length: 0\r\n"...)
	}
	return append(dst, "\r\n"...)
}

// Upload posts a body that is piece so many times, which need not fit into memory, and
// reads its whole response.
func (c *Conn) Upload(path, contentType string, piece []byte, times int) (status int, err error) {
	if _, err := c.nc.Write(appendHead(nil, "POST", path, contentType, times*len(piece))); err != nil {
		return 0, fmt.Errorf("load: send: %w", err)
	}
	for range times - 1 {
		if _, err := c.nc.Write(piece); err != nil {
			return 0, fmt.Errorf("load: send: %w", err)
		}
	}
	return c.Do(piece)
}

// Do sends a request and reads its whole response, dropping the body.
func (c *Conn) Do(request []byte) (status int, err error) {
	status, _, err = c.exchange(request, false)
	return status, err
}

// Fetch is Do that keeps the body, which is valid until the next call.
func (c *Conn) Fetch(request []byte) (status int, body []byte, err error) {
	return c.exchange(request, true)
}

func (c *Conn) exchange(request []byte, keep bool) (int, []byte, error) {
	if _, err := c.nc.Write(request); err != nil {
		return 0, nil, fmt.Errorf("load: send: %w", err)
	}
	head, err := c.readHead()
	if err != nil {
		return 0, nil, fmt.Errorf("load: response head: %w", err)
	}
	if keep && !head.chunked && head.length <= len(c.buf) {
		body, err := c.take(head.length)
		if err != nil {
			err = fmt.Errorf("load: response body: %w", err)
		}
		return head.status, body, err
	}
	c.body = c.body[:0]
	if head.chunked {
		err = c.readChunks(keep)
	} else {
		err = c.readBody(head.length, keep)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("load: response body: %w", err)
	}
	return head.status, c.body, nil
}

// head is what the generator needs to know of a response's head.
type head struct {
	status  int
	length  int
	chunked bool
}

var (
	endOfHead  = []byte("\r\n\r\n")
	endOfLine  = []byte("\r\n")
	lengthName = []byte("content-length:")
	codingName = []byte("transfer-encoding:")
	chunked    = []byte("chunked")
)

func (c *Conn) readHead() (head, error) {
	for {
		if i := bytes.Index(c.buf[c.r:c.w], endOfHead); i >= 0 {
			raw := c.buf[c.r : c.r+i]
			c.r += i + len(endOfHead)
			return parseHead(raw)
		}
		if err := c.fill(); err != nil {
			return head{}, err
		}
	}
}

// fill reads more bytes behind the unread ones.
func (c *Conn) fill() error {
	if c.r > 0 {
		c.w = copy(c.buf, c.buf[c.r:c.w])
		c.r = 0
	}
	if c.w == len(c.buf) {
		return fmt.Errorf("line or head over %d bytes", readBuffer)
	}
	n, err := c.nc.Read(c.buf[c.w:])
	c.w += n
	if n > 0 {
		return nil
	}
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func parseHead(raw []byte) (head, error) {
	line, rest, _ := bytes.Cut(raw, endOfLine)
	if len(line) < 12 || string(line[:7]) != "HTTP/1." {
		return head{}, fmt.Errorf("not an HTTP/1 status line: %q", line)
	}
	status, err := strconv.Atoi(string(line[9:12]))
	if err != nil {
		return head{}, fmt.Errorf("not an HTTP/1 status line: %q", line)
	}
	h := head{status: status}
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, endOfLine)
		switch {
		case hasFoldPrefix(line, lengthName):
			h.length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(lengthName):])))
			if err != nil || h.length < 0 {
				return head{}, fmt.Errorf("bad length: %q", line)
			}
		case hasFoldPrefix(line, codingName):
			h.chunked = bytes.Equal(bytes.TrimSpace(line[len(codingName):]), chunked)
		}
	}
	return h, nil
}

func hasFoldPrefix(line, prefix []byte) bool {
	return len(line) >= len(prefix) && bytes.EqualFold(line[:len(prefix)], prefix)
}

// take returns n bytes where they lie in the buffer, which has room for them. They are
// valid until the next read.
func (c *Conn) take(n int) ([]byte, error) {
	for c.w-c.r < n {
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
	b := c.buf[c.r : c.r+n]
	c.r += n
	return b, nil
}

// readBody takes n bytes of body.
func (c *Conn) readBody(n int, keep bool) error {
	for n > 0 {
		if c.r == c.w {
			c.r, c.w = 0, 0
			if err := c.fill(); err != nil {
				return err
			}
		}
		take := min(n, c.w-c.r)
		if keep {
			c.body = append(c.body, c.buf[c.r:c.r+take]...)
		}
		c.r += take
		n -= take
	}
	return nil
}

func (c *Conn) readChunks(keep bool) error {
	for {
		line, err := c.readLine()
		if err != nil {
			return err
		}
		size, _, _ := bytes.Cut(line, []byte{';'})
		n, err := strconv.ParseUint(string(bytes.TrimSpace(size)), 16, 31)
		if err != nil {
			return fmt.Errorf("bad chunk size: %q", line)
		}
		if n == 0 {
			return c.skipTrailer()
		}
		if err := c.readBody(int(n), keep); err != nil {
			return err
		}
		if end, err := c.readLine(); err != nil || len(end) != 0 {
			return errors.Join(errors.New("chunk without its end"), err)
		}
	}
}

func (c *Conn) skipTrailer() error {
	for {
		line, err := c.readLine()
		if err != nil || len(line) == 0 {
			return err
		}
	}
}

// readLine takes one line; it is valid until the next read.
func (c *Conn) readLine() ([]byte, error) {
	for {
		if i := bytes.Index(c.buf[c.r:c.w], endOfLine); i >= 0 {
			line := c.buf[c.r : c.r+i]
			c.r += i + len(endOfLine)
			return line, nil
		}
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
}
