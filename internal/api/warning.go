package api

import (
	"fmt"
	"slices"
	"strings"
)

// Codes of warnings. The last is also that of an error, for clients who ask to be refused.
const (
	WarnUnknownField     = "unknown_field"
	WarnUnknownParameter = "unknown_parameter"
	WarnKeyReused        = string(CodeIdempotencyKeyReused)
)

// MaxWarnings is how many warnings one answer carries.
const MaxWarnings = 16

// Warning is what a request asked for in vain, though it is answered.
type Warning struct {
	Code    string
	Name    string // the field with its path, or the parameter; empty if it is about neither
	Nearest string // the known one that was probably meant, with its path; empty if none is near
	Message string // for people
}

// Warnings are those of one request, in the order of its bytes; a nil one takes none.
type Warnings []Warning

func (w *Warnings) add(one Warning) {
	if w != nil && len(*w) < MaxWarnings {
		*w = append(*w, one)
	}
}

// Parameter warns of a query parameter that is none of the known.
func (w *Warnings) Parameter(name string, known []string) {
	w.unknown(WarnUnknownParameter, "query parameter", "", name, known)
}

// KeyReused warns that an idempotency key had come with another body.
func (w *Warnings) KeyReused() {
	if w != nil && len(*w) == MaxWarnings { // it says that nothing was stored, which weighs more than a name
		*w = (*w)[:MaxWarnings-1]
	}
	w.add(Warning{Code: WarnKeyReused, Message: keyReused})
}

// KeyReusedIn warns likewise about one of many writes.
func (w *Warnings) KeyReusedIn(write int) {
	w.add(Warning{Code: WarnKeyReused, Name: fmt.Sprintf("writes[%d].idempotency_key", write), Message: keyReused})
}

const keyReused = "the idempotency key came with other records before; this is the answer to those, and nothing was stored now"

// maxUnknownName is how much of an unknown name a warning repeats.
const maxUnknownName = 100

func (w *Warnings) unknown(code, kind, path, name string, known []string) {
	if w == nil || len(*w) == MaxWarnings {
		return
	}
	near := Nearest(name, known)
	name = beginning(name, maxUnknownName)
	if near != "" {
		near = path + near
	}
	what := "ignored; this call knows none"
	if near != "" {
		what = fmt.Sprintf("unknown and ignored; did you mean %q?", near)
	} else if len(known) > 0 {
		what = "unknown and ignored; known here: " + strings.Join(known, ", ")
	}
	w.add(Warning{Code: code, Name: path + name, Nearest: near, Message: fmt.Sprintf("%s %q is %s", kind, path+name, what)})
}

// beginning is text, or its first bytes if it is longer.
func beginning(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// Refusal is the error for a client who wants no warning but a refusal; nil without a
// warning.
func (w Warnings) Refusal() error {
	if len(w) == 0 {
		return nil
	}
	one := w[0]
	code := CodeInvalidRequest
	if one.Code == WarnKeyReused {
		code = CodeIdempotencyKeyReused
	}
	e := Errorf(code, "%s", strings.Replace(one.Message, "unknown and ignored", "unknown", 1)).With("warning", one.Code)
	if one.Name != "" {
		e.With("name", one.Name)
	}
	if one.Nearest != "" {
		e.With("nearest", one.Nearest)
	}
	return e
}

// Append adds the warnings to an answer that is a JSON object with at least one member.
func (w Warnings) Append(object []byte) []byte {
	if len(w) == 0 || len(object) < 3 || object[len(object)-1] != '}' {
		return object
	}
	dst := append(object[:len(object)-1], `,"warnings":[`...)
	for i := range w {
		one := &w[i]
		dst = append(appendComma(dst), `{"code":`...)
		dst = AppendString(dst, one.Code)
		if one.Name != "" {
			dst = AppendString(append(dst, `,"name":`...), one.Name)
		}
		if one.Nearest != "" {
			dst = AppendString(append(dst, `,"nearest":`...), one.Nearest)
		}
		dst = AppendString(append(dst, `,"message":`...), one.Message)
		dst = append(dst, '}')
	}
	return append(dst, `]}`...)
}

// stray notes a field that the object being read does not have.
func (s *scanner) stray(name []byte, known []string) {
	if s.warnings == nil || len(*s.warnings) == MaxWarnings || known == nil || slices.Contains(known, string(name)) {
		return
	}
	s.warnings.unknown(WarnUnknownField, "field", s.field(""), string(name), known)
}
