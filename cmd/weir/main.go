// Command weir is a durable stream queue: the server and the commands that move
// messages through it.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
)

func main() {
	logging.Disable() // errors are told by the commands
	cmd, err := newRoot().ExecuteC()
	if err == nil {
		return
	}
	if !errors.Is(err, errSaid) {
		fmt.Fprintln(os.Stderr, "weir:", told(cmd, err))
	}
	os.Exit(exitCode(err))
}

// newRoot returns the command line with every command.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "weir",
		Short:         "A durable stream queue in one program",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs, // so that RunE can say what was meant
		RunE:          noCommand,

		SuggestionsMinimumDistance: maxTypos,
	}
	root.AddCommand(
		newServeCmd(), newSampleCmd(), newDoctorCmd(), newDLQCmd(),
		newPublishCmd(), newWorkCmd(), newTailCmd(),
		newBackupCmd(), newRestoreCmd(), newRepairCmd(), newVersionCmd(),
	)
	checkUsage(root)
	return root
}

func newVersionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "weir %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
