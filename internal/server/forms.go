package server

import (
	"net/http"
	"strings"

	"github.com/weirmq/weir/internal/api"
)

// form is what the body of a write is.
type form uint8

const (
	formJSON   form = iota // the object with records; also of all other calls
	formOther              // nothing that is known
	formBytes              // a record's payload
	formText               // likewise, UTF-8
	formLines              // a record's data on each line
	formEvent              // a CloudEvent in binary mode: the data alone
	formEvents             // a CloudEvent in structured mode
	formBatch              // an array of them
)

// formOf says what the body of a write with this header is.
func formOf(h http.Header) form {
	kind := h.Get("Content-Type")
	isEvent := h["Ce-Specversion"] != nil
	if !isEvent && isJSON(kind) {
		return formJSON
	}
	if kind == api.TypeBytes && !isEvent {
		return formBytes
	}
	media, charset := api.MediaType(kind)
	switch {
	case media == api.TypeEvent && api.IsUTF8(charset):
		return formEvents
	case media == api.TypeEvents && api.IsUTF8(charset):
		return formBatch
	case strings.HasPrefix(media, "application/cloudevents"):
		return formOther
	case isEvent && (media != "" || kind == ""):
		return formEvent
	case media == api.TypeBytes:
		return formBytes
	case media == "text/plain" && api.IsUTF8(charset):
		return formText
	case media == "application/x-ndjson" && api.IsUTF8(charset):
		return formLines
	}
	return formOther
}

// isJSON reports whether a Content-Type is what calls with a JSON object accept.
func isJSON(kind string) bool {
	return kind == "application/json" || strings.HasPrefix(strings.TrimLeft(kind, " \t"), "application/json")
}

// known are the query parameters of the route for the form of the request's body.
func (q *request) known() []string {
	if q.form == formJSON {
		return q.route.query
	}
	return api.WriteParameters
}

// options reads what a body that is no JSON object cannot say.
func (q *request) options() (api.WriteOptions, error) {
	v, err := q.query()
	if err != nil || v == nil {
		return api.WriteOptions{}, err
	}
	return api.DecodeWriteOptions(v)
}

// decodeForm makes a write of a body that is neither the JSON object nor lines.
func (q *request) decodeForm(w *api.WriteRequest) error {
	o, err := q.options()
	if err != nil {
		return err
	}
	lim, kind := &q.s.limits, strings.TrimSpace(q.r.Header.Get("Content-Type"))
	switch q.form {
	case formBytes:
		err = api.DecodeBytes(q.body, kind, lim, w)
	case formText:
		err = api.DecodeText(q.body, kind, lim, w)
	case formEvent:
		err = api.DecodeEvent(q.body, kind, q.r.Header, lim, w)
	default:
		err = api.DecodeEvents(q.body, q.form == formBatch, lim, w)
	}
	if err != nil {
		return err
	}
	o.Apply(w)
	return nil
}
