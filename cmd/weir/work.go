package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/client"
)

const workHelp = `Work claims messages from a queue and runs CMD once for each. The payload is on
CMD's standard input: a JSON string as its text and nothing added, any other JSON
value as JSON; all of it is there before CMD starts. Exit code 0 completes the message; any other gives it back, to be
tried again after a delay that grows with each delivery.

CMD's environment has WEIR_TOPIC, WEIR_SEQ and WEIR_DELIVERIES, and WEIR_TAG and
WEIR_META (a JSON object) if the message has them. Its output is weir's.

Leases are extended for as long as CMD runs. CMD runs in a process group of its
own, which is killed when its lease is lost, after --handler-timeout, and when a
drain takes too long. A message may be delivered more than once, so CMD has to bear
repeats.

SIGTERM and SIGINT drain: nothing more is claimed, messages not begun go back,
running CMDs get --drain-timeout to finish. A second signal kills them at once.

An absent topic is created as a queue that moves a message to TOPIC.dlq after three
deliveries.`

const workExample = `  weir work http://127.0.0.1:4000/requests -- ./handle-request
  weir work http://127.0.0.1:4000/mails --workers 20 -- sh -c 'mail -s "$WEIR_SEQ" ops'
  weir work http://127.0.0.1:4000/imports --until-empty 2s -- python3 import.py`

type workOptions struct {
	topic          topicFlags
	node           string
	workers        int
	batch          int
	block          time.Duration
	lease          time.Duration
	ackLinger      time.Duration
	retryBase      time.Duration
	retryMax       time.Duration
	handlerTimeout time.Duration
	drainTimeout   time.Duration
	untilEmpty     time.Duration
	json           bool
}

func newWorkCmd() *cobra.Command {
	opt := workOptions{topic: topicFlags{kind: "queue"}}
	cmd := &cobra.Command{
		Use:     "work URL -- CMD [ARG…]",
		Short:   "Run a command for each message of a queue",
		Long:    workHelp,
		Example: workExample,
		Args:    cobra.MinimumNArgs(2),
		RunE: withEnv(func(cmd *cobra.Command, args []string) error {
			return runWork(cmd, &opt, args)
		}),
	}
	f := cmd.Flags()
	opt.topic.addDurability(cmd)
	f.StringVar(&opt.node, "node", "", "name under which messages are claimed (default host-pid-random)")
	f.IntVar(&opt.workers, "workers", runtime.NumCPU(), "how many CMDs run at a time")
	f.IntVar(&opt.batch, "batch", 10, "messages claimed ahead of the running ones at most (1 to 1000)")
	f.DurationVar(&opt.block, "block", 2*time.Second, "longest wait on an empty queue before looking for expired leases")
	f.DurationVar(&opt.lease, "lease", 30*time.Second, "how long a message stays claimed without an extension (100ms to 24h)")
	f.DurationVar(&opt.ackLinger, "ack-linger", 5*time.Millisecond, "how long a finished message waits for others to be acked with")
	f.DurationVar(&opt.retryBase, "retry-base", time.Second, "delay after the first failed delivery; doubled with each further one")
	f.DurationVar(&opt.retryMax, "retry-max", 5*time.Minute, "longest delay after a failed delivery")
	f.DurationVar(&opt.handlerTimeout, "handler-timeout", 10*time.Minute, "longest run of one CMD; 0 = none")
	f.DurationVar(&opt.drainTimeout, "drain-timeout", 30*time.Second, "how long running CMDs may take to finish after SIGTERM")
	f.DurationVar(&opt.untilEmpty, "until-empty", 0, "end once the queue has been empty for this long; 0 = go on for ever")
	f.BoolVar(&opt.json, "json", false, "print the summary as one JSON line")
	addKeyFlag(cmd)
	return cmd
}

