package server

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/pieces"
	"github.com/weirmq/weir/internal/relay"
)

const (
	// socketAnswers is how many answers may wait for the socket, and socketAnswerBytes
	// their total size, before the next message is read.
	socketAnswers     = 4
	socketAnswerBytes = 64 << 10
	// socketFarewell is how long the last message and the close may take.
	socketFarewell = 5 * time.Second
)

// getSocket turns the request into a WebSocket.
func (q *request) getSocket() error {
	if err := q.upgrades(); err != nil {
		return err
	}
	strict, err := q.wantsStrict()
	if err != nil {
		return err
	}
	release, err := q.openStream(q.key)
	if err != nil {
		return err
	}
	conn, err := q.accept()
	if err != nil {
		release()
		return nil
	}
	k := q.newSocket(conn, strict)
	k.key, k.eng, k.src = q.key, q.eng, q.eng.NewSocket()
	q.stream = func() {
		defer release()
		k.run()
	}
	return nil
}

// newSocket returns a socket without a source. It ends with the request's context, and so with
// its key and with the lease of a server that may have to give up the lead.
func (q *request) newSocket(conn *websocket.Conn, strict bool) *socket {
	return &socket{s: q.s, held: q.s.share(), conn: conn, ctx: q.r.Context(), strict: strict, more: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// accept makes the connection a WebSocket; its errors are answered.
func (q *request) accept() (*websocket.Conn, error) {
	q.warnInHead()
	q.sent, q.status = true, http.StatusSwitchingProtocols
	// hosts.check deals with origins.
	conn, err := websocket.Accept(q.w, q.r, &websocket.AcceptOptions{InsecureSkipVerify: true, Subprotocols: []string{api.SocketProtocol}})
	if err != nil {
		q.s.log.Debug("a WebSocket was not opened", "error", err)
	}
	return conn, err
}

// upgrades refuses what is not a WebSocket handshake.
func (q *request) upgrades() error {
	r := q.r
	nonce, err := base64.StdEncoding.DecodeString(strings.TrimSpace(r.Header.Get("Sec-WebSocket-Key")))
	if r.Method == http.MethodGet && r.ProtoMajor == 1 && r.ProtoMinor >= 1 && isUpgrade(r) &&
		r.Header.Get("Sec-WebSocket-Version") == "13" && len(r.Header.Values("Sec-WebSocket-Key")) == 1 && err == nil && len(nonce) == 16 {
		return nil
	}
	return api.Errorf(api.CodeInvalidRequest, "this path is a WebSocket; send a GET over HTTP/1.1 with Upgrade: websocket, version 13")
}

func isUpgrade(r *http.Request) bool {
	return hasToken(r.Header, "Connection", "upgrade") && hasToken(r.Header, "Upgrade", "websocket")
}

// hasToken reports whether a comma-separated header contains the word.
func hasToken(h http.Header, name, word string) bool {
	for _, v := range h.Values(name) {
		for item := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(item), word) {
				return true
			}
		}
	}
	return false
}

// socket is one WebSocket. The goroutine of its request reads messages and carries them
// out; a second one writes answers and records, and each claim that waits has one. run waits
// for all of them.
type socket struct {
	s      *Server
	conn   *websocket.Conn
	ctx    context.Context // of its request
	key    *apiKey
	eng    *engine.Engine   // nil on a relay
	out    *relay.Publisher // of a relay; nil: it has an engine
	caller relay.Caller     // of a relay
	claims claims
	held   share // of the frame that the writer sends

	strict   bool         // the client wants no warning but a refusal
	warnings api.Warnings // of the message being handled

	more chan struct{} // an answer was queued
	room chan struct{} // an answer was taken

	// mu keeps the order on the wire: changing the stream and queueing the answer
	// happen together under it, and so does taking the next message.
	mu      sync.Mutex
	src     socketSource
	answers []answer
	bytes   int // in answers
}

// answer waits for the socket. unsent, if it is not nil, takes back what it says in case that
// it is not sent. room is what it takes of Server.answers.
type answer struct {
	msg    []byte
	unsent func()
	room   share
}

// drop is the end of an answer that is not sent.
func (a *answer) drop() {
	if a.unsent != nil {
		a.unsent()
	}
	a.room.holds(0)
}

// socketSource is what a WebSocket sends besides its answers.
type socketSource interface {
	eventSource
	Subscribe(ctx context.Context, req *api.WatchRequest) ([]api.WatchPosition, error)
	Unsubscribe(topics []string)
	LimitReads(limit func(most int64) int64)
	Close()
}

// end closes the socket because its client may not have it any more. It does not wait for
// that.
func (k *socket) end(error) {
	// The client may not answer the close.
	go func() { _ = k.conn.Close(websocket.StatusPolicyViolation, "the key may not read this any more") }()
}

// run serves the socket until either side closes it.
func (k *socket) run() {
	defer k.src.Close()
	k.src.LimitReads(k.held.ask)
	defer k.takeBack()
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	var writer sync.WaitGroup
	writer.Go(func() {
		defer cancel()
		k.s.guard(func() { k.send(ctx) })
	})
	k.conn.SetReadLimit(k.s.limits.MaxBodyBytes)
	for k.receive(ctx) {
	}
	cancel()
	writer.Wait()
	k.claims.running.Wait()
	// The peer may already be gone.
	_ = k.conn.CloseNow()
}

