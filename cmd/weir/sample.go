package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/settings"
	"github.com/weirmq/weir/telemetry"
)

const sampleHelp = `Sample reads the load of a stream and prints it as one JSON line:

  ts_ms              when it was read, Unix milliseconds of the server's clock
  stream_key, group  what was read
  xlen               entries stored, including those that are read or done
  pending            delivered and not acknowledged
  lag                not delivered yet; null, not 0, if the server does not know
  lag_valid          whether lag is a number
  oldest_age_ms      age of the oldest message that is not done
  oldest_age_source  where the age was read: pending, backlog, pending_stream_id,
                     backlog_stream_id, none (no work known), unknown
  approx             whether the age is an estimate

It works on any Redis stream, whoever writes it, and on weir queues; it
creates and changes nothing. Without a URL it reads Redis at REDIS_HOST (127.0.0.1) and
REDIS_PORT (6379) with REDIS_PASSWORD, the stream STREAM_KEY or JOB_STREAM_KEY and
the group GROUP or JOB_STREAM_GROUP (weir).

With --metrics it samples any number of streams every 5 s (--every) and serves the readings
for Prometheus instead of printing them, until it is stopped. A stream that cannot be read
is reported once on standard error, has weir_stream_up 0, and is retried.

With --every it continues until it is stopped, even while the server is unreachable, which it
reports on standard error. A stream or group that is not there yet is an empty one, which
it says once on standard error. Exit codes: 0 sampled, 1 not reached, 2 the command line,
a variable or the URL cannot be understood.`

const sampleExample = `  weir sample 'redis://127.0.0.1:6379/0?stream=jobs&group=workers'
  weir sample --every 5s http://127.0.0.1:4000/orders | tee pressure.jsonl
  weir sample --metrics :9466 'redis://10.0.0.5/0?stream=jobs&group=workers' http://10.0.0.6:4000/orders
  REDIS_HOST=10.0.0.5 STREAM_KEY=jobs GROUP=workers weir sample | jq .lag`

type sampleOptions struct {
	every        time.Duration // 0: not given
	count        int           // 0: not given
	enqueueField string
	metrics      string
	keys         keyOptions
}

func (o *sampleOptions) fields() settings.Fields {
	return o.keys.streamFields(settings.Fields{"every": &o.every, "count": &o.count, "enqueue-field": &o.enqueueField, "metrics": &o.metrics})
}

// sampleTimeout is the time limit for one sample.
const sampleTimeout = 10 * time.Second

func newSampleCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "sample [URL…]",
		Short:   "Print the load of a stream as one JSON line",
		Long:    sampleHelp,
		Example: sampleExample,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt sampleOptions
			if err := load(cmd, settings.Sample, opt.fields()); err != nil {
				return err
			}
			from, err := opt.urls(args)
			if err == nil {
				err = opt.check(len(from))
			}
			if err != nil {
				return &usageError{err}
			}
			if opt.metrics != "" {
				return runExporter(cmd, &opt, from)
			}
			return runSample(cmd, &opt, from[0])
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Sample)
	return cmd
}

// urls returns the arguments, or the URL from the environment's variables.
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

// withField adds the field for ages to a Redis URL.
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
func (o *sampleOptions) check(urls int) error {
	switch {
	case o.metrics == "" && urls > 1:
		return fmt.Errorf("accepts at most 1 arg(s), received %d; only with --metrics more than one URL is sampled", urls)
	case o.metrics != "" && o.count > 0:
		return errors.New("--count is for printed samples; with --metrics there is no end")
	case o.metrics != "" && o.every >= telemetry.StaleAfter:
		return fmt.Errorf("--every %s is too long for --metrics, which shows no reading that is older than %s", o.every, telemetry.StaleAfter)
	case o.every == 0 && o.metrics != "":
		o.every = exportEvery
	case o.every == 0:
		o.every = time.Second
		o.count = max(o.count, 1)
	}
	return nil
}

