package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

const (
	streamBuffer = 16 << 10 // one read of a stream
	longestFrame = 16 << 20 // more without a blank line is an error
)

// Stream reads one stream of server-sent events over a connection of its own.
// It is used by one goroutine; Close may be called by any.
type Stream struct {
	nc   net.Conn
	conn *Conn  // the raw bytes
	left int    // bytes of the current chunk that are not decoded yet; -1 behind one
	text []byte // decoded bytes; those before pos are used up
	pos  int
	err  error // what ended the stream, told once text is used up
}

// Frame is one block of a stream. Its fields are valid until the next call of
// Next. A heartbeat or a retry has an empty Event.
type Frame struct {
	Event, ID, Data []byte
}

// StreamOptions of OpenStream. The zero value is an ordinary client.
type StreamOptions struct {
	ReceiveBuffer int    // bytes the kernel may hold for the client; 0: its default
	LastEventID   string // sent if it is not empty
}

// OpenStream sends GET path to addr and returns once the head of the response
// says 200. The context bounds the opening, not the stream.
func OpenStream(ctx context.Context, addr, path string, o StreamOptions) (*Stream, error) {
	d := net.Dialer{}
	if o.ReceiveBuffer > 0 {
		d.Control = receiveBuffer(o.ReceiveBuffer)
	}
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("load: connect to %s: %w", addr, err)
	}
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	s := &Stream{nc: nc, conn: &Conn{nc: nc, buf: make([]byte, streamBuffer)}}
	if err := s.open(path, o.LastEventID); err != nil {
		nc.Close()
		return nil, fmt.Errorf("load: open stream %s: %w", path, err)
	}
	return s, nil
}

func (s *Stream) open(path, last string) error {
	request := "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
	if last != "" {
		request += "Last-Event-ID: " + last + "\r\n"
	}
	if _, err := s.nc.Write([]byte(request + "\r\n")); err != nil {
		return err
	}
	head, err := s.conn.readHead()
	if err != nil {
		return err
	}
	if head.status != 200 {
		return fmt.Errorf("status %d", head.status)
	}
	if !head.chunked {
		return errors.New("the response is not chunked")
	}
	return nil
}

// Close ends the stream; a Next that waits returns an error.
func (s *Stream) Close() error { return s.nc.Close() }

var blankLine = []byte("\n\n")

// Next waits for the next block. The end of the stream is io.EOF.
func (s *Stream) Next() (Frame, error) {
	searched := s.pos
	for {
		if i := bytes.Index(s.text[searched:], blankLine); i >= 0 {
			block := s.text[s.pos : searched+i+1]
			s.pos = searched + i + 2
			return parseFrame(block), nil
		}
		if len(s.text)-s.pos > longestFrame {
			return Frame{}, fmt.Errorf("load: frame over %d bytes", longestFrame)
		}
		s.text = s.text[:copy(s.text, s.text[s.pos:])]
		s.pos = 0
		searched = max(0, len(s.text)-1)
		if err := s.decode(); err != nil {
			return Frame{}, err
		}
	}
}

func parseFrame(block []byte) (f Frame) {
	for len(block) > 0 {
		var line []byte
		line, block, _ = bytes.Cut(block, []byte{'\n'})
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch string(name) {
		case "event":
			f.Event = value
		case "id":
			f.ID = value
		case "data":
			f.Data = value
		}
	}
	return f
}

// decode adds at least one byte to text and takes all that has arrived.
func (s *Stream) decode() error {
	if s.err != nil {
		return s.err
	}
	for added := false; ; {
		if s.left <= 0 {
			if added && !s.lineWaits() {
				return nil
			}
			if s.err = s.nextChunk(); s.err != nil {
				if added {
					return nil
				}
				return s.err
			}
		}
		if s.conn.r == s.conn.w {
			if added {
				return nil
			}
			s.conn.r, s.conn.w = 0, 0
			if err := s.conn.fill(); err != nil {
				return err
			}
		}
		take := min(s.left, s.conn.w-s.conn.r)
		s.text = append(s.text, s.conn.buf[s.conn.r:s.conn.r+take]...)
		s.conn.r += take
		added = true
		if s.left -= take; s.left == 0 {
			s.left = -1
		}
	}
}

// lineWaits reports whether the end of a chunk and the size of the next have
// arrived as a whole.
func (s *Stream) lineWaits() bool {
	return bytes.Count(s.conn.buf[s.conn.r:s.conn.w], endOfLine) > 1
}

// nextChunk reads the size of the next chunk, after the end of the one before.
func (s *Stream) nextChunk() error {
	if s.left < 0 {
		if _, err := s.conn.readLine(); err != nil {
			return err
		}
		s.left = 0
	}
	line, err := s.conn.readLine()
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(string(line), 16, 31)
	if err != nil {
		return fmt.Errorf("load: bad chunk size: %q", line)
	}
	if n == 0 {
		return io.EOF
	}
	s.left = int(n)
	return nil
}

// Number is the first number behind `"name":` in compact JSON, and what comes
// after it; ok is false if there is none.
func Number(data []byte, name string) (v uint64, rest []byte, ok bool) {
	i := bytes.Index(data, []byte(`"`+name+`":`))
	if i < 0 {
		return 0, nil, false
	}
	rest = data[i+len(name)+3:]
	for len(rest) > 0 && rest[0] >= '0' && rest[0] <= '9' {
		v = v*10 + uint64(rest[0]-'0')
		rest = rest[1:]
		ok = true
	}
	return v, rest, ok
}
