package openapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weirmq/weir/tests/contract"
)

// Judge compares what went over the wire with a document.
type Judge struct {
	Counts

	// Problems are where they differ.
	Problems []string

	doc     *Document
	library *library // nil: none is asked
	sockets map[string]*socket
	seen    map[string]int // answers by operation and status
}

// Counts are what a judge has looked at.
type Counts struct {
	Requests  int // of described calls
	Refused   int // of them, those that the document forbids and the server has refused
	Beyond    int // those that the server has refused with a 400 for what the document does not say
	Answers   int
	Errors    int // of the answers
	Events    int // of event streams
	Sent      int // messages to WebSockets
	Unfit     int // of them, those that the document forbids and the server has refused
	Messages  int // from WebSockets
	Stray     int // answers to requests of no described call
	Dashboard int // exchanges that are the dashboard's own, of which the document says nothing
	Bare      int // answers that are of the HTTP layer
	Confirmed int // requests and answers that a library for OpenAPI has judged, too
	Long      int // exchanges with a body too long to be recorded
}

// NewJudge returns a judge by the document.
func NewJudge(d *Document) *Judge {
	return &Judge{doc: d, sockets: map[string]*socket{}, seen: map[string]int{}}
}

func (j *Judge) wrong(x *contract.Exchange, format string, args ...any) {
	what := strings.TrimSpace(x.Method + " " + x.Path)
	if len(what) > 120 {
		what = what[:120] + "…"
	}
	j.Problems = append(j.Problems, fmt.Sprintf("%s: %s: ", x.Case, what)+fmt.Sprintf(format, args...))
}

// Record judges every line of a record.
func (j *Judge) Record(r io.Reader) error {
	clear(j.sockets) // they are numbered from 1 in each
	for in := json.NewDecoder(r); ; {
		var x contract.Exchange
		if err := in.Decode(&x); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		j.Exchange(&x)
	}
}

// Exchange judges one line of a record.
func (j *Judge) Exchange(x *contract.Exchange) {
	path, _, _ := strings.Cut(x.Path, "?")
	switch {
	case x.Stream != "":
		j.frame(x, path)
	case path == "/" || strings.HasPrefix(path, "/ui/"):
		j.Dashboard++
	case x.Method == "" || x.Bare && !isJSON(x.Answers):
		if j.Bare++; x.Status < http.StatusBadRequest {
			j.wrong(x, "the status is %d", x.Status)
		}
	case x.Long:
		j.Long++
	default:
		o, values := j.doc.find(x.Method, path)
		if o == nil {
			j.stray(x)
			return
		}
		j.call(x, o, values)
	}
}

func isJSON(h http.Header) bool { return strings.HasPrefix(h.Get("Content-Type"), "application/json") }

// stray judges the answer to a request of no described call.
func (j *Judge) stray(x *contract.Exchange) {
	j.Stray++
	if x.Status < http.StatusBadRequest {
		j.wrong(x, "the document has no such call, and the status is %d", x.Status)
		return
	}
	if x.Method == http.MethodHead {
		return
	}
	j.json(x, "/components/schemas/Error", x.Answer)
}

// json judges a text by a schema with no members but those that are described.
func (j *Judge) json(x *contract.Exchange, pointer string, text []byte) {
	value, err := decode(text)
	if err == nil {
		err = j.doc.whole.validate(pointer, value)
	}
	if err != nil {
		j.wrong(x, "%v\n\tanswer: %d %.600s", err, x.Status, text)
	}
}

// call judges a request and its answer.
func (j *Judge) call(x *contract.Exchange, o *operation, values map[string]string) {
	j.Requests++
	unfit := j.request(x, o, values)
	switch {
	case unfit != nil && x.Status >= http.StatusBadRequest:
		j.Refused++
	case unfit != nil:
		j.wrong(x, "the request was answered with %d, and the document forbids it: %v\n\tbody: %.600s", x.Status, unfit, x.Body)
	case x.Status == http.StatusBadRequest:
		j.Beyond++
	}
	j.answer(x, o)
	j.confirm(x)
	if unfit == nil && x.Status < http.StatusBadRequest && x.Method != http.MethodHead {
		j.warned(x, o)
	}
}

// request returns what the document has against a request; nil if nothing.
func (j *Judge) request(x *contract.Exchange, o *operation, values map[string]string) error {
	_, text, _ := strings.Cut(x.Path, "?")
	query, err := url.ParseQuery(text)
	if err != nil {
		return err
	}
	for in, value := range map[string]func(string) string{
		"path": func(name string) string { return values[name] }, "query": query.Get, "header": x.Header.Get,
	} {
		for name, p := range j.doc.parameters(o, in) {
			if err := j.parameter(p, value(name)); err != nil {
				return fmt.Errorf("%s %s: %w", in, name, err)
			}
		}
	}
	return j.body(x, o)
}

