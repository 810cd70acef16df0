package openapi

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirmq/weir/tests/contract"
)

// examples returns what is wrong about the examples in the document.
func (d *Document) examples() (wrong []string) {
	look := func(o *operation, place string) {
		all, _ := d.at(o.pointer + place)
		for kind := range all {
			node, where := d.at(o.pointer + place + "/" + escape(kind))
			example, ok := node["example"]
			if !ok {
				continue
			}
			if err := d.whole.validate(where+"/schema", example); err != nil {
				wrong = append(wrong, fmt.Sprintf("example of %s: %v", o.name, err))
			}
		}
	}
	for _, o := range d.operations {
		look(o, "/requestBody/content")
		for status := range object(o.node["responses"]) {
			look(o, "/responses/"+status+"/content")
		}
	}
	return wrong
}

// Examples are what a page was found to have.
type Examples struct {
	Requests, Answers, Events, Messages, Objects int
}

var fence = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// Page judges the examples of a page: the http blocks as the contract's tests read them,
// whose expectations name some members of an answer; objects in json blocks; event
// streams in text blocks.
func (j *Judge) Page(name string, text []byte) (Examples, error) {
	p := &examplePage{Judge: j}
	for _, m := range fence.FindAllSubmatchIndex(text, -1) {
		kind, block := string(text[m[2]:m[3]]), string(text[m[4]:m[5]])
		line := bytes.Count(text[:m[4]], []byte("\n")) + 1
		p.at = contract.Exchange{Case: fmt.Sprintf("%s:%d", name, line)}
		switch kind {
		case "http":
			c, err := contract.ParseBlock(name, line, block)
			if err != nil {
				return p.Examples, err
			}
			p.streams = map[string]exampleStream{}
			for _, s := range c.Steps {
				p.step(name, s)
			}
		case "json":
			p.object(block)
		case "text":
			p.events(block)
		}
	}
	return p.Examples, nil
}

// examplePage is a page that is being judged.
type examplePage struct {
	*Judge
	Examples
	at      contract.Exchange // where it is
	streams map[string]exampleStream
}

// exampleStream is one that an example has opened.
type exampleStream struct {
	o    *operation
	path string
}

var (
	variable = regexp.MustCompile(`\$(wid|lease|last|i)\b`)
	values   = map[string]string{"$wid": "wid_AAAAAAAAAAAAAAAAAAAAAA", "$lease": "lease_1", "$last": "e30", "$i": "1"}
)

func filled(text string) string {
	return variable.ReplaceAllStringFunc(text, func(name string) string { return values[name] })
}

// step judges a request, what the page expects of its answer, or of a stream.
func (p *examplePage) step(page string, s *contract.Step) {
	p.at = contract.Exchange{
		Case: fmt.Sprintf("%s:%d", page, s.Line), Method: s.Method, Path: filled(s.Path), Header: http.Header{}, Body: []byte(filled(s.Body)),
	}
	if s.Method == "" {
		p.stream(s, p.streams[s.Name])
		return
	}
	if s.Body != "" {
		p.at.Header.Set("Content-Type", "application/json")
	}
	for _, h := range s.Header {
		p.at.Header.Set(h[0], filled(h[1]))
	}
	path, _, _ := strings.Cut(p.at.Path, "?")
	o, in := p.doc.find(s.Method, path)
	if o == nil {
		p.wrong(&p.at, "the document has no such call")
		return
	}
	status := s.Expect[0].Args[0]
	p.Examples.Requests++
	if err := p.request(&p.at, o, in); err != nil && status < "4" {
		p.wrong(&p.at, "%v\n\tbody: %s", err, s.Body)
	}
	answer, where := p.doc.at(o.pointer + "/responses/" + status)
	if answer == nil {
		p.wrong(&p.at, "the document has no answer %s", status)
		return
	}
	if s.Stream != "" && status < "3" {
		p.streams[s.Name] = exampleStream{o, p.at.Path}
		p.stream(s, p.streams[s.Name])
		return
	}
	for _, e := range s.Expect {
		switch {
		case e.Kind == "body":
			p.Examples.Answers++
			p.some(where+"/content/"+escape(p.answerKind(answer))+"/schema", e.Args[0])
		case strings.HasPrefix(e.Kind, "header") && (strings.HasPrefix(e.Args[0], "Weir-") || strings.HasPrefix(e.Args[0], "Ce-")):
			if object(answer["headers"])[e.Args[0]] == nil {
				p.wrong(&p.at, "the document has no header %s of the answer %s", e.Args[0], status)
			}
		}
	}
}

