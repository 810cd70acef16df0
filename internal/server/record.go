package server

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/weirmq/weir/internal/api"
)

// Headers of answers that show records and no JSON object with them.
const (
	headSeq       = "Weir-Seq"
	headTS        = "Weir-Ts"
	headNext      = "Weir-Next-From-Seq"
	headHead      = "Weir-Head-Seq"
	headCaughtUp  = "Weir-Caught-Up"
	headTombstone = "Weir-Tombstone"
)

// getRecord answers with the payload of one record: the bytes that were written, under
// their own Content-Type, and the attributes of a CloudEvent as headers.
func (q *request) getRecord() error {
	name, text := q.topic(), q.path.seg[4]
	seq, err := strconv.ParseUint(text, 10, 64)
	if err != nil || seq == 0 {
		if !q.eng.TopicExists(name) {
			return api.TopicNotFound(name)
		}
		return api.Errorf(api.CodeInvalidRequest, "%.100q is no number of a record; they count from 1", text)
	}
	structured := q.wantsEvents(api.TypeEvent)
	batch := q.wantsEvents(api.TypeEvents)
	found := false
	h := q.w.Header()
	req := api.DiffRequest{FromSeq: seq - 1, Limit: 1, MaxBatchBytes: 1}
	_, err = q.eng.Diff(q.r.Context(), name, &req, func(r *api.Record) {
		if r.Seq != seq {
			return
		}
		found = true
		h[headTS] = []string{strconv.FormatInt(r.TS, 10)}
		q.out = q.out[:0]
		switch {
		case structured:
			q.out = api.AppendEvent(q.out, name, r)
			h.Set("Content-Type", api.TypeEvent)
		case batch:
			q.out = append(api.AppendNextEvent(append(q.out, '['), name, r), ']')
			h.Set("Content-Type", api.TypeEvents)
		default:
			p := api.ReadPayload(r)
			q.out = append(q.out, p.Body...)
			api.EventHeaders(name, r, &p, h.Set)
			h["Content-Type"] = nil // none, instead of one that is guessed
			if p.ContentType != "" {
				h.Set("Content-Type", p.ContentType)
			}
		}
	})
	if err != nil {
		return err
	}
	if !found {
		return api.Errorf(api.CodeNotFound, "topic %q has no record %d: it was deleted, acked or lost, or is not written yet", name, seq).With("topic", name).With("seq", seq)
	}
	h[headSeq] = []string{strconv.FormatUint(seq, 10)}
	// A browser that shows a record must not take it for a page of this server.
	h["X-Content-Type-Options"] = []string{"nosniff"}
	h["Content-Security-Policy"] = []string{"sandbox; default-src 'none'"}
	return q.sendAs(http.StatusOK)
}

// wantsEvents reports whether the client asks for CloudEvents of the given type by name.
func (q *request) wantsEvents(kind string) bool {
	for _, accept := range q.r.Header["Accept"] {
		if !strings.Contains(accept, "cloudevents") {
			continue
		}
		for item := range strings.SplitSeq(accept, ",") {
			name, params, _ := strings.Cut(item, ";")
			if strings.EqualFold(strings.TrimSpace(name), kind) && weight(params) > 0 {
				return true
			}
		}
	}
	return false
}

// sendEventBatch ends an answer to a diff that is an array of CloudEvents; what a diff says
// besides is in headers.
func (q *request) sendEventBatch(res *api.DiffResult) error {
	h := q.w.Header()
	h.Set("Content-Type", api.TypeEvents)
	h[headNext] = []string{strconv.FormatUint(res.NextFromSeq, 10)}
	h[headHead] = []string{strconv.FormatUint(res.HeadSeq, 10)}
	h[headCaughtUp] = []string{strconv.FormatBool(res.CaughtUp())}
	if res.Tombstone != nil {
		h[headTombstone] = []string{string(api.AppendTombstone(nil, res.Tombstone))}
	}
	q.out = append(q.out, ']')
	return q.sendAs(http.StatusOK)
}
