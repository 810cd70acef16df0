package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
)

// talkative is an error like those of the storage engine: asked for all that it knows, it prints
// the stack, too.
type talkative struct{ error }

func (e talkative) Format(s fmt.State, verb rune) {
	io.WriteString(s, e.Error())
	if verb == 'v' && s.Flag('+') {
		io.WriteString(s, "\n(1) attached stack trace")
	}
}

func TestAnErrorIsLoggedWithoutItsStack(t *testing.T) {
	err := talkative{errors.New("no space left on device")}
	for _, format := range []string{"text", jsonFormat} {
		var out bytes.Buffer
		newLog(&out, format, slog.LevelInfo).With("first", err).Info("m", "error", err, slog.Group("g", "cause", err))
		if line := out.String(); strings.Contains(line, "stack") || strings.Count(line, err.Error()) != 3 {
			t.Errorf("as %s: %s", format, line)
		}
	}
}