func (o *workOptions) validate() error {
	switch {
	case o.workers < 1 || o.workers > 10_000:
		return fmt.Errorf("--workers %d is out of range; use 1 to 10000", o.workers)
	case o.batch < 1 || o.batch > 1000:
		return fmt.Errorf("--batch %d is out of range; use 1 to 1000", o.batch)
	case o.block < 10*time.Millisecond || o.block > 30*time.Second:
		return fmt.Errorf("--block %s is out of range; use 10ms to 30s", o.block)
	case o.lease < 100*time.Millisecond || o.lease > 24*time.Hour:
		return fmt.Errorf("--lease %s is out of range; use 100ms to 24h", o.lease)
	case o.retryBase < 0 || o.retryMax < o.retryBase || o.retryMax > 24*time.Hour:
		return fmt.Errorf("--retry-base %s and --retry-max %s have to be 0 or more, in this order, and at most 24h", o.retryBase, o.retryMax)
	case o.ackLinger < 0 || o.handlerTimeout < 0 || o.drainTimeout < 0 || o.untilEmpty < 0:
		return errors.New("--ack-linger, --handler-timeout, --drain-timeout and --until-empty must not be negative")
	case len(o.node) > 128:
		return errors.New("--node is longer than 128 bytes")
	}
	return nil
}

func runWork(cmd *cobra.Command, opt *workOptions, args []string) error {
	target, err := client.ParseTopicURL(args[0])
	if err != nil {
		return err
	}
	if err := opt.validate(); err != nil {
		return err
	}
	cfg, err := opt.topic.config(target.Topic)
	if err != nil {
		return err
	}
	path, err := exec.LookPath(args[1])
	if err != nil {
		return fmt.Errorf("the command to run cannot be found: %w", err)
	}
	c, err := connect(cmd, target)
	if err != nil {
		return err
	}
	defer c.Close()
	node := opt.node
	if node == "" {
		node = defaultNode()
	}
	p := newPool(opt, c, target.Topic, node, cfg)
	p.log = cmd.ErrOrStderr()
	p.handler = &handler{
		path: path, args: args[1:], topic: target.Topic, timeout: opt.handlerTimeout,
		stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr(),
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	err = p.run(cmd.Context(), signals)
	p.report(cmd.OutOrStdout(), cmd.ErrOrStderr())
	return err
}

// maxHostBytes keeps a node made of the host's name inside the contract's limit.
const maxHostBytes = 64

func defaultNode() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	host = host[:min(len(host), maxHostBytes)]
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(b[:]))
}

// report prints the summary: JSON to out, text to log, where it does not mix
// with what the commands print.
func (p *pool) report(out, log io.Writer) {
	n := p.counts()
	if p.opt.json {
		fmt.Fprintf(out, `{"topic":%q,"node":%q,"acked":%d,"nacked":%d,"reclaimed":%d,"lost":%d,"returned":%d}`+"\n",
			p.topic, p.node, n.acked, n.nacked, n.reclaimed, n.lost, n.returned)
		return
	}
	fmt.Fprintf(log, "weir work: %d acked, %d nacked, %d reclaimed (had been delivered before), %d leases lost, %d returned unstarted\n",
		n.acked, n.nacked, n.reclaimed, n.lost, n.returned)
}

// createIfAbsent creates the queue if err says that it is not there, and
// returns what is to be said about err otherwise.
func (p *pool) createIfAbsent(ctx context.Context, err error) error {
	if client.IsCode(err, api.CodeNotAQueue) {
		return fmt.Errorf("topic %q is a log, not a queue; weir tail follows it", p.topic)
	}
	if !client.IsCode(err, api.CodeTopicNotFound) {
		return err
	}
	if err := p.client.PutTopic(ctx, p.topic, p.config); err != nil {
		if client.IsStatus(err, http.StatusForbidden) {
			return fmt.Errorf("topic %q does not exist and the key may not create it: %w", p.topic, err)
		}
		return err
	}
	fmt.Fprintf(p.log, "weir work: created queue %s\n", p.topic)
	return nil
}
