package main

import (
	"os"

	"golang.org/x/term"
)

// isTerminal reports whether somebody looks at what is written or types what is read.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
