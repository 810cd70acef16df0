package contract

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Case is one named sequence of steps.
type Case struct {
	File     string
	Line     int
	Name     string
	Sections []string // without the §
	Env      []string // sorted as written
	Steps    []*Step
}

// NeedsOwn reports whether the case only makes sense on a server started for it.
func (c *Case) NeedsOwn() bool {
	if len(c.Env) > 0 {
		return true
	}
	for _, s := range c.Steps {
		if s.Command != "" {
			return true
		}
	}
	return false
}

// Step is a request with what its answer must be, or a command or a pause.
type Step struct {
	Line    int
	Command string   // restart, kill, refuses, starts
	Args    []string // of refuses and starts
	Sleep   time.Duration

	Method, Path, Body string
	HTTP2              bool
	Times              int
	Header             [][2]string // value "\x00" removes
	Raw                []string    // RAW lines; nil for an ordinary request
	IsRaw              bool
	Stream             string // OPEN, WS, ON or CLOSE; then Name says which stream
	Name               string
	Expect             []Expect
}

// Expect is one line below a request that starts with >.
type Expect struct {
	Line int
	Kind string // the first word; status for a number
	Args []string
	Body pattern
	Dur  time.Duration
}

var (
	caseLine    = regexp.MustCompile(`^=== (.+?) \[((?:§[0-9.]+ ?)+)\]$`)
	requestLine = regexp.MustCompile(`^(?:x(\d+) )?(HTTP2 )?([A-Z]+) (/(?:@fill\(\d+, \w\)|\S)*)(?: (.+))?$`)
	headerLine  = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9-]*): ?(.*)$`)
	dropLine    = regexp.MustCompile(`^-([A-Za-z][A-Za-z0-9-]*)$`)
	streamLine  = regexp.MustCompile(`^(HTTP2 )?(OPEN) ([a-z]\w*) (/\S*)$|^(WS) ([a-z]\w*)(?: (/\S*))?$|^(ON) ([a-z]\w*)(?: (.+))?$|^(CLOSE) ([a-z]\w*)$`)
	statusText  = regexp.MustCompile(`^(\d{3}(?:\|\d{3})*)(?: ([a-z_]+))?$`)
)

// ParseFile reads the cases of one file.
func ParseFile(path string) ([]*Case, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(filepath.Base(path), string(text))
}

// Parse reads cases from text; name stands in messages.
func Parse(name, text string) ([]*Case, error) {
	var cases []*Case
	var open *block
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimRight(line, " \t")
		at := i + 1
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "==="):
			more, err := open.cases(name)
			if err != nil {
				return nil, err
			}
			cases = append(cases, more...)
			m := caseLine.FindStringSubmatch(line)
			if m == nil {
				return nil, fmt.Errorf("%s:%d: want `=== name [§1.2 §3]`", name, at)
			}
			sections := strings.Fields(strings.ReplaceAll(m[2], "§", " "))
			open = &block{line: at, name: m[1], sections: sections}
		case open == nil:
			return nil, fmt.Errorf("%s:%d: a line before the first === line", name, at)
		default:
			open.lines = append(open.lines, numbered{at, line})
		}
	}
	more, err := open.cases(name)
	return append(cases, more...), err
}

// block is the text of one case before its each lines are applied.
type block struct {
	line     int
	name     string
	sections []string
	lines    []numbered
}

type numbered struct {
	at   int
	text string
}

var (
	eachLine     = regexp.MustCompile(`^each (\$[A-SU-Z]) in (.+)$`)
	unknownUpper = regexp.MustCompile(`\$[A-SU-Z]\b`)
)

// cases makes one case for each combination of the values in the each lines.
func (b *block) cases(file string) ([]*Case, error) {
	if b == nil {
		return nil, nil
	}
	for i, line := range b.lines {
		m := eachLine.FindStringSubmatch(line.text)
		if m == nil {
			continue
		}
		var all []*Case
		for _, value := range strings.Split(m[2], " | ") {
			one := *b
			one.name += " " + value
			one.lines = nil
			for j, l := range b.lines {
				if j != i {
					one.lines = append(one.lines, numbered{l.at, strings.ReplaceAll(l.text, m[1], value)})
				}
			}
			more, err := one.cases(file)
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		}
		return all, nil
	}
	c := &Case{File: file, Line: b.line, Name: b.name, Sections: b.sections}
	for _, line := range b.lines {
		if name := unknownUpper.FindString(line.text); name != "" {
			return nil, fmt.Errorf("%s:%d: %s has no each line", file, line.at, name)
		}
		if err := c.add(line.at, line.text); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, line.at, err)
		}
	}
	return []*Case{c}, c.check()
}

// ParseBlock reads one case without a === line, as in the blocks of a document.
func ParseBlock(name string, line int, text string) (*Case, error) {
	c := &Case{File: name, Line: line, Name: fmt.Sprintf("line %d", line)}
	for i, l := range strings.Split(text, "\n") {
		l = strings.TrimRight(l, " \t")
		if l == "" || l[0] == '#' {
			continue
		}
		if err := c.add(line+i, l); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, line+i, err)
		}
	}
	return c, c.check()
}

// check refuses cases that assert nothing.
func (c *Case) check() error {
	if len(c.Steps) == 0 {
		return fmt.Errorf("%s:%d: case without steps", c.File, c.Line)
	}
	for _, s := range c.Steps {
		if s.isRequest() && len(s.Expect) == 0 {
			return fmt.Errorf("%s:%d: request without a `> status` line", c.File, s.Line)
		}
		if s.IsRaw && len(s.Raw) == 0 {
			return fmt.Errorf("%s:%d: RAW without `| ` lines", c.File, s.Line)
		}
	}
	return nil
}

func (s *Step) isRequest() bool { return s.Method != "" || s.IsRaw }

// onStream reports whether frames can be expected below the step.
func (s *Step) onStream() bool { return s.Stream != "" && s.Stream != "CLOSE" }

// add takes one more line of the case.
func (c *Case) add(at int, line string) error {
	var last *Step
	if n := len(c.Steps); n > 0 {
		last = c.Steps[n-1]
	}
	switch {
	case strings.HasPrefix(line, "env "):
		if last != nil {
			return fmt.Errorf("env lines come before the first step")
		}
		c.Env = append(c.Env, strings.TrimPrefix(line, "env "))
		return nil
	case line[0] == '>':
		if last == nil || !last.isRequest() && !last.onStream() {
			return fmt.Errorf("an expectation needs a request above it")
		}
		return last.addExpect(at, strings.TrimSpace(line[1:]))
	case line == "+" || strings.HasPrefix(line, "+ "):
		if last == nil || last.Method == "" || len(last.Expect) > 0 {
			return fmt.Errorf("a + line belongs below a request")
		}
		last.Body += "\n" + strings.TrimPrefix(line[1:], " ")
		return nil
	case line[0] == '|':
		if last == nil || !last.IsRaw || len(last.Expect) > 0 {
			return fmt.Errorf("a | line belongs below RAW")
		}
		last.Raw = append(last.Raw, strings.TrimPrefix(line[1:], " "))
		return nil
	}
	if step, err := parseStep(line); step != nil || err != nil {
		if step != nil {
			step.Line = at
			c.Steps = append(c.Steps, step)
		}
		return err
	}
	if last == nil || last.Method == "" || len(last.Expect) > 0 {
		return fmt.Errorf("unknown line %q", line)
	}
	if m := dropLine.FindStringSubmatch(line); m != nil {
		last.Header = append(last.Header, [2]string{m[1], "\x00"})
		return nil
	}
	if m := headerLine.FindStringSubmatch(line); m != nil {
		last.Header = append(last.Header, [2]string{m[1], m[2]})
		return nil
	}
	return fmt.Errorf("unknown line %q", line)
}

// parseStep returns nil and no error for a line that starts no step.
func parseStep(line string) (*Step, error) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "RAW":
		return &Step{IsRaw: true, Times: 1}, nil
	case "sleep":
		d, err := time.ParseDuration(rest)
		return &Step{Sleep: d}, err
	case "!restart", "!kill":
		return &Step{Command: word[1:]}, nil
	case "!refuses", "!starts":
		return &Step{Command: word[1:], Args: strings.Fields(rest)}, nil
	}
	if m := streamLine.FindStringSubmatch(line); m != nil {
		return streamStep(m), nil
	}
	m := requestLine.FindStringSubmatch(line)
	if m == nil {
		return nil, nil
	}
	s := &Step{Times: 1, HTTP2: m[2] != "", Method: m[3], Path: m[4], Body: m[5]}
	if m[1] != "" {
		s.Times, _ = strconv.Atoi(m[1])
	}
	return s, nil
}

// streamStep makes a step of the groups of a streamLine.
func streamStep(m []string) *Step {
	switch {
	case m[2] != "":
		return &Step{Stream: m[2], Name: m[3], Method: "GET", Path: m[4], HTTP2: m[1] != "", Times: 1}
	case m[5] != "":
		s := &Step{Stream: m[5], Name: m[6], Method: "GET", Path: m[7], Times: 1}
		if s.Path == "" {
			s.Path = "/v0/ws"
		}
		return s
	case m[8] != "":
		return &Step{Stream: m[8], Name: m[9], Body: m[10], Times: 1}
	}
	return &Step{Stream: m[11], Name: m[12], Times: 1}
}

func (s *Step) addExpect(at int, line string) error {
	e := Expect{Line: at}
	if m := statusText.FindStringSubmatch(line); m != nil {
		e.Kind, e.Args = "status", m[1:]
		s.Expect = append(s.Expect, e)
		return nil
	}
	if len(s.Expect) == 0 && s.Stream != "ON" {
		return fmt.Errorf("the first expectation is the status")
	}
	var rest string
	var err error
	e.Kind, rest, _ = strings.Cut(line, " ")
	switch e.Kind {
	case "body":
		e.Args = []string{rest}
		e.Body, err = parsePattern(rest)
	case "header":
		if name, ok := strings.CutSuffix(rest, " absent"); ok {
			e.Args = []string{name, "\x00"}
		} else if name, words, ok := strings.Cut(rest, " has "); ok {
			e.Args = []string{name, words}
			e.Kind = "header has"
		} else if m := headerLine.FindStringSubmatch(rest); m != nil {
			e.Args = m[1:]
		} else {
			err = fmt.Errorf("want `> header Name: value` or `> header Name absent`")
		}
	case "text":
		op, words, _ := strings.Cut(rest, " ")
		if op != "contains" && op != "lacks" || words == "" {
			err = fmt.Errorf("want `> text contains …` or `> text lacks …`")
		}
		e.Args = []string{op, words}
	case "empty", "closed":
	case "frame", "message", "among", "id", "raw-id", "end", "save-id":
		return s.addFrame(e, rest)
	case "after", "within", "quiet":
		e.Dur, err = time.ParseDuration(rest)
	case "save":
		e.Args = strings.Fields(rest)
		if len(e.Args) != 2 || reservedName[e.Args[0]] {
			err = fmt.Errorf("want `> save name path`, the name not one of the contract's $ fields")
		}
	default:
		err = fmt.Errorf("unknown expectation %q", e.Kind)
	}
	s.Expect = append(s.Expect, e)
	return err
}

// addFrame takes an expectation about a stream.
func (s *Step) addFrame(e Expect, rest string) error {
	if !s.onStream() {
		return fmt.Errorf("> %s belongs below OPEN, WS or ON", e.Kind)
	}
	text := rest
	switch e.Kind {
	case "frame":
		var event string
		event, text, _ = strings.Cut(rest, " ")
		e.Args = []string{event, text}
	case "message":
		e.Args = []string{"message", rest}
	default:
		e.Args = []string{rest}
	}
	var err error
	if text != "" && (e.Kind == "frame" || e.Kind == "message" || e.Kind == "among" || e.Kind == "id") {
		_, err = parsePattern(text)
	}
	s.Expect = append(s.Expect, e)
	return err
}
