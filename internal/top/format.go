package top

import (
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// unknown stands for a number that is not known, which is not 0.
const unknown = "–"

// count writes a number in few characters.
func count[T ~int | ~int64](n *T) string {
	if n == nil {
		return unknown
	}
	return short(float64(*n))
}

func short(v float64) string {
	for _, unit := range []string{"", "k", "M", "G"} {
		switch {
		case unit == "" && v < 10_000, unit != "" && v >= 99.95 && v < 999.5:
			return strconv.FormatFloat(v, 'f', 0, 64) + unit
		case unit != "" && v < 99.95:
			return strconv.FormatFloat(v, 'f', 1, 64) + unit
		}
		v /= 1000
	}
	return strconv.FormatFloat(v, 'f', 0, 64) + "T"
}

// rate writes how often something happens per second.
func rate(v *float64) string {
	switch {
	case v == nil:
		return unknown
	case *v == 0:
		return "0"
	case *v < 99.95:
		return strconv.FormatFloat(*v, 'f', 1, 64)
	}
	return short(*v)
}

func share(v *float64) string {
	if v == nil {
		return unknown
	}
	return strconv.FormatFloat(*v, 'f', 2, 64)
}

// age writes a time in milliseconds.
func age(ms *int64) string {
	if ms == nil {
		return unknown
	}
	d := time.Duration(*ms) * time.Millisecond
	switch {
	case d < time.Second:
		return strconv.FormatInt(*ms, 10) + "ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + "m" + strconv.Itoa(int(d%time.Minute/time.Second)) + "s"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + "h" + strconv.Itoa(int(d%time.Hour/time.Minute)) + "m"
	}
	return strconv.Itoa(int(d/(24*time.Hour))) + "d"
}

// clean makes a text of somebody else's safe for a line of a terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r == unicode.ReplacementChar || !unicode.IsPrint(r):
			return '.'
		}
		return r
	}, strings.ToValidUTF8(s, "."))
}

// left and right return a text that takes width cells.
func left(s string, width int) string {
	s = Fit(s, width)
	return s + strings.Repeat(" ", max(0, width-ansi.StringWidth(s)))
}

func right(s string, width int) string {
	s = Fit(s, width)
	return strings.Repeat(" ", max(0, width-ansi.StringWidth(s))) + s
}

// Fit cuts a text at a number of cells.
func Fit(s string, width int) string {
	if width <= 0 {
		return ""
	}
	return ansi.Truncate(s, width, "…")
}

// Colours are for states alone; the terminal chooses what they look like, so that they can
// be read on light and dark.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	bold   = "1"
	invert = "7"
)

func in(style, text string) string {
	if style == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[m"
}

func (s state) colour() string {
	return map[state]string{unreachable: red, deserted: red, backpressure: red, paused: yellow, elevated: yellow, nominal: green}[s]
}
