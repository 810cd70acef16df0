package server

import (
	"net/url"
	"slices"

	"github.com/weirmq/weir/internal/api"
)

// A client who wants no warning but a refusal says so in the query or with a header.
const (
	strictParameter = "strict"
	strictHeader    = "Weir-Strict"
)

// checkQuery warns of the parameters of the request that its route does not know. The
// pages of the dashboard have links of their own.
func (q *request) checkQuery() error {
	if q.path.isPage() {
		return nil
	}
	if _, err := q.strictHeader(); err != nil {
		return err
	}
	if q.r.URL.RawQuery == "" {
		return nil
	}
	v, err := q.query()
	if err != nil {
		return nil // whoever reads it says so
	}
	if _, err := q.queryBool(strictParameter, false); err != nil {
		return err
	}
	known := q.known()
	var stray []string
	for name := range v {
		if name != strictParameter && !slices.Contains(known, name) {
			stray = append(stray, name)
		}
	}
	slices.Sort(stray)
	for _, name := range stray {
		q.warnings.Parameter(name, known)
	}
	return q.strict()
}

// strict refuses a request that there are warnings about, if its client wants that.
func (q *request) strict() error {
	if len(q.warnings) == 0 {
		return nil
	}
	strict, err := q.wantsStrict()
	if err != nil || !strict {
		return err
	}
	refusal := q.warnings.Refusal()
	q.warnings = q.warnings[:0]
	return refusal
}

func (q *request) wantsStrict() (bool, error) {
	if strict, err := q.strictHeader(); err != nil || strict {
		return strict, err
	}
	return q.queryBool(strictParameter, false)
}

func (q *request) strictHeader() (bool, error) {
	switch text := q.r.Header.Get(strictHeader); text {
	case "true", "1":
		return true, nil
	case "", "false", "0":
		return false, nil
	default:
		return false, api.Errorf(api.CodeInvalidRequest, "header %s is %q; use true, 1, false or 0", strictHeader, text)
	}
}

// warnInHead puts warnings into the head of an answer whose body has no place for them.
func (q *request) warnInHead() {
	for i := range q.warnings {
		q.w.Header().Add("Weir-Warning", q.warnings[i].Code+" "+url.PathEscape(q.warnings[i].Name))
	}
}
