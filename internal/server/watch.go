package server

import (
	"context"
	"net/http"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
)

// postWatch creates a watch session, which belongs to the key that created it.
func (q *request) postWatch() error {
	s := q.s
	lenient, err := q.queryBool("lenient", false)
	if err != nil {
		return err
	}
	relay, err := q.queryBool("relay", false)
	if err != nil {
		return err
	}
	req, err := api.DecodeWatch(q.body, &s.limits, s.minHeartbeatMS, &q.warnings)
	if err != nil {
		return err
	}
	if err := q.strict(); err != nil {
		return err
	}
	req.Lenient = lenient
	if err := q.key.allowsAll(req.Topics); err != nil {
		return err
	}
	var res api.WatchResult
	if req.Relay = relay; relay {
		res, err = q.eng.Positions(&req)
		res.Keyed = q.key != nil
	} else {
		res, err = q.eng.OpenSession(&req, q.key.owner())
	}
	if err != nil {
		return err
	}
	q.out = api.AppendWatchResult(q.out[:0], &res, q.millis())
	return q.send(http.StatusOK)
}

// allowsAll refuses the first topic outside the key's prefixes.
func (k *apiKey) allowsAll(topics []api.WatchTopic) error {
	for i := range topics {
		if !k.allows(topics[i].Topic) {
			return errBodyPrefix("topics", topics[i].Topic)
		}
	}
	return nil
}

// getWatch opens a stream on a session. A client that had a stream of one that is gone
// is told so on a stream: an EventSource that gets 404 never connects again.
func (q *request) getWatch() error {
	if err := q.acceptsEvents(); err != nil {
		return err
	}
	if err := q.namesEvents(); err != nil {
		return err
	}
	err := q.getSession()
	if api.IsCode(err, api.CodeNotFound) && q.r.Header.Get("Last-Event-ID") != "" {
		return q.sendEvents(sessionGone)
	}
	return err
}

func (q *request) getSession() error {
	wid := q.path.seg[2]
	owner, err := q.eng.SessionOwner(wid)
	if err != nil {
		return err
	}
	key, err := q.sessionKey(owner)
	if err != nil {
		return err
	}
	return q.sendStream(key, func(func(error)) (watchSource, error) {
		return q.eng.OpenStream(wid, q.r.Header.Get("Last-Event-ID"))
	})
}

// watchSource is the stream of a watch session.
type watchSource interface {
	eventSource
	LimitReads(limit func(most int64) int64)
	Heartbeat() time.Duration
	Close()
}

// sendStream answers with a stream of a watch session, which counts for key. What open is
// given ends it.
func (q *request) sendStream(key *apiKey, open func(end func(error)) (watchSource, error)) error {
	if q.r.Method == http.MethodHead {
		return q.headStream(key)
	}
	q.outlive()
	release, err := q.openStream(key)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(q.r.Context())
	src, err := open(end)
	if err != nil {
		end(nil)
		release()
		return err
	}
	stream := q.newEventStream(src.Heartbeat())
	stream.ctx = ctx
	src.LimitReads(stream.room.ask)
	q.stream = func() {
		stream.run(src, goodbye, func() {
			src.Close()
			end(nil)
			release()
		})
	}
	return nil
}

// sessionKey returns the key that created the session, if the request has it.
func (q *request) sessionKey(owner engine.Owner) (*apiKey, error) {
	if q.s.keys == nil {
		return nil, nil
	}
	key, err := q.keyOf(true)
	if err != nil {
		return nil, err
	}
	if owner != key.owner() {
		return nil, api.Errorf(api.CodeUnauthorized, "the watch session belongs to another key; create one with this key")
	}
	return key, nil
}

// keepSessions ends the watch sessions of before the restart whose key is gone since.
func (s *Server) keepSessions(e *engine.Engine) {
	if s.keys == nil {
		return
	}
	known := make(map[ownerHalf]bool)
	for k := range s.keys.all() {
		if k.stands() {
			known[halfOf(k.owner())] = true
		}
	}
	e.KeepSessions(func(o engine.Owner) bool { return known[halfOf(o)] })
}
