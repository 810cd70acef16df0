// Command weir is a durable stream queue: the server and the commands that move
// messages through it.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
)

func main() {
	logging.Disable() // the commands report errors themselves
	root := newRoot()
	var unsaid error // why no help was printed
	root.SetHelpFunc(noting(&unsaid, root.HelpFunc()))
	cmd, err := root.ExecuteC()
	if err = cmp.Or(err, unsaid); err != nil {
		var out io.Writer = os.Stderr
		if cmd.Name() == "serve" {
			out = newPatientWriter(out, func(int) {})
		}
		tell(out, cmd, err)
		os.Exit(exitCode(err))
	}
}

// noting is help that notes why it could not be printed, which cobra ignores.
func noting(unsaid *error, help func(*cobra.Command, []string)) func(*cobra.Command, []string) {
	return func(cmd *cobra.Command, args []string) {
		var text bytes.Buffer
		out := cmd.OutOrStdout()
		cmd.SetOut(&text)
		help(cmd, args)
		cmd.SetOut(out)
		_, *unsaid = text.WriteTo(out)
	}
}

// newRoot returns the command line with every command.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "weir",
		Short:         "A durable stream queue in one program",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs, // so that RunE can say what was meant
		RunE:          rootCommand,
	}
	root.AddCommand(
		newServeCmd(), newSampleCmd(), newDoctorCmd(), newDashCmd(), newTopCmd(), newQueueCmd(), newDLQCmd(), newTopicCmd(), newRouterCmd(), newWebhookCmd(),
		newPublishCmd(), newWorkCmd(), newTailCmd(),
		newBackupCmd(), newRestoreCmd(), newRepairCmd(), newReplicaCmd(), newBenchCmd(), newKeyCmd(), newContextCmd(), newHealthCmd(), newDebugCmd(), newManCmd(), newVersionCmd(),
	)
	root.Flags().BoolP("version", "v", false, "print the version") // one of cobra's prints by text/template, which keeps the linker from leaving anything out
	root.SetHelpCommand(newHelpCmd())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.HasSubCommands() && !cmd.Runnable() {
			cmd.Args, cmd.RunE = cobra.ArbitraryArgs, noCommand
		}
	}
	complete(root)
	checkUsage(root)
	return root
}

// rootCommand is weir without a command.
func rootCommand(cmd *cobra.Command, args []string) error {
	if asked, err := cmd.Flags().GetBool("version"); asked || err != nil {
		return errors.Join(err, printVersion(cmd, nil))
	}
	return noCommand(cmd, args)
}

// newHelpCmd is cobra's help command with an error for a command that does not exist.
func newHelpCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND…]",
		Short: "Print the help of a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return noCommand(found, rest)
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}
