package main

import (
	"fmt"
	"io"
	"os"
)

// paint colours text on a terminal, unless NO_COLOR is set.
type paint struct{ on bool }

func newPaint(out io.Writer) paint {
	return paint{on: isScreen(out) && os.Getenv("NO_COLOR") == ""}
}

// Terminal colour codes.
const (
	red    = 31
	green  = 32
	yellow = 33
	blue   = 34
)

func (p paint) in(colour int, text string) string {
	if !p.on {
		return text
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", colour, text)
}

func (p paint) good(text string) string { return p.in(green, text) }

// severity returns a finding's severity, padded to the widest.
func (p paint) severity(name string) string {
	colour := map[string]int{"error": red, "warning": yellow, "info": blue}[name]
	return p.in(colour, fmt.Sprintf("%-7s", name))
}
