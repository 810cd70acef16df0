package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/latency"
	bench "github.com/weirmq/weir/internal/load"
	"github.com/weirmq/weir/internal/settings"
)

const loadHelp = `Load publishes to a stream and works on it at the same time, as a program on the library
would, and prints how much got through and how long it took. It is for a server of your
own: others who use it meanwhile get less of it.

URL is that of a stream. The load goes to a new one whose name begins with that name and ends
with random letters; it is removed at the end, also after Ctrl-C, and no other is touched.
A second Ctrl-C ends the command at once and leaves it behind.

publish is how long a publish took, handled how long after its publish was to begin a worker
had the message. With --rate both count from when the publish was meant to begin, even
if no publisher was free then; without, from when it began. Refused are messages that
the guard or the server did not take because of load; unsent are those that the rate asked
for and no publisher came to.

Exit codes: 0 everything published was handled, 1 not so, or something failed, or it was
stopped, 2 the command line or the URL cannot be understood.`

const loadExample = `  weir bench load http://127.0.0.1:4000/bench
  weir bench load --rate 2000 --duration 1m --json 'redis://127.0.0.1:6379/0?stream=bench'
  weir bench load --batch 100 --publishers 2 'file:///tmp/weir?topic=bench'`

// removeTimeout is how long the removal of the stream may take.
const removeTimeout = 15 * time.Second

// ownPartitions are those of the topic on Kafka unless the URL says how many.
const ownPartitions = "4"

type loadOptions struct {
	plan bench.Plan
	json output
	keys keyOptions
}

func newLoadCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "load URL",
		Short:   "Load a server of your own and measure throughput and latency",
		Long:    loadHelp,
		Example: loadExample,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt loadOptions
			if err := load(cmd, settings.BenchLoad, opt.keys.streamFields(settings.Fields{
				"duration": &opt.plan.Duration, "publishers": &opt.plan.Publishers, "workers": &opt.plan.Workers, "size": &opt.plan.Size,
				"batch": &opt.plan.Batch, "rate": &opt.plan.Rate, "guard": (*string)(&opt.plan.Guard), "json": &opt.json,
			})); err != nil {
				return err
			}
			return runLoad(cmd, &opt, args[0])
		},
	}
	settings.AddFlags(cmd.Flags(), settings.BenchLoad)
	return cmd
}

func runLoad(cmd *cobra.Command, opt *loadOptions, raw string) (err error) {
	if u, err := url.Parse(raw); err == nil && u.Query().Has("shards") {
		return &usageError{errors.New("shards: the load is for a single stream; leave shards out")}
	}
	raw = ownStream(raw, "-load-"+strings.ToLower(rand.Text()[:12]))
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // the second signal ends the process
	s, err := openStream(ctx, &opt.keys, raw)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	remover, ok := s.Backend().(backend.Remover)
	if !ok {
		return &usageError{errors.New("a stream of this kind cannot be removed again")}
	}
	if p, err := s.Pressure(ctx); err != nil || !errors.Is(p.Missing, weir.ErrStreamNotFound) {
		return cmp.Or(err, fmt.Errorf("stream %s exists already", s.Info().Stream))
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s on stream %s\n", s.Info().Kind, opt.plan.Duration, s.Info().Stream)
	figures, err := bench.Run(ctx, s, opt.plan)
	err = errors.Join(err, removeStream(context.WithoutCancel(ctx), s, remover))
	if figures == nil {
		return err
	}
	result := newLoadResult(s, &opt.plan, figures)
	if result.Stopped = ctx.Err() != nil; result.Stopped {
		result.Lost = 0 // nobody waited for the rest
	}
	err = errors.Join(err, opt.json.print(cmd.OutOrStdout(), result))
	switch {
	case err != nil:
		return err
	case result.Stopped:
		return errors.New("stopped before its end")
	case figures.First != nil:
		return fmt.Errorf("%s failed, the first: %w", countOf(figures.Failed, "message"), figures.First)
	case figures.Lost() > 0:
		return fmt.Errorf("%s published and not handled", countOf(figures.Lost(), "message"))
	}
	return nil
}

// removeStream removes the stream of the load.
func removeStream(ctx context.Context, s *weir.Stream, r backend.Remover) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	if err := r.Remove(ctx); err != nil {
		return fmt.Errorf("stream %s is left behind: %w", s.Info().Stream, err)
	}
	return nil
}

