package api

import (
	"encoding/binary"
	"math/bits"
	"strconv"
)

// scanner reads one request body in a single pass. It is both the validator of
// section 2 and the cursor of the decoders: whatever a decoder does not read
// field by field goes through skip, so no byte of a body is left unchecked.
//
// The first error stops everything: every method is a no-op that reports
// failure once err is set, so decoders test it only where they branch.
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
}

// Validate checks that body is one JSON object by the rules of section 2: valid
// JSON and UTF-8, no lone surrogates, no number beyond float64, at most
// MaxNesting levels, nothing behind it. The error is an *Error.
func Validate(body []byte) error {
	s := scanner{b: body, index: -1}
	if s.peek() != '{' {
		s.notObject()
	} else if s.skip() {
		s.end()
	}
	if s.err != nil {
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
		s.err = Errorf(CodeInvalidRequest, "body must be a JSON object")
	}
}

// peek passes white space and returns the byte it stands on, 0 at the end.
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

// skip validates the value at i and moves behind it. It keeps the kinds of the
// open containers as bits instead of recursing.
func (s *scanner) skip() bool {
	var (
		b       = s.b
		i       = s.i
		depth   = s.depth
		objects [MaxNesting/64 + 1]uint64 // bit d: the container at depth d is an object
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
		if depth++; depth > MaxNesting {
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

// literal moves behind word; where it is not there it stays and reports false.
func literal(b []byte, i int, word string) (int, bool) {
	if len(b)-i >= len(word) && string(b[i:i+len(word)]) == word {
		return i + len(word), true
	}
	return i, false
}

// stringState is what scanString found out about a string; everything above
// stringEscaped is an error.
type stringState uint8

const (
	stringPlain stringState = iota
	stringEscaped
	stringOpen
	stringControl
	stringEscape
	stringSurrogate
	stringUTF8
)

func (st stringState) problem() string {
	switch st {
	case stringControl:
		return "control character in a string; escape it"
	case stringEscape:
		return `bad escape; \" \\ \/ \b \f \n \r \t and \u with four hex digits are allowed`
	case stringSurrogate:
		return "lone surrogate escape"
	case stringUTF8:
		return "invalid UTF-8"
	default:
		return "the string does not end"
	}
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks, in the high bit of each byte, what ends a run of plain ASCII:
// a control character, a quote, a backslash, a byte above 0x7f. The lowest mark
// is exact; a borrow can only put false marks above a true one.
func special(x uint64) uint64 {
	return (x | (x - ones*0x20) | ((x ^ ones*'"') - ones) | ((x ^ ones*'\\') - ones)) & highs
}

// skipPlain passes plain ASCII, 8 bytes at a time and 32 once a string proves
// to be long. It stops at the first special byte, or near the end of b.
func skipPlain(b []byte, i int) int {
	if i+8 <= len(b) {
		if m := special(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		i += 8
	}
	for len(b)-i >= 32 {
		q := b[i : i+32 : i+32]
		m := special(binary.LittleEndian.Uint64(q)) | special(binary.LittleEndian.Uint64(q[8:])) |
			special(binary.LittleEndian.Uint64(q[16:])) | special(binary.LittleEndian.Uint64(q[24:]))
		if m != 0 {
			break
		}
		i += 32
	}
	for i+8 <= len(b) {
		if m := special(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		i += 8
	}
	return i
}

// scanString validates the string whose opening quote is at i and returns the
// position behind its closing quote, or that of the error.
func scanString(b []byte, i int) (int, stringState) {
	st := stringPlain
	i++
	for {
		i = skipPlain(b, i)
		if i >= len(b) {
			return i, stringOpen
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1, st
		case c == '\\':
			n, bad := scanEscape(b[i:])
			if bad != stringPlain {
				return i, bad
			}
			st = stringEscaped
			i += n
		case c < ' ':
			return i, stringControl
		case c < 0x80:
			i++
		default:
			for i < len(b) && b[i] >= 0x80 {
				n := runeLen(b[i:])
				if n == 0 {
					return i, stringUTF8
				}
				i += n
			}
		}
	}
}

// runeLen returns the length of the multi-byte UTF-8 sequence at the start of
// b, 0 if it is invalid: cut off, overlong, a surrogate, or beyond U+10FFFF.
func runeLen(b []byte) int {
	c := b[0]
	switch {
	case c < 0xC2 || c > 0xF4:
		return 0
	case c < 0xE0:
		if len(b) < 2 || b[1]&0xC0 != 0x80 {
			return 0
		}
		return 2
	case c < 0xF0:
		if len(b) < 3 || b[1]&0xC0 != 0x80 || b[2]&0xC0 != 0x80 ||
			c == 0xE0 && b[1] < 0xA0 || c == 0xED && b[1] > 0x9F {
			return 0
		}
		return 3
	default:
		if len(b) < 4 || b[1]&0xC0 != 0x80 || b[2]&0xC0 != 0x80 || b[3]&0xC0 != 0x80 ||
			c == 0xF0 && b[1] < 0x90 || c == 0xF4 && b[1] > 0x8F {
			return 0
		}
		return 4
	}
}

// scanEscape checks the escape at the start of b and returns its length; a
// surrogate pair is one escape of 12 bytes.
func scanEscape(b []byte) (int, stringState) {
	if len(b) < 2 {
		return 0, stringEscape
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, stringPlain
	case 'u':
	default:
		return 0, stringEscape
	}
	r, ok := hex4(b[2:])
	switch {
	case !ok:
		return 0, stringEscape
	case r < 0xD800 || r > 0xDFFF:
		return 6, stringPlain
	case r > 0xDBFF || len(b) < 12 || b[6] != '\\' || b[7] != 'u':
		return 0, stringSurrogate
	}
	if low, ok := hex4(b[8:]); !ok || low < 0xDC00 || low > 0xDFFF {
		return 0, stringSurrogate
	}
	return 12, stringPlain
}

// hex4 reads four hex digits of either case.
func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		d, ok := hexDigit(c)
		if !ok {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// scanNumber validates the number at i and returns the position behind it, or
// that of the error.
func scanNumber(b []byte, i int) (int, bool) {
	start := i
	if b[i] == '-' {
		i++
	}
	digits := i
	if i < len(b) && b[i] == '0' {
		i++
	} else {
		i = skipDigits(b, i)
	}
	if digits = i - digits; digits == 0 {
		return i, false
	}
	if i < len(b) && b[i] == '.' {
		from := i + 1
		if i = skipDigits(b, from); i == from {
			return i, false
		}
	}
	large := digits > 200
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		negative := i < len(b) && b[i] == '-'
		if negative || i < len(b) && b[i] == '+' {
			i++
		}
		from := i
		if i = skipDigits(b, from); i == from {
			return i, false
		}
		large = large || !negative && i-from > 2
	}
	// Below 10^200 · 10^99 a number is certainly finite.
	if large {
		if _, err := strconv.ParseFloat(string(b[start:i]), 64); err != nil {
			return start, false
		}
	}
	return i, true
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	return i
}
