package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/config"
)

const publishHelp = `Publish sends each line of the files (of stdin if there are none, or for "-")
as a message to a stream. An absent topic of a weir server is created: a queue of
class disk, or what --type and --durability say.

A line's end (\n or \r\n) is not part of the message and an empty line is an empty
message. With --ndjson a line is a JSON value and empty lines are left out. A line
that is not UTF-8, or not JSON, stops the command with its file and number: what
stands before it is sent, it and the rest are not.

Messages keep their order and go through the guard: while the workers are behind,
publish slows down, pauses, and waits when the stream is too deep (--guard off sends
straight through; QUEUE_MAX_DEPTH and the lag limits are settings, see --config).
The limits hold for each message, so a write is as large as there is room for.
SIGHUP, or a change of the --config file, puts new settings into effect.

Lost connections, restarts, refusals for load and a full stream are waited out; after
--give-up without progress the command ends with an error. A write whose answer was
lost is repeated under the same idempotency key, so it is stored once; on Redis the
place of the run is kept in one key for a day. --at-least-once does without.

With --resume FILE the command keeps its place in FILE after each write. Run again
with the same FILE it goes on there, also after it was killed itself; input that
grew meanwhile is sent from where it ended. Without --resume a second run sends
everything a second time.

URL is http[s]://[:key@]host:port/TOPIC, redis[s]://[user:pass@]host:port/0?stream=NAME
or file:///DIR?topic=NAME, which belongs to one process at a time.`

const publishExample = `  weir publish http://127.0.0.1:4000/requests access.log
  weir publish 'redis://127.0.0.1:6379/0?stream=orders&group=billing' --lag-pause 500 orders.txt
  tail -F app.log | weir publish http://:secret@queue.example:4000/app-log --type log
  weir publish --ndjson --resume import.place http://127.0.0.1:4000/orders orders.ndjson`

type publishOptions struct {
	kind   string
	ndjson bool
	json   bool
	batch  int
	resume string
	giveUp time.Duration
	noKeys bool

	logFormat string
	metrics   string
}

func newPublishCmd() *cobra.Command {
	var opt publishOptions
	cmd := &cobra.Command{
		Use:     "publish URL [FILE…]",
		Short:   "Send lines or JSON values to a stream",
		Long:    publishHelp,
		Example: publishExample,
		Args:    cobra.MinimumNArgs(1),
		RunE: withEnv(func(cmd *cobra.Command, args []string) error {
			return runPublish(cmd, &opt, args)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&opt.kind, "type", "queue", "type of a topic that has to be created: queue, or log on a weir server")
	addDurability(f)
	f.BoolVar(&opt.ndjson, "ndjson", false, "a line is a JSON value instead of text")
	f.BoolVar(&opt.json, "json", false, "print the result as one JSON line")
	f.IntVar(&opt.batch, "batch", 500, "messages per write at most (1 to 10000); a write also ends at 1 MiB")
	f.StringVar(&opt.resume, "resume", "", "file that keeps the place, to go on there when run again")
	f.BoolVar(&opt.noKeys, "at-least-once", false, "send no idempotency keys: a write whose answer was lost may be stored twice")
	f.DurationVar(&opt.giveUp, "give-up", 10*time.Minute, "end with an error after this long without progress; 0 = never")
	config.AddFlags(f, config.Producer)
	addLogFormat(f, &opt.logFormat)
	addMetrics(f, &opt.metrics)
	addKeyFlag(cmd)
	return cmd
}

func runPublish(cmd *cobra.Command, opt *publishOptions, args []string) error {
	if opt.batch < 1 || opt.batch > 10_000 {
		return &usageError{fmt.Errorf("--batch %d is out of range; use 1 to 10000", opt.batch)}
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	settings, err := config.Load(config.Options{Flags: cmd.Flags()})
	if err != nil {
		return &usageError{err}
	}
	paths := args[1:]
	if len(paths) == 0 {
		paths = []string{"-"}
	}
	p := &publisher{
		opt:      opt,
		input:    &recordReader{paths: paths, stdin: cmd.InOrStdin(), ndjson: opt.ndjson},
		progress: newProgress(cmd.ErrOrStderr()),
		retryMin: 50 * time.Millisecond, retryMax: 5 * time.Second,
	}
	page, err := serveMetrics(opt.metrics, p.progress)
	if err != nil {
		return err
	}
	defer page.close()
	p.hooks = page.hooks()
	if p.courier, err = newCourier(ctx, cmd, p, withDurability(cmd, args[0])); err != nil {
		return err
	}
	defer p.courier.close()
	unguard, err := p.guarded(ctx, cmd, settings)
	if err != nil {
		return err
	}
	defer unguard()
	err = p.run(ctx)
	p.progress.finish()
	p.report(cmd.OutOrStdout(), err)
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted after %d records", p.sent)
	}
	return err
}

// guarded makes the producer, whose settings follow the --config file and SIGHUP
// until unguard is called, which also closes it.
func (p *publisher) guarded(ctx context.Context, cmd *cobra.Command, settings config.Settings) (unguard func(), err error) {
	log, err := commandLog(p.progress, p.opt.logFormat)
	if err != nil {
		return nil, err
	}
	cfg := settings.Producer
	cfg.ShedWait = true // its input can wait
	cfg.Logger, cfg.Hooks = log, p.hooks
	cfg.Hooks.Slowed = p.slowed
	p.producer, err = weir.NewProducer(weir.New(p.courier.asBackend()), cfg)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		config.Watch(ctx, config.Options{Flags: cmd.Flags()}, settings, log, func(next config.Settings) {
			next.Producer.ShedWait = true
			if err := p.producer.Reconfigure(next.Producer); err != nil {
				log.Error("weir publish: new settings refused", "error", err)
			}
		})
	})
	return func() {
		stop()
		watch.Wait()
		_ = p.producer.Close() // has nothing to report
	}, nil
}
