package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/engine"
)

func newVersionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and the format of data directories that it writes",
		Args:  cobra.NoArgs,
		RunE:  printVersion,
	}
}

func printVersion(cmd *cobra.Command, _ []string) error {
	_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine())
	return err
}

// versionLine is what weir version prints.
func versionLine() string {
	return fmt.Sprintf("weir %s %s %s/%s, data format %d", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, engine.FormatVersion)
}

// version returns the module version of the binary.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
