package api

// scanner reads one request body in a single pass. It is both the validator of contract
// 2 and the cursor of the decoders: what a decoder does not read field by field goes
// through skip, so no byte of a body is left unchecked.
//
// The first error stops everything: once err is set, every method is a no-op that
// reports failure, so decoders test it only where they branch.
type scanner struct {
	b     []byte
	i     int
	depth int  // containers open around i
	first bool // the container just opened has had no member yet
	space bool // white space was passed since the last clear
	err   *Error

	prefix  string // path of the object being read, with its dot
	index   int    // index in records, -1 outside
	scratch []byte // strings that had escapes, decoded

	warnings *Warnings // of fields that are unknown; nil: they are passed over
	deeper   int       // levels that are taken beyond MaxNesting: at most answerNesting
}

// Validate checks that body is one JSON object by the rules of contract 2: valid JSON
// and UTF-8, no lone surrogates, no number beyond float64, at most MaxNesting levels,
// nothing after it. The error is an *Error.
func Validate(body []byte) error {
	s := scanner{b: body, index: -1}
	if s.peek() != '{' {
		s.notObject()
	} else {
		s.skip()
	}
	return s.finish()
}

// dataNesting is how many levels of a write's body enclose the data of a record.
const dataNesting = 3

// StoredAsIs reports whether a server stores data as it is if it is the data of a record: it is
// one valid JSON value by the rules of contract 2, without white space outside of strings.
func StoredAsIs(data []byte) bool {
	if len(data) == 0 || !beginsValue(data[0]) {
		return false
	}
	s := scanner{b: data, depth: dataNesting, index: -1}
	return s.skip() && s.i == len(data) && !s.space
}

// beginsValue spares most texts that are no JSON the cost of an error.
func beginsValue(c byte) bool {
	switch c {
	case '{', '[', '"', 't', 'f', 'n', '-':
		return true
	}
	return '0' <= c && c <= '9'
}

// body reads a body that must be an object. It calls field for each member, which reads
// the value or returns false for a member it does not know; those are skipped, with a
// warning unless they are among the known.
func (s *scanner) body(known []string, field func(name []byte) bool) {
	if s.peek(); !s.object(known, field) {
		s.notObject()
	}
}

// object reads an object as body does; it returns false if the value is not one.
func (s *scanner) object(known []string, field func(name []byte) bool) bool {
	if !s.open('{') {
		return false
	}
	for {
		name, ok := s.member()
		if !ok {
			return true
		}
		if !field(name) {
			s.stray(name, known)
			s.skip()
		}
	}
}

// finish checks that the body ends here and returns the first error.
func (s *scanner) finish() error {
	if s.end(); s.err != nil {
		return s.err
	}
	return nil
}

// end checks that only white space follows.
func (s *scanner) end() {
	if s.err == nil {
		s.peek()
		if s.i < len(s.b) {
			s.fail(s.i, "unexpected bytes after the object")
		}
	}
}

// fail records a syntax error at offset at and returns false.
func (s *scanner) fail(at int, msg string) bool {
	if s.err == nil {
		if at >= len(s.b) {
			s.err = Errorf(CodeInvalidRequest, "body is not valid JSON: it ends at byte %d in the middle of a value", len(s.b))
		} else {
			s.err = Errorf(CodeInvalidRequest, "body is not valid JSON at byte %d: %s", at, msg)
		}
	}
	return false
}

func (s *scanner) notObject() {
	switch {
	case s.err != nil:
	case s.i >= len(s.b):
		s.err = Errorf(CodeInvalidRequest, "body is empty; send a JSON object")
	case len(s.b) >= 3 && s.b[0] == 0xEF && s.b[1] == 0xBB && s.b[2] == 0xBF:
		s.err = Errorf(CodeInvalidRequest, "body starts with a byte order mark; send plain UTF-8 without one")
	default:
		s.err = Errorf(CodeInvalidRequest, "body must be a JSON object (at byte %d)", s.i)
	}
}

// peek skips white space and returns the byte that follows, 0 at the end.
func (s *scanner) peek() byte {
	if s.i < len(s.b) && s.b[s.i] > ' ' {
		return s.b[s.i]
	}
	return s.peekSlow()
}

func (s *scanner) peekSlow() byte {
	if i := skipSpace(s.b, s.i); i != s.i {
		s.i, s.space = i, true
	}
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skip validates the value at i and moves past it. It keeps the kinds of the open
// containers as bits instead of recursing.
func (s *scanner) skip() bool {
	var (
		b       = s.b
		i       = s.i
		depth   = s.depth
		objects [(MaxNesting+answerNesting)/64 + 1]uint64 // bit d: the container at depth d is an object
		isName  bool
		st      stringState
		ok      bool
	)
	if s.err != nil {
		return false
	}

value:
	if i >= len(b) {
		return s.fail(i, "")
	}
	switch b[i] {
	case '"':
		if i, st = scanString(b, i); st > stringEscaped {
			return s.fail(i, st.problem())
		}
	case '{', '[':
		if depth++; depth > MaxNesting+s.deeper {
			return s.fail(i, "nested deeper than 127 levels")
		}
		isName = b[i] == '{'
		if isName {
			objects[depth>>6] |= 1 << (depth & 63)
		} else {
			objects[depth>>6] &^= 1 << (depth & 63)
		}
		i++
		if i < len(b) && b[i] <= ' ' {
			i, s.space = skipSpace(b, i), true
		}
		if i < len(b) && (isName && b[i] == '}' || !isName && b[i] == ']') {
			i++
			depth--
			break
		}
		if isName {
			goto name
		}
		goto value
	case 't':
		if i, ok = literal(b, i, "true"); !ok {
			return s.fail(i, "expected true")
		}
	case 'f':
		if i, ok = literal(b, i, "false"); !ok {
			return s.fail(i, "expected false")
		}
	case 'n':
		if i, ok = literal(b, i, "null"); !ok {
			return s.fail(i, "expected null")
		}
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		if i, ok = scanNumber(b, i); !ok {
			return s.fail(i, "not a JSON number, or one beyond the range of a 64-bit float")
		}
	default:
		return s.fail(i, "expected a value")
	}

after:
	if depth == s.depth {
		s.i = i
		return true
	}
	if i < len(b) && b[i] <= ' ' {
		i, s.space = skipSpace(b, i), true
	}
	if i >= len(b) {
		return s.fail(i, "")
	}
	isName = objects[depth>>6]&(1<<(depth&63)) != 0
	switch {
	case b[i] == ',':
		i++
		if i < len(b) && b[i] <= ' ' {
			i, s.space = skipSpace(b, i), true
		}
		if isName {
			goto name
		}
		goto value
	case isName && b[i] == '}', !isName && b[i] == ']':
		i++
		depth--
		goto after
	case isName:
		return s.fail(i, "expected , or }")
	default:
		return s.fail(i, "expected , or ]")
	}

name:
	if i >= len(b) || b[i] != '"' {
		return s.fail(i, "expected a field name in double quotes")
	}
	if i, st = scanString(b, i); st > stringEscaped {
		return s.fail(i, st.problem())
	}
	if i < len(b) && b[i] <= ' ' {
		i, s.space = skipSpace(b, i), true
	}
	if i >= len(b) || b[i] != ':' {
		return s.fail(i, "expected : after the field name")
	}
	i++
	if i < len(b) && b[i] <= ' ' {
		i, s.space = skipSpace(b, i), true
	}
	goto value
}
