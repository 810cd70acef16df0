package server

import (
	"net/http"

	"github.com/weirmq/weir/internal/api"
)

// postWrites makes many writes to a topic, each with a key and an outcome of its own.
func (q *request) postWrites() error {
	s, name, w := q.s, q.topic(), &q.writes
	if err := api.DecodeWrites(q.body, &s.limits, w, &q.warnings); err != nil {
		return err
	}
	if err := q.strict(); err != nil {
		return err
	}
	strict, err := q.wantsStrict()
	if err != nil {
		return err
	}
	if q.r.Header.Get("Idempotency-Key") != "" {
		return api.Errorf(api.CodeInvalidRequest, "the header Idempotency-Key is for a single write; give each of \"writes\" its \"idempotency_key\"")
	}
	if err := api.CheckWrites(w, &s.limits); err != nil {
		return err
	}
	if err := api.CheckTopicName(name); err != nil {
		if w.Create != nil && !*w.Create {
			return api.TopicNotFound(name)
		}
		return err
	}
	if w.DisableBackpressure {
		defer q.mayTakeLong()()
	}
	out, err := q.writeEach(name, w)
	if err != nil {
		return err
	}
	for i := range out {
		o := &out[i]
		switch {
		case o.Err == nil && o.KeyReused && strict:
			var one api.Warnings
			one.KeyReusedIn(i)
			o.Err = one.Refusal()
		case o.Err == nil && o.KeyReused:
			q.warnings.KeyReusedIn(i)
		case o.Err != nil && q.left(o.Err) && !q.key.stands():
			o.Err = errKey()
		case o.Err != nil:
			o.Err = s.answerTo(q.r.Context(), o.Err)
		}
	}
	q.out = api.AppendWriteOutcomes(q.out[:0], name, out, q.millis())
	return q.send(http.StatusOK)
}

// writeEach has the engine make those of the writes that are valid.
func (q *request) writeEach(name string, w *api.WritesRequest) ([]api.WriteOutcome, error) {
	ctx, size := q.r.Context(), len(q.body)
	if err := q.s.beforeLarge(ctx, size); err != nil {
		return nil, err
	}
	defer q.s.afterLarge(size)
	out := make([]api.WriteOutcome, len(w.Writes))
	var valid []api.WriteRequest
	invalid := false
	for i := range w.Writes {
		if out[i].Err = api.CheckWrite(&w.Writes[i], &q.s.limits); out[i].Err != nil {
			invalid = true
		}
	}
	if !invalid {
		return q.eng.WriteEach(ctx, name, w.Writes)
	}
	for i := range w.Writes {
		if out[i].Err == nil {
			valid = append(valid, w.Writes[i])
		}
	}
	done, err := q.eng.WriteEach(ctx, name, valid)
	for i := range out {
		if out[i].Err == nil && len(done) > 0 {
			out[i], done = done[0], done[1:]
		}
	}
	return out, err
}
