package settings

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// kind is a type of values.
type kind struct {
	typ   string // what --help calls it
	valid string // what a wrong text is not
	parse func(text string) (value any, ok bool)
	words []string // all values, if they are some words
}

// read returns the value of a text, or an error that repeats it and says what is valid.
func (k kind) read(text string) (any, error) {
	if v, ok := k.parse(text); ok {
		return v, nil
	}
	return nil, fmt.Errorf("%q is not %s", text, k.valid)
}

// number is a kind of values that have an order.
type number struct {
	typ       string
	what      string // such as "a whole number"
	hint      string // how it is written
	low, high int64
	parse     func(text string) (int64, bool)
	show      func(n int64) string
	value     func(n int64) any // nil: the int64
}

func (n number) kind() kind {
	valid := fmt.Sprintf("%s from %s to %s", n.what, n.show(n.low), n.show(n.high))
	if n.high == math.MaxInt64 {
		valid = fmt.Sprintf("%s of at least %s", n.what, n.show(n.low))
	}
	return kind{typ: n.typ, valid: valid + n.hint, parse: func(text string) (any, bool) {
		v, ok := n.parse(text)
		return n.wrap(v), ok && v >= n.low && v <= n.high
	}}
}

func (n number) wrap(v int64) any {
	if n.value == nil {
		return v
	}
	return n.value(v)
}

// orOff adds "off", which is stored as the value off; so are -1, as in the library's fields,
// and a 0 if zero is true. A 0 that somebody wrote must not reach a field whose
// zero stands for its default.
func (n number) orOff(off int64, zero bool) kind {
	k := n.kind()
	in := k.parse
	if zero {
		k.valid += ", or 0 for off"
	} else {
		k.valid += `, or "off"`
	}
	k.parse = func(text string) (any, bool) {
		v, isNumber := n.parse(text)
		if text == "off" || isNumber && (v == 0 && zero || text == "-1" && off == -1) {
			return n.wrap(off), true
		}
		return in(text)
	}
	return k
}

// orAuto adds "auto", which is stored as the value auto.
func (n number) orAuto(auto int64) kind {
	k := n.kind()
	in := k.parse
	k.valid += `, or "auto"`
	k.parse = func(text string) (any, bool) {
		if text == "auto" {
			return n.wrap(auto), true
		}
		return in(text)
	}
	return k
}

// most is no limit above.
const most = math.MaxInt64