// answerKind returns the type of an answer whose body an example shows: that which its request
// asks for by name, if the document has it, or JSON.
func (p *examplePage) answerKind(answer map[string]any) string {
	if kind := p.at.Header.Get("Accept"); object(answer["content"])[kind] != nil {
		return kind
	}
	return typeJSON
}

// stream judges what goes over an open stream.
func (p *examplePage) stream(s *contract.Step, on exampleStream) {
	o := on.o
	if s.Stream == "CLOSE" || o == nil {
		return
	}
	schemas := p.doc.events(o)
	if s.Stream == "ON" && s.Body != "" {
		p.Examples.Messages++
		if unfit, _ := p.message(schemas["send"], p.at.Body); unfit != nil {
			p.wrong(&p.at, "%v\n\tmessage: %s", unfit, s.Body)
		}
	}
	for _, e := range s.Expect {
		text := e.Args
		switch {
		case e.Kind == "frame" && text[0] != "retry" && text[0] != "hb":
			p.Examples.Events++
			name, ok := strings.CutPrefix(text[0], p.doc.eventPrefix(o, on.path))
			if !ok || schemas[name] == "" {
				p.wrong(&p.at, "the document has no event %q of this stream", text[0])
				continue
			}
			p.some(schemas[name], text[1])
		case e.Kind == "message" || e.Kind == "among":
			p.Examples.Messages++
			value, err := sample(text[len(text)-1])
			pointer := ""
			if err == nil {
				pointer, err = p.byOp(schemas["receive"], value)
			}
			if err != nil {
				p.wrong(&p.at, "%v", err)
				continue
			}
			p.some(pointer, text[len(text)-1])
		}
	}
}

// some judges a pattern by a schema: it need not have all members.
func (p *examplePage) some(pointer, pattern string) {
	value, err := sample(pattern)
	if err == nil {
		err = p.doc.part.validate(pointer, value)
	}
	if err != nil {
		p.wrong(&p.at, "%v\n\tpattern: %s", err, pattern)
	}
}

// token is a text, or something of a pattern that is no JSON.
var token = regexp.MustCompile(`~?"(?:[^"\\]|\\.)*"|\*[a-z]*|now[+-]\d+|\babsent\b|\d+\.\.\d+|,?\s*(?:\.\.\.|!)`)

// absent stands for a member that an answer must not have, or of any value.
const absent = "\x00"

// sample returns a value that a pattern of the contract's tests matches.
func sample(pattern string) (any, error) {
	text := token.ReplaceAllStringFunc(filled(pattern), func(t string) string {
		switch {
		case t[0] == '"':
			return t
		case t[0] == '~', t == "*string":
			return `"x"`
		case t == "*lease":
			return `"lease_1f"`
		case t == "*bool":
			return "true"
		case t == "*object":
			return "{}"
		case t == "*array":
			return "[]"
		case t == "*", t == "absent":
			return `"\u0000"`
		case strings.HasSuffix(t, "...") || strings.HasSuffix(t, "!"):
			return ""
		}
		return "1"
	})
	value, err := decode([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	return without(value), nil
}

// without returns a value without the members that are absent.
func without(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if member == absent {
				delete(v, name)
				continue
			}
			v[name] = without(member)
		}
	case []any:
		v = slices.DeleteFunc(v, func(e any) bool { return e == absent })
		for i := range v {
			v[i] = without(v[i])
		}
		return v
	}
	return value
}

// object judges the object of a json block: an error, or a record to be written.
func (p *examplePage) object(text string) {
	value, err := decode([]byte(text))
	if err != nil {
		p.wrong(&p.at, "%v", err)
		return
	}
	p.Examples.Objects++
	name := "NewRecord"
	if _, ok := object(value)["error"]; ok {
		name = "Error"
	}
	p.json(&p.at, "/components/schemas/"+name, []byte(text))
}

// events judges the events of a text block.
func (p *examplePage) events(text string) {
	event := ""
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "event":
			event = value
		case "data":
			p.Examples.Events++
			if !slices.ContainsFunc(p.doc.operations, func(o *operation) bool {
				pointer := p.doc.events(o)[event]
				data, err := decode([]byte(value))
				return err == nil && pointer != "" && p.doc.whole.validate(pointer, data) == nil
			}) {
				p.wrong(&p.at, "no stream of the document has the event %s", strconv.Quote(event+" "+value))
			}
		}
	}
}
