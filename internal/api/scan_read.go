package api

import (
	"fmt"
	"math"
	"unicode/utf16"
	"unicode/utf8"
)

// field returns the path of a field for a message, such as records[3].tag.
func (s *scanner) field(name string) string {
	if s.index >= 0 {
		return fmt.Sprintf("%srecords[%d].%s", s.prefix, s.index, name)
	}
	return s.prefix + name
}

// wrong records that a field has an invalid value, at i.
func (s *scanner) wrong(name, accepted string) {
	if s.err == nil {
		s.err = Errorf(CodeInvalidRequest, "field %q must be %s (at byte %d)", s.field(name), accepted, s.i)
	}
}

// missing records that a required field is not in the object that has just ended.
func (s *scanner) missing(name, accepted string) {
	if s.err == nil {
		s.err = Errorf(CodeInvalidRequest, "field %q is missing; it must be %s (its object ends at byte %d)", s.field(name), accepted, s.i-1)
	}
}

// once marks a known field as seen and refuses its repetition.
func (s *scanner) once(seen *uint32, bit uint32, name string) bool {
	if *seen&bit != 0 && s.err == nil {
		s.err = Errorf(CodeInvalidRequest, "field %q is there twice; send it once (again at byte %d)", s.field(name), s.i)
	}
	*seen |= bit
	return s.err == nil
}

// open enters the container that starts with c; it returns false if the value is
// something else.
func (s *scanner) open(c byte) bool {
	if s.err != nil || s.i >= len(s.b) || s.b[s.i] != c {
		return false
	}
	if s.depth++; s.depth > MaxNesting+s.deeper {
		return s.fail(s.i, "nested deeper than 127 levels")
	}
	s.i++
	s.first = true
	return true
}

// more moves to the next entry of the open container, or past its end.
func (s *scanner) more(end byte) bool {
	if s.err != nil {
		return false
	}
	first := s.first
	s.first = false
	c := s.peek()
	if c == end && s.i < len(s.b) {
		s.i++
		s.depth--
		return false
	}
	if !first {
		if c != ',' {
			return s.fail(s.i, "expected , or "+string(rune(end)))
		}
		s.i++
		s.peek()
	}
	return true
}

// element moves to the next element of the open array; it returns false at its end.
func (s *scanner) element() bool { return s.more(']') }

// member moves to the value of the next member of the open object and returns its
// decoded name, valid until the next string is read; it returns false at the end.
func (s *scanner) member() ([]byte, bool) {
	if !s.more('}') {
		return nil, false
	}
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		return nil, s.fail(s.i, "expected a field name in double quotes")
	}
	end, st := scanString(s.b, s.i)
	if st > stringEscaped {
		return nil, s.fail(end, st.problem())
	}
	name := s.b[s.i+1 : end-1]
	if st == stringEscaped {
		mark := len(s.scratch)
		s.scratch = appendUnescaped(s.scratch, name)
		name = s.scratch[mark:]
		s.scratch = s.scratch[:mark]
	}
	s.i = end
	if s.peek() != ':' {
		return nil, s.fail(s.i, "expected : after the field name")
	}
	s.i++
	s.peek()
	return name, true
}

// null consumes a null; it returns false, consuming nothing, if the value is something
// else.
func (s *scanner) null() bool {
	i, ok := literal(s.b, s.i, "null")
	s.i = i
	return ok
}

// bool reads a boolean field.
func (s *scanner) bool(name string) bool {
	if i, ok := literal(s.b, s.i, "true"); ok {
		s.i = i
		return true
	}
	i, ok := literal(s.b, s.i, "false")
	if s.i = i; !ok {
		s.wrong(name, "true or false")
	}
	return false
}

// uint reads an unsigned integer field: plain digits, at most max.
func (s *scanner) uint(name string, max uint64) uint64 {
	v, end, ok := plainDigits(s.b, s.i)
	if !ok || v > max {
		s.wrong(name, fmt.Sprintf("an integer from 0 to %d, written without sign, point or exponent", max))
		return 0
	}
	s.i = end
	return v
}

// int32 reads a signed 32-bit integer field; -0 is none.
func (s *scanner) int32(name string) int32 {
	i, sign := s.i, int64(1)
	if i < len(s.b) && s.b[i] == '-' {
		i, sign = i+1, -1
	}
	v, end, ok := plainDigits(s.b, i)
	n := sign * int64(min(v, 1<<40))
	if !ok || n < math.MinInt32 || n > math.MaxInt32 || sign < 0 && v == 0 {
		s.wrong(name, fmt.Sprintf("an integer from %d to %d, written without point or exponent, or null", math.MinInt32, math.MaxInt32))
		return 0
	}
	s.i = end
	return int32(n)
}

// plainDigits reads a JSON integer without sign; false for anything else,
// also for one beyond 64 bits.
func plainDigits(b []byte, i int) (v uint64, end int, ok bool) {
	end = skipDigits(b, i)
	if end == i || end > i+1 && b[i] == '0' || end-i > 20 {
		return 0, i, false
	}
	if end < len(b) && (b[end] == '.' || b[end]|0x20 == 'e') {
		return 0, i, false
	}
	for ; i < end; i++ {
		d := uint64(b[i] - '0')
		if v > (math.MaxUint64-d)/10 {
			return 0, i, false
		}
		v = v*10 + d
	}
	return v, end, true
}

// text reads a string field and decodes it. The result is in the body, or in scratch if
// it had escapes; without an error it is never nil.
func (s *scanner) text(name, accepted string) []byte {
	if s.err != nil {
		return nil
	}
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		s.wrong(name, accepted)
		return nil
	}
	end, st := scanString(s.b, s.i)
	if st > stringEscaped {
		s.fail(end, st.problem())
		return nil
	}
	v := s.b[s.i+1 : end-1 : end-1]
	s.i = end
	if st == stringEscaped {
		mark := len(s.scratch)
		s.scratch = appendUnescaped(s.scratch, v)
		v = s.scratch[mark:len(s.scratch):len(s.scratch)]
	}
	return v
}

// raw reads any value and returns its text without white space outside
// strings. Where there was some, the text is moved together inside the body and
// the room behind it filled with spaces, so the body keeps its meaning.
func (s *scanner) raw() []byte {
	start := s.i
	s.space = false
	if !s.skip() {
		return nil
	}
	end := s.i
	if s.space {
		end = start + compact(s.b[start:s.i])
		for i := end; i < s.i; i++ {
			s.b[i] = ' '
		}
	}
	return s.b[start:end:end]
}

// compact removes white space outside strings from valid JSON, in place, and
// returns the new length.
func compact(b []byte) int {
	n := 0
	for i := 0; i < len(b); {
		switch b[i] {
		case ' ', '\n', '\t', '\r':
			i++
		case '"':
			end, _ := scanString(b, i)
			n += copy(b[n:], b[i:end])
			i = end
		default:
			b[n] = b[i]
			n++
			i++
		}
	}
	return n
}

// appendUnescaped decodes the inside of a valid JSON string.
func appendUnescaped(dst, src []byte) []byte {
	for i := 0; i < len(src); {
		c := src[i]
		if c != '\\' {
			dst = append(dst, c)
			i++
			continue
		}
		c = src[i+1]
		i += 2
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, _ := hex4(src[i:])
			i += 4
			if utf16.IsSurrogate(r) {
				low, _ := hex4(src[i+2:])
				r = utf16.DecodeRune(r, low)
				i += 6
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}
