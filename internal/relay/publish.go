package relay

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/pieces"
)

// maxAck bounds the answer to a publish: the numbers of its records.
const maxAck = 16 << 20

// Publisher passes on what one WebSocket publishes, over a WebSocket of its own with the
// caller's key. It belongs to one goroutine.
type Publisher struct {
	relay  *Relay
	caller Caller
	strict bool // the upstream is to refuse what it would warn of

	conn    *websocket.Conn // nil before the first publish
	answers chan []byte     // closed when conn has ended
	reader  sync.WaitGroup
}

// NewPublisher returns one that has to be closed. With strict, the upstream refuses what it
// would warn of.
func (r *Relay) NewPublisher(caller Caller, strict bool) *Publisher {
	return &Publisher{relay: r, caller: caller, strict: strict}
}

// Publish passes a message on and returns its answer.
func (p *Publisher) Publish(ctx context.Context, msg []byte) ([]byte, error) {
	if p.conn != nil {
		select {
		case <-p.answers: // nothing is asked, so this is its end
			p.Close()
		default:
		}
	}
	if p.conn == nil {
		if err := p.dial(ctx); err != nil {
			if refused, ok := errors.AsType[*api.Error](err); ok {
				return nil, refused
			}
			return nil, p.relay.errAway()
		}
	}
	err := pieces.Write(ctx, p.conn, msg, answerTimeout)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		select {
		case answer, ok := <-p.answers:
			if ok {
				return answer, nil
			}
			err = errors.New("the connection ended")
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	p.Close()
	return nil, &api.Error{Code: api.CodeInternal, Message: "the upstream server went away before its answer; whether the write took effect is unknown", Err: err}
}

// dial connects. Its error is an api.Error if the upstream is there and refuses it.
func (p *Publisher) dial(ctx context.Context) error {
	if err := p.relay.Serves(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	h := p.caller.header()
	if p.strict {
		h.Set("Weir-Strict", "true")
	}
	opt := websocket.DialOptions{HTTPClient: p.relay.client, HTTPHeader: h}
	conn, resp, err := websocket.Dial(ctx, p.relay.Upstream()+"/v0/ws", &opt)
	if err != nil && resp != nil {
		refusal := answer{status: resp.StatusCode, header: resp.Header}
		if refusal.body, err = io.ReadAll(resp.Body); err == nil { // the beginning, which Dial has read
			err = refusal.error()
		}
	}
	if err != nil {
		return err
	}
	conn.SetReadLimit(maxAck)
	p.conn, p.answers = conn, make(chan []byte, 1)
	answers := p.answers
	p.reader.Go(func() { receive(conn, answers) })
	return nil
}

// receive passes answers on until the connection ends.
func receive(conn *websocket.Conn, answers chan<- []byte) {
	defer close(answers)
	for {
		_, text, err := conn.Read(context.Background()) // until it is closed
		if err != nil {
			return
		}
		var m struct {
			Code api.Code `json:"code"`
		}
		if json.Unmarshal(text, &m) == nil && m.Code == api.CodeServerShuttingDown {
			return
		}
		select {
		case answers <- text:
		case <-time.After(answerTimeout): // nobody asked
			return
		}
	}
}

// Close ends the connection, if there is one.
func (p *Publisher) Close() {
	if p.conn == nil {
		return
	}
	_ = p.conn.CloseNow()
	p.reader.Wait()
	p.conn = nil
}
