package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
)

const doctorHelp = `Doctor looks for troubles that streams are known for: entries that were trimmed before
they were done, messages that are stuck, a lag that the server does not know, dead
letters that nobody looks at, consumers that are gone, settings that can lose data. It says
what each means and what to do, and changes nothing.

Exit codes: 0 no trouble worse than a warning, 1 an error was found or the server
was not reached, 2 the command line, a variable or the URL cannot be understood.`

const doctorExample = `  weir doctor 'redis://127.0.0.1:6379/0?stream=orders&group=billing'
  weir doctor --json http://127.0.0.1:4000/orders | jq '.findings[].code'`

func newDoctorCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "doctor URL",
		Short:   "Look for known troubles of a stream and say what to do",
		Long:    doctorHelp,
		Example: doctorExample,
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return runDoctor(cmd, args[0], asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the findings as one JSON line")
	addKeyFlag(cmd)
	return tellsUsage(cmd)
}

// diagnosis is what doctor prints.
type diagnosis struct {
	Stream     string            `json:"stream"`
	Group      string            `json:"group"`
	Kind       string            `json:"kind"`
	Server     string            `json:"server"`
	Durability string            `json:"durability"`
	Findings   []backend.Finding `json:"findings"`
}

func runDoctor(cmd *cobra.Command, url string, asJSON bool) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := openExisting(ctx, cmd, url)
	if err != nil {
		return err
	}
	defer s.Close()
	d, err := examine(ctx, s)
	if err != nil {
		return err
	}
	if asJSON {
		err = json.NewEncoder(cmd.OutOrStdout()).Encode(d)
	} else {
		err = d.print(cmd.OutOrStdout(), newPaint(cmd.OutOrStdout()))
	}
	if err == nil && d.worst() == "error" {
		return errSaid
	}
	return err
}

func examine(ctx context.Context, s *weir.Stream) (diagnosis, error) {
	info := s.Info()
	doctor, ok := s.Backend().(backend.Doctor)
	if !ok {
		return diagnosis{}, fmt.Errorf("doctor on a %s stream: %w", info.Kind, weir.ErrUnsupported)
	}
	found, err := doctor.Examine(ctx)
	return diagnosis{
		Stream: info.Stream, Group: info.Group, Kind: info.Kind, Server: info.Server, Durability: info.Durability,
		Findings: append([]backend.Finding{}, found...),
	}, err
}

// worst is the worst severity there is, empty if there is no finding.
func (d *diagnosis) worst() (worst string) {
	for _, f := range d.Findings {
		if f.Severity == "error" || worst == "" || worst == "info" {
			worst = f.Severity
		}
	}
	return worst
}

func (d *diagnosis) print(out io.Writer, c paint) error {
	fmt.Fprintf(out, "stream %s, group %s: %s, durability %s\n", oneLine(d.Stream), oneLine(d.Group), oneLine(d.Server), d.Durability)
	for _, f := range d.Findings {
		fmt.Fprintf(out, "%s %s: %s\n        %s\n", c.severity(f.Severity), f.Code, oneLine(f.Problem), oneLine(f.Advice))
	}
	if len(d.Findings) == 0 {
		_, err := fmt.Fprintln(out, c.good("no trouble found"))
		return err
	}
	_, err := fmt.Fprintf(out, "%d found, the worst is of severity %s\n", len(d.Findings), d.worst())
	return err
}