// send writes what is queued until ctx ends, the client stops reading for
// streamPatience, or the server stops.
func (k *socket) send(ctx context.Context) {
	defer k.held.holds(0)
	var buf []byte
	for {
		select {
		case <-k.s.drained:
			k.farewell(ctx)
			return
		default:
		}
		var err error
		var of answer
		if buf, of, err = k.next(ctx, buf[:0]); err != nil {
			if ctx.Err() == nil {
				k.s.log.Error("a WebSocket ends early", "cause", err)
				_ = k.conn.Close(websocket.StatusInternalError, "the server could not read a record")
			}
			return
		}
		if len(buf) > 0 {
			if !k.write(ctx, buf) {
				of.drop()
				return
			}
			of.room.holds(0)
			k.held.holds(0)
			continue
		}
		buf = nil
		select {
		case <-k.src.Ready():
		case <-k.more:
		case <-k.s.drained:
		case <-ctx.Done():
			return
		}
	}
}

// next returns the next message to send: that of an answer or, if there is none, what the
// stream has.
func (k *socket) next(ctx context.Context, buf []byte) (msg []byte, of answer, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.answers) == 0 {
		msg, err = k.src.Next(ctx, buf)
		k.held.holds(len(msg))
		return msg, answer{}, err
	}
	first := k.answers[0]
	k.bytes -= len(first.msg)
	k.answers[0] = answer{}
	k.answers = k.answers[1:]
	wake(k.room)
	return append(buf, first.msg...), first, nil
}

// takeBack takes back what the answers say that are left when nobody sends or queues any more.
func (k *socket) takeBack() {
	for i := range k.answers {
		k.answers[i].drop()
	}
}

func (k *socket) write(ctx context.Context, msg []byte) bool {
	err := pieces.Write(ctx, k.conn, msg, streamPatience)
	if errors.Is(err, pieces.ErrNotTaken) {
		k.s.droppedSlow()
	}
	return err == nil
}

// farewell tells the client that the server is stopping, and closes the socket.
func (k *socket) farewell(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, socketFarewell)
	defer cancel()
	bye := api.AppendSocketError(nil, nil, api.Errorf(api.CodeServerShuttingDown, goodbyeText))
	if k.conn.Write(ctx, websocket.MessageText, bye) == nil {
		// The client may not answer the close.
		_ = k.conn.Close(websocket.StatusGoingAway, "the server is shutting down")
	}
}

// wake puts a token into a channel of capacity 1 unless it has one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// ready waits until there is room for the next answer. Only the reader queues answers, and
// claims that have waited, of which there are few.
func (k *socket) ready(ctx context.Context) bool {
	for {
		k.mu.Lock()
		free := len(k.answers) < socketAnswers && k.bytes < socketAnswerBytes
		k.mu.Unlock()
		if free {
			return true
		}
		select {
		case <-k.room:
		case <-ctx.Done():
			return false
		}
	}
}

// queue appends an answer to the others; mu is held.
func (k *socket) queue(msg []byte) { k.queueAnswer(answer{msg: msg}) }

func (k *socket) queueAnswer(a answer) {
	k.answers = append(k.answers, a)
	k.bytes += len(a.msg)
	wake(k.more)
}

func (k *socket) answer(msg []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue(msg)
}

func (k *socket) refuse(requestID []byte, err error) {
	k.answer(api.AppendSocketError(nil, requestID, k.asError(err)))
}

func (k *socket) asError(err error) *api.Error {
	e := k.s.answerTo(context.Background(), err)
	if e.Code == api.CodeInternal {
		k.s.faults.add("method", "WebSocket", "path", "/v0/ws", "error", e.Message, "cause", e.Err)
	}
	return e
}

// receive reads one message and does what it asks; it returns false once the socket
// ends.
func (k *socket) receive(ctx context.Context) bool {
	if !k.ready(ctx) {
		return false
	}
	kind, r, err := k.conn.Reader(ctx)
	if err != nil {
		return false
	}
	if kind != websocket.MessageText {
		if _, err := io.Copy(io.Discard, r); err != nil {
			return false
		}
		k.refuse(nil, api.Errorf(api.CodeUnsupportedMessage, "binary messages are not supported; send JSON as text"))
		return true
	}
	var in inbox
	defer in.free(k.s)
	if refused, err := in.read(k.s, r, func() { _ = k.conn.CloseNow() }); err != nil {
		return false
	} else if refused != nil {
		k.refuse(nil, refused)
		return true
	}
	k.handle(ctx, in.body)
	return true
}

// inbox holds one message under max_inflight_bytes.
type inbox struct {
	body     []byte
	block    *block
	reserved int64
}

