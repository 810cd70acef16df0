package contract

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The opcodes of RFC 6455 that this client knows.
const (
	opText   = 1
	opBinary = 2
	opClose  = 8
	opPing   = 9
	opPong   = 10
)

// socket is the client's end of a WebSocket.
type socket struct {
	conn  net.Conn
	in    *bufio.Reader
	write sync.Mutex // pongs are sent by the reader
	note  func(event string, data []byte)
}

// openSocket sends the upgrade of a WS step. The stream is nil unless it began.
func (r *Runner) openSocket(where string, s *Step, target Target, v *vars) (*answer, *stream, error) {
	conn, err := net.Dial("tcp", v.host)
	if err != nil {
		return nil, nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return nil, nil, err
	}
	req, err := newRequest(context.Background(), s, target.URL(), v)
	if err != nil {
		return nil, nil, err
	}
	for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket",
		"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
		if req.Header.Get(name) == "" {
			req.Header.Set(name, value)
		}
	}
	if err := req.Write(conn); err != nil {
		return nil, nil, err
	}
	asked := r.sent(req)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, req)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		a, err := readAnswer(resp)
		a.sent = asked
		return a, nil, errors.Join(err, conn.Close())
	}
	a := &answer{status: resp.StatusCode, header: resp.Header, sent: asked}
	if got := resp.Header.Get("Sec-WebSocket-Accept"); got != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		return nil, nil, errors.Join(fmt.Errorf("Sec-WebSocket-Accept is %q", got), conn.Close())
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, nil, err
	}
	return a, (&socket{conn: conn, in: in, note: r.follow(where, req.URL.RequestURI())}).start(), nil
}

func (c *socket) start() *stream {
	ctx, cancel := context.WithCancel(context.Background())
	st := &stream{in: make(chan frame, 256), done: make(chan struct{}), send: c.sendText}
	st.conn, _ = c.conn.(*net.TCPConn)
	st.cancel = func() {
		cancel()
		_ = c.conn.Close()
	}
	go func() {
		defer close(st.done)
		for {
			f := c.read()
			if f.event == "message" {
				c.note(f.event, f.data)
			}
			select {
			case st.in <- f:
			case <-ctx.Done():
				return
			}
			if f.event == "end" {
				return
			}
		}
	}()
	return st
}

// read returns the next message; pings are answered, a close is confirmed.
func (c *socket) read() frame {
	var whole []byte
	for {
		final, op, payload, err := c.readFrame()
		if err != nil {
			return frame{event: "end", err: err}
		}
		switch op {
		case opPing:
			_ = c.writeFrame(opPong, payload) // a dead connection shows at the next read
		case opPong:
			return frame{event: "pong", data: payload}
		case opClose:
			_ = c.writeFrame(opClose, payload)
			f := frame{event: "end"}
			if len(payload) >= 2 {
				f.code = int(binary.BigEndian.Uint16(payload))
			}
			return f
		case opBinary:
			return frame{event: "binary", data: payload}
		default:
			if whole = append(whole, payload...); final {
				return frame{event: "message", data: whole}
			}
		}
	}
}

func (c *socket) readFrame() (final bool, op byte, payload []byte, err error) {
	var head [2]byte
	if _, err = io.ReadFull(c.in, head[:]); err != nil {
		return false, 0, nil, err
	}
	if head[1]&0x80 != 0 {
		return false, 0, nil, fmt.Errorf("the server masks its frames")
	}
	n := uint64(head[1])
	var long [8]byte
	switch n {
	case 126:
		_, err = io.ReadFull(c.in, long[6:])
		n = binary.BigEndian.Uint64(long[:])
	case 127:
		_, err = io.ReadFull(c.in, long[:])
		n = binary.BigEndian.Uint64(long[:])
	}
	if err != nil || n > 1<<26 {
		return false, 0, nil, fmt.Errorf("frame of %d bytes: %w", n, err)
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(c.in, payload)
	return head[0]&0x80 != 0, head[0] & 0x0f, payload, err
}

// sendText sends the text behind an ON line: a message, or @binary, @ping or
// @close with what follows as the payload; @halves sends it in two fragments.
func (c *socket) sendText(text string) error {
	word, rest, _ := strings.Cut(text, " ")
	switch word {
	case "@binary":
		c.note("binary", []byte(rest))
		return c.writeFrame(opBinary, []byte(rest))
	case "@ping":
		return c.writeFrame(opPing, []byte(rest))
	case "@close":
		code, err := strconv.ParseUint(rest, 10, 16)
		if err != nil {
			return err
		}
		return c.writeFrame(opClose, binary.BigEndian.AppendUint16(nil, uint16(code)))
	case "@halves":
		c.note("sent", []byte(rest))
		if err := c.writePart(opText, false, []byte(rest[:len(rest)/2])); err != nil {
			return err
		}
		return c.writePart(0, true, []byte(rest[len(rest)/2:]))
	}
	body, _, err := expandBody(text)
	if err != nil {
		return err
	}
	c.note("sent", body)
	return c.writeFrame(opText, body)
}

func (c *socket) writeFrame(op byte, payload []byte) error { return c.writePart(op, true, payload) }

func (c *socket) writePart(op byte, final bool, payload []byte) error {
	c.write.Lock()
	defer c.write.Unlock()
	if final {
		op |= 0x80
	}
	b := []byte{op}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	mask := [4]byte{1, 2, 3, 4}
	b = append(b, mask[:]...)
	for i, p := range payload {
		b = append(b, p^mask[i%4])
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(framePatience)); err != nil {
		return err
	}
	_, err := c.conn.Write(b)
	return err
}
