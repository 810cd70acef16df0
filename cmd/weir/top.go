package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/internal/board"
	"github.com/weirmq/weir/internal/client"
	"github.com/weirmq/weir/internal/dash"
	"github.com/weirmq/weir/internal/settings"
	"github.com/weirmq/weir/internal/top"
)

const topHelp = `Top shows streams of Redis, Kafka, weir servers and data directories in the terminal:
whether workers keep up, backlog, pending, flow and age, and for each stream its groups,
workers, what they hold, and its dead letters, which can be sent back there. The URL
of a server without a topic stands for all its topics; that of a weir dash for all that
it shows. ? has the keys.

What is not known is –, which is not 0. A stream that does not answer says since when, and
holds up no other.

If standard output is not a terminal, or with --count, it prints a line for each stream
every 2 s (--every):

  2026-01-31T12:00:00Z orders state=nominal group=billing kind=redis signal=3 backlog=12
  pending=3 in=10.2 out=9.8 oldest_ms=1200 workers=2 pressure=– refused=– dead=0

NO_COLOR turns colours off.`

const topExample = `  weir top http://127.0.0.1:4000 'redis://127.0.0.1:6379/0?stream=orders&group=billing'
  weir top --count 1 'kafka://127.0.0.1:9092/events?group=audit' | grep -v state=nominal`

// topOptions are the settings of top.
type topOptions struct {
	limits dash.Config
	every  time.Duration
	count  int
	keys   keyOptions
}

func newTopCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "top URL…",
		Short:   "Show streams in the terminal",
		Long:    topHelp,
		Example: topExample,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt topOptions
			if err := load(cmd, settings.Top, opt.keys.streamFields(settings.Fields{
				"every": &opt.every, "count": &opt.count, "lag-warn": &opt.limits.LagWarn, "lag-pause": &opt.limits.LagPause,
			})); err != nil {
				return err
			}
			return runTop(cmd, &opt, args)
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Top)
	return cmd
}

func runTop(cmd *cobra.Command, opt *topOptions, urls []string) (err error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var b board.Board
	defer func() { err = errors.Join(err, b.Close()) }()
	sources, err := opt.open(ctx, &b, urls)
	switch {
	case ctx.Err() != nil && opt.count > 0:
		return errInterrupted
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	if opt.count > 0 || !isScreen(cmd.OutOrStdout()) {
		return top.Print(ctx, cmd.OutOrStdout(), sources, opt.every, opt.count)
	}
	return top.Run(ctx, cmd.InOrStdin(), cmd.OutOrStdout(), sources)
}

// open returns the sources of the URLs: servers, and the streams on b.
func (o *topOptions) open(ctx context.Context, b *board.Board, urls []string) (all []top.Source, err error) {
	var opens []func(context.Context) (*weir.Stream, error)
	var place []int
	for i, from := range urls {
		if !isServer(from) {
			opens = append(opens, func(ctx context.Context) (*weir.Stream, error) { return openExisting(ctx, &o.keys, from) })
			place = append(place, i+1)
			continue
		}
		target, err := client.ParseServerURL(from)
		if err != nil {
			return nil, &usageError{fmt.Errorf("URL %d: %w", i+1, err)}
		}
		c, err := o.keys.connect(target)
		if err != nil {
			return nil, err
		}
		all = append(all, top.Server(c))
	}
	if bad, err := b.Add(ctx, opens...); err != nil {
		return nil, fmt.Errorf("URL %d: %w", place[bad], err)
	}
	return append(all, top.Streams(b, o.limits)...), nil
}

// isServer reports whether a URL names a server and no stream of it.
func isServer(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && isHTTP(raw) && (u.Path == "" || u.Path == "/")
}
