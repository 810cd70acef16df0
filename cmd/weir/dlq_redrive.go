package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir"
)

const redriveHelp = `Redrive sends dead letters back to their stream, where workers take them like new
messages. Payload and headers stay; the header weir-redrives counts how often.

A letter is sent back once it has been dead for --delay, doubled for each time that it
has been sent back before, up to --max-delay. Letters whose time has not come are left,
or waited for with --wait. --follow never ends and also sends back what dies later: run
like that, it is a worker that retries with growing delays.

It can be stopped and started again at any time: no message is lost, and none is sent
twice by it. Without any ID or filter it takes all.

On Redis a letter goes to the group that it failed in. Where others would handle it
too, which are groups and consumers that are not weir's, redrive names them before it
sends anything and asks on a terminal; anywhere else it needs --yes.`

const redriveExample = `  weir dlq redrive --dry-run 'redis://127.0.0.1:6379/0?stream=orders&group=billing'
  weir dlq redrive --reason max_deliveries --rate 50 http://127.0.0.1:4000/orders
  weir dlq redrive --follow --delay 1m --max-delay 6h http://127.0.0.1:4000/orders`

func newDLQRedriveCmd() *cobra.Command {
	var opt letterFlags
	var cfg weir.RedriveConfig
	cmd := &cobra.Command{
		Use:     "redrive URL [ID…]",
		Short:   "Send dead letters back to their stream",
		Long:    redriveHelp,
		Example: redriveExample,
		Args:    cobra.MinimumNArgs(1),
	}
	opt.add(cmd)
	f := cmd.Flags()
	f.DurationVar(&cfg.Delay, "delay", time.Second, "how long a letter stays dead, doubled with each redrive; 0 = not at all")
	f.DurationVar(&cfg.MaxDelay, "max-delay", time.Hour, "the longest such delay")
	f.Float64Var(&cfg.Rate, "rate", 0, "most messages a second; 0 = no limit")
	f.BoolVar(&cfg.Wait, "wait", false, "wait for letters whose time has not come")
	f.BoolVar(&cfg.Follow, "follow", false, "never end, and send back what dies later too")
	f.BoolVar(&cfg.DryRun, "dry-run", false, "only print what would be sent")
	f.BoolVar(&cfg.ToOthers, "yes", false, "do not ask if others would handle the messages too")
	cmd.MarkFlagsMutuallyExclusive("follow", "dry-run")
	cmd.RunE = opt.run(func(ctx context.Context, d *weir.DeadLetters) error {
		if cfg.Delay == 0 {
			cfg.Delay = -1
		}
		if err := cfg.WithDefaults().Validate(); err != nil {
			named := strings.NewReplacer("MaxDelay", "--max-delay", "Delay", "--delay", "Rate", "--rate")
			return &usageError{errors.New(named.Replace(err.Error()))}
		}
		cfg.Filter = opt.filter
		return runRedrive(ctx, cmd, d, cfg, opt.json)
	})
	return cmd
}

func runRedrive(ctx context.Context, cmd *cobra.Command, d *weir.DeadLetters, cfg weir.RedriveConfig, asJSON bool) error {
	out := newLetterPrinter(cmd.OutOrStdout(), asJSON)
	watch := &redriveWatch{out: cmd.ErrOrStderr(), terminal: isTerminal(cmd.ErrOrStderr())}
	var printErr error
	cfg.Progress = func(l *weir.DeadLetter, err error) {
		switch {
		case err != nil:
			watch.failed(l, err)
		case cfg.DryRun:
			printErr = errors.Join(printErr, out.row(l))
		default:
			watch.sent()
		}
	}
	cfg.Waiting = watch.waiting
	result, err := d.Redrive(ctx, cfg)
	watch.finish()
	if others := (*weir.OtherReadersError)(nil); errors.As(err, &others) && result.Sent == 0 {
		if !isTerminal(cmd.InOrStdin()) {
			return fmt.Errorf("%w; nothing was sent: add --yes to send them to those as well", err)
		}
		question := fmt.Sprintf("%s also go to %s. Send them? [y/N] ", oneLine(d.Name()), oneLine(strings.Join(others.Others, ", ")))
		if !confirm(ctx, cmd, question, "nothing was sent") {
			return nil
		}
		cfg.ToOthers = true
		result, err = d.Redrive(ctx, cfg)
		watch.finish()
	}
	if ctx.Err() != nil {
		err = nil // stopped by a signal, which is no failure
	}
	return errors.Join(printErr, out.end(), reportRedrive(cmd.OutOrStdout(), d.Name(), &cfg, result, asJSON), err)
}

func reportRedrive(out io.Writer, name string, cfg *weir.RedriveConfig, r weir.Redriven, asJSON bool) error {
	if asJSON {
		line := struct {
			DeadLetter string `json:"dead_letter"`
			DryRun     bool   `json:"dry_run"`
			Sent       int    `json:"sent"`
			Early      int    `json:"early"`
			Failed     int    `json:"failed"`
			NextMS     *int64 `json:"next_ms"` // null: no letter has to wait
		}{name, cfg.DryRun, r.Sent, r.Early, r.Failed, nil}
		if r.Early > 0 {
			ms := r.Next.UnixMilli()
			line.NextMS = &ms
		}
		return json.NewEncoder(out).Encode(line)
	}
	verb := "sent back"
	if cfg.DryRun {
		verb = "would be sent back"
	}
	text := fmt.Sprintf("%d %s from %s", r.Sent, verb, oneLine(name))
	if r.Early > 0 {
		text += fmt.Sprintf(", %d not due yet, the first at %s", r.Early, r.Next.Format(time.RFC3339))
	}
	if r.Failed > 0 {
		text += fmt.Sprintf(", %d failed", r.Failed)
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

// redriveWatch shows on a terminal how far a redrive has come. Anywhere else it
// says only what fails.
type redriveWatch struct {
	out      io.Writer
	terminal bool
	drawn    time.Time
	count    int
}

func (w *redriveWatch) sent() {
	w.count++
	w.draw("", progressEvery)
}

func (w *redriveWatch) waiting(letters int, next time.Time) {
	w.draw(fmt.Sprintf(", %d wait, the first until %s", letters, next.Format(time.TimeOnly)), 0)
}

func (w *redriveWatch) draw(tail string, every time.Duration) {
	if !w.terminal || time.Since(w.drawn) < every {
		return
	}
	w.drawn = time.Now()
	fmt.Fprintf(w.out, "\r\x1b[K%d sent back%s", w.count, tail)
}

func (w *redriveWatch) failed(l *weir.DeadLetter, err error) {
	w.finish()
	fmt.Fprintf(w.out, "weir dlq redrive: %s: %v\n", oneLine(l.ID), err)
}

// finish leaves the terminal's line empty for what follows.
func (w *redriveWatch) finish() {
	if w.terminal {
		fmt.Fprint(w.out, "\r\x1b[K")
	}
}
