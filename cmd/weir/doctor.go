package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/settings"
)

const doctorHelp = `Doctor looks for known problems of a stream and says what each one means, what to do
and which command helps. It changes nothing. It checks in this order:

  1. does the stream exist, and were messages lost: trimmed or deleted before they were done
  2. do the workers keep up: a lag that rises between two readings, workers and
     consumers that have disappeared
  3. do they finish: pending messages with their age, an oldest message older than
     --wait-slo, deliveries that nobody continues, deliveries without a limit
  4. is the lag known? null is not 0
  5. is there room: entries against --maxlen, memory against maxmemory, dead letters
  6. the server: the round trip to it, settings that can lose data

Exit codes: 0 nothing of the severity --fail-on (error) or worse was found, 1 something
was, or there is no such stream, or the server was not reached, 2 the command line, a variable or the URL cannot
be understood. An error is work that is lost or about to be, or that waits ten times
the objective; a warning is what comes to that if nothing is done.`

const doctorExample = `  weir doctor 'redis://127.0.0.1:6379/0?stream=orders&group=billing'
  weir doctor --wait-slo 5m --maxlen 100000 'redis://127.0.0.1:6379/0?stream=jobs&group=workers'
  weir doctor --json http://127.0.0.1:4000/orders | jq -r '.findings[].command'`

type doctorOptions struct {
	exam   weir.Exam
	failOn string
	json   bool
	keys   keyOptions
}

func (o *doctorOptions) fields() settings.Fields {
	return o.keys.streamFields(settings.Fields{
		"json": &o.json, "interval": &o.exam.Interval, "wait-slo": &o.exam.WaitSLO, "maxlen": &o.exam.MaxLen, "fail-on": &o.failOn,
	})
}

func newDoctorCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "doctor URL",
		Short:   "Look for known problems of a stream and say what to do",
		Long:    doctorHelp,
		Example: doctorExample,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt doctorOptions
			if err := load(cmd, settings.Doctor, opt.fields()); err != nil {
				return err
			}
			return runDoctor(cmd, args[0], &opt)
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Doctor)
	return cmd
}

// severities are the severities of findings, worst first.
var severities = []string{backend.SeverityError, backend.SeverityWarning, backend.SeverityInfo}

// diagnosis is what doctor prints.
type diagnosis struct {
	Stream      string            `json:"stream"`
	Group       string            `json:"group"`
	Kind        string            `json:"kind"`
	Server      string            `json:"server"`
	Durability  string            `json:"durability"`
	RoundTripMS *float64          `json:"round_trip_ms"`
	Pressure    *weir.Pressure    `json:"pressure"`
	Findings    []backend.Finding `json:"findings"`
}

func runDoctor(cmd *cobra.Command, from string, opt *doctorOptions) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := openExisting(ctx, &opt.keys, from)
	if err != nil {
		return err
	}
	defer s.Close()
	found, err := s.Examine(ctx, opt.exam)
	if err != nil {
		return err
	}
	found.Findings = append(found.Findings, relayed(ctx, &opt.keys, from)...)
	d := newDiagnosis(s.Info(), &found, from)
	if opt.json {
		err = json.NewEncoder(cmd.OutOrStdout()).Encode(d)
	} else {
		err = d.print(cmd.OutOrStdout(), newPaint(cmd.OutOrStdout()))
	}
	if err == nil && d.fails(opt.failOn) {
		return errSaid
	}
	return err
}

// fails reports whether a finding is of a severity or worse, or that there is no stream.
func (d *diagnosis) fails(severity string) bool {
	return slices.ContainsFunc(d.Findings, func(f backend.Finding) bool {
		return f.Code == "stream_missing" || slices.Index(severities, f.Severity) <= slices.Index(severities, severity)
	})
}

func newDiagnosis(info backend.Info, found *weir.Diagnosis, from string) *diagnosis {
	d := &diagnosis{
		Stream: info.Stream, Group: info.Group, Kind: info.Kind, Server: info.Server, Durability: info.Durability,
		Pressure: found.Pressure, Findings: found.Findings,
	}
	if found.RoundTrip != nil {
		ms := float64(found.RoundTrip.Microseconds()) / 1000
		d.RoundTripMS = &ms
	}
	shown := shownURL(from)
	for i, f := range d.Findings {
		if strings.HasPrefix(f.Command, "weir ") {
			d.Findings[i].Command = strings.ReplaceAll(f.Command, "URL", shown)
		}
	}
	return d
}

// shownURL returns a URL quoted for a shell, without its password or key.
func shownURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "URL"
	}
	if u.User != nil {
		u.User = url.UserPassword(u.User.Username(), "PASSWORD")
	}
	return "'" + strings.ReplaceAll(u.String(), "'", `'\''`) + "'"
}

// worst returns the worst severity, empty without findings.
func (d *diagnosis) worst() string {
	for _, s := range severities {
		if slices.ContainsFunc(d.Findings, func(f backend.Finding) bool { return f.Severity == s }) {
			return s
		}
	}
	return ""
}

func (d *diagnosis) print(out io.Writer, c paint) error {
	fmt.Fprintf(out, "stream %s, group %s: %s, durability %s", oneLine(d.Stream), oneLine(d.Group), oneLine(d.Server), d.Durability)
	if d.RoundTripMS != nil {
		fmt.Fprintf(out, ", round trip %.2f ms", *d.RoundTripMS)
	}
	fmt.Fprintln(out)
	for _, f := range d.Findings {
		fmt.Fprintf(out, "%s %s: %s\n        %s\n", c.severity(f.Severity), f.Code, oneLine(f.Problem), oneLine(f.Advice))
		if f.Command != "" {
			fmt.Fprintf(out, "        $ %s\n", oneLine(f.Command))
		}
	}
	if len(d.Findings) == 0 {
		_, err := fmt.Fprintln(out, c.good("no trouble found"))
		return err
	}
	_, err := fmt.Fprintf(out, "%d found, the worst is of severity %s\n", len(d.Findings), d.worst())
	return err
}
