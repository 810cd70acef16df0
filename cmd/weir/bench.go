package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/overload"
	"github.com/weirmq/weir/internal/settings"
)

const overloadHelp = `Overload offers a stream more than its workers can do, once for each guard, and says what
comes of it: how much of the work is done in time, how long it waits, how fast a caller is
refused, and how soon all is well again. Each goal of an overload control is marked met
or missed.

Offers come at random times, at 0.7 times what the workers can do, then --load times that,
then at 0.7 times again. Every arm gets the same ones. An offer is a caller of its own,
who gives up --deadline after the time at which it meant to publish, and until then tries
again up to three times after a refusal. There are four tiers: 10, 20, 30 and 40 % of
the offers have the priorities critical, high, normal and low.

An arm is a mode of the guard, with settings behind a question mark if need be:
'proportional?lag_pause=100&lag_signal=pending'. Unless it says otherwise, the window of
requests is off (queue_load_shedding_enabled=false), proportional looks at the
backlog, and wait_slo is --deadline.

Variants: halved, half of the workers are gone in the second half of the plateau; greedy,
one fairness key sends 90 % of the offers; slow, handlers that begin in the plateau take five
times as long; impatient, callers wait a quarter of the deadline for an answer and try again
at once, up to 20 times; paused, the whole Redis server stands still for two seconds in
the middle of the plateau (CLIENT PAUSE), so use one of your own. --disturbance sets how
many deadlines that lasts, in the middle of the plateau; the table says how soon the stream
recovered, and the goodput before, during and after it.

With --processes the callers are in as many processes, each with --producers of its own, and
the workers in this one; the table says what each process stored, for its share of the load.
The URL must be one that several processes can open: redis or http.

With --expire messages carry the deadlines of their callers, and workers drop what nobody
waits for any more.

--arrivals replaces the random times by recorded ones: a file with one offer per line, CSV
(time,tier) or JSON ({"at":…,"tier":…} or a bare time). Times are seconds or RFC 3339; tiers
are 0 (the top one) to 3, drawn if absent. The recording is the plateau.

--against follows a live stream instead, for --length, and says what each arm would have done
with every message that is published there. It publishes nothing and takes no part in the
limits that producers share. What an arm would have refused is stored all the same, so
the load stays that of the guard in use. Of a weir queue it sees only messages that are not
done at once.

URL is http[s]://[:key@]host:port/QUEUE, redis[s]://[user:pass@]host:port/0?stream=NAME,
kafka[s]://[user:pass@]host:port/TOPIC or file:///DIR?topic=NAME. Each arm uses a stream of
its own whose name begins with that name; it is left behind, without messages to be done.
Without a URL it is an engine in this process on a temporary directory.

The command is for machines that have nothing else to do: with all arms, and the default
phases, it takes about 90 deadlines for each arm. Exit codes: 0 measured, whether the goals
are met or not, 1 it could not be, or the figures do not count, 2 the command line or the URL
cannot be understood.`

const overloadExample = `  weir bench overload --load 10 --phases 5,10,8
  weir bench overload --arms static,proportional --picture overload.svg 'redis://127.0.0.1:6379/0?stream=bench'
  weir bench overload --variant greedy --json greedy.json http://127.0.0.1:4000/bench
  weir bench overload --arrivals incident.csv --workers 50 --service 120ms
  weir bench overload --against 'redis://127.0.0.1:6379/0?stream=orders&group=billing' --length 5m`

type overloadOptions struct {
	scenario      overload.Scenario
	arms          []string
	phases        string
	seed          int64
	arrivals      string
	against       string
	length        time.Duration
	together      bool
	json, picture string
	keys          keyOptions
}

func (o *overloadOptions) fields() settings.Fields {
	s := &o.scenario
	return o.keys.streamFields(settings.Fields{
		"arms": &o.arms, "load": &s.Load, "service": &s.Service, "deadline": &s.Deadline, "phases": &o.phases,
		"workers": &s.Workers, "producers": &s.Producers, "processes": &s.Processes, "seed": &o.seed, "distribution": &s.Shape, "variant": &s.Variant,
		"disturbance": &s.Disturbance,
		"expire":      &s.Expire, "arrivals": &o.arrivals, "against": &o.against, "length": &o.length,
		"together": &o.together, "json": &o.json, "picture": &o.picture,
	})
}

func newBenchCmd() *cobra.Command {
	bench := &cobra.Command{Use: "bench", Short: "Measure a server, and judge guards, under load"}
	cmd := &cobra.Command{
		Use:     "overload [URL]",
		Short:   "Offer more than the workers can do and say what each guard makes of it",
		Long:    overloadHelp,
		Example: overloadExample,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var opt overloadOptions
			if err := load(cmd, settings.Overload, opt.fields()); err != nil {
				return err
			}
			arms, err := opt.prepare()
			if err != nil {
				return &usageError{err}
			}
			if opt.against != "" {
				return runRehearsal(cmd, &opt, arms, args)
			}
			return runOverload(cmd, &opt, arms, args)
		},
	}
	settings.AddFlags(cmd.Flags(), settings.Overload)
	bench.AddCommand(newLoadCmd(), cmd, newCallersCmd())
	return bench
}

