package contract

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func sorted(s []string) []string { slices.Sort(s); return s }

// check compares the answer with all expectations of the step and with what
// the contract says of every answer.
func (a *answer) check(s *Step, v *vars) error {
	if err := a.unzip(); err != nil {
		return err
	}
	status := s.Expect[0]
	if !slices.Contains(strings.Split(status.Args[0], "|"), strconv.Itoa(a.status)) {
		return a.wrong("status is %d, want %s", a.status, status.Args[0])
	}
	if status.Args[1] != "bare" {
		if err := a.checkAlways(s, status.Args[1]); err != nil {
			return err
		}
	}
	for _, e := range s.Expect[1:] {
		if err := a.checkOne(&e, v); err != nil {
			return fmt.Errorf("line %d: %w", e.Line, err)
		}
	}
	return nil
}

func (a *answer) wrong(format string, args ...any) error {
	body := string(a.body)
	if len(body) > 600 {
		body = body[:600] + "…"
	}
	return fmt.Errorf(format+"\n\tanswer: %d %s", append(args, a.status, body)...)
}

// unzip undoes a compressed answer and keeps the header that says so.
func (a *answer) unzip() error {
	if a.header.Get("Content-Encoding") != "gzip" || len(a.body) == 0 {
		return nil
	}
	r, err := gzip.NewReader(bytes.NewReader(a.body))
	if err != nil {
		return err
	}
	a.body, err = io.ReadAll(r)
	return err
}

func (a *answer) decode() (any, error) {
	dec := json.NewDecoder(bytes.NewReader(a.body))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, a.wrong("body is not JSON: %v", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, a.wrong("body has more than one JSON value")
	}
	return v, nil
}

// anError is the shape of every error body.
var anError = func() pattern {
	p, err := parsePattern(`{"error":{"code":~"^[a-z_]+$","message":~".",!},!}`)
	if err != nil {
		panic(err)
	}
	return p
}()

// checkAlways holds for every answer of a conforming server.
func (a *answer) checkAlways(s *Step, code string) error {
	after := a.header.Get("Retry-After")
	if wants := a.status == 429 || a.status == 503; wants != (after != "") {
		return a.wrong("Retry-After is %q with status %d", after, a.status)
	}
	if n, err := strconv.Atoi(after); after != "" && (err != nil || n < 1) {
		return a.wrong("Retry-After is %q, want whole seconds from 1", after)
	}
	if s.Method == "HEAD" || len(a.body) == 0 && s.expects("empty") {
		if len(a.body) > 0 {
			return a.wrong("a HEAD answer has a body")
		}
		return nil
	}
	kind := a.header.Get("Content-Type")
	path, _, _ := strings.Cut(s.Path, "?")
	if a.status/100 == 2 && strings.HasPrefix(kind, "text/plain") && strings.HasSuffix(path, "/metrics") {
		return nil
	}
	if a.status/100 == 2 && (strings.Contains(s.Path, "/records/") || strings.HasPrefix(kind, "application/cloudevents")) {
		return nil // records as they were written
	}
	if !strings.HasPrefix(kind, "application/json") {
		return a.wrong("Content-Type is %q", kind)
	}
	v, err := a.decode()
	if err != nil {
		return err
	}
	members, ok := v.(map[string]any)
	if !ok {
		return a.wrong("body is not an object")
	}
	if a.status/100 == 2 {
		return a.checkSuccess(s, members)
	}
	return a.checkError(members, code)
}

func (a *answer) checkError(members map[string]any, code string) error {
	e, _ := members["error"].(map[string]any)
	if detail, there := e["detail"]; there {
		if d, ok := detail.(map[string]any); !ok || len(d) == 0 {
			return a.wrong("error.detail is %s, want members or no detail", show(detail))
		}
		delete(e, "detail")
	}
	if diff := anError.match("body", members); diff != "" {
		return a.wrong("%s", diff)
	}
	if code != "" && e["code"] != code {
		return a.wrong("code is %v, want %s", e["code"], code)
	}
	return nil
}

// timed are the endpoints whose success bodies say how long they took.
var timed = regexp.MustCompile(`^/v0/(topics|routers|watch)`)

func (a *answer) checkSuccess(s *Step, members map[string]any) error {
	if _, there := members["error"]; there {
		return a.wrong("a success body has a member error")
	}
	if s.IsRaw {
		return nil
	}
	perf, there := members["performance"].(map[string]any)
	if !timed.MatchString(s.Path) {
		if there {
			return a.wrong("a body of %s has a member performance", s.Path)
		}
		return nil
	}
	total, ok := perf["server_total_ms"].(json.Number)
	if f, err := total.Float64(); !ok || err != nil || f < 0 {
		return a.wrong("performance.server_total_ms is missing or negative")
	}
	return nil
}

func (a *answer) checkOne(e *Expect, v *vars) error {
	switch e.Kind {
	case "body":
		want, err := parsePattern(v.fill(e.Args[0]))
		if err != nil {
			return err
		}
		got, err := a.decode()
		if err != nil {
			return err
		}
		if diff := want.match("body", got); diff != "" {
			return a.wrong("%s", diff)
		}
	case "header":
		return a.checkHeader(e.Args[0], v.fill(e.Args[1]))
	case "header has":
		if value := strings.Join(a.header.Values(e.Args[0]), ", "); !strings.Contains(value, e.Args[1]) {
			return a.wrong("header %s is %q, want %q in it", e.Args[0], value, e.Args[1])
		}
	case "text":
		if strings.Contains(string(a.body), v.fill(e.Args[1])) != (e.Args[0] == "contains") {
			return a.wrong("want the text to have: %s %q", e.Args[0], v.fill(e.Args[1]))
		}
	case "empty":
		if len(a.body) > 0 {
			return a.wrong("want no body")
		}
	case "closed":
		if !a.closed {
			return a.wrong("the connection is still open")
		}
	case "after":
		if a.took < e.Dur {
			return a.wrong("answered after %v, want at least %v", a.took, e.Dur)
		}
	case "within":
		if a.took > e.Dur {
			return a.wrong("answered after %v, want at most %v", a.took, e.Dur)
		}
	case "save":
		return a.save(e.Args[0], e.Args[1], v)
	}
	return nil
}

func (a *answer) checkHeader(name, want string) error {
	values := a.header.Values(name)
	switch {
	case want == "\x00":
		if len(values) > 0 {
			return a.wrong("header %s is %q, want it absent", name, values)
		}
	case want == "*":
		if len(values) == 0 {
			return a.wrong("header %s is absent", name)
		}
	case strings.Join(values, ", ") != want:
		return a.wrong("header %s is %q, want %q", name, values, want)
	}
	return nil
}

// save keeps the value at path, such as claimed[0].lease_id, under name.
func (a *answer) save(name, path string, v *vars) error {
	value, err := a.decode()
	if err != nil {
		return err
	}
	for _, part := range strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		switch node := value.(type) {
		case map[string]any:
			value = node[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(node) {
				return a.wrong("save %s: no element %q", path, part)
			}
			value = node[i]
		default:
			return a.wrong("save %s: nothing at %q", path, part)
		}
	}
	switch value := value.(type) {
	case string:
		v.saved[name] = value
	case json.Number:
		v.saved[name] = string(value)
	default:
		return a.wrong("save %s: %s is neither string nor number", path, show(value))
	}
	return nil
}