// read reads a message to its end. One that does not fit under max_inflight_bytes is
// skipped and refused. One that needs more than a small block has to come as fast as a body, or
// it is cut: what it takes others need.
func (in *inbox) read(s *Server, r io.Reader, cut func()) (refused, err error) {
	var buf []byte
	var pace pacer
	var slow *time.Timer
	n := 0
	for {
		if n == len(buf) {
			if n > 0 && slow == nil {
				pace.start, slow = time.Now(), time.AfterFunc(paceWindow, cut)
				defer slow.Stop()
			}
			size := min(int64(max(4*len(buf), smallBody)), s.limits.MaxBodyBytes+1)
			if !s.inflight.take(size-int64(len(buf)), s.limits.MaxInflightBytes) {
				if slow != nil {
					slow.Stop() // what is skipped takes nothing
				}
				in.free(s)
				*in = inbox{}
				_, err := io.Copy(io.Discard, r)
				return api.OverLimit("max_inflight_bytes", s.limits.MaxInflightBytes), err
			}
			in.reserved = size
			next := newBlock(int(size))
			copy(next.b, buf[:n])
			if in.block != nil {
				in.block.free()
			}
			in.block, buf = next, next.b[:size]
		}
		got, err := r.Read(buf[n:])
		n += got
		if slow != nil {
			now := time.Now()
			slow.Reset(pace.deadline(got, now).Sub(now))
		}
		if err == io.EOF {
			in.body = buf[:n]
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (in *inbox) free(s *Server) {
	if in.block != nil {
		in.block.free()
	}
	s.inflight.give(in.reserved)
}

// handle carries out a message.
func (k *socket) handle(ctx context.Context, body []byte) {
	w := writePool.Get().(*api.WriteRequest)
	defer func() {
		w.Reset()
		writePool.Put(w)
	}()
	k.warnings = k.warnings[:0]
	m, err := api.DecodeSocket(body, &k.s.limits, w, &k.warnings)
	if err != nil {
		k.refuse(nil, err)
		return
	}
	if err := k.refusal(); err != nil {
		k.refuse(m.RequestID, err)
		return
	}
	switch m.Op {
	case api.SocketSubscribe:
		k.subscribe(ctx, &m)
	case api.SocketUnsubscribe:
		k.unsubscribe(&m)
	case api.SocketPublish:
		if k.out != nil {
			k.passOn(ctx, body, m.RequestID)
			return
		}
		k.publish(ctx, &m, w, len(body))
	case api.SocketClaim:
		k.claim(ctx, &m, body)
	case api.SocketAck, api.SocketNack, api.SocketExtend:
		k.settle(ctx, &m, body)
	default:
		k.answer(k.warnings.Append(api.AppendPong(nil, m.RequestID)))
	}
}

// refusal is that of the warnings about the message, if the client wants it.
func (k *socket) refusal() error {
	if !k.strict {
		return nil
	}
	return k.warnings.Refusal()
}

var writePool = sync.Pool{New: func() any { return new(api.WriteRequest) }}

func (k *socket) subscribe(ctx context.Context, m *api.SocketMessage) {
	err := api.CheckSubscribe(&m.Watch, &k.s.limits)
	if !k.key.has(scopeRead) {
		err = errScope(scopeRead)
	}
	if err == nil {
		err = k.key.allowsAll(m.Watch.Topics)
	}
	if err != nil {
		k.refuse(m.RequestID, err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	topics, err := k.src.Subscribe(ctx, &m.Watch)
	if err != nil {
		k.queue(api.AppendSocketError(nil, m.RequestID, k.asError(err)))
		return
	}
	k.queue(k.warnings.Append(api.AppendSubscribed(nil, m.RequestID, topics)))
}

func (k *socket) unsubscribe(m *api.SocketMessage) {
	if err := api.CheckUnsubscribe(m.Names, &k.s.limits); err != nil {
		k.refuse(m.RequestID, err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.src.Unsubscribe(m.Names)
	k.queue(k.warnings.Append(api.AppendUnsubscribed(nil, m.RequestID, m.Names)))
}

func (k *socket) publish(ctx context.Context, m *api.SocketMessage, w *api.WriteRequest, size int) {
	start := time.Now()
	if err := k.mayPublish(m.Topic, w); err != nil {
		k.refuse(m.RequestID, err)
		return
	}
	res, err := k.s.append(ctx, k.eng, m.Topic, w, size)
	if err != nil {
		k.refuse(m.RequestID, err)
		return
	}
	if res.KeyReused {
		k.warnings.KeyReused()
		if err := k.refusal(); err != nil {
			k.refuse(m.RequestID, err)
			return
		}
	}
	k.answer(k.warnings.Append(api.AppendSocketAck(nil, m.RequestID, m.Topic, &res, m.Seqs, since(start))))
}

// mayPublish makes the checks of a write that precede the engine's.
func (k *socket) mayPublish(topic string, w *api.WriteRequest) error {
	need := scopeWrite
	if w.Config != nil {
		need |= scopeAdmin
	}
	if !k.key.has(need) {
		return errScope(need)
	}
	if !k.key.allows(topic) {
		return errBodyPrefix("topic", topic)
	}
	if w.Config != nil && k.key != nil {
		if err := checkInlineConfig(k.eng, k.key, topic, w); err != nil {
			return err
		}
	}
	return api.CheckWrite(w, &k.s.limits)
}
