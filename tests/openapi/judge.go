package openapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

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
	Other     int // bodies of requests and answers that are no JSON object of a call
	Preflight int // answers to browsers that ask whether a page may send a request
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
		switch {
		case j.isPreflight(x, path):
			j.preflight(x)
		case o == nil:
			j.stray(x)
		default:
			j.call(x, o, values)
		}
	}
}

func isJSON(h http.Header) bool { return strings.HasPrefix(h.Get("Content-Type"), "application/json") }

// isPreflight reports whether a browser asked by a request whether a page may send another,
// and was not refused as one whose origin is not listed.
func (j *Judge) isPreflight(x *contract.Exchange, path string) bool {
	below, _ := object(j.doc.root["x-preflight"])["paths"].(string)
	return below != "" && x.Method == http.MethodOptions && strings.HasPrefix(path, below) && x.Status < http.StatusBadRequest &&
		x.Header.Get("Origin") != "" && x.Header.Get("Access-Control-Request-Method") != ""
}

// preflight judges the answer to one. No path has the call: x-preflight has it for all.
func (j *Judge) preflight(x *contract.Exchange) {
	j.Preflight++
	status := strconv.Itoa(x.Status)
	node, where := j.doc.at("/x-preflight/responses/" + status)
	if node == nil {
		j.wrong(x, "the document has no answer %s to a preflight", status)
		return
	}
	j.headers(x, node, where)
	if len(x.Answer) > 0 {
		j.wrong(x, "the answer to a preflight has a body: %.600s", x.Answer)
	}
	if got, want := x.Answers.Get("Access-Control-Allow-Origin"), x.Header.Get("Origin"); got != want {
		j.wrong(x, "the answer is for a page of %q, asked was for %q", got, want)
	}
}

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
			if in == "query" && p.not != "" && p.not == j.doc.formOf(x, o) {
				continue // it is an unknown one
			}
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
	kind := j.doc.formOf(x, o)
	form, where := j.doc.at(o.pointer + "/requestBody/content/" + escape(kind))
	if len(text) == 0 && form["x-may-be-empty"] != true {
		if described["required"] == true {
			return errors.New("the body is missing")
		}
		return nil
	}
	if form == nil {
		return fmt.Errorf("the content type is %q", x.Header.Get("Content-Type"))
	}
	if kind != typeJSON {
		j.Other++
		if err := charset(x.Header.Get("Content-Type"), kind); err != nil {
			return err
		}
	}
	return j.content(j.doc.said, x.Header.Get("Content-Type"), form, where, text)
}

const typeJSON = "application/json"

// formOf returns under which type a document has the body of a request: what a header says
// that it names, or the type that the request has.
func (d *Document) formOf(x *contract.Exchange, o *operation) string {
	all, _ := d.at(o.pointer + "/requestBody/content")
	kind := x.Header.Get("Content-Type")
	media, _, _ := strings.Cut(kind, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	for name := range all {
		header, _ := object(all[name])["x-with"].(string)
		if header == "" || x.Header[http.CanonicalHeaderKey(header)] == nil {
			continue
		}
		// The structured mode of an event beats the binary one.
		if !strings.HasPrefix(media, "application/cloudevents") {
			return name
		}
	}
	if strings.HasPrefix(strings.TrimLeft(kind, " \t"), typeJSON) {
		return typeJSON // the server accepts whatever begins like this
	}
	return media
}

// charset refuses a text that is not UTF-8 by its content type.
func charset(contentType, form string) error {
	_, parameters, err := mime.ParseMediaType(contentType)
	if name := strings.ToLower(parameters["charset"]); contentType != "" && (err != nil || name != "" && name != "utf-8" && name != "us-ascii") && form != "*/*" {
		return fmt.Errorf("the content type is %q", contentType)
	}
	return nil
}

// content judges a body by what a document has under its type: JSON by its schema, a text by
// that of a string, lines one by one. Without a schema it may be anything.
func (j *Judge) content(by *schemas, contentType string, form map[string]any, where string, text []byte) error {
	if isJSONType(contentType) || object(form["schema"]) == nil || contentType == "" {
		if object(form["schema"]) == nil {
			return nil
		}
		value, err := decode(text)
		if err != nil {
			return err
		}
		return by.validate(where+"/schema", value)
	}
	if !utf8.Valid(text) {
		return errors.New("the text is not UTF-8")
	}
	if err := by.validate(where+"/schema", string(text)); err != nil || form["x-lines"] == nil {
		return err
	}
	_, line := j.doc.at(where + "/x-lines")
	for one := range bytes.Lines(text) {
		if len(bytes.TrimSpace(one)) == 0 {
			continue
		}
		value, err := decode(one)
		if err == nil {
			err = by.validate(line, value)
		}
		if err != nil {
			return fmt.Errorf("a line: %w", err)
		}
	}
	return nil
}

func isJSONType(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return strings.HasPrefix(media, typeJSON) || strings.HasSuffix(media, "+json")
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
	j.headers(x, node, where)
	if x.Method == http.MethodHead || x.Status == http.StatusSwitchingProtocols {
		return
	}
	text := x.Answers.Get("Content-Type")
	kind, _, _ := strings.Cut(text, ";")
	content, at := j.doc.at(where + "/content/" + escape(kind))
	if content == nil {
		content, at = j.doc.at(where + "/content/" + escape("*/*"))
	}
	if content == nil || kind == "" && (content["x-may-be-empty"] != true || len(x.Answer) > 0) {
		j.wrong(x, "the document has no %q for the answer %s", kind, status)
		return
	}
	if needed, _ := content["x-required-headers"].([]any); needed != nil {
		for _, name := range needed {
			if name, _ := name.(string); x.Answers.Get(name) == "" {
				j.wrong(x, "header %s of the answer %s of %q is missing", name, status, kind)
			}
		}
	}
	if kind != typeJSON {
		j.Other++
	}
	if !isJSONType(kind) {
		return
	}
	if err := j.content(j.doc.whole, kind, content, at, x.Answer); err != nil {
		j.wrong(x, "%v\n\tanswer: %d %.600s", err, x.Status, x.Answer)
	}
}

// headers judges those of an answer that the document describes.
func (j *Judge) headers(x *contract.Exchange, node map[string]any, where string) {
	for name := range object(node["headers"]) {
		header, at := j.doc.at(where + "/headers/" + escape(name))
		text := x.Answers.Get(name)
		var err error
		if _, inJSON := j.doc.at(at + "/content/application~1json/schema"); header["content"] == nil {
			err = j.parameter(parameter{schema: at + "/schema", kind: "string", required: header["required"] == true}, text)
		} else if text != "" {
			var value any
			if value, err = decode([]byte(text)); err == nil {
				err = j.doc.whole.validate(inJSON, value)
			}
		}
		if err != nil {
			j.wrong(x, "header %s of the answer %d: %v", name, x.Status, err)
		}
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
	kind := j.doc.formOf(x, o)
	for name := range query {
		if p, ok := known[name]; !ok || p.not != "" && p.not == kind {
			return fmt.Errorf("the parameter %q", name)
		}
	}
	body, err := unpacked(x)
	if err != nil || object(o.node["requestBody"]) == nil || len(body) == 0 {
		return err
	}
	form, where := j.doc.at(o.pointer + "/requestBody/content/" + escape(kind))
	return j.content(j.doc.whole, x.Header.Get("Content-Type"), form, where, body)
}
