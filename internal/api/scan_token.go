package api

import (
	"encoding/binary"
	"math/bits"
	"strconv"
)

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
