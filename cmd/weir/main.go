// Command weir is a durable stream queue: the server and the commands that move
// messages through it.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
)

func main() {
	logging.Disable() // errors are told by the commands
	if err := newRoot().Execute(); err != nil {
		if !errors.Is(err, errSaid) {
			fmt.Fprintln(os.Stderr, "weir:", strings.TrimPrefix(err.Error(), "weir: "))
		}
		os.Exit(exitCode(err))
	}
}

// newRoot returns the command line with every command.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "weir",
		Short:         "A durable stream queue in one program",
		SilenceErrors: true,
	}
	root.AddCommand(
		newServeCmd(), newSampleCmd(), newDoctorCmd(), newDLQCmd(),
		newPublishCmd(), newWorkCmd(), newTailCmd(),
		newBackupCmd(), newRestoreCmd(), newRepairCmd(),
	)
	return root
}
