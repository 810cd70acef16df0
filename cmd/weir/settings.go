package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/settings"
)

// source is where the settings of a command come from.
func source(cmd *cobra.Command, c settings.Command) settings.Source {
	return settings.Source{Command: c, Flags: cmd.Flags()}
}

// load reads the settings of a command into its fields.
func load(cmd *cobra.Command, c settings.Command, fields settings.Fields) error {
	if _, err := settings.Load(source(cmd, c), fields); err != nil {
		return &usageError{err}
	}
	if err := fillFromContext(cmd, fields); err != nil {
		return &usageError{err}
	}
	warnUnknown(cmd.ErrOrStderr())
	return nil
}

// warnUnknown names the variables that look like settings and are none.
func warnUnknown(out io.Writer) {
	for _, text := range settings.Unknown(os.Environ()) {
		fmt.Fprintln(out, "weir: warning:", text)
	}
}
