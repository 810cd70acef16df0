package contract

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// framePatience is how long an expected frame may take.
const framePatience = 10 * time.Second

// frame is one thing that a stream brought: an event, a WebSocket message, a
// heartbeat (event hb), a pong (event pong) or the end (event end).
type frame struct {
	event string
	id    string
	data  []byte
	code  int   // of a WebSocket close
	err   error // what made the stream unreadable
}

// stream is an open SSE stream or WebSocket of one case.
type stream struct {
	in      chan frame // its reader sends here and ends with the event end
	pending []frame    // read, but not yet expected
	ended   bool
	cancel  context.CancelFunc
	done    chan struct{}           // closed when the reader is gone
	conn    *net.TCPConn            // nil unless the stream is all that it carries
	send    func(text string) error // nil for SSE
	last    frame
}

func (s *stream) close() {
	s.cancel()
	<-s.done
}

// leave drops the connection and waits, a second at most, until the server has let go
// of it: what it sends to a client that is gone counts as sent.
func (s *stream) leave() {
	if s.conn != nil && s.conn.CloseWrite() == nil {
		timer := time.NewTimer(time.Second)
		defer timer.Stop()
		for {
			if f, ok := s.read(timer); !ok || f.event == "end" {
				break
			}
		}
	}
	s.close()
}

// next returns the oldest frame that nothing has taken, heartbeats only if asked for.
func (s *stream) next(beats bool, wait time.Duration) (frame, bool) {
	for i, f := range s.pending {
		if beats || f.event != "hb" {
			s.pending = append(s.pending[:i:i], s.pending[i+1:]...)
			return f, true
		}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		f, ok := s.read(timer)
		if !ok || beats || f.event != "hb" {
			return f, ok
		}
	}
}

func (s *stream) read(timer *time.Timer) (frame, bool) {
	if s.ended {
		return frame{event: "end"}, true
	}
	select {
	case f := <-s.in:
		s.ended = f.event == "end"
		return f, true
	case <-timer.C:
		return frame{}, false
	}
}

func (f frame) String() string {
	data := string(f.data)
	if len(data) > 400 {
		data = data[:400] + "…"
	}
	if f.err != nil {
		data = f.err.Error()
	}
	if f.code != 0 {
		data += " " + strconv.Itoa(f.code)
	}
	return strings.TrimSpace(f.event + " " + data)
}

// streamStep runs OPEN, WS, ON and CLOSE.
func (r *Runner) streamStep(where string, s *Step, target Target, v *vars) error {
	begin := time.Now()
	switch s.Stream {
	case "OPEN", "WS":
		if v.streams[s.Name] != nil {
			return fmt.Errorf("%s is open already", s.Name)
		}
		open := r.openSSE
		if s.Stream == "WS" {
			open = r.openSocket
		}
		a, opened, err := open(where, s, target, v)
		if err != nil {
			return err
		}
		if opened == nil {
			if err := a.check(s, v); err != nil {
				return err
			}
			r.exchanged(where, s, a)
			return nil
		}
		r.exchanged(where, s, a)
		v.streams[s.Name] = opened
		if err := a.checkOpened(s, v); err != nil {
			return err
		}
	case "CLOSE":
		if v.streams[s.Name] == nil {
			return fmt.Errorf("%s is not open", s.Name)
		}
		v.streams[s.Name].leave()
		delete(v.streams, s.Name)
		return nil
	}
	on := v.streams[s.Name]
	if on == nil {
		return fmt.Errorf("%s is not open", s.Name)
	}
	if s.Body != "" {
		if on.send == nil {
			return fmt.Errorf("%s is an SSE stream: it takes no messages", s.Name)
		}
		if err := on.send(v.fill(s.Body)); err != nil {
			return err
		}
	}
	for _, e := range s.Expect {
		if err := on.expect(&e, v, begin); err != nil {
			return fmt.Errorf("line %d: %s: %w", e.Line, s.Name, err)
		}
	}
	return nil
}

// checkOpened compares the head of the answer that opened a stream.
func (a *answer) checkOpened(s *Step, v *vars) error {
	if want := s.Expect[0].Args[0]; want != strconv.Itoa(a.status) {
		return a.wrong("status is %d, want %s", a.status, want)
	}
	if a.status == http.StatusOK {
		if kind, _, _ := strings.Cut(a.header.Get("Content-Type"), ";"); kind != "text/event-stream" {
			return a.wrong("Content-Type of the stream is %q", kind)
		}
		for name, want := range map[string]string{"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Content-Encoding": ""} {
			if got := a.header.Get(name); got != want {
				return a.wrong("header %s of the stream is %q, want %q", name, got, want)
			}
		}
	}
	for _, e := range s.Expect[1:] {
		if strings.HasPrefix(e.Kind, "header") {
			if err := a.checkOne(&e, v); err != nil {
				return fmt.Errorf("line %d: %w", e.Line, err)
			}
		}
	}
	return nil
}

