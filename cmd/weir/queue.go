package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/internal/settings"
)

const queueHelp = `Queue pauses the workers of a stream and lets them go on: all of its group, in every
process. A paused worker takes nothing new, finishes what it has, and stays connected.
Publishing goes on. A pause lasts until it is resumed, whatever is restarted in between.`

const pauseHelp = `Pause stops all workers of the stream's group from taking messages, until weir queue
resume. What they hold they finish. On a weir server and in a directory nobody is given
anything once the command returns; on Redis other processes may take messages for a second
more. A Kafka group cannot be paused: stop its workers.

The wait of messages grows while a queue is paused. Producers with limits on the backlog
reach them; guards that hold a wait (guard=adaptive, a queue with a wait_slo_ms) refuse
nothing because of a pause. On a weir server the key needs the scope admin.`

func newQueueCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "Pause the workers of a stream, or let them go on",
		Long:  queueHelp,
		Example: `  weir queue pause http://127.0.0.1:4000/orders
  weir queue resume 'redis://127.0.0.1:6379/0?stream=orders&group=billing'`,
		Args: cobra.ArbitraryArgs, // so that RunE can say what was meant
		RunE: noCommand,
	}
	cmd.AddCommand(
		newPauseCmd("pause", "Stop the workers from taking messages", pauseHelp, true),
		newPauseCmd("resume", "Let paused workers go on", "Resume ends a pause of the stream's group. It is no error if there is none.", false),
	)
	return cmd
}

func newPauseCmd(name, short, long string, paused bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:     name + " URL",
		Short:   short,
		Long:    long,
		Example: "  weir queue " + name + " http://127.0.0.1:4000/orders",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var keys keyOptions
			var json output
			if err := load(cmd, settings.Queue, keys.streamFields(settings.Fields{"json": &json})); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			s, err := reacher{cmd.ErrOrStderr(), cmd.CommandPath(), reachFor}.open(ctx, &keys, args[0], openExisting)
			if err != nil {
				return err
			}
			defer s.Close()
			state, err := setPaused(ctx, s, paused)
			if err != nil {
				return err
			}
			if state.noGroup && paused {
				fmt.Fprintf(cmd.ErrOrStderr(), "weir: the stream has no group %q yet: if that is its name, its first worker will find it paused\n", state.Group)
			}
			return json.print(cmd.OutOrStdout(), state)
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Queue)
	return cmd
}

// queueState is what pause and resume print.
type queueState struct {
	Stream  string `json:"stream"`
	Group   string `json:"group"`
	Paused  bool   `json:"paused"`
	Waiting *int64 `json:"waiting"` // nil: not known
	Pending *int64 `json:"pending"`
	noGroup bool
}

func (s queueState) String() string {
	text := s.Stream
	if s.Group != "" {
		text += " (group " + s.Group + ")"
	}
	if s.Paused {
		text += ": paused; "
	} else {
		text += ": not paused; "
	}
	number := func(n *int64) string {
		if n == nil {
			return "unknown"
		}
		return fmt.Sprint(*n)
	}
	return text + number(s.Waiting) + " waiting, " + number(s.Pending) + " with workers"
}

// setPaused pauses or resumes the stream and reads how it stands. What the user may not read
// is left out.
func setPaused(ctx context.Context, s *weir.Stream, paused bool) (queueState, error) {
	p, err := s.Pressure(ctx)
	switch {
	case errors.Is(p.Missing, weir.ErrStreamNotFound):
		return queueState{}, p.Missing // the library would create it; here its name may be misspelt
	case err != nil && !errors.Is(err, weir.ErrForbidden):
		return queueState{}, err
	}
	set := s.Resume
	if paused {
		set = s.Pause
	}
	if err := set(ctx); err != nil {
		return queueState{}, err
	}
	state := queueState{Stream: s.Info().Stream, Group: s.Info().Group, Paused: paused, noGroup: errors.Is(p.Missing, weir.ErrGroupNotFound)}
	if p, err := s.Pressure(ctx); err == nil {
		if state.Waiting = p.Lag; !p.PendingUnknown {
			state.Pending = &p.Pending
		}
	}
	return state, nil
}
