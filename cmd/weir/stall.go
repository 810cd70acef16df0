package main

import (
	"io"
	"log/slog"
	"os"
	"runtime/pprof"
	"time"
)

// dumpTimeout limits how long writing the stacks may take: the reader of
// standard error may be what blocks everything.
const dumpTimeout = 5 * time.Second

// endStalled ends a server whose log makes no progress, with exitStalled. The stacks
// of all goroutines, on out, show what blocks it.
func endStalled(log *slog.Logger, after time.Duration, out io.Writer) func(what string) {
	return func(what string) {
		said := make(chan struct{})
		go func() {
			defer close(said)
			log.Error("the log makes no progress; ending the process, the stacks of all goroutines follow",
				"for", after, "what", what)
			_ = pprof.Lookup("goroutine").WriteTo(out, 2) // nowhere to report an error
		}()
		select {
		case <-said:
		case <-time.After(dumpTimeout):
		}
		os.Exit(exitStalled)
	}
}
