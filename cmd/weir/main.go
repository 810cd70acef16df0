// Command weir is a durable stream queue: the server and the commands that move
// messages through it.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	if err := newRoot().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "weir:", err)
		os.Exit(1)
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
		newServeCmd(),
		newPublishCmd(), newWorkCmd(), newTailCmd(),
		newBackupCmd(), newRestoreCmd(), newRepairCmd(),
	)
	return root
}
