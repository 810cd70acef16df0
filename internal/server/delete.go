package server

import (
	"net/http"

	"github.com/weirmq/weir/internal/api"
)

// postDelete removes the records that match.
func (q *request) postDelete() error {
	req, err := api.DecodeDelete(q.body, &q.warnings)
	if err != nil {
		return err
	}
	if err := q.strict(); err != nil {
		return err
	}
	if err := api.CheckDelete(&req); err != nil {
		return err
	}
	res, err := q.eng.DeleteRecords(q.r.Context(), q.topic(), &req)
	if err != nil {
		return err
	}
	q.out = api.AppendDeleteResult(q.out[:0], q.topic(), &res, q.millis())
	return q.send(http.StatusOK)
}
