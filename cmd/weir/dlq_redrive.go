package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/internal/settings"
)

const redriveHelp = `Redrive sends dead letters back to their stream, where workers receive them like new
messages. Payload and headers are kept, the deadline is not: it would expire again at
once. The header weir-redrives counts the redrives.

A letter is sent back once it has been dead for --delay, which doubles with each earlier
redrive, up to --max-delay. Letters that are not due yet are left alone, or waited for
with --wait. With --follow the command never stops and also sends back what dies later,
like a worker that retries with growing delays; it waits for a server that is away.

It can be stopped and restarted at any time: it loses no message and sends none
twice. Without an ID or a filter it sends back all.

On Redis and Kafka a letter goes back to the group in which it failed. If others on Redis
would handle it too, that is, groups and consumers that are not weir's, redrive names
them before it sends anything and asks on a terminal; elsewhere it needs --yes. On Kafka
others get it, too: the header weir-redrive-group tells them whose it is.`

const redriveExample = `  weir dlq redrive --dry-run 'redis://127.0.0.1:6379/0?stream=orders&group=billing'
  weir dlq redrive --reason max_deliveries --rate 50 http://127.0.0.1:4000/orders
  weir dlq redrive --follow --delay 1m --max-delay 6h http://127.0.0.1:4000/orders`

func newDLQRedriveCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "redrive URL [ID…]",
		Short:   "Send dead letters back to their stream",
		Long:    redriveHelp,
		Example: redriveExample,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt letterOptions
			var cfg weir.RedriveConfig
			if err := load(cmd, settings.Redrive, opt.fields(settings.Fields{
				"delay": &cfg.Delay, "max-delay": &cfg.MaxDelay, "rate": &cfg.Rate, "wait": &cfg.Wait,
				"follow": &cfg.Follow, "dry-run": &cfg.DryRun, "yes": &cfg.ToOthers,
			})); err != nil {
				return err
			}
			if cfg.Follow && cfg.DryRun {
				return &usageError{errors.New("--follow and --dry-run exclude each other")}
			}
			opt.waits = cfg.Follow
			page, err := measure(cmd.Context(), "dlq", "", cmd.ErrOrStderr(), newLog(cmd.ErrOrStderr(), "text", slog.LevelInfo))
			if err != nil {
				return err
			}
			defer page.close()
			return opt.run(cmd, args, func(ctx context.Context, d *weir.DeadLetters) error {
				cfg.Filter, cfg.Tracing = opt.filter, page.tracing()
				return runRedrive(ctx, cmd, d, cfg, opt.json)
			})
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Redrive)
	return cmd
}

func runRedrive(ctx context.Context, cmd *cobra.Command, d *weir.DeadLetters, cfg weir.RedriveConfig, form output) error {
	out := form.letters(cmd.OutOrStdout())
	watch := &redriveWatch{out: cmd.ErrOrStderr(), terminal: isScreen(cmd.ErrOrStderr())}
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
	cfg.Waiting, cfg.Lost = watch.waiting, watch.lost
	result, err := d.Redrive(ctx, cfg)
	watch.finish()
	if others := (*weir.OtherReadersError)(nil); errors.As(err, &others) && result.Sent == 0 {
		if !isTerminal(cmd.InOrStdin()) {
			return fmt.Errorf("%w; nothing was sent: add --yes to send them to those as well", err)
		}
		question := fmt.Sprintf("%s also go to %s. Send them? [y/N] ", oneLine(d.Name()), oneLine(strings.Join(others.Others, ", ")))
		if !confirm(ctx, cmd, question, "nothing was sent") {
			return ctx.Err()
		}
		cfg.ToOthers = true
		result, err = d.Redrive(ctx, cfg)
		watch.finish()
	}
	switch {
	case err == nil || ctx.Err() == nil:
	case cfg.Follow:
		err = nil // nothing else ends it
	default:
		err = errInterrupted
	}
	return errors.Join(printErr, out.end(), form.print(cmd.OutOrStdout(), redrivenOf(d.Name(), &cfg, result)), err)
}

// redriven is the result of a redrive, or of its dry run.
type redriven struct {
	DeadLetter string `json:"dead_letter"`
	DryRun     bool   `json:"dry_run"`
	Sent       int    `json:"sent"`
	Early      int    `json:"early"`
	Failed     int    `json:"failed"`
	NextMS     *int64 `json:"next_ms"` // null: no letter is waiting
}

func redrivenOf(name string, cfg *weir.RedriveConfig, r weir.Redriven) redriven {
	out := redriven{DeadLetter: name, DryRun: cfg.DryRun, Sent: r.Sent, Early: r.Early, Failed: r.Failed}
	if r.Early > 0 {
		ms := r.Next.UnixMilli()
		out.NextMS = &ms
	}
	return out
}

func (r redriven) String() string {
	verb := "sent back"
	if r.DryRun {
		verb = "would be sent back"
	}
	text := fmt.Sprintf("%d %s from %s", r.Sent, verb, oneLine(r.DeadLetter))
	if r.NextMS != nil {
		text += fmt.Sprintf(", %d not due yet, the first at %s", r.Early, time.UnixMilli(*r.NextMS).Format(time.RFC3339))
	}
	if r.Failed > 0 {
		text += fmt.Sprintf(", %d failed", r.Failed)
	}
	return text
}

// redriveWatch shows the progress of a redrive on a terminal. Elsewhere it only
// reports failures.
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
	w.draw(fmt.Sprintf(", %d waiting, the first until %s", letters, next.Format(time.TimeOnly)), 0)
}

func (w *redriveWatch) draw(tail string, every time.Duration) {
	if !w.terminal || time.Since(w.drawn) < every {
		return
	}
	w.drawn = time.Now()
	redraw(w.out, fmt.Sprintf("%d sent back%s", w.count, tail))
}

func (w *redriveWatch) failed(l *weir.DeadLetter, err error) {
	w.finish()
	fmt.Fprintf(w.out, "weir dlq redrive: %s: %v\n", oneLine(l.ID), err)
}

func (w *redriveWatch) lost(err error) {
	w.finish()
	fmt.Fprintf(w.out, "weir dlq redrive: waiting for the server: %v\n", err)
}

// finish clears the terminal's line for what follows.
func (w *redriveWatch) finish() {
	if w.terminal {
		redraw(w.out, "")
	}
}
