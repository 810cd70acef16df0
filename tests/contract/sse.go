package contract

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http/httptrace"
	"strings"
)

// openSSE sends the GET of an OPEN step. The stream is nil unless it began.
func (r *Runner) openSSE(where string, s *Step, target Target, v *vars) (*answer, *stream, error) {
	ctx, cancel := context.WithCancel(context.Background())
	req, err := newRequest(ctx, s, target.URL(), v)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	client := r.h1
	if s.HTTP2 {
		client = r.h2
	}
	var conn *net.TCPConn // what the stream has to itself; nil over HTTP/2
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if tcp, ok := i.Conn.(*net.TCPConn); ok && !s.HTTP2 {
			conn = tcp
		}
	}}))
	resp, err := client.Do(req)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	asked := r.sent(req)
	if resp.StatusCode != 200 {
		defer cancel()
		a, err := readAnswer(resp)
		a.sent = asked
		return a, nil, err
	}
	st := &stream{in: make(chan frame, 256), cancel: cancel, done: make(chan struct{}), conn: conn}
	note := r.follow(where, req.URL.RequestURI())
	go func() {
		defer close(st.done)
		defer resp.Body.Close()
		readSSE(ctx, resp.Body, st.in, note)
	}()
	return &answer{status: resp.StatusCode, header: resp.Header, sent: asked}, st, nil
}

// readSSE sends every frame of an event stream, and at last its end; note gets those
// with data.
func readSSE(ctx context.Context, body io.Reader, to chan<- frame, note func(event string, data []byte)) {
	put := func(f frame) bool {
		if f.data != nil && f.event != "hb" && f.event != "retry" {
			note(f.event, f.data)
		}
		select {
		case to <- f:
			return true
		case <-ctx.Done():
			return false
		}
	}
	in := bufio.NewReaderSize(body, 1<<16)
	var lines []string
	for first := true; ; {
		line, err := in.ReadString('\n')
		if err != nil {
			if len(lines) > 0 || line != "" {
				put(frame{event: "torn", err: fmt.Errorf("the stream ends inside a frame: %q %q", lines, line)})
			}
			put(frame{event: "end"})
			return
		}
		if line = strings.TrimSuffix(line, "\n"); line != "" {
			lines = append(lines, line)
			continue
		}
		if head := strings.Join(lines, "\n"); first && head == "retry: 30000" {
			if first = false; !put(frame{event: "retry", data: []byte("30000")}) {
				return
			}
		} else if first {
			if head != "retry: 2000" && !put(frame{event: "bad", err: fmt.Errorf("the first block is %q, want retry: 2000", lines)}) {
				return
			}
			first = false
		} else if !put(parseFrame(lines)) {
			return
		}
		lines = nil
	}
}

// parseFrame reads one block strictly: `name: value`, one data line of compact JSON.
func parseFrame(lines []string) frame {
	bad := func(format string, args ...any) frame {
		return frame{event: "bad", err: fmt.Errorf("block %q: "+format, append([]any{lines}, args...)...)}
	}
	var f frame
	seen := map[string]bool{}
	for _, line := range lines {
		if strings.HasPrefix(line, ":") {
			if len(lines) > 1 {
				return bad("a comment inside a frame")
			}
			return frame{event: "hb", data: []byte(line)}
		}
		name, value, ok := strings.Cut(line, ": ")
		if !ok || seen[name] || strings.ContainsRune(line, '\r') {
			return bad("line %q", line)
		}
		seen[name] = true
		switch name {
		case "event":
			f.event = value
		case "id":
			f.id = value
		case "data":
			f.data = []byte(value)
		default:
			return bad("field %q", name)
		}
	}
	if f.event == "" || f.data == nil {
		return bad("no event or no data")
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, f.data); err != nil || !bytes.Equal(compact.Bytes(), f.data) {
		return bad("data is not compact JSON")
	}
	return f
}
