package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirmq/weir/backend"
)

// Exit codes besides 0.
const (
	exitFailed = 1 // what was asked for could not be done
	exitUsage  = 2 // it was not asked for in a way that can be understood

	exitStalled = 75 // the log of serve stood still; starting again may help
)

// usageError is an error in the command line or its environment, for commands
// that tell it by their exit code.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// errSaid ends a command with exitFailed when all has been said.
var errSaid = errors.New("failed")

// exitCode is the code that an error of a command ends the process with.
func exitCode(err error) int {
	if isUsage(err) {
		return exitUsage
	}
	return exitFailed
}

// isUsage reports whether the command line, a variable or a URL is at fault.
func isUsage(err error) bool {
	var usage *usageError
	var url *backend.URLError
	return errors.As(err, &usage) || errors.As(err, &url)
}

// told is the one line that says what went wrong and, if it is the way it was
// asked for, where to read how.
func told(cmd *cobra.Command, err error) string {
	text := strings.TrimPrefix(err.Error(), "weir: ")
	if isUsage(err) {
		text += "; see `" + cmd.CommandPath() + " --help`"
	}
	return text
}

// maxTypos is how many letters may be wrong in what a user is told he meant.
const maxTypos = 2

// noCommand runs where no command was named, or one that there is not.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return &usageError{fmt.Errorf("there is no command %q%s", args[0], meant("", cmd.SuggestionsFor(args[0])))}
}

// meant asks whether the first of some names was meant.
func meant(prefix string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf(", did you mean %s%s?", prefix, names[0])
}

// checkUsage makes errors of usage the same in a command and all below it: one
// line and exitUsage.
func checkUsage(cmd *cobra.Command) {
	cmd.SilenceUsage = true
	cmd.SetFlagErrorFunc(flagError)
	if args := cmd.Args; args != nil {
		cmd.Args = func(cmd *cobra.Command, list []string) error {
			if err := args(cmd, list); err != nil {
				return &usageError{fmt.Errorf("%w: %s", err, cmd.UseLine())}
			}
			return nakedHost(cmd, list)
		}
	}
	for _, c := range cmd.Commands() {
		checkUsage(c)
	}
}

// flagError adds the flag that was meant to the error of one that there is not.
func flagError(cmd *cobra.Command, err error) error {
	var missing *pflag.NotExistError
	if !errors.As(err, &missing) {
		return &usageError{err}
	}
	// Cobra has the distance between names of commands only.
	names := &cobra.Command{SuggestionsMinimumDistance: maxTypos}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	return &usageError{fmt.Errorf("%w%s", err, meant("--", names.SuggestionsFor(missing.GetSpecifiedName())))}
}

// hostFirst is a URL that lacks its scheme. It holds no secret.
var hostFirst = regexp.MustCompile(`^[A-Za-z0-9.-]+:[0-9]+(/[^?@]*)?$`)

// nakedHost refuses host:port/name as a URL and says what it should be.
func nakedHost(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && strings.Contains(cmd.Use, "URL") && hostFirst.MatchString(args[0]) {
		return &usageError{fmt.Errorf("%q is no URL, did you mean http://%s?", args[0], args[0])}
	}
	return nil
}
