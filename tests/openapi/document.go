package openapi

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/pb33f/jsonschema/v6"
)

// Document is an OpenAPI document, ready to judge by.
type Document struct {
	root       map[string]any
	operations []*operation

	said  *schemas // the schemas as they stand
	whole *schemas // with no members but those that are described
	part  *schemas // the same, and any of them may be absent
}

// operation is one method of one path.
type operation struct {
	name    string   // METHOD path
	method  string   // in lower case
	path    []string // its segments; {name} for any
	node    map[string]any
	pointer string
}

// Load reads a document.
func Load(text []byte) (*Document, error) {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	root, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the document is no object")
	}
	d := &Document{root: root}
	for path, item := range object(root["paths"]) {
		for method, node := range object(item) {
			d.operations = append(d.operations, &operation{
				name: strings.ToUpper(method) + " " + path, method: method, path: strings.Split(path, "/"),
				node: object(node), pointer: "/paths/" + escape(path) + "/" + method,
			})
		}
	}
	slices.SortFunc(d.operations, func(a, b *operation) int { return strings.Compare(a.name, b.name) })
	for _, v := range []struct {
		to     **schemas
		change func(map[string]any)
	}{
		{&d.said, func(map[string]any) {}},
		{&d.whole, closed},
		{&d.part, func(s map[string]any) { closed(s); delete(s, "required") }},
	} {
		if *v.to, err = newSchemas(changed(root, v.change)); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// closed refuses members that a schema does not describe.
func closed(schema map[string]any) {
	if _, open := schema["additionalProperties"]; schema["type"] == "object" && schema["properties"] != nil && !open {
		schema["additionalProperties"] = false
	}
}

// changed returns a copy of a value with every object in it changed.
func changed(value any, change func(map[string]any)) any {
	switch v := value.(type) {
	case map[string]any:
		to := make(map[string]any, len(v))
		for name, member := range v {
			to[name] = changed(member, change)
		}
		change(to)
		return to
	case []any:
		to := make([]any, len(v))
		for i := range v {
			to[i] = changed(v[i], change)
		}
		return to
	}
	return value
}

func object(value any) map[string]any {
	o, _ := value.(map[string]any)
	return o
}

func escape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// at returns what is at a pointer, following references on the way and at its end, and
// where it really is; nil if there is nothing.
func (d *Document) at(pointer string) (map[string]any, string) {
	node, where := d.root, ""
	for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		where += "/" + name
		name = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
		if node = object(node[name]); node == nil {
			return nil, where
		}
		if to, ok := node["$ref"].(string); ok && len(node) == 1 {
			if node, where = d.at(strings.TrimPrefix(to, "#")); node == nil {
				return nil, where
			}
		}
	}
	return node, where
}

// find returns the operation of a request and the values in its path; nil if there is none.
func (d *Document) find(method, path string) (*operation, map[string]string) {
	if method = strings.ToLower(method); method == "head" {
		method = "get"
	}
	segments := strings.Split(path, "/")
	for i, s := range segments {
		text, err := url.PathUnescape(s)
		if err != nil {
			return nil, nil
		}
		segments[i] = text
	}
	for _, o := range d.operations {
		if values, ok := o.matches(segments); ok && o.method == method {
			return o, values
		}
	}
	return nil, nil
}

func (o *operation) matches(segments []string) (map[string]string, bool) {
	if len(segments) != len(o.path) {
		return nil, false
	}
	values := map[string]string{}
	for i, s := range o.path {
		if name, ok := strings.CutPrefix(s, "{"); ok && segments[i] != "" {
			values[strings.TrimSuffix(name, "}")] = segments[i]
		} else if s != segments[i] {
			return nil, false
		}
	}
	return values, true
}

// parameters returns the names of an operation's parameters in a place, with where their
// schemas are and whether they are required.
func (d *Document) parameters(o *operation, in string) map[string]parameter {
	all := map[string]parameter{}
	list, _ := o.node["parameters"].([]any)
	for i, value := range list {
		node, where := object(value), fmt.Sprintf("%s/parameters/%d", o.pointer, i)
		if to, ok := node["$ref"].(string); ok {
			node, where = d.at(strings.TrimPrefix(to, "#"))
		}
		if node["in"] == in {
			name, _ := node["name"].(string)
			schema := object(node["schema"])
			if to, ok := schema["$ref"].(string); ok {
				schema, _ = d.at(strings.TrimPrefix(to, "#"))
			}
			not, _ := node["x-not-with"].(string)
			all[name] = parameter{where + "/schema", schema["type"], node["required"] == true, not}
		}
	}
	return all
}

type parameter struct {
	schema   string // where it is
	kind     any    // its type
	required bool
	not      string // the type of body with which it is an unknown one
}

// eventPrefix returns with what the names of a stream's events begin, as its query asks.
func (d *Document) eventPrefix(o *operation, path string) string {
	_, text, _ := strings.Cut(path, "?")
	query, err := url.ParseQuery(text)
	if err != nil {
		return ""
	}
	list, _ := o.node["parameters"].([]any)
	for i := range list {
		node := object(list[i])
		if to, ok := node["$ref"].(string); ok {
			node, _ = d.at(strings.TrimPrefix(to, "#"))
		}
		name, _ := node["name"].(string)
		if prefix, ok := object(node["x-prefixes"])[query.Get(name)].(string); ok {
			return prefix
		}
	}
	return ""
}

// events returns where the schemas of what goes over a stream are, by name.
func (d *Document) events(o *operation) map[string]string {
	all := map[string]string{}
	for _, place := range []string{"/responses/200/content/text~1event-stream/x-events", "/responses/101/x-messages"} {
		node, where := d.at(o.pointer + place)
		for name := range node {
			_, all[name] = d.at(where + "/" + escape(name))
		}
	}
	return all
}

// schemas compiles the schemas of one document.
type schemas struct {
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema
}

const location = "file:///openapi.json"

func newSchemas(root any) (*schemas, error) {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020) // what OpenAPI 3.1 says
	c.AssertFormat()
	if err := c.AddResource(location, root); err != nil {
		return nil, err
	}
	return &schemas{c, map[string]*jsonschema.Schema{}}, nil
}

// validate judges a value by the schema at a pointer.
func (s *schemas) validate(pointer string, value any) error {
	if err := s.compile(pointer); err != nil {
		return err
	}
	return s.compiled[pointer].Validate(value)
}

// compile makes the schema at a pointer ready, if it is a valid one.
func (s *schemas) compile(pointer string) error {
	if s.compiled[pointer] != nil {
		return nil
	}
	schema, err := s.compiler.Compile(location + "#" + pointer)
	if err != nil {
		return fmt.Errorf("the document: %w", err)
	}
	s.compiled[pointer] = schema
	return nil
}

// names returns the names of the components of a kind.
func (d *Document) names(kind string) []string {
	node, _ := d.at("/components/" + kind)
	return slices.Sorted(maps.Keys(node))
}

func decode(text []byte) (any, error) { return jsonschema.UnmarshalJSON(bytes.NewReader(text)) }
