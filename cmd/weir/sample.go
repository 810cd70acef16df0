package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir"
)

const sampleHelp = `Sample reads how loaded a stream is and prints it as one JSON line:

  ts_ms              when it was read, Unix milliseconds of the server's clock
  stream_key, group  what was read
  xlen               entries stored; it does not fall when they are read or done
  pending            delivered and not acknowledged
  lag                not delivered yet; null if the server does not know, which is not 0
  lag_valid          whether lag is a number
  oldest_age_ms      age of the oldest message that is not done
  oldest_age_source  where the age was read: pending, backlog, pending_stream_id,
                     backlog_stream_id, none (no work known), unknown
  approx             whether the age is an estimate

It works on any stream of Redis, whoever writes it, and on the queues of weir; it
creates and changes nothing. Without a URL it reads Redis at REDIS_HOST (127.0.0.1) and
REDIS_PORT (6379) with REDIS_PASSWORD, the stream STREAM_KEY or JOB_STREAM_KEY and
the group GROUP or JOB_STREAM_GROUP (weir).

With --metrics it samples any number of streams every 5 s (--every) and serves the readings
for Prometheus instead of printing them, until it is stopped. A stream that cannot be read
is told once on standard error, has weir_stream_up 0, and is tried again.

With --every it goes on until it is stopped, also while the server is away, and says
so on standard error. Exit codes: 0 sampled, 1 not reached, or no such stream or group,
2 the command line, a variable or the URL cannot be understood.`

const sampleExample = `  weir sample 'redis://127.0.0.1:6379/0?stream=jobs&group=workers'
  weir sample --every 5s http://127.0.0.1:4000/orders | tee pressure.jsonl
  weir sample --metrics :9464 'redis://10.0.0.5/0?stream=jobs&group=workers' http://10.0.0.6:4000/orders
  REDIS_HOST=10.0.0.5 STREAM_KEY=jobs GROUP=workers weir sample | jq .lag`

type sampleOptions struct {
	every        time.Duration
	count        int
	enqueueField string
	metrics      string
}

// sampleTimeout bounds one sample.
const sampleTimeout = 10 * time.Second

func newSampleCmd() *cobra.Command {
	var opt sampleOptions
	cmd := &cobra.Command{
		Use:     "sample [URL…]",
		Short:   "Print how loaded a stream is, as one JSON line",
		Long:    sampleHelp,
		Example: sampleExample,
		Args:    cobra.ArbitraryArgs,
		RunE: withEnv(func(cmd *cobra.Command, args []string) error {
			if err := opt.check(cmd, args); err != nil {
				return &usageError{err}
			}
			from, err := opt.urls(args)
			if err != nil {
				return &usageError{err}
			}
			if opt.metrics != "" {
				return runExporter(cmd, &opt, from)
			}
			return runSample(cmd, opt, from[0])
		}),
	}
	f := cmd.Flags()
	f.DurationVar(&opt.every, "every", 0, "take a sample this often (5s with --metrics)")
	f.IntVar(&opt.count, "count", 0, "end after this many samples (default 1, or without end with --every)")
	f.StringVar(&opt.enqueueField, "enqueue-field", "", "field of a Redis entry that holds when it was published, in Unix ms (default enqueue_ts)")
	addMetrics(f, &opt.metrics)
	addKeyFlag(cmd)
	return cmd
}

