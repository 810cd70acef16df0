package main

import (
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
)

const restoreHelp = `Restore makes a data directory out of a backup. The data directory has to be absent
or empty; every file is checked against the backup's manifest while it is copied,
and the data directory appears under its name only when all of it is there. The
backup stays as it is.`

const restoreExample = `  weir restore /backups/weir-monday --data-dir ./weir-data`

func newRestoreCmd() *cobra.Command {
	var asJSON bool
	var dataDir string
	cmd := &cobra.Command{
		Use:     "restore DIR",
		Short:   "Make a data directory out of a backup",
		Long:    restoreHelp,
		Example: restoreExample,
		Args:    cobra.ExactArgs(1),
		RunE: withEnv(func(cmd *cobra.Command, args []string) error {
			start := time.Now()
			m, err := restore(args[0], dataDir)
			if err != nil {
				return err
			}
			reportCopy(cmd.OutOrStdout(), asJSON, "restored into", dataDir, m, time.Since(start))
			return nil
		}),
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "./weir-data", "data directory to make")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as one JSON line")
	return cmd
}

// restore copies the files of the backup, without its manifest, into dataDir.
func restore(backup, dataDir string) (*manifest, error) {
	from, err := os.OpenRoot(backup)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	m, err := readManifest(from)
	if err != nil {
		return nil, err
	}
	if err := m.checkComplete(from); err != nil {
		return nil, err
	}
	err = build(dataDir, func(root *os.Root) error {
		for i := range m.Files {
			f := &m.Files[i]
			copyOne := func(w io.Writer) error { return f.copyFile(from, w) }
			if err := writeFile(root, f.Name, copyOne); err != nil {
				return err
			}
		}
		return nil
	})
	return m, err
}
