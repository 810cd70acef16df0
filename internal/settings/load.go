package settings

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Source says whose settings are read, and where.
type Source struct {
	Command Command
	// File is a YAML or JSON file; empty: what --config or WEIR_CONFIG names, if anything.
	File string
	// Flags is a parsed set that AddFlags has added to; nil: no flags.
	Flags *pflag.FlagSet
	// Lookup reads the environment; nil: os.LookupEnv.
	Lookup func(name string) (string, bool)
}

// Fields says into which variable each setting is stored, by the flag's name. The
// values are pointers.
type Fields map[string]any

// Values is what was read.
type Values struct {
	rows  []*Setting
	given map[*Setting]given
}

// given is what somebody has written.
type given struct {
	text  string
	where string // for errors
}

// Load reads every setting of the command into its field; on an error, those that
// are right. The error names what was typed, where, and what is valid.
func Load(src Source, fields Fields) (*Values, error) {
	v := &Values{rows: of(src.Command), given: map[*Setting]given{}}
	inFile, err := src.readFile()
	for _, s := range v.rows {
		text := s.deft
		if g, ok := src.find(s, inFile); ok && (s.moot == nil || !s.moot(v)) {
			text, v.given[s] = g.text, g
		} else if text == "" || s.ofLibrary() {
			continue
		}
		value, wrong := s.kind.read(text)
		switch {
		case wrong == nil:
			fields.store(s, value)
		case err == nil:
			err = fmt.Errorf("%s: %w", v.given[s].where, wrong)
		}
	}
	fields.check(v.rows)
	return v, err
}

// find returns what was written for a setting in the place that counts.
func (src Source) find(s *Setting, inFile map[*Setting]given) (given, bool) {
	if src.Flags != nil && s.places&byFlag != 0 {
		for _, name := range []string{s.name, s.was} {
			if f := src.Flags.Lookup(name); f != nil && f.Changed && Owns(f) {
				return given{f.Value.String(), "flag --" + name}, true
			}
		}
	}
	for _, name := range append(s.variables(), s.former()...) {
		if text := src.env(name); text != "" {
			return given{text, "environment variable " + name}, true
		}
	}
	g, ok := inFile[s]
	return g, ok
}

// env reads a variable; one that was made for another purpose counts as absent.
func (src Source) env(name string) string {
	lookup := src.Lookup
	if lookup == nil {
		lookup = os.LookupEnv
	}
	text, _ := lookup(name)
	if ofKubernetes(name, text) {
		return ""
	}
	return text
}

// Path is the file to read, empty if there is none.
func (src Source) Path() string {
	if src.File != "" {
		return src.File
	}
	for _, s := range of(src.Command) {
		if s.name == "config" {
			g, _ := src.find(s, nil)
			return g.text
		}
	}
	return ""
}

// Both stores a setting into two fields.
func Both(a, b any) any { return both{a, b} }

// Not stores the opposite of a setting.
func Not(field *bool) any { return not{field} }

type (
	both [2]any
	not  struct{ field *bool }
)

func (f Fields) store(s *Setting, value any) {
	if field, ok := f[s.name]; ok {
		store(field, value)
	}
}

func store(field, value any) {
	switch f := field.(type) {
	case both:
		store(f[0], value)
		store(f[1], value)
	case not:
		*f.field = !value.(bool)
	default:
		to := reflect.ValueOf(field).Elem()
		to.Set(reflect.ValueOf(value).Convert(to.Type()))
	}
}

// check panics if a setting has no field or a field no setting: a mistake in weir's code.
func (f Fields) check(rows []*Setting) {
	names := map[string]bool{}
	for _, s := range rows {
		names[s.name] = true
		if _, ok := f[s.name]; !ok && s.used() {
			panic("settings: no field for " + s.name)
		}
	}
	for name := range f {
		if !names[name] {
			panic("settings: no setting " + name)
		}
	}
}

// used reports whether anything reads the setting. The file's name is read by Path.
func (s *Setting) used() bool { return s.name != "config" }

// text is what was written for a setting, empty if nothing was.
func (v *Values) text(name string) string {
	for s, g := range v.given {
		if s.name == name {
			return g.text
		}
	}
	return ""
}

// Given reports whether somebody has set a setting.
func (v *Values) Given(name string) bool { return v.text(name) != "" }

// Changed lists the numbers, sizes, times and switches that are not their defaults, as
// VARIABLE=value. Text is not among them: it may be a secret.
func (v *Values) Changed() []string {
	var changed []string
	for _, s := range v.rows {
		g, ok := v.given[s]
		value, err := s.kind.read(g.text)
		deft, _ := s.kind.parse(s.deft)
		if !ok || err != nil || reflect.DeepEqual(value, deft) {
			continue
		}
		switch value.(type) {
		case string, []string:
		default:
			changed = append(changed, s.variable()+"="+g.text)
		}
	}
	return changed
}

// Equal reports whether nothing was set to another text.
func (v *Values) Equal(other *Values) bool {
	return !slices.ContainsFunc(v.rows, func(s *Setting) bool { return v.given[s].text != other.given[s].text })
}

// NeedRestart lists the keys of the settings in which next differs and that a running command does
// not take.
func (v *Values) NeedRestart(next *Values) []string {
	var keys []string
	for _, s := range v.rows {
		if !s.reloads && v.given[s].text != next.given[s].text {
			keys = append(keys, s.key())
		}
	}
	return keys
}

// Explain puts in front of an error of the library's where the fields that it names
// were set, and calls them and their values as the settings do.
func (v *Values) Explain(err error) error {
	var where []string
	text := err.Error()
	for _, s := range v.rows {
		if !s.ofLibrary() {
			continue
		}
		field := regexp.MustCompile(`\b` + s.field + `\b`)
		if !field.MatchString(err.Error()) {
			continue
		}
		text = field.ReplaceAllLiteralString(text, s.key())
		if g, ok := v.given[s]; ok {
			where = append(where, g.where)
		}
	}
	text = strings.Replace(text, "disable it with -1", "set it to off", 1)
	if len(where) > 0 {
		text = strings.Join(where, ", ") + ": " + text
	}
	return errors.New(text)
}

// Text returns what was written for one setting, or its default, unchecked.
func Text(src Source, name string) string {
	inFile, _ := src.readFile()
	for _, s := range of(src.Command) {
		if s.name != name {
			continue
		}
		if g, ok := src.find(s, inFile); ok {
			return g.text
		}
		return s.deft
	}
	return ""
}
