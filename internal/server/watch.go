package server

import (
	"net/http"

	"github.com/weirmq/weir/internal/api"
)

// postWatch creates a watch session, which belongs to the key that created it.
func (q *request) postWatch() error {
	s := q.s
	lenient, err := q.queryBool("lenient", false)
	if err != nil {
		return err
	}
	req, err := api.DecodeWatch(q.body, &s.limits, s.minHeartbeatMS)
	if err != nil {
		return err
	}
	req.Lenient = lenient
	if err := q.key.allowsAll(req.Topics); err != nil {
		return err
	}
	res, err := q.eng.OpenSession(&req, q.key)
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

// getWatch opens a stream on a session.
func (q *request) getWatch() error {
	if err := q.acceptsEvents(); err != nil {
		return err
	}
	wid := q.path.seg[2]
	owner, err := q.eng.SessionOwner(wid)
	if err != nil {
		return err
	}
	key, err := q.sessionKey(owner)
	if err != nil {
		return err
	}
	if q.r.Method == http.MethodHead {
		return q.headStream(key)
	}
	release, err := q.openStream(key)
	if err != nil {
		return err
	}
	src, err := q.eng.OpenStream(wid, q.r.Header.Get("Last-Event-ID"))
	if err != nil {
		release()
		return err
	}
	stream := q.newEventStream(src.Heartbeat())
	q.stream = func() {
		defer release()
		defer src.Close()
		stream.run(src, goodbye)
	}
	return nil
}

// sessionKey returns the key that created the session, if the request has it.
func (q *request) sessionKey(owner any) (*apiKey, error) {
	if q.s.keys == nil {
		return nil, nil
	}
	key, err := q.s.keys.authenticate(q.r, true)
	if err != nil {
		return nil, err
	}
	if owner != any(key) {
		return nil, api.Errorf(api.CodeUnauthorized, "the watch session belongs to another key; create one with this key")
	}
	return key, nil
}