// parameter judges the value of a parameter; an empty one is absent.
func (j *Judge) parameter(p parameter, text string) error {
	if text == "" {
		if p.required {
			return errors.New("is missing")
		}
		return nil
	}
	var value any = text
	switch {
	case p.kind == "boolean" && slices.Contains([]string{"true", "1", "false", "0"}, text):
		value = text == "true" || text == "1"
	case p.kind == "integer" && strings.Trim(text, "-0123456789") == "":
		value = json.Number(text)
	}
	return j.doc.said.validate(p.schema, value)
}

// body judges the body of a request.
func (j *Judge) body(x *contract.Exchange, o *operation) error {
	described := object(o.node["requestBody"])
	if described == nil {
		return nil // it is not read
	}
	text, err := unpacked(x)
	if err != nil {
		return err
	}
	if len(text) == 0 {
		if described["required"] == true {
			return errors.New("the body is missing")
		}
		return nil
	}
	if kind := strings.TrimLeft(x.Header.Get("Content-Type"), " \t"); !strings.HasPrefix(kind, "application/json") {
		return fmt.Errorf("the content type is %q", kind)
	}
	value, err := decode(text)
	if err != nil {
		return err
	}
	return j.doc.said.validate(o.pointer+"/requestBody/content/application~1json/schema", value)
}

func unpacked(x *contract.Exchange) ([]byte, error) {
	switch coding := x.Header.Get("Content-Encoding"); coding {
	case "", "identity":
		return x.Body, nil
	case "gzip":
		r, err := gzip.NewReader(bytes.NewReader(x.Body))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	default:
		return nil, fmt.Errorf("the content encoding is %q", coding)
	}
}

// answer judges an answer.
func (j *Judge) answer(x *contract.Exchange, o *operation) {
	if j.Answers++; x.Status >= http.StatusBadRequest {
		j.Errors++
	}
	status := strconv.Itoa(x.Status)
	j.seen[o.name+" "+status]++
	node, where := j.doc.at(o.pointer + "/responses/" + status)
	if node == nil {
		j.wrong(x, "the document has no answer %s\n\tanswer: %.600s", status, x.Answer)
		return
	}
	for name := range object(node["headers"]) {
		header, at := j.doc.at(where + "/headers/" + escape(name))
		if err := j.parameter(parameter{at + "/schema", "string", header["required"] == true}, x.Answers.Get(name)); err != nil {
			j.wrong(x, "header %s of the answer %s: %v", name, status, err)
		}
	}
	if x.Method == http.MethodHead || x.Status == http.StatusSwitchingProtocols {
		return
	}
	kind, _, _ := strings.Cut(x.Answers.Get("Content-Type"), ";")
	content, at := j.doc.at(where + "/content/" + escape(kind))
	switch {
	case content == nil:
		j.wrong(x, "the document has no %q for the answer %s", kind, status)
	case kind == "application/json":
		j.json(x, at+"/schema", x.Answer)
	}
}

// warned checks that a request which was not refused was answered with a warning if,
// and only if, it has a field or parameter that is not described.
func (j *Judge) warned(x *contract.Exchange, o *operation) {
	told := slices.ContainsFunc(x.Answers.Values("Weir-Warning"), func(w string) bool { return strings.HasPrefix(w, "unknown_") })
	if isJSON(x.Answers) {
		var body struct{ Warnings []struct{ Code string } }
		if json.Unmarshal(x.Answer, &body) == nil {
			for _, w := range body.Warnings {
				told = told || strings.HasPrefix(w.Code, "unknown_")
			}
		}
	}
	if stray := j.unknown(x, o); (stray != nil) != told {
		j.wrong(x, "it was answered with a warning of what is unknown: %v; what the document does not know: %v\n\tbody: %.600s", told, stray, x.Body)
	}
}

// unknown returns what of a request is not described; nil if all is.
func (j *Judge) unknown(x *contract.Exchange, o *operation) error {
	_, text, _ := strings.Cut(x.Path, "?")
	query, err := url.ParseQuery(text)
	if err != nil {
		return err
	}
	known := j.doc.parameters(o, "query")
	list, _ := o.node["security"].([]any)
	for _, one := range list {
		if _, ok := object(one)["token"]; ok {
			known["token"] = parameter{}
		}
	}
	for name := range query {
		if _, ok := known[name]; !ok {
			return fmt.Errorf("the parameter %q", name)
		}
	}
	body, err := unpacked(x)
	if err != nil || object(o.node["requestBody"]) == nil || len(body) == 0 {
		return err
	}
	value, err := decode(body)
	if err != nil {
		return err
	}
	return j.doc.whole.validate(o.pointer+"/requestBody/content/application~1json/schema", value)
}