func decimal(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

func showDecimal(n int64) string { return strconv.FormatInt(n, 10) }

// integer is a whole number; typ is what --help calls it.
func integer(typ string, low, high int64) number {
	return number{typ: typ, what: "a whole number", low: low, high: high, parse: decimal, show: showDecimal}
}

func duration(low, high time.Duration) number {
	return number{
		typ: "duration", what: "a duration", hint: durationHint(time.Duration(high)), low: int64(low), high: int64(high),
		parse: func(text string) (int64, bool) {
			d, err := ParseDuration(text)
			return int64(d), err == nil
		},
		show:  func(n int64) string { return showDuration(time.Duration(n)) },
		value: func(n int64) any { return time.Duration(n) },
	}
}

// durationHint shows how durations are written, up to high.
func durationHint(high time.Duration) string {
	if high > day {
		return ", with a unit as in 500ms, 10m or 90d"
	}
	return ", with a unit as in 500ms, 2s or 10m"
}

// ParseDuration reads a duration as all settings have it: as time.ParseDuration does, or in
// whole days of 24 hours, such as 7d.
func ParseDuration(text string) (time.Duration, error) {
	days, ok := strings.CutSuffix(text, "d")
	if !ok {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseInt(days, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of days", text)
	}
	if limit := int64(math.MaxInt64 / day); n > limit || n < -limit {
		return 0, fmt.Errorf("%q is more than %d days", text, limit)
	}
	return time.Duration(n) * day, nil
}

// showDuration is a duration without the units that are 0.
func showDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// units of sizes, the largest first.
var units = []struct {
	suffix string
	bytes  int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// size is a number of bytes.
func size(low, high int64) number {
	return number{
		typ: "bytes", what: "a size", hint: ", in bytes or with a unit as in 64KiB, 64MiB or 2GiB", low: low, high: high,
		parse: parseSize, show: showSize,
	}
}

func parseSize(text string) (int64, bool) {
	digits, unit := text, int64(1)
	for _, u := range units {
		if d, ok := strings.CutSuffix(text, u.suffix); ok {
			digits, unit = strings.TrimRight(d, " "), u.bytes
		}
	}
	n, ok := decimal(digits)
	return n * unit, ok && n >= 0 && n <= math.MaxInt64/unit
}

func showSize(n int64) string {
	for _, u := range units {
		if n != 0 && n%u.bytes == 0 {
			return showDecimal(n/u.bytes) + u.suffix
		}
	}
	return showDecimal(n)
}

// real is a number with a fraction.
func real(typ, what string, low, high float64) kind {
	valid := fmt.Sprintf("%s from %v to %v", what, low, high)
	if math.IsInf(high, 1) {
		valid = fmt.Sprintf("%s of at least %v", what, low)
	}
	return kind{typ: typ, valid: valid, parse: func(text string) (any, bool) {
		n, err := strconv.ParseFloat(text, 64)
		return n, err == nil && n >= low && n <= high && !math.IsInf(n, 0)
	}}
}

// seconds is a duration, and without a unit a number of seconds.
func seconds(low, high time.Duration) kind {
	d := duration(low, high)
	k := d.kind()
	k.typ = "seconds"
	k.valid = fmt.Sprintf("a number of seconds from %v to %v, or a duration with a unit as in 500ms", low.Seconds(), high.Seconds())
	withUnit := k.parse
	k.parse = func(text string) (any, bool) {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return withUnit(text)
		}
		return time.Duration(n * float64(time.Second)), n >= low.Seconds() && n <= high.Seconds()
	}
	return k
}

var boolean = kind{typ: "bool", valid: "true or false", parse: func(text string) (any, bool) {
	switch strings.ToLower(text) {
	case "true", "t", "1", "yes", "on":
		return true, true
	case "false", "f", "0", "no", "off":
		return false, true
	}
	return false, false
}}

// choice is one of some words.
func choice(typ string, words ...string) kind {
	last := len(words) - 1
	valid := strings.Join(words[:last], ", ") + " or " + words[last]
	return kind{typ: typ, valid: valid, parse: func(text string) (any, bool) {
		for _, w := range words {
			if text == w {
				return text, true
			}
		}
		return nil, false
	}, words: words}
}

// text is taken as it is.
func text(typ string) kind {
	return kind{typ: typ, valid: "text", parse: func(text string) (any, bool) { return text, true }}
}

// name is a text that is not empty.
func name(typ string) kind {
	return kind{typ: typ, valid: "a " + typ + ": it is empty", parse: func(text string) (any, bool) { return text, text != "" }}
}

// envName is the name of an environment variable that a shell can set.
var envName = kind{typ: "name", valid: "the name of an environment variable: letters, digits and _, the first no digit", parse: func(text string) (any, bool) {
	for i, c := range text {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return nil, false
		}
	}
	return text, text != ""
}}

// host is a host, or host:port.
var host = kind{typ: "host", valid: "a host or host:port", parse: func(text string) (any, bool) {
	if !HasPort(text) {
		_, number := decimal(text) // a port that lacks its colon
		return text, text != "" && !number
	}
	_, port, err := net.SplitHostPort(text)
	n, ok := decimal(port)
	return text, err == nil && ok && n >= 0 && n <= 65535
}}

// pageAddress is where a page is served: host:port, or a port of this machine alone.
var pageAddress = kind{typ: "address", valid: "host:port, :port or port, and the port from 0 to 65535", parse: func(text string) (any, bool) {
	port := text
	if strings.Contains(text, ":") {
		var err error
		if _, port, err = net.SplitHostPort(text); err != nil {
			return nil, false
		}
	}
	n, ok := decimal(port)
	return text, ok && n >= 0 && n <= 65535
}}

// HasPort reports whether a host has a port behind it.
func HasPort(text string) bool {
	_, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return strings.Contains(text, ":") && err != nil
}

// list is separated by commas.
var list = kind{typ: "list", valid: "a list", parse: func(text string) (any, bool) {
	var all []string
	for e := range strings.SplitSeq(text, ",") {
		if e = strings.TrimSpace(e); e != "" {
			all = append(all, e)
		}
	}
	return all, true
}}

// names is a list that is not empty: one that a script left empty must not mean all.
var names = kind{typ: list.typ, valid: "a list: it is empty", parse: func(text string) (any, bool) {
	all, _ := list.parse(text)
	return all, len(all.([]string)) > 0
}}
