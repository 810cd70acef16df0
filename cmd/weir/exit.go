package main

import (
	"errors"

	"github.com/spf13/cobra"

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
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// tellsUsage makes a command's errors of usage exit with their own code: wrong
// flags and arguments, variables, and URLs that say nothing.
func tellsUsage(cmd *cobra.Command) *cobra.Command {
	args, run := cmd.Args, cmd.RunE
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	cmd.Args = func(cmd *cobra.Command, list []string) error {
		if err := args(cmd, list); err != nil {
			return &usageError{err}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, list []string) error {
		if err := applyEnv(cmd); err != nil {
			return &usageError{err}
		}
		cmd.SilenceUsage = true
		err := run(cmd, list)
		var url *backend.URLError
		if errors.As(err, &url) {
			return &usageError{err}
		}
		return err
	}
	return cmd
}
