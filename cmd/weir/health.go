package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/client"
	"github.com/weirmq/weir/internal/settings"
)

const healthHelp = `Health asks a server whether it is ready and prints the answer. The exit code is 0 if it
is and 1 otherwise: while it recovers, stands by, stops, or cannot be reached within
5 s. It is the health check of a container that has no shell and no curl.

A server whose disk is full is ready: deletes and acks have to reach it.`

const healthExample = `  weir health http://127.0.0.1:4000
  weir health --wait 1m https://orders.example.com && weir publish https://orders.example.com/orders orders.txt`

// Bounds of one question, and the time between two.
const (
	healthTimeout = 5 * time.Second
	healthPoll    = 100 * time.Millisecond
)

type healthOptions struct {
	live bool
	wait time.Duration
	keys keyOptions
}

func newHealthCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "health URL",
		Short:   "Ask a server whether it is ready",
		Long:    healthHelp,
		Example: healthExample,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt healthOptions
			if err := load(cmd, settings.Health, opt.keys.fields(settings.Fields{"live": &opt.live, "wait": &opt.wait})); err != nil {
				return err
			}
			return runHealth(cmd, args[0], &opt)
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Health)
	return cmd
}

func runHealth(cmd *cobra.Command, server string, opt *healthOptions) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	target, err := client.ParseServerURL(server)
	if err != nil {
		return &usageError{err}
	}
	c, err := opt.keys.connect(target)
	if err != nil {
		return err
	}
	defer c.Close()
	ask, good := c.Ready, "ready"
	if opt.live {
		ask, good = c.Live, "live"
	}
	begin := time.Now()
	for {
		err = askOnce(ctx, ask)
		if err == nil {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), good)
			return err
		}
		if ctx.Err() != nil || time.Since(begin) >= opt.wait {
			return err
		}
		select {
		case <-time.After(min(healthPoll, opt.wait-time.Since(begin))):
		case <-ctx.Done():
			return err
		}
	}
}

// askOnce asks for healthTimeout at most.
func askOnce(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	return ask(ctx)
}
