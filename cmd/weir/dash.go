package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/board"
	"github.com/weirmq/weir/internal/server"
	"github.com/weirmq/weir/internal/settings"
)

const dashHelp = `Dash shows streams of Redis, Kafka and weir servers on the page that serve has at /: lag
with its limits, backlog, flow and ages of the last hour, what is wrong and what to do,
and the dead letters, which can be sent back or purged there. It runs until it is
stopped, and waits for streams that cannot be reached.

It listens on 127.0.0.1. Anyone on this machine who can open the page may do there what
the URLs allow, unless WEIR_API_KEYS has keys for it, in the form of serve: reading needs
the scope read, sending letters back read, write and delete, purging read and delete.`

const dashExample = `  weir dash 'redis://127.0.0.1:6379/0?stream=orders&group=billing'
  weir dash --listen 127.0.0.1:0 http://127.0.0.1:4000/orders 'kafka://127.0.0.1:9092/events?group=audit'`

// dashPort is the port unless --listen names one.
const dashPort = 4040

// dashOptions are the settings of dash: those of the server that it runs, and of the
// streams.
type dashOptions struct {
	server.Config
	listen  string
	apiKeys string
	keys    keyOptions
}

func (o *dashOptions) load(cmd *cobra.Command) error {
	if err := load(cmd, settings.Dash, o.keys.streamFields(settings.Fields{
		"listen": &o.listen, "allowed-hosts": &o.AllowedHosts, "allow-insecure-no-auth": &o.AllowInsecure,
		"api-keys": &o.apiKeys, "lag-warn": &o.LagWarn, "lag-pause": &o.LagPause,
	})); err != nil {
		return err
	}
	o.Addr = listenAddress(o.listen, dashPort)
	var err error
	if o.Keys, err = server.ParseKeys(o.apiKeys); err != nil {
		return &usageError{fmt.Errorf("environment variable WEIR_API_KEYS: %w", err)}
	}
	if err := server.CheckHosts(o.AllowedHosts); err != nil {
		return &usageError{fmt.Errorf("setting allowed_hosts: %w", err)}
	}
	if err := o.CheckBind(); err != nil {
		return &usageError{err}
	}
	o.Limits = api.DefaultLimits()
	return nil
}

func newDashCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "dash URL…",
		Short:   "Show streams on a page in the browser",
		Long:    dashHelp,
		Example: dashExample,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt dashOptions
			if err := opt.load(cmd); err != nil {
				return err
			}
			return runDash(cmd, &opt, args)
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Dash)
	return cmd
}

func runDash(cmd *cobra.Command, opt *dashOptions, urls []string) (err error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var b board.Board
	defer func() { err = errors.Join(err, b.Close()) }()
	opens := make([]func(context.Context) (*weir.Stream, error), len(urls))
	for i, from := range urls {
		opens[i] = func(ctx context.Context) (*weir.Stream, error) { return openExisting(ctx, &opt.keys, from) }
	}
	bad, err := b.Add(ctx, opens...)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("URL %d: %w", bad+1, err)
	}
	l, err := net.Listen("tcp", opt.Addr)
	if err != nil {
		return notListening(err, "with --listen; port 0 is any free one")
	}
	srv := server.New(opt.Config, server.Options{Version: version(), Logger: newLog(cmd.ErrOrStderr(), "text", slog.LevelInfo), Board: &b})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	fmt.Fprintf(cmd.OutOrStdout(), "weir dash: http://%s\n", l.Addr())
	select {
	case <-ctx.Done():
		srv.Stop()
		return <-served
	case err := <-served:
		return err
	}
}
