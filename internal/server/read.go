package server

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/weirmq/weir/internal/api"
)

// postDiff reads after a cursor, as a long poll if requested.
func (q *request) postDiff() error {
	req, err := api.DecodeDiff(q.body, &q.s.limits, &q.warnings)
	if err != nil {
		return err
	}
	if err := q.strict(); err != nil {
		return err
	}
	if req.WaitMS > 0 {
		defer q.mayTakeLong()()
	}
	name, ctx := q.topic(), q.r.Context()
	res, err := q.diff(ctx, name, &req)
	if err != nil && ctx.Err() != nil && q.key.stands() {
		// net/http mistakes a client that will send nothing more for one that is gone;
		// it may still read, so it gets what is available now.
		req.WaitMS = 0
		res, err = q.diff(context.WithoutCancel(ctx), name, &req)
	}
	if err != nil {
		return err
	}
	if q.wantsEvents(api.TypeEvents) {
		return q.sendEventBatch(&res)
	}
	q.out = api.AppendDiffTail(q.out, &res, q.millis())
	return q.send(http.StatusOK)
}

// diff writes the answer to a diff up to its tail into q.out.
func (q *request) diff(ctx context.Context, name string, req *api.DiffRequest) (api.DiffResult, error) {
	if q.wantsEvents(api.TypeEvents) {
		q.out = append(q.out[:0], '[')
		return q.eng.Diff(ctx, name, req, func(r *api.Record) {
			q.room.askOnce(&req.MaxBatchBytes)
			q.out = api.AppendNextEvent(q.out, name, r)
		})
	}
	q.out = api.AppendDiffHead(q.out[:0], name)
	return q.eng.Diff(ctx, name, req, func(r *api.Record) {
		q.room.askOnce(&req.MaxBatchBytes)
		q.out = api.AppendDiffRecord(q.out, r, req, &q.times)
	})
}

// getTopic answers with the state of a topic.
func (q *request) getTopic() error {
	touch, err := q.queryBool("touch", true)
	if err != nil {
		return err
	}
	state, err := q.eng.Topic(q.topic(), touch)
	if err != nil {
		return err
	}
	q.out = api.AppendTopicState(q.out[:0], &state, q.millis())
	return q.send(http.StatusOK)
}

// listTopics answers with one page of the topics that the key may see.
func (q *request) listTopics() error {
	touch, err := q.queryBool("touch", false)
	if err != nil {
		return err
	}
	p, err := q.page()
	if err != nil {
		return err
	}
	list := q.eng.Topics(p.prefix, p.after, p.size, touch, p.allowed)
	q.out = api.AppendTopicList(q.out[:0], &list, q.millis())
	return q.send(http.StatusOK)
}

// page is the part of a list a request asks for, and what of it its key may see.
type page struct {
	prefix, after string
	size          int
	allowed       func(name string) bool // nil: everything
	query         url.Values             // for what only one list has
}

func (q *request) page() (page, error) {
	v, err := q.query()
	if err != nil {
		return page{}, err
	}
	size, err := pageSize(v.Get("page_size"))
	if err != nil {
		return page{}, err
	}
	p := page{prefix: v.Get("prefix"), size: size, allowed: q.allowed(), query: v}
	if cursor := v.Get("cursor"); cursor != "" {
		if p.after, err = api.DecodeCursor(cursor); err != nil {
			return page{}, err
		}
	}
	return p, nil
}

// allowed is which names the key may see; nil: all.
func (q *request) allowed() func(name string) bool {
	if q.key.limited() {
		return q.key.allows
	}
	return nil
}

// pageSize reads the page_size of a list; if absent it is the default.
func pageSize(s string) (int, error) {
	if s == "" {
		return api.DefaultPageSize, nil
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, api.Errorf(api.CodeInvalidRequest, "query parameter page_size is %q; use a whole number from 1 to %d", s, api.MaxPageSize)
	}
	return int(min(max(n, 1), api.MaxPageSize)), nil
}