// urls are the arguments, or what the environment's variables make.
func (o *sampleOptions) urls(args []string) ([]string, error) {
	if len(args) == 0 {
		from, err := sampleURL()
		if err != nil {
			return nil, err
		}
		args = []string{from}
	}
	all := make([]string, len(args))
	for i, from := range args {
		var err error
		if all[i], err = o.withField(from); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// withField puts the field for ages into a URL of Redis.
func (o *sampleOptions) withField(from string) (string, error) {
	u, err := url.Parse(from)
	if err != nil || o.enqueueField == "" {
		return from, nil // open says what is wrong with a URL
	}
	if u.Scheme != "redis" && u.Scheme != "rediss" {
		return "", errors.New("--enqueue-field is for Redis; a weir server knows when a message was published")
	}
	query := u.Query()
	query.Set("enqueue_field", o.enqueueField)
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// check completes the options.
func (o *sampleOptions) check(cmd *cobra.Command, args []string) error {
	every, count := cmd.Flags().Changed("every"), cmd.Flags().Changed("count")
	switch {
	case o.metrics == "" && len(args) > 1:
		return fmt.Errorf("accepts at most 1 arg(s), received %d; only with --metrics more than one URL is sampled", len(args))
	case o.metrics != "" && count:
		return errors.New("--count is for printed samples; with --metrics there is no end")
	case every && o.every < time.Millisecond:
		return fmt.Errorf("--every %s is too often; use 1ms or more", o.every)
	case count && o.count < 1:
		return fmt.Errorf("--count %d: use 1 or more; with --every and without --count there is no end", o.count)
	case !every && o.metrics != "":
		o.every = exportEvery
	case !every:
		o.every = time.Second
		o.count = max(o.count, 1)
	}
	return nil
}

// sampleURL is the URL that the environment's variables make.
func sampleURL() (string, error) {
	stream := cmp.Or(os.Getenv("STREAM_KEY"), os.Getenv("JOB_STREAM_KEY"))
	if stream == "" {
		return "", errors.New("no URL, and neither STREAM_KEY nor JOB_STREAM_KEY names a stream; see weir sample --help")
	}
	port := cmp.Or(os.Getenv("REDIS_PORT"), "6379")
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("environment variable REDIS_PORT: %q is not a port, 1 to 65535", port)
	}
	u := url.URL{
		Scheme:   "redis",
		Host:     net.JoinHostPort(cmp.Or(os.Getenv("REDIS_HOST"), "127.0.0.1"), port),
		RawQuery: url.Values{"stream": {stream}, "group": {cmp.Or(os.Getenv("GROUP"), os.Getenv("JOB_STREAM_GROUP"), "weir")}}.Encode(),
	}
	if password := os.Getenv("REDIS_PASSWORD"); password != "" {
		u.User = url.UserPassword("", password)
	}
	return u.String(), nil
}

func runSample(cmd *cobra.Command, opt sampleOptions, from string) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := openToSample(ctx, cmd, from)
	if err != nil {
		return err
	}
	defer s.Close()
	p := &sampler{cmd: cmd, stream: s}
	tick := time.NewTicker(opt.every)
	defer tick.Stop()
	for n := 1; ; n++ {
		err := p.sample(ctx)
		switch {
		case ctx.Err() != nil:
			return nil // ended by a signal
		case err != nil && (n == 1 || !p.mayRecover(err)):
			return err
		case n == opt.count:
			return p.missed
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func openToSample(ctx context.Context, cmd *cobra.Command, from string) (*weir.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	return openExisting(ctx, cmd, from)
}

// sampler prints samples of one stream.
type sampler struct {
	cmd    *cobra.Command
	stream *weir.Stream
	line   []byte
	away   bool
	missed error // the last sample that could not be taken
}

func (p *sampler) sample(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	reading, err := p.stream.Pressure(ctx)
	if err != nil {
		return err
	}
	if p.away {
		p.away = false
		fmt.Fprintln(p.cmd.ErrOrStderr(), "weir sample: going on")
	}
	p.line = append(reading.AppendJSON(p.line[:0]), '\n')
	_, err = p.cmd.OutOrStdout().Write(p.line)
	if err != nil {
		return &outputError{err}
	}
	return nil
}

// outputError is an error of standard output, which does not come back.
type outputError struct{ err error }

func (e *outputError) Error() string { return e.err.Error() }

// mayRecover tells of a sample that could not be taken, once for an outage.
func (p *sampler) mayRecover(err error) bool {
	var output *outputError
	if errors.As(err, &output) {
		return false
	}
	p.missed = err
	if !p.away {
		p.away = true
		fmt.Fprintln(p.cmd.ErrOrStderr(), "weir sample: waiting:", err)
	}
	return true
}
