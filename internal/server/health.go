package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/weirmq/weir/internal/api"
)

func (s *Server) uptime() int64 { return time.Since(s.started).Milliseconds() }

// getHealth answers 200 for as long as the process serves.
func (q *request) getHealth() error {
	q.out = append(q.out[:0], `{"status":"ok","version":`...)
	q.out = strconv.AppendQuote(q.out, q.s.version)
	q.out = append(q.out, `,"uptime_ms":`...)
	q.out = strconv.AppendInt(q.out, q.s.uptime(), 10)
	q.out = append(q.appendUpstream(q.out), '}')
	return q.send(http.StatusOK)
}

// getReady answers 200 once the state is rebuilt and until the server drains, even
// while writes are refused for lack of disk space: deletes and acks have to get
// through, so the server must not be taken out of service.
func (q *request) getReady() error {
	if err := q.s.ready(q); err != nil {
		return err
	}
	q.out = append(q.out[:0], `{"status":"ready","wal_replay_complete":true,"topics":`...)
	q.out = strconv.AppendInt(q.out, int64(q.eng.TopicCount()), 10)
	if ok, reason := q.eng.Writable(); !ok {
		q.out = append(q.out, `,"writable":false,"reason":`...)
		q.out = api.AppendString(q.out, reason)
	}
	if r := q.eng.ReplicaMetrics(); r.On {
		q.out = append(q.out, `,"replica":{"role":"leader","term":`...)
		q.out = strconv.AppendUint(q.out, r.Term, 10)
		q.out = append(q.out, `,"lag_ms":`...)
		q.out = strconv.AppendInt(q.out, r.Lag.Milliseconds(), 10)
		q.out = append(q.out, '}')
	}
	q.out = append(q.out, '}')
	return q.send(http.StatusOK)
}