// ownStream returns the URL of a stream with a suffix to its name, and, where groups may have
// other streams, with a group of that name.
func ownStream(raw, suffix string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw // opening it says what is wrong
	}
	query := u.Query()
	key := ""
	for _, k := range []string{"stream", "topic"} {
		if query.Has(k) {
			key = k
		}
	}
	name := strings.TrimRight(u.Path, "/") + suffix
	switch u.Scheme {
	case "http", "https":
		if strings.Trim(u.Path, "/") != "" {
			u.Path, u.RawPath = name, ""
		}
		return u.String()
	case "kafka", "kafkas":
		if !query.Has("partitions") {
			query.Set("partitions", ownPartitions)
		}
		query.Set("group", "weir"+suffix)
		if key == "" && strings.Trim(u.Path, "/") != "" {
			u.Path, u.RawPath = name, ""
		}
	}
	if key != "" && query.Get(key) != "" {
		query.Set(key, query.Get(key)+suffix)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// loadResult is what bench load prints.
type loadResult struct {
	Backend string `json:"backend"`
	Stream  string `json:"stream"` // which is gone
	Stopped bool   `json:"stopped"`

	Size  int     `json:"size"`
	Batch int     `json:"batch"`
	Rate  float64 `json:"rate"` // asked for; 0: none

	Published int64 `json:"published"`
	Handled   int64 `json:"handled"`
	Repeated  int64 `json:"repeated"`
	Refused   int64 `json:"refused"`
	Failed    int64 `json:"failed"`
	Unsent    int64 `json:"unsent"`
	Lost      int64 `json:"lost"`

	Seconds         float64 `json:"seconds"` // of publishing
	PublishedPerSec float64 `json:"published_per_second"`
	HandledPerSec   float64 `json:"handled_per_second"`

	Publish loadTimes `json:"publish"`
	Handle  loadTimes `json:"publish_to_handled"`
}

// loadTimes are quantiles in milliseconds.
type loadTimes struct {
	P50  float64 `json:"p50_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p999_ms"`
	Max  float64 `json:"max_ms"`
}

func newLoadTimes(h *latency.Histogram) loadTimes {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	at := func(q float64) float64 { return ms(min(h.Quantile(q), h.Max())) }
	return loadTimes{at(0.5), at(0.99), at(0.999), ms(h.Max())}
}

func newLoadResult(s *weir.Stream, p *bench.Plan, f *bench.Figures) *loadResult {
	perSecond := func(n int64, d time.Duration) float64 {
		if d <= 0 {
			return 0
		}
		return float64(int64(float64(n)/d.Seconds()*10)) / 10
	}
	return &loadResult{
		Backend: s.Info().Kind, Stream: s.Info().Stream, Size: p.Size, Batch: p.Batch, Rate: p.Rate,
		Published: f.Published, Handled: f.Handled, Repeated: f.Repeated, Refused: f.Refused, Failed: f.Failed, Unsent: f.Unsent, Lost: f.Lost(),
		Seconds:         f.Publishing.Round(time.Millisecond).Seconds(),
		PublishedPerSec: perSecond(f.Published, f.Publishing), HandledPerSec: perSecond(f.Handled, f.Handling),
		Publish: newLoadTimes(&f.Publish), Handle: newLoadTimes(&f.Handle),
	}
}

func (r *loadResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "published  %s of %s in %.1f s, %.1f a second\n", countOf(r.Published, "message"), countOf(r.Size, "byte"), r.Seconds, r.PublishedPerSec)
	fmt.Fprintf(&b, "handled    %d, %.1f a second; %d repeated, %d lost\n", r.Handled, r.HandledPerSec, r.Repeated, r.Lost)
	fmt.Fprintf(&b, "refused    %d; %d failed, %d unsent\n\n", r.Refused, r.Failed, r.Unsent)
	fmt.Fprintf(&b, "%-10s %10s %10s %10s %10s\n", "ms", "p50", "p99", "p99.9", "max")
	for _, line := range []struct {
		name string
		loadTimes
	}{{"publish", r.Publish}, {"handled", r.Handle}} {
		fmt.Fprintf(&b, "%-10s %10.3f %10.3f %10.3f %10.3f\n", line.name, line.P50, line.P99, line.P999, line.Max)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
