package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/tests/bubble"
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

// deaf takes a line when it can have the token of held.
type deaf struct {
	held chan struct{}
	bytes.Buffer
}

func (d *deaf) Write(b []byte) (int, error) {
	d.held <- struct{}{}
	defer func() { <-d.held }()
	return d.Buffer.Write(b)
}

func TestALogThatNobodyReadsKeepsNobodyWaiting(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		out := deaf{held: make(chan struct{}, 1)}
		log := newLog(newPatientWriter(&out, func(lines int) { fmt.Fprintf(&out, "%d left out\n", lines) }), "text", slog.LevelInfo)
		said := func() (all []string) {
			for _, line := range strings.SplitAfter(out.String(), "\n") {
				if _, what, ok := strings.Cut(line, "msg="); ok {
					line = what
				}
				all = append(all, strings.TrimSuffix(line, "\n"))
			}
			return all[:len(all)-1]
		}
		begin := time.Now()
		log.Info("first")
		if got := said(); !slices.Equal(got, []string{"first"}) || time.Since(begin) != 0 {
			t.Fatalf("%q after %v", got, time.Since(begin))
		}
		out.held <- struct{}{}
		log.Info("waits")
		for range 3 {
			log.Info("left out")
		}
		if took := time.Since(begin); took != patience {
			t.Errorf("four lines that nobody took kept the server for %v", took)
		}
		<-out.held
		synctest.Wait()
		log.Info("again")
		log.Info("last")
		if got, want := said(), []string{"first", "waits", "3 left out", "again", "last"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
