package server

import (
	"net/http"
	"slices"

	"github.com/weirmq/weir/internal/api"
)

// putTopic creates a topic or replaces its config.
func (q *request) putTopic() error {
	name := q.topic()
	cfg, cerr := api.DecodeConfig(q.body, &q.warnings)
	if cerr != nil {
		return cerr
	}
	if err := q.strict(); err != nil {
		return err
	}
	if err := q.key.allowsDeadLetter(&cfg); err != nil {
		return err
	}
	if err := api.CheckTopicName(name); err != nil {
		return err
	}
	if err := api.CheckConfig(name, &cfg); err != nil {
		return err
	}
	res, err := q.eng.PutTopic(q.r.Context(), name, cfg)
	if err != nil {
		return err
	}
	q.out = api.AppendPutTopic(q.out[:0], name, &res, q.millis())
	status := http.StatusOK
	if res.Created {
		status = http.StatusCreated
	}
	return q.send(status)
}

// postPause stops a queue from handing out jobs.
func (q *request) postPause() error { return q.pause(true) }

// postResume has it hand them out again.
func (q *request) postResume() error { return q.pause(false) }

func (q *request) pause(paused bool) error {
	if err := q.eng.Pause(q.topic(), paused); err != nil {
		return err
	}
	q.out = api.AppendPaused(q.out[:0], q.topic(), paused, q.millis())
	return q.send(http.StatusOK)
}

// deleteTopic deletes a topic with everything in it.
func (q *request) deleteTopic() error {
	ifEmpty, err := q.queryBool("if_empty", false)
	if err != nil {
		return err
	}
	res, err := q.eng.DeleteTopic(q.r.Context(), q.topic(), ifEmpty)
	if err != nil {
		return err
	}
	if q.key.limited() {
		res.RoutersRemoved = slices.DeleteFunc(res.RoutersRemoved, func(name string) bool { return !q.key.allows(name) })
	}
	q.out = api.AppendDeleteTopic(q.out[:0], q.topic(), &res, q.millis())
	return q.send(http.StatusOK)
}
