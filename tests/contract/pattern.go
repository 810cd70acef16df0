package contract

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// pattern matches a decoded JSON value; numbers are json.Number. It returns ""
// or what differs, with the path of the value.
type pattern interface {
	match(path string, v any) string
}

type anyValue struct{}

func (anyValue) match(string, any) string { return "" }

// absentValue is looked at by objects; elsewhere nothing matches it.
type absentValue struct{}

func (absentValue) match(path string, v any) string {
	return fmt.Sprintf("%s is %s, want it absent", path, show(v))
}

type typed struct {
	name string
	ok   func(any) bool
}

func (p typed) match(path string, v any) string {
	if p.ok(v) {
		return ""
	}
	return fmt.Sprintf("%s is %s, want %s", path, show(v), p.name)
}

type literal struct{ want any } // string, bool, nil or json.Number

func (p literal) match(path string, v any) string {
	if p.want == v || sameNumber(p.want, v) {
		return ""
	}
	return fmt.Sprintf("%s is %s, want %s", path, show(v), show(p.want))
}

// sameNumber compares integers by their digits and all else as float64.
func sameNumber(a, b any) bool {
	x, ok1 := a.(json.Number)
	y, ok2 := b.(json.Number)
	if !ok1 || !ok2 || !strings.ContainsAny(string(x)+string(y), ".eE") {
		return false
	}
	f, err1 := x.Float64()
	g, err2 := y.Float64()
	return err1 == nil && err2 == nil && f == g
}

type object struct {
	names  []string
	values map[string]pattern
	closed bool
}

func (p object) match(path string, v any) string {
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Sprintf("%s is %s, want an object", path, show(v))
	}
	for _, name := range p.names {
		want := p.values[name]
		got, there := m[name]
		if _, gone := want.(absentValue); !there {
			if gone {
				continue
			}
			return fmt.Sprintf("%s.%s is absent from %s", path, name, show(v))
		}
		if diff := want.match(path+"."+name, got); diff != "" {
			return diff
		}
	}
	if p.closed {
		for name := range m {
			if _, known := p.values[name]; !known {
				return fmt.Sprintf("%s has an unexpected member %q", path, name)
			}
		}
	}
	return ""
}

type array struct {
	items []pattern
	open  bool
}

func (p array) match(path string, v any) string {
	a, ok := v.([]any)
	if !ok {
		return fmt.Sprintf("%s is %s, want an array", path, show(v))
	}
	if len(a) < len(p.items) || len(a) > len(p.items) && !p.open {
		return fmt.Sprintf("%s has %d elements, want %d: %s", path, len(a), len(p.items), show(v))
	}
	for i, item := range p.items {
		if diff := item.match(fmt.Sprintf("%s[%d]", path, i), a[i]); diff != "" {
			return diff
		}
	}
	return ""
}

// nowTolerance is how far the clocks and the answer's way may put a time off.
const nowTolerance = 5000

// nearNow matches a time in Unix ms that is about offset ms from now.
func nearNow(offset int64) pattern {
	return typed{fmt.Sprintf("a time %d ms from now", offset), func(v any) bool {
		n, ok := v.(json.Number)
		at, err := n.Int64()
		off := at - offset - time.Now().UnixMilli()
		return ok && err == nil && off > -nowTolerance && off < nowTolerance
	}}
}

func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(b) > 400 {
		return string(b[:400]) + "…"
	}
	return string(b)
}

func isNumber(v any) bool { _, ok := v.(json.Number); return ok }
func isString(v any) bool { _, ok := v.(string); return ok }

var leaseID = regexp.MustCompile(`^lease_[0-9a-fA-F]+$`)

var wildcards = map[string]pattern{
	"*":       anyValue{},
	"absent":  absentValue{},
	"null":    literal{nil},
	"true":    literal{true},
	"false":   literal{false},
	"*number": typed{"a number", isNumber},
	"*string": typed{"a string", isString},
	"*bool":   typed{"a boolean", func(v any) bool { _, ok := v.(bool); return ok }},
	"*object": typed{"an object", func(v any) bool { _, ok := v.(map[string]any); return ok }},
	"*array":  typed{"an array", func(v any) bool { _, ok := v.([]any); return ok }},
	"*int": typed{"an integer", func(v any) bool {
		n, ok := v.(json.Number)
		return ok && !strings.ContainsAny(string(n), ".eE-")
	}},
	"*lease": typed{"a lease id", func(v any) bool { s, ok := v.(string); return ok && leaseID.MatchString(s) }},
}

