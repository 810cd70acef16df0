package api

import "slices"

// SocketOp is what a WebSocket message asks for.
type SocketOp uint8

// MaxRequestIDBytes bounds a request_id, which waits for the socket with the answer.
const MaxRequestIDBytes = 64 << 10

// The messages of contract 13 that a client sends.
const (
	SocketSubscribe SocketOp = iota + 1
	SocketUnsubscribe
	SocketPublish
	SocketPing
	SocketClaim
	SocketAck
	SocketNack
	SocketExtend
)

var socketOps = map[string]SocketOp{
	"subscribe": SocketSubscribe, "unsubscribe": SocketUnsubscribe, "publish": SocketPublish, "ping": SocketPing,
	"claim": SocketClaim, "ack": SocketAck, "nack": SocketNack, "extend": SocketExtend,
}

const acceptOp = "subscribe, unsubscribe, publish, claim, ack, nack, extend or ping"

// socketHead is what a message about a queue has besides the fields of the call.
var socketHead = []string{"op", "request_id", "topic"}

var socketFields = map[SocketOp][]string{
	SocketSubscribe:   slices.Concat([]string{"op", "request_id", "topic", "topics", "from_seq", "tail", "lenient", "relay"}, frameFields),
	SocketUnsubscribe: {"op", "request_id", "topic", "topics"},
	SocketPublish:     slices.Concat([]string{"op", "request_id", "topic", "return_seqs"}, writeFields),
	SocketPing:        {"op", "request_id"},
	SocketClaim:       slices.Concat(socketHead, claimFields),
	SocketAck:         slices.Concat(socketHead, settleFields[SettleAck]),
	SocketNack:        slices.Concat(socketHead, settleFields[SettleNack]),
	SocketExtend:      slices.Concat(socketHead, settleFields[SettleExtend]),
}

// SocketMessage is one message of a WebSocket client.
type SocketMessage struct {
	Op        SocketOp
	RequestID []byte // compact JSON, a copy; nil if there is none
	Topic     string // of a publish, or the queue
	Seqs      bool   // a publish wants its numbers returned
	// Watch is a subscribe; it has no topics if the message had neither topic nor
	// topics.
	Watch WatchRequest
	Names []string // of an unsubscribe, as asked for
	// Claim and Settle are those of a claim, and of an ack, nack or extend; Wrong is what is
	// wrong with the latter besides the JSON. CheckClaim has not been made.
	Claim  ClaimRequest
	Settle SettleRequest
	Wrong  error
}

// CodeInvalidJSON and the two below appear only in WebSocket errors.
const (
	CodeInvalidJSON        Code = "invalid_json"
	CodeUnsupportedMessage Code = "unsupported_message"
	CodeServerShuttingDown Code = "server_shutting_down"
)

// DecodeSocket reads one message. A publish is read into w, whose records point into
// body as with DecodeWrite and are not checked by CheckWrite. Errors have the code
// invalid_json.
func DecodeSocket(body []byte, lim *Limits, w *WriteRequest, warn *Warnings) (SocketMessage, error) {
	m := SocketMessage{Seqs: true}
	s := scanner{b: body, index: -1}
	m.Op = s.socketOp()
	s.end()
	s.i, s.depth, s.scratch, s.warnings = 0, 0, s.scratch[:0], warn
	switch m.Op {
	case SocketSubscribe:
		m.Watch.WatchOptions = WatchOptions{
			Limit: min(DefaultSocketLimit, lim.MaxLimit), MaxBatchBytes: DefaultDiffBytes, HeartbeatMS: DefaultHeartbeatMS,
			IncludeMeta: true, IncludeData: true,
		}
		s.subscribe(lim, &m)
	case SocketUnsubscribe:
		s.unsubscribe(lim, &m)
	default:
		s.publishHead(&m)
	}
	if s.err == nil && m.Op == SocketPublish {
		s.err = readWrite(body, lim, w, socketFields[SocketPublish], warn)
	}
	if s.err == nil && m.Op.ofQueue() {
		s.i, s.depth, s.scratch = 0, 0, s.scratch[:0]
		s.ofQueue(lim, &m)
	}
	if s.err != nil {
		s.err.Code = CodeInvalidJSON
		return SocketMessage{}, s.err
	}
	return m, nil
}

// socketOp validates the whole message and returns what it asks for.
func (s *scanner) socketOp() (op SocketOp) {
	var seen uint32
	s.body(nil, func(name []byte) bool {
		if string(name) != "op" {
			return false
		}
		if s.once(&seen, socketOp, "op") {
			start := s.i
			if op = socketOps[string(s.text("op", acceptOp))]; op == 0 {
				s.i = start
				s.wrong("op", acceptOp)
			}
			s.scratch = s.scratch[:0]
		}
		return true
	})
	if seen&socketOp == 0 {
		s.missing("op", acceptOp)
	}
	return op
}

// each calls field for the members of the message, except for request_id, which it
// reads itself; members that field does not know are skipped.
func (s *scanner) each(m *SocketMessage, seen *uint32, field func(name []byte) bool) {
	known := socketFields[m.Op]
	if m.Op == SocketPublish || m.Op.ofQueue() {
		known = nil // whoever reads the other fields warns
	}
	s.body(known, func(name []byte) bool {
		if string(name) != "request_id" {
			return field(name)
		}
		if s.once(seen, socketRequest, "request_id") {
			at, id := s.i, s.raw()
			if len(id) > MaxRequestIDBytes && s.err == nil {
				s.err = Errorf(CodeInvalidRequest, "field \"request_id\" is longer than %d bytes (at byte %d)", MaxRequestIDBytes, at)
			}
			m.RequestID = append([]byte(nil), id...)
		}
		return true
	})
}

