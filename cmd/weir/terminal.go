package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/weirmq/weir/internal/top"
)

// isTerminal reports whether a stream is connected to a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// isScreen reports whether a stream is connected to a terminal on which lines can be drawn anew.
func isScreen(stream any) bool { return isTerminal(stream) && os.Getenv("TERM") != "dumb" }

// redraw replaces the line of a terminal that the cursor is on. What does not fit is cut
// off: the rest of a line that is broken in two would stay.
func redraw(out io.Writer, line string) {
	line = oneLine(line)
	if f, ok := out.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			line = top.Fit(line, width)
		}
	}
	fmt.Fprint(out, "\r\x1b[K", line)
}
