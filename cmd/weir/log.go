package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/settings"
)

const jsonFormat = "json"

// newLog makes the log of a command, in the form that --log-format names.
func newLog(out io.Writer, format string, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == jsonFormat {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	options.ReplaceAttr = errorText
	return slog.New(slog.NewTextHandler(out, options))
}

// errorText has a log of text say of an error what one of JSON says. By itself it has all that
// the error can print, which for Pebble's is a stack.
func errorText(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindAny {
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(err.Error())
		}
	}
	return a
}

// logTail passes on what is logged and keeps the end of it.
type logTail struct {
	out io.Writer

	mu   sync.Mutex
	kept []byte // at most 2*maxLogTail, from the start of a line
}

const maxLogTail = 256 << 10

func (t *logTail) Write(b []byte) (int, error) {
	t.mu.Lock()
	if t.kept = append(t.kept, b...); len(t.kept) > 2*maxLogTail {
		t.kept = append(t.kept[:0], lastLines(t.kept)...)
	}
	t.mu.Unlock()
	return t.out.Write(b)
}

// Last returns the last lines, at most 256 KiB of them.
func (t *logTail) Last() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(lastLines(t.kept))
}

// lastLines returns the whole lines among the last maxLogTail bytes.
func lastLines(b []byte) []byte {
	if len(b) <= maxLogTail {
		return b
	}
	b = b[len(b)-maxLogTail:]
	return b[bytes.IndexByte(b, '\n')+1:]
}

// patience is how long a line of a server's log waits for whoever reads it. The server holds locks
// while it tells some things, and must not stand still for a reader that does.
const patience = 10 * time.Second

// patientWriter passes on lines. While one is not taken for longer than patience, those behind it
// are left out; told is given their number. Write is called by one goroutine at a time.
type patientWriter struct {
	out  io.Writer
	told func(lines int)

	turn chan struct{} // full while a line is being written
	left int
}

func newPatientWriter(out io.Writer, told func(lines int)) *patientWriter {
	return &patientWriter{out: out, told: told, turn: make(chan struct{}, 1)}
}

func (w *patientWriter) Write(b []byte) (int, error) {
	select {
	case w.turn <- struct{}{}:
	default:
		w.left++
		return len(b), nil
	}
	line, left := slices.Clone(b), w.left
	w.left = 0
	done := make(chan error, 1)
	go func() {
		if left > 0 {
			w.told(left)
		}
		_, err := w.out.Write(line)
		<-w.turn
		done <- err
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-done:
		return len(b), err
	case <-timer.C:
		return len(b), nil
	}
}

// levelOf is the level that --log-level names.
func levelOf(name string) slog.Level {
	var level slog.Level
	_ = level.UnmarshalText([]byte(name)) // the settings know the names
	return level
}

// logUnknown is warnUnknown for commands with a log.
func logUnknown(log *slog.Logger) {
	for _, text := range settings.Unknown(os.Environ()) {
		log.Warn(text)
	}
}

// withoutStages leaves out what a guard did to single publishes, unless it was only simulated.
type withoutStages struct{ slog.Handler }

// Handle implements slog.Handler.
func (h withoutStages) Handle(ctx context.Context, r slog.Record) error {
	var did, simulated bool
	r.Attrs(func(a slog.Attr) bool {
		did, simulated = did || a.Key == "stage", simulated || a.Key == "shadow"
		return true
	})
	if did && !simulated {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h withoutStages) WithAttrs(attrs []slog.Attr) slog.Handler {
	return withoutStages{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h withoutStages) WithGroup(name string) slog.Handler {
	return withoutStages{h.Handler.WithGroup(name)}
}