func (s *scanner) subscribe(lim *Limits, m *SocketMessage) {
	var seen uint32
	var one WatchTopic
	var named bool
	w := &m.Watch
	s.each(m, &seen, func(name []byte) bool {
		switch string(name) {
		case "topic":
			if s.once(&seen, socketTopic, "topic") && !s.null() {
				named = true
				one.Topic = string(s.text("topic", acceptString))
				s.scratch = s.scratch[:0]
			}
		case "topics":
			if s.once(&seen, watchTopics, "topics") {
				s.topics(lim, w)
			}
		case "from_seq":
			if s.once(&seen, socketFrom, "from_seq") {
				one.FromSeq = s.uint("from_seq", maxUint64)
			}
		case "tail":
			if s.once(&seen, socketTail, "tail") {
				one.Tail = s.bool("tail")
			}
		case "lenient":
			if s.once(&seen, socketLenient, "lenient") {
				w.Lenient = s.bool("lenient")
			}
		case "relay":
			if s.once(&seen, socketRelay, "relay") {
				w.Relay = s.bool("relay")
			}
		default:
			return s.frames(name, &seen, lim, &w.WatchOptions)
		}
		return true
	})
	if named && !w.has(one.Topic) {
		w.Topics = append(w.Topics, one)
	}
}

func (w *WatchRequest) has(topic string) bool {
	for i := range w.Topics {
		if w.Topics[i].Topic == topic {
			return true
		}
	}
	return false
}

// CheckSubscribe checks how many topics a subscribe names, sorts them, and checks that
// none is there twice.
func CheckSubscribe(w *WatchRequest, lim *Limits) error {
	if len(w.Topics) == 0 {
		return Errorf(CodeInvalidRequest, "a subscribe needs field \"topic\" or field \"topics\" with at least one topic")
	}
	return w.settle(lim)
}

func (s *scanner) unsubscribe(lim *Limits, m *SocketMessage) {
	var seen uint32
	const accepted = "an array of strings"
	s.each(m, &seen, func(name []byte) bool {
		switch string(name) {
		case "topic":
			if s.once(&seen, socketTopic, "topic") && !s.null() {
				m.Names = append(m.Names, string(s.text("topic", acceptString)))
				s.scratch = s.scratch[:0]
			}
		case "topics":
			if !s.once(&seen, watchTopics, "topics") {
				return true
			}
			if !s.open('[') {
				s.wrong("topics", accepted)
			}
			for s.element() {
				text := s.text("topics", accepted)
				s.scratch = s.scratch[:0]
				if len(m.Names) <= lim.MaxWatchTopics {
					m.Names = append(m.Names, string(text))
				}
			}
		default:
			return false
		}
		return true
	})
}

// CheckUnsubscribe checks how many topics an unsubscribe names.
func CheckUnsubscribe(names []string, lim *Limits) error {
	switch {
	case len(names) == 0:
		return Errorf(CodeInvalidRequest, "an unsubscribe needs field \"topic\" or field \"topics\" with at least one topic")
	case len(names) > lim.MaxWatchTopics:
		return Errorf(CodeInvalidRequest, "field \"topics\" names more than %d topics; use several messages", lim.MaxWatchTopics)
	case slices.ContainsFunc(names, func(name string) bool { return len(name) > MaxNameBytes }):
		return Errorf(CodeInvalidRequest, "an unsubscribe names a topic with more than %d bytes; no topic has such a name", MaxNameBytes)
	}
	return nil
}

// ofQueue reports whether the message is one of the calls on a queue.
func (op SocketOp) ofQueue() bool { return op >= SocketClaim }

// Settles is the kind of an ack, nack or extend.
func (op SocketOp) Settles() SettleKind { return SettleKind(op - SocketAck) }

// ofQueue reads the members that a call on a queue has over HTTP, too.
func (s *scanner) ofQueue(lim *Limits, m *SocketMessage) {
	if m.Op == SocketClaim {
		m.Claim.Max = 1
		s.claim(lim, &m.Claim, socketFields[SocketClaim])
		return
	}
	st := settleState{badLease: -1, maxEntries: lim.MaxClaim}
	s.settle(m.Op.Settles(), &m.Settle, &st, socketFields[m.Op])
	m.Wrong = st.check(&m.Settle, lim)
}

// publishHead reads the members a publish has in addition to a write's, or a call on a queue
// to that over HTTP, and all of a ping.
func (s *scanner) publishHead(m *SocketMessage) {
	var seen uint32
	s.each(m, &seen, func(name []byte) bool {
		if m.Op == SocketPing {
			return false
		}
		switch string(name) {
		case "topic":
			if s.once(&seen, socketTopic, "topic") {
				m.Topic = string(s.text("topic", acceptString))
				s.scratch = s.scratch[:0]
			}
		case "return_seqs":
			if m.Op != SocketPublish {
				return false
			}
			if s.once(&seen, socketSeqs, "return_seqs") {
				m.Seqs = s.bool("return_seqs")
			}
		default:
			return false
		}
		return true
	})
	if m.Op != SocketPing && seen&socketTopic == 0 {
		s.missing("topic", "the name of the topic")
	}
}