// prepare completes the scenario and reads the arms.
func (o *overloadOptions) prepare() (arms []overload.Arm, err error) {
	s := &o.scenario
	s.Seed = uint64(o.seed)
	if s.Phases, err = overload.ParsePhases(o.phases); err != nil {
		return nil, fmt.Errorf("flag --phases: %w", err)
	}
	if o.picture != "" && filepath.Ext(o.picture) != ".svg" {
		return nil, fmt.Errorf("flag --picture: %q does not end in .svg, the only format", o.picture)
	}
	if o.arrivals != "" {
		if s.Recorded, err = readArrivals(o.arrivals); err != nil {
			return nil, fmt.Errorf("flag --arrivals: %w", err)
		}
	}
	*s = s.WithDefaults()
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if len(o.arms) == 0 {
		return overload.DefaultArms(*s), nil
	}
	for _, text := range o.arms {
		arm, err := overload.ParseArm(text, *s)
		if err != nil {
			return nil, fmt.Errorf("flag --arms: %w", err)
		}
		arms = append(arms, arm)
	}
	return arms, nil
}

func readArrivals(path string) ([]overload.Arrival, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := overload.ReadArrivals(f)
	if err != nil {
		return nil, fmt.Errorf("%s, %w", path, err)
	}
	return all, nil
}

func runOverload(cmd *cobra.Command, opt *overloadOptions, arms []overload.Arm, args []string) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	base := ""
	if len(args) > 0 {
		base = args[0]
	} else {
		dir, err := os.MkdirTemp("", "weir-overload")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		base = (&url.URL{Scheme: "file", Path: filepath.ToSlash(dir), RawQuery: "topic=overload"}).String()
	}
	b := overloadBench{opt: opt, base: base, id: rand.Text()[:6], errOut: cmd.ErrOrStderr()}
	if opt.scenario.Variant == overload.Paused && redisOptions(base) == nil {
		return &usageError{errors.New("variant paused: only a Redis server named by redis://host:port can be made to stand still")}
	}
	if opt.scenario.Processes > 0 && !isHTTP(base) && redisScheme(base) == "" {
		return &usageError{errors.New("processes: an engine belongs to one process; use weir serve and http://, or redis://")}
	}
	if err := b.try(ctx, arms); err != nil {
		return err
	}
	results, err := b.run(ctx, arms)
	if ctx.Err() != nil {
		return errors.New("stopped before all arms had run")
	}
	if err != nil {
		return err
	}
	if err := overload.Table(cmd.OutOrStdout(), results); err != nil {
		return err
	}
	if err := b.write(results); err != nil {
		return err
	}
	for _, r := range results {
		if r.Spoilt() != "" {
			return errSaid // by the table
		}
	}
	return nil
}

// runRehearsal follows a live stream.
func runRehearsal(cmd *cobra.Command, opt *overloadOptions, arms []overload.Arm, args []string) error {
	for _, name := range []string{"picture", "arrivals", "together"} {
		if cmd.Flags().Changed(name) {
			return &usageError{fmt.Errorf("--against and --%s exclude each other", name)}
		}
	}
	if len(args) > 0 {
		return &usageError{errors.New("--against names the stream; it takes no further URL")}
	}
	if err := checkURL(opt.against); err != nil {
		return &usageError{err}
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := openExisting(ctx, &opt.keys, opt.against)
	if err != nil {
		return err
	}
	defer s.Close()
	before, err := s.Pressure(ctx)
	if err == nil {
		err = before.Missing // there is nothing to rehearse on
	}
	if err != nil {
		return err
	}
	results, err := overload.Rehearse(ctx, s, arms, opt.scenario.Deadline, opt.length)
	if err != nil {
		return err
	}
	after, err := s.Pressure(ctx)
	if err != nil {
		return err
	}
	first, _ := before.Backlog()
	last, _ := after.Backlog()
	fmt.Fprintf(cmd.OutOrStdout(), "%s of %s: backlog %d at first, %d at last; nothing was published\n", opt.length, before.Stream, first, last)
	if opt.json != "" {
		if err := writeJSON(opt.json, results); err != nil {
			return err
		}
	}
	return overload.RehearsalTable(cmd.OutOrStdout(), results)
}

func writeJSON(path string, what any) error {
	text, err := json.MarshalIndent(what, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// overloadBench is a run of the command.
type overloadBench struct {
	opt    *overloadOptions
	base   string // URL
	id     string // in the names of the streams
	errOut io.Writer
}

// streamURL is the URL of an arm's own stream.
func (b *overloadBench) streamURL(i int, arm overload.Arm) string {
	return ownStream(b.base, fmt.Sprintf("-%s-%d-%s", strings.ToLower(b.id), i+1, arm.Config.Guard))
}

// try opens the first stream, so that a mistake in the URL shows at once.
func (b *overloadBench) try(ctx context.Context, arms []overload.Arm) error {
	s, err := openStream(ctx, &b.opt.keys, b.streamURL(0, arms[0]))
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = s.Pressure(ctx)
	return err
}

// run runs the arms and tells how it goes on.
func (b *overloadBench) run(ctx context.Context, arms []overload.Arm) ([]*overload.Result, error) {
	results, errs := make([]*overload.Result, len(arms)), make([]error, len(arms))
	one := func(i int) {
		fmt.Fprintf(b.errOut, "%s: about %s\n", arms[i].Name, (b.opt.scenario.Length() + b.opt.scenario.Deadline).Round(time.Second))
		results[i], errs[i] = b.one(ctx, arms[i], b.streamURL(i, arms[i]))
	}
	var all sync.WaitGroup
	for i := range arms {
		all.Go(func() { one(i) })
		if !b.opt.together {
			all.Wait()
			if errs[i] != nil {
				break
			}
		}
	}
	all.Wait()
	return results, errors.Join(errs...)
}

// write writes the files that were asked for.
func (b *overloadBench) write(results []*overload.Result) error {
	if b.opt.json != "" {
		if err := writeJSON(b.opt.json, overload.NewReport(results)); err != nil {
			return err
		}
	}
	if b.opt.picture == "" {
		return nil
	}
	var text strings.Builder
	overload.Draw(&text, results)
	return os.WriteFile(b.opt.picture, []byte(text.String()), 0o644)
}