// expect checks one expectation below OPEN, WS or ON.
func (s *stream) expect(e *Expect, v *vars, begin time.Time) error {
	switch e.Kind {
	case "frame", "message":
		f, ok := s.next(e.Args[0] == "hb", framePatience)
		if !ok {
			return fmt.Errorf("nothing came, want %s %s", e.Args[0], v.fill(e.Args[1]))
		}
		s.last = f
		return f.match(e.Args[0], v.fill(e.Args[1]))
	case "among":
		return s.among(v.fill(e.Args[0]))
	case "id":
		return s.last.matchID(v.fill(e.Args[0]))
	case "raw-id":
		if want := v.fill(e.Args[0]); s.last.id != want {
			return fmt.Errorf("id is %q, want %q", s.last.id, want)
		}
	case "end":
		f, ok := s.next(false, framePatience)
		if !ok {
			return fmt.Errorf("the stream is still open")
		}
		if f.event != "end" || e.Args[0] != "" && e.Args[0] != strconv.Itoa(f.code) {
			return fmt.Errorf("got %v, want the end %s", f, e.Args[0])
		}
	case "quiet":
		if f, ok := s.next(false, e.Dur); ok {
			return fmt.Errorf("got %v, want nothing for %v", f, e.Dur)
		}
	case "save-id":
		v.saved[e.Args[0]] = s.last.id
	case "body", "save", "text":
		a := answer{status: http.StatusOK, body: s.last.data}
		return a.checkOne(e, v)
	case "after", "within":
		a := answer{status: http.StatusOK, body: s.last.data, took: time.Since(begin)}
		return a.checkOne(e, v)
	}
	return nil
}

// among takes the oldest message that matches; others stay for later lines.
func (s *stream) among(want string) error {
	p, err := parsePattern(want)
	if err != nil {
		return err
	}
	matches := func(f frame) bool {
		got, err := decodeJSON(f.data)
		return err == nil && p.match("data", got) == ""
	}
	for i, f := range s.pending {
		if matches(f) {
			s.last = f
			s.pending = append(s.pending[:i:i], s.pending[i+1:]...)
			return nil
		}
	}
	timer := time.NewTimer(framePatience)
	defer timer.Stop()
	for {
		f, ok := s.read(timer)
		if !ok || f.event == "end" {
			return fmt.Errorf("no message like %s; others were %v", want, s.pending)
		}
		if matches(f) {
			s.last = f
			return nil
		}
		s.pending = append(s.pending, f)
	}
}

func decodeJSON(text []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}

func (f frame) match(event, want string) error {
	if f.event != event {
		return fmt.Errorf("got %v, want %s %s", f, event, want)
	}
	if want == "" {
		return nil
	}
	p, err := parsePattern(want)
	if err != nil {
		return err
	}
	got, err := decodeJSON(f.data)
	if err != nil {
		return fmt.Errorf("%v: %w", f, err)
	}
	if diff := p.match("data", got); diff != "" {
		return fmt.Errorf("%s\n\tframe: %v", diff, f)
	}
	return nil
}

// matchID compares the positions in an id; no other topics may be in it.
func (f frame) matchID(want string) error {
	text, err := base64.RawURLEncoding.DecodeString(f.id)
	if err != nil || f.id == "" {
		return fmt.Errorf("id %q is not base64url without padding", f.id)
	}
	got, err := decodeJSON(text)
	if err != nil {
		return fmt.Errorf("id %s: %w", text, err)
	}
	sortedKeys, err := json.Marshal(got)
	if err != nil || !bytes.Equal(sortedKeys, text) {
		return fmt.Errorf("id is %s, want compact with sorted keys: %s", text, sortedKeys)
	}
	p, err := parsePattern(want)
	if err != nil {
		return err
	}
	if o, ok := p.(object); ok {
		o.closed = true
		p = o
	}
	if diff := p.match("id", got); diff != "" {
		return fmt.Errorf("%s: id is %s, frame %v", diff, text, f)
	}
	return nil
}
