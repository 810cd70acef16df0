package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/internal/settings"
)

const publishHelp = `Publish sends each line of the files (of stdin if there are none, or for "-")
as a message to a stream. An absent topic of a weir server is created: a queue of
class disk, or as --type and --durability say.

A line's end (\n or \r\n) is not part of the message, nor is a byte order mark in front
of a file, and an empty line is an empty message. With --ndjson a line is a JSON value
and empty lines are skipped. A line that is not UTF-8, or not JSON, stops the command
with its file and number: the lines before it are sent, it and the rest are not.
--invalid says what to do instead: replace sends it as text with U+FFFD for each run of
bytes that is not UTF-8, base64 sends its bytes as a string in base64, skip leaves it
out. The last line says of how many.

Messages keep their order and go through the guard: while the workers are behind,
publish slows down, pauses, and waits when the stream is too deep (--guard off disables
the guard; QUEUE_MAX_DEPTH and the lag limits are settings, see --config).
The limits apply to each message, so a write is as large as the room left.
SIGHUP, or a change of the --config file, applies new settings.

Publish waits through lost connections, restarts, refusals for load and a full stream;
after --give-up without progress it fails. A write whose answer was
lost is repeated with the same idempotency key, so it is stored once; on Redis one key
keeps the progress of the run for a day. --at-least-once uses no keys.

With --deadline a message is worth anything for so long after it was sent: a worker that
would begin it later sets it aside instead (see weir work --expired). The clocks of this
machine and the workers' have to agree.

With --delay no worker gets a message until so long after it was stored. Queues of a
weir server and of a directory and Redis can do that, a log and Kafka cannot.

With --resume FILE the command records its progress in FILE after each write. Run again
with the same FILE it continues there, even after it was killed; input that has
grown meanwhile is sent from where it ended. Without --resume a second run sends
everything again.

URL is http[s]://[:key@]host:port/TOPIC, redis[s]://[user:pass@]host:port/0?stream=NAME,
kafka[s]://[user:pass@]host:port/TOPIC or file:///DIR?topic=NAME, which belongs to one
process at a time.`

const publishExample = `  weir publish http://127.0.0.1:4000/requests access.log
  weir publish 'redis://127.0.0.1:6379/0?stream=orders&group=billing' --lag-pause 500 orders.txt
  tail -F app.log | weir publish http://:secret@queue.example:4000/app-log --type log
  weir publish --ndjson --resume import.place http://127.0.0.1:4000/orders orders.ndjson`

type publishOptions struct {
	kind       string
	typed      bool   // kind was given
	durability string // empty: not given
	ndjson     bool
	json       bool
	batch      int
	resume     string
	giveUp     time.Duration
	noKeys     bool
	deadline   time.Duration
	delay      time.Duration
	invalid    string

	logFormat string
	metrics   string
	keys      keyOptions
}

// load reads the command's settings and those of its producer.
func (o *publishOptions) load(cmd *cobra.Command) (weir.ProducerConfig, *settings.Values, error) {
	c, values, err := loadConfigs(cmd, settings.Publish, o.keys.limitedFields(settings.Fields{
		"type": &o.kind, "durability": &o.durability, "ndjson": &o.ndjson, "json": &o.json, "batch": &o.batch, "resume": &o.resume,
		"give-up": &o.giveUp, "at-least-once": &o.noKeys, "deadline": &o.deadline, "delay": &o.delay, "invalid": &o.invalid, "log-format": &o.logFormat, "metrics": &o.metrics,
	}))
	if err != nil {
		return c.Producer, values, err
	}
	o.typed = values.Given("type")
	if o.deadline > 0 && o.delay >= o.deadline {
		return c.Producer, values, &usageError{fmt.Errorf("--delay %s is not shorter than --deadline %s: no worker would ever begin a message", o.delay, o.deadline)}
	}
	if err := checkTarget("--resume", o.resume); err != nil {
		return c.Producer, values, err
	}
	c.Producer.ShedWait = true // its input can wait
	return c.Producer, values, nil
}

func newPublishCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "publish URL [FILE…]",
		Short:   "Send lines or JSON values to a stream",
		Long:    publishHelp,
		Example: publishExample,
		Args:    cobra.MinimumNArgs(1),
		RunE:    runPublish,
	}
	settings.AddFlags(cmd.Flags(), settings.Publish)
	return cmd
}

