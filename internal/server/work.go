package server

import (
	"context"
	"net/http"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
)

// workBeat is how long a work stream may be silent.
const workBeat = 15 * time.Second

// getWork pushes jobs of a queue to the client.
func (q *request) getWork() error {
	if err := q.acceptsEvents(); err != nil {
		return err
	}
	if err := q.namesEvents(); err != nil {
		return err
	}
	query, err := q.query()
	if err != nil {
		return err
	}
	req, err := api.DecodeWork(query, &q.s.limits)
	if err != nil {
		return err
	}
	name := q.topic()
	q.outlive()
	work, err := q.eng.OpenWork(q.r.Context(), name, &req)
	if err != nil {
		return err
	}
	if q.r.Method == http.MethodHead {
		work.Close()
		return q.headStream(q.key)
	}
	release, err := q.openStream(q.key)
	if err != nil {
		work.Close()
		return err
	}
	stream := q.newEventStream(workBeat)
	work.LimitReads(stream.room.ask)
	q.stream = func() {
		stream.run(&workSource{Work: work, name: name}, string(api.AppendWorkGoodbye(nil, name, goodbyeText)), func() {
			work.Close()
			release()
		})
	}
	return nil
}

// workSource turns the jobs of one connection into events.
type workSource struct {
	*engine.Work
	name  string
	ended bool
}

// Next leases jobs while there is room and any is claimable.
func (w *workSource) Next(ctx context.Context, dst []byte) ([]byte, error) {
	_, err := w.Work.Next(ctx, func(j *api.Job) {
		dst = api.AppendWorkFrame(dst, w.name, j)
	})
	switch {
	case api.IsCode(err, api.CodeTopicNotFound), api.IsCode(err, api.CodeNotAQueue):
		w.ended = true
		return api.AppendWorkEnd(dst, w.name, "the queue is gone; create it again or stop asking for its jobs"), nil
	case api.IsCode(err, api.CodeShuttingDown):
		w.ended = true
		return api.AppendWorkGoodbye(dst, w.name, goodbyeText), nil
	}
	return dst, err
}

// Sent has nothing to do: a job that was not received goes back when the connection
// ends.
func (w *workSource) Sent() {}

// Ended reports that the last event was handed out.
func (w *workSource) Ended() bool { return w.ended }