// sampleURL returns the URL from the environment's variables.
func sampleURL() (string, error) {
	var host, password, stream, group string
	var port int
	_, err := settings.Load(settings.Source{Command: settings.SampleRedis}, settings.Fields{
		"redis-host": &host, "redis-port": &port, "redis-password": &password, "stream-key": &stream, "group": &group,
	})
	if err != nil {
		return "", err
	}
	if stream == "" {
		return "", errors.New("no URL, and neither STREAM_KEY nor JOB_STREAM_KEY names a stream")
	}
	u := url.URL{
		Scheme:   "redis",
		Host:     net.JoinHostPort(host, strconv.Itoa(port)),
		RawQuery: url.Values{"stream": {stream}, "group": {group}}.Encode(),
	}
	if password != "" {
		u.User = url.UserPassword("", password)
	}
	return u.String(), nil
}

func runSample(cmd *cobra.Command, opt *sampleOptions, from string) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := reacher{cmd.ErrOrStderr(), "weir sample", reachFor}.open(ctx, &opt.keys, from, openToSample)
	if err != nil {
		return err
	}
	defer s.Close()
	p := &sampler{out: cmd.OutOrStdout(), stream: s, outage: outage{log: cmd.ErrOrStderr(), what: "weir sample"}}
	tick := time.NewTicker(opt.every)
	defer tick.Stop()
	for n := 1; ; n++ {
		err := p.sample(ctx)
		switch {
		case ctx.Err() != nil:
			return opt.interrupted()
		case err != nil && (n == 1 || !p.mayRecover(err)):
			return err
		case n == opt.count:
			return p.missed
		}
		select {
		case <-ctx.Done():
			return opt.interrupted()
		case <-tick.C:
		}
	}
}

// interrupted is what a signal means: without a number of samples it is the only end.
func (o *sampleOptions) interrupted() error {
	if o.count > 0 {
		return errInterrupted
	}
	return nil
}

func openToSample(ctx context.Context, keys *keyOptions, from string) (*weir.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	return openExisting(ctx, keys, from)
}

// sampler prints samples of one stream.
type sampler struct {
	out    io.Writer
	stream *weir.Stream
	line   []byte
	outage outage
	missed error // the last sample that failed
	warned bool  // of what will be removed
	absent bool  // what the last reading was of is not there yet
}

func (p *sampler) sample(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	reading, err := p.stream.Pressure(ctx)
	if err != nil {
		return err
	}
	p.outage.tell(nil)
	if reading.Missing != nil && !p.absent {
		fmt.Fprintf(p.outage.log, "weir sample: %v: there is nothing until the first publish or worker creates it\n", reading.Missing)
	}
	p.absent = reading.Missing != nil
	p.line = append(reading.AppendJSON(p.line[:0]), '\n')
	if _, err = p.out.Write(p.line); err != nil {
		return &outputError{err}
	}
	p.retained(ctx)
	return nil
}

// retained says what the backend has removed by itself, or soon will, before the group has
// finished it, and what it has lost.
func (p *sampler) retained(ctx context.Context) {
	r, ok := p.stream.Backend().(backend.Retainer)
	if !ok {
		return
	}
	got, err := r.Retained(ctx, false)
	if err != nil {
		return // the sample has said so, or not enough may be read
	}
	for _, gap := range got.Gaps {
		text := "%s removed before the group had finished with them"
		switch gap.Reason {
		case backend.GapLost:
			text = "the server has lost messages that it had acknowledged, and of those the group had not been given %s"
		case backend.GapRecreated:
			text = "the stream was deleted and made again before the group had been given %s"
		}
		fmt.Fprintf(p.outage.log, "weir sample: "+text+" (%s–%s)\n", countOf(*gap.Missed, "message"), gap.From, gap.To)
	}
	if got.Limit != "" && !p.warned {
		fmt.Fprintf(p.outage.log, "weir sample: unfinished messages will soon be removed by the stream's %s\n", got.Limit)
	}
	p.warned = got.Limit != ""
}

// outputError is an error of standard output, which is permanent.
type outputError struct{ err error }

func (e *outputError) Error() string { return e.err.Error() }

// mayRecover reports whether a later sample may succeed, and says so once per outage.
func (p *sampler) mayRecover(err error) bool {
	var output *outputError
	if errors.As(err, &output) {
		return false
	}
	p.missed = err
	p.outage.tell(err)
	return true
}
