package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/settings"
)

// Exit codes besides 0.
const (
	exitFailed = 1 // the command could not do what was asked
	exitUsage  = 2 // the command line, a variable, the file of settings or a URL is wrong
	exitDead   = 3 // messages became dead letters while work ran

	exitStalled = 75 // the log of serve made no progress; starting again may help
)

// usageError is an error in the command line, the environment or the file of settings.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// errSaid ends a command with exitFailed after it has printed everything.
var errSaid = errors.New("failed")

// errInterrupted ends a command that a signal ended before it was done.
var errInterrupted = errors.New("interrupted")

// errDead ends work with exitDead.
var errDead = errors.New("messages became dead letters")

// exitCode is the code with which an error of a command ends the process.
func exitCode(err error) int {
	switch {
	case isUsage(err):
		return exitUsage
	case errors.Is(err, errDead):
		return exitDead
	}
	return exitFailed
}

// isUsage reports whether the command line, a setting or a URL is at fault.
func isUsage(err error) bool {
	var usage *usageError
	var url *backend.URLError
	return errors.As(err, &usage) || errors.As(err, &url)
}

// tell prints the error that ends a command: a line for people, or a log entry
// where the log is JSON.
func tell(out io.Writer, cmd *cobra.Command, err error) {
	switch {
	case errors.Is(err, errSaid):
	case logsJSON(cmd):
		newLog(out, jsonFormat, slog.LevelInfo).Error("weir ends", "error", told(cmd, err))
	default:
		fmt.Fprintln(out, "weir:", told(cmd, err))
	}
}

// logsJSON reports whether the command is a server whose standard error is a log in JSON.
func logsJSON(cmd *cobra.Command) bool {
	return cmd.Name() == "serve" && settings.Text(source(cmd, settings.Serve), "log-format") == jsonFormat
}

// told returns the line that says what went wrong and, after a usage error, where
// to read on.
func told(cmd *cobra.Command, err error) string {
	text := strings.TrimPrefix(err.Error(), "weir: ")
	if isUsage(err) {
		text += "; see `" + cmd.CommandPath() + " --help`"
	}
	return text
}

// noCommand runs where no command is named, or one that does not exist.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return &usageError{fmt.Errorf("there is no command %q%s", args[0], settings.Meant("", args[0], names))}
}

// checkUsage makes usage errors alike in a command and its subcommands: one
// line and exitUsage.
func checkUsage(cmd *cobra.Command) {
	cmd.SilenceUsage = true
	cmd.SetFlagErrorFunc(flagError)
	if args := cmd.Args; args != nil {
		var urls []string // the arguments, with URLs for names
		cmd.Args = func(cmd *cobra.Command, list []string) error {
			all, of, wrong := withURLs(cmd, list)
			if wrong != nil && all == nil {
				all = list // too few are told first
			}
			if err := args(cmd, all); err != nil {
				return &usageError{fmt.Errorf("%w: %s%s", wrongCount(cmd, len(all), err), cmd.UseLine(), switchHint(cmd, list))}
			}
			if wrong != nil {
				return &usageError{fmt.Errorf("%w%s", wrong, switchHint(cmd, list))}
			}
			urls = all
			withBase(cmd, of)
			return checkURLs(cmd, urls)
		}
		if run := cmd.RunE; run != nil {
			cmd.RunE = func(cmd *cobra.Command, _ []string) error {
				return explained(cmd, ofBase(cmd, run(cmd, urls), urls), urls)
			}
		}
	}
	for _, c := range cmd.Commands() {
		checkUsage(c)
	}
}

// wrongCount says which of the arguments that the command's usage names is missing, or that there are
// too many. Without such names it returns err.
func wrongCount(cmd *cobra.Command, n int, err error) error {
	var needed, most int
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if word == "[flags]" || word == "--" {
			continue
		}
		if most++; !strings.HasPrefix(word, "[") {
			if needed++; needed > n {
				return fmt.Errorf("%s is missing", strings.TrimSuffix(word, "…"))
			}
		}
	}
	if n > most && most > 0 {
		return fmt.Errorf("%s, at most %d", countOf(n, "argument"), most)
	}
	return err
}

// explained returns the error of a command with URLs as it is to be told.
func explained(cmd *cobra.Command, err error, urls []string) error {
	if errors.Is(err, context.Canceled) && cmd.Name() != "serve" { // which ends what it does for other reasons, too
		return errInterrupted
	}
	for _, url := range urls {
		if strings.Contains(url, "://") {
			return withRemedy(err, url)
		}
	}
	return err
}

// switchHint explains arguments that were meant as the value of a switch. What stands behind -- was not.
func switchHint(cmd *cobra.Command, args []string) string {
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		args = args[:dash]
	}
	if slices.Contains(args, "true") || slices.Contains(args, "false") {
		return "; a switch takes its value after =, as in --json=false"
	}
	return ""
}

// flagError suggests a flag for an unknown one, and says what is valid for a wrong value.
func flagError(cmd *cobra.Command, err error) error {
	var missing *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &invalid):
		why := invalid.Unwrap()
		if !settings.Owns(invalid.GetFlag()) { // it is a bool of cobra's
			why = fmt.Errorf("%q is not true or false", invalid.GetValue())
		}
		err = fmt.Errorf("flag --%s: %w", invalid.GetFlag().Name, why)
	case errors.As(err, &missing):
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		err = fmt.Errorf("%w%s", err, settings.Meant("--", missing.GetSpecifiedName(), names))
	}
	return &usageError{err}
}
