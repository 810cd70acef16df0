package main

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirmq/weir/internal/settings"
)

const workHelp = `Work takes messages from a stream and runs CMD once for each. CMD reads the payload
from standard input, where all of it is available when CMD starts. Exit code 0 completes
the message; any other returns it, to be retried after a delay that grows with each
delivery. A message that fails --max-deliveries times moves to the dead letters: the stream
"STREAM.dlq", on Redis "{STREAM}:dlq" (see weir dlq).

A message whose sender set a deadline (weir publish --deadline) is not begun after it: it
moves to the dead letters with the reason expired, or is dropped with --expired drop.
A CMD that has begun may finish.

CMD's environment has WEIR_STREAM, WEIR_GROUP, WEIR_ID and WEIR_ATTEMPT, and a
WEIR_HEADER_NAME for each header. The older names mean the same: WEIR_TOPIC,
WEIR_SEQ, WEIR_DELIVERIES, and WEIR_TAG and WEIR_META (a JSON object) if the message
has them. A message whose headers are too large for an environment (on Linux one of 128
KiB) fails. CMD's output is weir's: on Linux, when nobody reads that any more and a CMD
fails, weir drains and exits with 1.

A worker keeps a message while CMD runs. After --reclaim-after, other workers take the
messages of a worker that died. CMD runs in its own process group, which is killed
when its message is lost to another worker, after --handler-timeout,
and when a drain takes too long. A message may be delivered more than once, so CMD
must tolerate repeats.

With --workers auto, weir finds how many CMDs at once do most: many where they wait, about
as many as there are cores where they compute, at most --max-workers.

SIGTERM and SIGINT drain: the worker claims nothing more, returns messages it has not
begun, and gives running CMDs --drain-timeout to finish. A second signal kills them.

Exit codes: 0 drained, or empty (--until-empty), 1 failed, 2 the command line is wrong, 3 it
ended well but messages became dead letters while it ran. The summary says how many.

URL is http[s]://[:key@]host:port/QUEUE (created if it is absent),
redis[s]://[user:pass@]host:port/0?stream=NAME&group=NAME,
kafka[s]://[user:pass@]host:port/TOPIC?group=NAME, or file:///DIR?topic=NAME, which belongs
to one process at a time.`

const workExample = `  weir work http://127.0.0.1:4000/requests -- ./handle-request
  weir work 'redis://127.0.0.1:6379/0?stream=orders&group=billing' --workers 20 -- ./bill
  weir work http://127.0.0.1:4000/imports --until-empty 2s -- python3 import.py`

type workOptions struct {
	durability string // empty: not given
	untilEmpty time.Duration
	json       bool
	logFormat  string
	metrics    string
	keys       keyOptions
}

func (o *workOptions) fields() settings.Fields {
	return o.keys.limitedFields(settings.Fields{
		"durability": &o.durability, "until-empty": &o.untilEmpty, "json": &o.json, "log-format": &o.logFormat, "metrics": &o.metrics,
	})
}

func newWorkCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "work URL [flags] -- CMD [ARG…]",
		Short:   "Run a command for each message of a stream",
		Long:    workHelp,
		Example: workExample,
		Args:    cobra.MinimumNArgs(2),
		RunE:    runWork,
	}
	cmd.Flags().SetNormalizeFunc(olderWorkFlags)
	settings.AddFlags(cmd.Flags(), settings.Work)
	return cmd
}

// olderWorkFlags keeps two older names of flags.
func olderWorkFlags(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	switch name {
	case "lease":
		name = "reclaim-after"
	case "node":
		name = "consumer"
	}
	return pflag.NormalizedName(name)
}
