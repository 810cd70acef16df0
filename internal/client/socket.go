package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

// errNotSent is the outcome of a write after one that failed.
var errNotSent = fmt.Errorf("%w: not sent, because a write before it failed", backend.ErrUnavailable)

// maxUnderway is how many writes of a series may be unanswered: so many at most are
// stored after one that is refused.
const maxUnderway = 32

// WriteEach makes many writes, each with its own result, in one request: they are sent
// over a WebSocket, one after the other, and the server answers them in order. Once a
// write has failed with a retryable error, no further ones are sent, unless a queue
// that sheds load refused it.
// errors.ErrUnsupported means that the socket could not be opened and nothing was sent.
func (c *Client) WriteEach(ctx context.Context, topic string, writes []api.WriteRequest) ([]api.WriteOutcome, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	limited, cancel := context.WithCancelCause(ctx)
	silence := time.AfterFunc(callTimeout, func() { cancel(errSilent) })
	s := &series{
		conn: conn, topic: topic, writes: writes, out: make([]api.WriteOutcome, len(writes)),
		silence: silence, underway: make(chan struct{}, maxUnderway),
	}
	var sender sync.WaitGroup
	sender.Go(func() { s.send(limited) })
	err = s.receive(limited)
	silence.Stop()
	cancel(nil)
	switch {
	case err == nil:
		_ = conn.Close(websocket.StatusNormalClosure, "") // everything is answered
	case ctx.Err() != nil:
		err = ctx.Err()
	case context.Cause(limited) == errSilent:
		err = errSilent
	}
	_ = conn.CloseNow()
	sender.Wait()
	return s.outcomes(err), nil
}

// dial opens a socket.
func (c *Client) dial(ctx context.Context) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	opt := websocket.DialOptions{HTTPClient: c.http, HTTPHeader: http.Header{}}
	c.authorize(opt.HTTPHeader)
	conn, resp, err := websocket.Dial(ctx, c.base+"/v0/ws", &opt)
	if err != nil {
		return nil, hideURL(err)
	}
	c.noteDate(resp.Header)
	conn.SetReadLimit(maxErrorBytes)
	return conn, nil
}

// series is the writes on one socket.
type series struct {
	conn    *websocket.Conn
	topic   string
	writes  []api.WriteRequest
	silence *time.Timer // ends the series if no answer comes

	underway chan struct{} // an element for each write that is sent and not answered

	mu       sync.Mutex
	out      []api.WriteOutcome
	known    int  // how many of the first ones are answered
	sent     int  // how many may have reached the server
	stopping bool // nothing more is to be sent
}

func (s *series) send(ctx context.Context) {
	var msg []byte
	for i := range s.writes {
		select {
		case s.underway <- struct{}{}:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		if s.stopping {
			s.mu.Unlock()
			return
		}
		s.sent = i + 1
		s.mu.Unlock()
		msg = strconv.AppendInt(append(msg[:0], `{"op":"publish","return_seqs":false,"request_id":`...), int64(i), 10)
		msg = api.AppendString(append(msg, `,"topic":`...), s.topic)
		at := len(msg)
		msg = appendWrite(msg, &s.writes[i])
		msg[at] = ',' // its members belong in this object
		if s.conn.Write(ctx, websocket.MessageText, msg) != nil {
			return // receive finds out
		}
	}
}

// receive reads answers until there is one for everything that was sent.
func (s *series) receive(ctx context.Context) error {
	for {
		_, text, err := s.conn.Read(ctx)
		if err != nil {
			return err
		}
		var a answer
		if err := json.Unmarshal(text, &a); err != nil {
			return fmt.Errorf("an answer is not what /v0 says: %w", err)
		}
		if done, err := s.take(&a); done || err != nil {
			return err
		}
		s.silence.Reset(callTimeout)
	}
}

// answer is the server's answer to a publish.
type answer struct {
	Op        string `json:"op"`
	RequestID *int   `json:"request_id"`
	writeResult
	wireError
}

// take records an answer; done says that it was the last one.
func (s *series) take(a *answer) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case a.Op == "error" && a.RequestID == nil:
		return false, fmt.Errorf("the server ended the socket: %v", a.wireError.noun(""))
	case a.Op != "ack" && a.Op != "error":
		return false, nil
	case a.RequestID == nil || *a.RequestID != s.known || s.known >= s.sent:
		return false, errors.New("the answers are not in the order of the writes")
	}
	o := &s.out[s.known]
	o.WriteResult = a.writeResult.noun()
	if a.Op == "error" {
		refused := a.wireError.noun("")
		o.Err = refused
		s.stopping = s.stopping || Retryable(refused) && !refused.Sheds() // a queue that sheds judges each write for itself
	}
	s.known++
	<-s.underway
	return s.known == len(s.writes) || s.stopping && s.known == s.sent, nil
}

// outcomes returns the outcome of each write; err is why there are no more answers.
func (s *series) outcomes(err error) []api.WriteOutcome {
	for i := s.known; i < len(s.out); i++ {
		s.out[i].Err = errNotSent
		if i < s.sent {
			s.out[i].Err = &Unreachable{Err: err}
		}
	}
	return s.out
}
