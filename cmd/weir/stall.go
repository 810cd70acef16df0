package main

import (
	"io"
	"log/slog"
	"os"
	"runtime/pprof"
	"time"
)

// dumpTimeout is how long the stacks may take to be written: whoever reads
// standard error may be what everything waits for.
const dumpTimeout = 5 * time.Second

// endStalled ends a server whose log stands still, with exitStalled. What held
// it up is in the stacks of all goroutines on out.
func endStalled(log *slog.Logger, after time.Duration, out io.Writer) func(what string) {
	return func(what string) {
		said := make(chan struct{})
		go func() {
			defer close(said)
			log.Error("the log stands still; ending the process, the stacks of all goroutines follow",
				"for", after, "what", what)
			_ = pprof.Lookup("goroutine").WriteTo(out, 2) // there is nobody to tell an error
		}()
		select {
		case <-said:
		case <-time.After(dumpTimeout):
		}
		os.Exit(exitStalled)
	}
}
