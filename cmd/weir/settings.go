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

// loadConfigs is load for commands that have the settings of a producer or a pool. They log the
// variables that they do not know.
func loadConfigs(cmd *cobra.Command, c settings.Command, fields settings.Fields) (settings.Configs, *settings.Values, error) {
	configs, values, err := settings.LoadConfigs(source(cmd, c), fields)
	if err == nil {
		err = fillFromContext(cmd, fields)
	}
	if err != nil {
		return configs, values, &usageError{err}
	}
	return configs, values, nil
}

// warnUnknown names the variables that look like settings and are none.
func warnUnknown(out io.Writer) {
	for _, text := range settings.Unknown(os.Environ()) {
		fmt.Fprintln(out, "weir: warning:", text)
	}
}
