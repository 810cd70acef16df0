package api

import (
	"strings"
	"testing"
)

func nested(levels int) string {
	return `{"a":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`
}

func TestValidateAcceptsAndRefusesBySection2(t *testing.T) {
	cases := []struct {
		rule string
		body string
		ok   bool
	}{
		{"empty object", `{}`, true},
		{"space around", " \t\r\n{ } \n", true},
		{"every kind of value", `{"a":[1,-2.5e-3,"x",true,false,null,{}],"b":{"c":[]}}`, true},
		{"repeated unknown name", `{"a":1,"a":2}`, true},
		{"zero bytes", ``, false},
		{"only space", `  `, false},
		{"null", `null`, false},
		{"array", `[]`, false},
		{"string", `"x"`, false},
		{"trailing bytes", `{} x`, false},
		{"second object", `{}{}`, false},
		{"NUL behind", "{}\x00", false},
		{"byte order mark", "\xEF\xBB\xBF{}", false},
		{"form feed is no space", "{\f}", false},
		{"open object", `{"a":1`, false},
		{"open array", `{"a":[1`, false},
		{"open string", `{"a":"x`, false},
		{"open name", `{"a`, false},
		{"no colon", `{"a" 1}`, false},
		{"no value", `{"a":}`, false},
		{"trailing comma in object", `{"a":1,}`, false},
		{"trailing comma in array", `{"a":[1,]}`, false},
		{"leading comma", `{,"a":1}`, false},
		{"no comma in object", `{"a":1 "b":2}`, false},
		{"no comma in array", `{"a":[1 2]}`, false},
		{"wrong closer of array", `{"a":[1}}`, false},
		{"wrong closer of object", `{"a":{"b":1]}`, false},
		{"name without quotes", `{a:1}`, false},
		{"single quotes", `{'a':1}`, false},
		{"comment", `{"a":1/*x*/}`, false},
		{"True", `{"a":True}`, false},
		{"cut literal", `{"a":tru}`, false},
		{"long literal", `{"a":nulll}`, false},
		{"NaN", `{"a":NaN}`, false},
		{"Infinity", `{"a":-Infinity}`, false},
		{"leading zero", `{"a":01}`, false},
		{"plus sign", `{"a":+1}`, false},
		{"only a minus", `{"a":-}`, false},
		{"no digit before the point", `{"a":.5}`, false},
		{"no digit behind the point", `{"a":5.}`, false},
		{"no digit in the exponent", `{"a":5e}`, false},
		{"no digit behind the exponent's sign", `{"a":5e+}`, false},
		{"hex number", `{"a":0x10}`, false},
		{"minus zero in user JSON", `{"a":-0}`, true},
		{"largest float", `{"a":1.7976931348623157e308}`, true},
		{"number overflow", `{"a":1e999}`, false},
		{"negative number overflow", `{"a":-1e999}`, false},
		{"number overflow by digits", `{"a":` + strings.Repeat("9", 400) + `}`, false},
		{"many digits, small exponent", `{"a":` + strings.Repeat("9", 400) + `e-200}`, true},
		{"digits and exponent together", `{"a":` + strings.Repeat("9", 250) + `e99}`, false},
		{"long fraction", `{"a":0.` + strings.Repeat("9", 400) + `}`, true},
		{"zero with a large exponent", `{"a":0e999}`, true},
		{"exponent with leading zeros", `{"a":1e0005}`, true},
		{"underflow is zero", `{"a":1e-999}`, true},
		{"all short escapes", `{"a":"\"\\\/\b\f\n\r\t"}`, true},
		{"unicode escapes of either case", `{"a":"\u00e9\u00E9"}`, true},
		{"surrogate pair", `{"a":"\ud83d\ude00"}`, true},
		{"lone high surrogate", `{"a":"\ud83d"}`, false},
		{"lone low surrogate", `{"a":"\ude00"}`, false},
		{"two high surrogates", `{"a":"\ud83d\ud83d"}`, false},
		{"high surrogate and a letter", `{"a":"\ud83d\u0041"}`, false},
		{"lone surrogate in a name", `{"\ud83d":1}`, false},
		{"lone surrogate in the name of a nested object", `{"a":{"\ud83d":1}}`, false},
		{"unknown escape", `{"a":"\x41"}`, false},
		{"short unicode escape", `{"a":"\u41"}`, false},
		{"raw newline in a string", "{\"a\":\"x\ny\"}", false},
		{"raw tab behind 8 bytes", "{\"a\":\"12345678\tx\"}", false},
		{"DEL is fine", "{\"a\":\"\x7f\"}", true},
		{"valid UTF-8 of 2, 3 and 4 bytes", `{"a":"é€😀"}`, true},
		{"lone continuation byte", "{\"a\":\"\x80\"}", false},
		{"overlong two bytes", "{\"a\":\"\xc0\xaf\"}", false},
		{"overlong three bytes", "{\"a\":\"\xe0\x80\x80\"}", false},
		{"UTF-8 surrogate", "{\"a\":\"\xed\xa0\x80\"}", false},
		{"beyond U+10FFFF", "{\"a\":\"\xf4\x90\x80\x80\"}", false},
		{"cut UTF-8", "{\"a\":\"\xe2\x82\"}", false},
		{"invalid UTF-8 outside strings", "{\"a\":\xff}", false},
		{"127 levels", nested(127), true},
		{"128 levels", nested(128), false},
		{"128 levels of objects", strings.Repeat(`{"a":`, 127) + `{}` + strings.Repeat(`}`, 127), false},
		{"127 levels of objects", strings.Repeat(`{"a":`, 126) + `{}` + strings.Repeat(`}`, 126), true},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			if err := Validate([]byte(c.body)); (err == nil) != c.ok {
				t.Fatalf("Validate(%q) = %v, want ok %v", c.body, err, c.ok)
			}
			// The same text as a value of an unknown field goes through the decoder.
			lim := DefaultLimits()
			var w WriteRequest
			err := DecodeWrite([]byte(c.body), &lim, &w, nil)
			if !c.ok && err == nil {
				t.Fatalf("DecodeWrite(%q) accepted it", c.body)
			}
		})
	}
}
