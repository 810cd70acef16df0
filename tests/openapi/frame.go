package openapi

import (
	"fmt"
	"strings"

	"github.com/weirmq/weir/tests/contract"
)

// socket is one WebSocket: the server answers its messages in their order.
type socket struct {
	open []sentMessage // those that are not answered yet
}

// sentMessage is one that a client has sent.
type sentMessage struct {
	x     *contract.Exchange
	unfit error // what the document has against it
	stray error // what of it is not described
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
		pointer := schemas[x.Event]
		if j.Events++; pointer == "" {
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
		m := sentMessage{x: x}
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
	if len(s.open) == 0 {
		j.wrong(x, "it answers nothing: %.600s", x.Body)
		return
	}
	m := s.open[0]
	s.open = s.open[1:]
	refused := message["op"] == "error"
	_, told := message["warnings"]
	switch {
	case m.unfit != nil && refused:
		j.Unfit++
	case m.unfit != nil:
		j.wrong(m.x, "the message was taken, and the document forbids it: %v\n\tmessage: %.600s", m.unfit, m.x.Body)
	case !refused && told != (m.stray != nil) && !strings.Contains(string(x.Body), "idempotency_key_reused"):
		j.wrong(m.x, "it was answered with a warning: %v; what the document does not know: %v\n\tmessage: %.600s", told, m.stray, m.x.Body)
	}
}
