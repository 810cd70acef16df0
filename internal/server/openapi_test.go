package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weirmq/weir/internal/api"
)

// description is what the tests need of the OpenAPI document.
type description struct {
	Paths      map[string]map[string]operation
	Components struct {
		Parameters map[string]parameter
		Responses  map[string]struct {
			Content map[string]struct {
				Schema struct {
					Properties struct {
						Error struct {
							Properties struct{ Code struct{ Enum []string } }
						}
					}
				}
			}
		}
	}
}

type operation struct {
	OperationID string
	Summary     string
	Security    []map[string][]string
	Parameters  []parameter
	RequestBody *struct {
		Required bool
		Content  map[string]any
	}
	Responses map[string]struct {
		Ref string `json:"$ref"`
	}
}

type parameter struct {
	Ref  string `json:"$ref"`
	Name string
	In   string
	Not  string `json:"x-not-with"`
}

func readDescription(t *testing.T) *description {
	t.Helper()
	d := new(description)
	if err := json.Unmarshal(openAPI, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// named returns the names of an operation's parameters that are in a place, sorted.
func (d *description) named(o *operation, in string) (names []string) {
	for _, p := range o.Parameters {
		if p.Ref != "" {
			p = d.Components.Parameters[strings.TrimPrefix(p.Ref, "#/components/parameters/")]
		}
		if p.In == in {
			names = append(names, p.Name)
		}
	}
	return slices.Sorted(slices.Values(names))
}

// onlyForms reports whether a parameter counts only for bodies that are no JSON object.
func (d *description) onlyForms(o *operation, name string) bool {
	return slices.ContainsFunc(o.Parameters, func(p parameter) bool {
		if p.Ref != "" {
			p = d.Components.Parameters[strings.TrimPrefix(p.Ref, "#/components/parameters/")]
		}
		return p.Name == name && p.Not == api.TypeJSON
	})
}

// security is what the document has to say of a route's keys.
func (r *route) security() []map[string][]string {
	roles := []string{}
	if r.need != 0 {
		roles = strings.Split(r.need.String(), "+")
	}
	all := []map[string][]string{{"bearer": roles}}
	if r.open {
		all = slices.Insert(all, 0, map[string][]string{})
	}
	if slices.Contains(r.query, "token") {
		all = append(all, map[string][]string{"token": roles})
	}
	if r.path == "/v0/ws" {
		all = append(all, map[string][]string{"protocol": roles})
	}
	return all
}

// describes reports what the operation of a route says wrong.
func (d *description) describes(r *route, o *operation) (wrong []string) {
	compare := func(what string, got, want any) {
		if !reflect.DeepEqual(got, want) {
			wrong = append(wrong, fmt.Sprintf("%s: the document has %v, the server %v", what, got, want))
		}
	}
	query := []string{strictParameter}
	for _, name := range r.query {
		if name != "token" {
			query = append(query, name)
		}
	}
	if r.forms {
		query = append(query, slices.DeleteFunc(slices.Clone(api.WriteParameters), func(name string) bool { return slices.Contains(query, name) })...)
		for _, name := range api.WriteParameters {
			if only := d.onlyForms(o, name); only == slices.Contains(r.query, name) {
				wrong = append(wrong, fmt.Sprintf("%s: it is of other bodies than JSON alone: %v", name, only))
			}
		}
		compare("content types", slices.Sorted(maps.Keys(o.RequestBody.Content)),
			[]string{"*/*", "application/cloudevents+json", "application/cloudevents-batch+json", "application/json", "application/octet-stream", "application/x-ndjson", "text/plain"})
	}
	compare("query", d.named(o, "query"), slices.Sorted(slices.Values(query)))
	var segments []string
	for s := range strings.SplitSeq(r.path, "/") {
		if name, ok := strings.CutPrefix(s, ":"); ok {
			segments = append(segments, name)
		}
	}
	compare("path", d.named(o, "path"), slices.Sorted(slices.Values(segments)))
	compare("security", o.Security, r.security())
	compare("a body", o.RequestBody != nil, r.body != bodyIgnored)
	if o.RequestBody != nil {
		compare("a body that may not be left out", o.RequestBody.Required, r.body != bodyMayBeEmpty)
	}
	if !slices.Contains(d.named(o, "header"), strictHeader) {
		wrong = append(wrong, "the header "+strictHeader+" is missing")
	}
	if o.OperationID == "" || o.Summary == "" {
		wrong = append(wrong, "it has no operationId or no summary")
	}
	return append(wrong, d.refusals(o)...)
}

// refusals reports what is wrong about the errors of an operation.
func (d *description) refusals(o *operation) (wrong []string) {
	for status, r := range o.Responses {
		n, err := strconv.Atoi(status)
		if err != nil || n < http.StatusBadRequest {
			continue
		}
		codes := d.Components.Responses[strings.TrimPrefix(r.Ref, "#/components/responses/")].Content["application/json"].Schema.Properties.Error.Properties.Code.Enum
		if len(codes) == 0 {
			wrong = append(wrong, "the answer "+status+" has no codes")
		}
		for _, code := range codes {
			if api.Code(code).Status() != n {
				wrong = append(wrong, fmt.Sprintf("the code %s is not one of %s", code, status))
			}
		}
	}
	return wrong
}

func TestTheDocumentHasEveryRouteAndNoOther(t *testing.T) {
	d := readDescription(t)
	left := map[string]bool{}
	for path, all := range d.Paths {
		for method := range all {
			left[strings.ToUpper(method)+" "+path] = true
		}
	}
	ids := map[string]string{}
	for i := range routes {
		r := &routes[i]
		if r.path == "/" || strings.HasPrefix(r.path, "/ui/") {
			continue // the dashboard's own
		}
		segments := strings.Split(r.path, "/")
		for i, s := range segments {
			if name, ok := strings.CutPrefix(s, ":"); ok {
				segments[i] = "{" + name + "}"
			}
		}
		path := strings.Join(segments, "/")
		name := r.method + " " + path
		o, ok := d.Paths[path][strings.ToLower(r.method)]
		if !ok {
			t.Errorf("internal/server/openapi.json has no operation for %s", name)
			continue
		}
		delete(left, name)
		for _, wrong := range d.describes(r, &o) {
			t.Errorf("%s: %s", name, wrong)
		}
		if other := ids[o.OperationID]; other != "" {
			t.Errorf("%s and %s have the same operationId", name, other)
		}
		ids[o.OperationID] = name
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		t.Errorf("internal/server/openapi.json has %s, which is no route", name)
	}
}

// What the comparison is worth: a route that has changed is noticed.
func TestARouteThatHasChangedIsNotDescribed(t *testing.T) {
	d := readDescription(t)
	o := d.Paths["/v0/topics/{topic}"]["delete"]
	i := slices.IndexFunc(routes, func(r route) bool { return r.method == "DELETE" && r.path == "/v0/topics/:topic" })
	if wrong := d.describes(&routes[i], &o); len(wrong) > 0 {
		t.Fatal(wrong)
	}
	for _, change := range []func(*route){
		func(r *route) { r.query = append(slices.Clone(r.query), "force") },
		func(r *route) { r.query = nil },
		func(r *route) { r.need |= scopeAdmin },
		func(r *route) { r.open = true },
		func(r *route) { r.body = bodyRequired },
		func(r *route) { r.path = "/v0/topics/:name" },
	} {
		r := routes[i]
		change(&r)
		if wrong := d.describes(&r, &o); len(wrong) != 1 {
			t.Errorf("%+v: %v", r, wrong)
		}
	}
}

func TestTheDocumentIsServed(t *testing.T) {
	s := serveTest(t, nil)
	for range 2 { // an answer before may have left its buffer
		s.want(s.ask("GET", "/v0/nothing", "", nil), 404, "not_found")
		r := s.ask("GET", "/v0/openapi.json?Strikt=1", "", nil)
		if s.want(r, 200, ""); r.body != string(openAPI) || r.header.Get("Content-Type") != "application/json" {
			t.Errorf("got %d bytes of %q", len(r.body), r.header.Get("Content-Type"))
		}
		if got := r.header.Get("Weir-Warning"); got != "unknown_parameter Strikt" {
			t.Errorf("Weir-Warning is %q", got)
		}
	}
}