func runPublish(cmd *cobra.Command, args []string) error {
	opt := new(publishOptions)
	cfg, values, err := opt.load(cmd)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	paths := args[1:]
	if len(paths) == 0 {
		paths = []string{"-"}
	}
	p := &publisher{
		opt:      opt,
		input:    &recordReader{paths: paths, stdin: cmd.InOrStdin(), ndjson: opt.ndjson, strict: isHTTP(args[0]), broken: opt.invalid},
		progress: newProgress(cmd.ErrOrStderr()),
		retryMin: 50 * time.Millisecond, retryMax: 5 * time.Second,
	}
	p.log = newLog(p.progress, opt.logFormat, slog.LevelInfo)
	logUnknown(p.log)
	page, err := measure(ctx, "publish", opt.metrics, p.progress, p.log)
	if err != nil {
		return err
	}
	defer page.close()
	p.url = shownURL(args[0])
	p.log, p.hooks, cfg.Tracing = page.logger(p.log), page.hooks(), page.tracing()
	if p.courier, err = newCourier(ctx, p, withDurability(opt.durability, args[0])); err != nil {
		return err
	}
	defer p.courier.close()
	unguard, err := p.guarded(ctx, cmd, cfg, values)
	if err != nil {
		return err
	}
	defer unguard()
	err = p.run(ctx)
	p.progress.finish()
	unsaid := p.report(cmd.OutOrStdout(), err)
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted after %s", countOf(p.sent, "record"))
	}
	if err == nil && unsaid != nil {
		return fmt.Errorf("all records are sent, but the summary cannot be printed: %w", unsaid)
	}
	return err
}

// guarded makes the producer, whose settings follow the --config file and SIGHUP
// until unguard is called, which also closes it.
func (p *publisher) guarded(ctx context.Context, cmd *cobra.Command, cfg weir.ProducerConfig, values *settings.Values) (unguard func(), err error) {
	cfg.Logger, cfg.Hooks = p.log, p.hooks
	if p.opt.logFormat != jsonFormat {
		cfg.Logger = slog.New(withoutStages{p.log.Handler()}) // the line of progress says it, for people
	}
	cfg.Hooks.Slowing, cfg.Hooks.Slowed = p.slowing, p.slowed
	p.producer, err = weir.NewProducer(weir.New(p.courier.asBackend()), cfg)
	if err != nil {
		return nil, err
	}
	warnUnused(p.log, cfg, values)
	ctx, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	if path := source(cmd, settings.Publish).Path(); path != "" {
		watch.Go(func() {
			settings.Watch(ctx, path, p.log, func() (bool, error) {
				next, read, err := new(publishOptions).load(cmd)
				if err == nil {
					err = p.producer.Reconfigure(next)
				}
				if err != nil {
					return false, err
				}
				changed := !read.Equal(values)
				warnRestart(p.log, values, read)
				if values = read; changed {
					warnUnused(p.log, next, values)
				}
				return changed, nil
			})
		})
	}
	return func() {
		stop()
		watch.Wait()
		_ = p.producer.Close() // has nothing to report
	}, nil
}

// warnUnused names the settings that were given and do nothing beside the others.
func warnUnused(log *slog.Logger, c weir.ProducerConfig, given *settings.Values) {
	c = c.WithDefaults()
	mode := c.Guard
	if mode == weir.GuardShadow {
		mode = c.ShadowOf
	}
	adaptive := mode == weir.GuardAdaptive
	fixed := mode == weir.GuardStatic || mode == weir.GuardProportional
	for _, s := range []struct {
		flag, key string
		used      bool
		why       string
	}{
		{"wait-slo", "wait_slo", adaptive, "guard is " + string(mode)},
		{"lag-warn", "lag_warn", fixed || c.LagWarn < 0, "guard is " + string(mode)},
		{"lag-pause", "lag_pause", fixed || c.LagPause < 0, "guard is " + string(mode)},
		{"budget-max-depth", "budget_max_depth", c.Budget != "", "budget is not set"},
	} {
		if given.Given(s.flag) && !s.used {
			log.Warn(s.key + " has no effect: " + s.why)
		}
	}
}
