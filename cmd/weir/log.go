package main

import (
	"io"
	"log/slog"
	"os"

	"github.com/weirmq/weir/internal/settings"
)

const jsonFormat = "json"

// newLog makes the log of a command, in the form that --log-format names.
func newLog(out io.Writer, format string, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == jsonFormat {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
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
