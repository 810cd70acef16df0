package openapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/weirmq/weir/tests/contract"
)

// socket is one WebSocket: the server answers its messages in their order.
type socket struct {
	open []*sentMessage // those that are not answered yet
}

// sentMessage is one that a client has sent.
type sentMessage struct {
	x     *contract.Exchange
	unfit error // what the document has against it
	stray error // what of it is not described

	op, id any  // nil if it has none
	waits  bool // a claim, which may be answered behind later messages
}

// answered are the ops of answers by those of messages.
var answered = map[any]any{
	"subscribe": "subscribed", "unsubscribe": "unsubscribed", "publish": "ack", "ping": "pong",
	"claim": "claimed", "ack": "acked", "nack": "nacked", "extend": "extended",
}

// sent returns what is to be known of a message for its answer.
func sent(x *contract.Exchange) *sentMessage {
	m := &sentMessage{x: x}
	if value, err := decode(x.Body); err == nil && x.Event == "sent" {
		o := object(value)
		m.op, m.id = o["op"], o["request_id"]
		wait, _ := o["wait_ms"].(json.Number)
		n, err := wait.Int64()
		m.waits = m.op == "claim" && err == nil && n > 0
	}
	return m
}

// fits reports whether a message of the server is an answer to this one.
func (m *sentMessage) fits(message map[string]any) bool {
	if op := message["op"]; op == "error" {
		code := message["code"]
		if code == "invalid_json" || code == "unsupported_message" {
			return m.unfit != nil
		}
	} else if op != answered[m.op] {
		return false
	}
	return reflect.DeepEqual(m.id, message["request_id"])
}

// take returns the message that one of the server answers: a claim that waits, or the oldest
// of the others. Nil: there is none.
func (s *socket) take(message map[string]any) *sentMessage {
	oldest := slices.IndexFunc(s.open, func(m *sentMessage) bool { return !m.waits })
	if at := slices.IndexFunc(s.open, func(m *sentMessage) bool {
		return (m.waits || m == s.open[max(oldest, 0)]) && m.fits(message)
	}); at >= 0 {
		oldest = at
	}
	if oldest < 0 {
		return nil
	}
	m := s.open[oldest]
	s.open = slices.Delete(s.open, oldest, oldest+1)
	return m
}

// frame judges what went over an open stream.
func (j *Judge) frame(x *contract.Exchange, path string) {
	o, _ := j.doc.find("GET", path)
	if o == nil {
		j.wrong(x, "the document has no such stream")
		return
	}
	schemas := j.doc.events(o)
	if schemas["receive"] == "" {
		name, ok := strings.CutPrefix(x.Event, j.doc.eventPrefix(o, x.Path))
		pointer := schemas[name]
		if j.Events++; !ok || pointer == "" {
			j.wrong(x, "the document has no event %q of this stream", x.Event)
			return
		}
		j.json(x, pointer, x.Body)
		return
	}
	s := j.sockets[x.Stream]
	if s == nil {
		s = &socket{}
		j.sockets[x.Stream] = s
	}
	switch x.Event {
	case "sent", "binary":
		j.Sent++
		m := sent(x)
		if x.Event == "binary" {
			m.unfit = fmt.Errorf("it is binary")
		} else {
			m.unfit, m.stray = j.message(schemas["send"], x.Body)
		}
		s.open = append(s.open, m)
	default:
		j.Messages++
		j.received(x, s, schemas["receive"])
	}
}

// message returns what the document has against one that a client sends, and what of it is
// not described.
func (j *Judge) message(pointer string, text []byte) (unfit, stray error) {
	value, err := decode(text)
	if err != nil {
		return err, nil
	}
	if pointer, err = j.byOp(pointer, value); err != nil {
		return err, nil
	}
	return j.doc.said.validate(pointer, value), j.doc.whole.validate(pointer, value)
}

// byOp returns which of the schemas in a oneOf a message is of, by its op.
func (j *Judge) byOp(pointer string, message any) (string, error) {
	op := object(message)["op"]
	node, _ := j.doc.at(pointer)
	list, _ := node["oneOf"].([]any)
	for _, one := range list {
		to, _ := object(one)["$ref"].(string)
		to = strings.TrimPrefix(to, "#")
		if known, _ := j.doc.at(to + "/properties/op"); known != nil && known["const"] == op {
			return to, nil
		}
	}
	return "", fmt.Errorf("the document has no message with the op %v", op)
}

// pushed are the ops of messages that answer none.
var pushed = map[any]bool{"record": true, "caught_up": true, "tombstone": true, "topic_deleted": true}

// received judges a message of the server, and the one that it answers.
func (j *Judge) received(x *contract.Exchange, s *socket, pointer string) {
	value, err := decode(x.Body)
	if err == nil {
		pointer, err = j.byOp(pointer, value)
	}
	if err != nil {
		j.wrong(x, "%v\n\tmessage: %.600s", err, x.Body)
		return
	}
	j.json(x, pointer, x.Body)
	message := object(value)
	if pushed[message["op"]] || message["code"] == "server_shutting_down" {
		return
	}
	m := s.take(message)
	if m == nil {
		j.wrong(x, "it answers nothing: %.600s", x.Body)
		return
	}
	refused := message["op"] == "error"
	_, told := message["warnings"]
	switch {
	case m.unfit != nil && refused:
		j.Unfit++
	case m.unfit != nil:
		j.wrong(m.x, "the message was taken, and the document forbids it: %v\n\tmessage: %.600s", m.unfit, m.x.Body)
	case m.unfit == nil && !m.fits(message):
		j.wrong(x, "it is no answer to %.300s: %.300s", m.x.Body, x.Body)
	case !refused && told != (m.stray != nil) && !strings.Contains(string(x.Body), "idempotency_key_reused"):
		j.wrong(m.x, "it was answered with a warning: %v; what the document does not know: %v\n\tmessage: %.600s", told, m.stray, m.x.Body)
	}
}