// parsePattern reads the pattern language described in the package comment.
// $ variables in it are strings or numbers that are filled in before matching.
func parsePattern(text string) (pattern, error) {
	p := patternParser{text: text}
	v, err := p.value()
	if err != nil {
		return nil, fmt.Errorf("pattern at %d: %w", p.at, err)
	}
	if p.space(); p.at != len(text) {
		return nil, fmt.Errorf("pattern: %q is too much", text[p.at:])
	}
	return v, nil
}

type patternParser struct {
	text string
	at   int
}

func (p *patternParser) space() {
	for p.at < len(p.text) && p.text[p.at] == ' ' {
		p.at++
	}
}

func (p *patternParser) take(token string) bool {
	p.space()
	if !strings.HasPrefix(p.text[p.at:], token) {
		return false
	}
	p.at += len(token)
	return true
}

func (p *patternParser) value() (pattern, error) {
	p.space()
	switch {
	case p.take("{"):
		return p.object()
	case p.take("["):
		return p.array()
	case p.take("~"):
		s, err := p.quoted()
		if err != nil {
			return nil, err
		}
		re, err := regexp.Compile(s)
		if err != nil {
			return nil, err
		}
		return typed{"a string like " + s, func(v any) bool {
			text, ok := v.(string)
			return ok && re.MatchString(text)
		}}, nil
	case strings.HasPrefix(p.text[p.at:], `"`):
		s, err := p.quoted()
		return literal{s}, err
	}
	return p.word()
}

func (p *patternParser) quoted() (string, error) {
	p.space()
	dec := json.NewDecoder(strings.NewReader(p.text[p.at:]))
	var s string
	if err := dec.Decode(&s); err != nil {
		return "", err
	}
	p.at += int(dec.InputOffset())
	return s, nil
}

var numberWord = regexp.MustCompile(`^-?[0-9][0-9.eE+-]*$`)

func (p *patternParser) word() (pattern, error) {
	end := p.at
	for end < len(p.text) && !strings.ContainsRune(" ,]}", rune(p.text[end])) {
		end++
	}
	word := p.text[p.at:end]
	p.at = end
	if w, ok := wildcards[word]; ok {
		return w, nil
	}
	if strings.Contains(word, "$") { // filled in before the pattern is used
		return anyValue{}, nil
	}
	if offset, ok := strings.CutPrefix(word, "now+"); ok {
		ms, err := strconv.ParseInt(offset, 10, 64)
		return nearNow(ms), err
	}
	if low, high, ok := strings.Cut(word, ".."); ok {
		a, err1 := strconv.ParseFloat(low, 64)
		b, err2 := strconv.ParseFloat(high, 64)
		if err1 == nil && err2 == nil {
			return typed{"a number in " + word, func(v any) bool {
				n, ok := v.(json.Number)
				f, err := n.Float64()
				return ok && err == nil && f >= a && f <= b
			}}, nil
		}
	}
	if numberWord.MatchString(word) {
		return literal{json.Number(word)}, nil
	}
	return nil, fmt.Errorf("unknown word %q", word)
}

func (p *patternParser) object() (pattern, error) {
	o := object{values: map[string]pattern{}}
	for first := true; ; first = false {
		if p.take("}") {
			return o, nil
		}
		if !first && !p.take(",") {
			return nil, fmt.Errorf("want , or }")
		}
		if p.take("!") {
			o.closed = true
			continue
		}
		name, err := p.quoted()
		if err != nil {
			return nil, err
		}
		if !p.take(":") {
			return nil, fmt.Errorf("want : after %q", name)
		}
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		o.names = append(o.names, name)
		o.values[name] = v
	}
}

func (p *patternParser) array() (pattern, error) {
	var a array
	for first := true; ; first = false {
		if p.take("]") {
			return a, nil
		}
		if !first && !p.take(",") {
			return nil, fmt.Errorf("want , or ]")
		}
		if p.take("...") {
			a.open = true
			continue
		}
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		a.items = append(a.items, v)
	}
}
