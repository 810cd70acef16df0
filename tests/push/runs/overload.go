package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/bench/load"
	"github.com/weirmq/weir/tests/stall"
)

// OverloadOptions of Overload. The zero value is the full run.
type OverloadOptions struct {
	Writers int           // connections that write without pause; default 600
	Class   string        // durability of what they write; default fsync
	Pad     int           // bytes in each of their records; default 80
	Length  time.Duration // of the load; default 8 s
	Calm    time.Duration // after which the pressure is gone; default 1 s
	Out     io.Writer     // the table; default: nowhere
}

func (o OverloadOptions) withDefaults() OverloadOptions {
	if o.Writers == 0 {
		o.Writers = 600
	}
	if o.Class == "" {
		o.Class = "fsync"
	}
	if o.Pad == 0 {
		o.Pad = 80
	}
	if o.Length == 0 {
		o.Length = 8 * time.Second
	}
	if o.Calm == 0 {
		o.Calm = time.Second
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	return o
}

const (
	overloadTopics = 16
	ladderStep     = 100 * time.Millisecond // the governor's period
	overloaded     = 0.98                   // from here on, the load is more than can be served
	turnFrom       = 0.1                    // smaller moves of the pressure are no change of direction
)

// overload is one run.
type overload struct {
	Target
	OverloadOptions
	topics  []*given
	probe   *given
	pushes  delays // of the probe
	busy    delays // of the first topic that the load is written to
	writes  delays
	acked   atomic.Int64
	refused atomic.Int64
	first   time.Duration // when the first refusal came
	rung    int           // and the rung then
	begin   time.Time
	stalled time.Duration // this machine, meanwhile
	failed  firstOf
	seen    []rungAt
	steps   [len(stepNames)]step
}

// step is what was measured in one range of the pressure.
type step struct {
	samples              int
	writes, busy, beside load.Latency
}

var stepNames = [...]string{"to 0.2", "0.2 to 0.4", "0.4 to 0.8", "above 0.8"}

// stepOf is the range that a pressure lies in.
func stepOf(p float64) int {
	i := 0
	for _, border := range []float64{0.2, 0.4, 0.8} {
		if p > border {
			i++
		}
	}
	return i
}

// rungAt is one sample of the ladder.
type rungAt struct {
	at       time.Duration
	pressure float64
	rung     int
}

// Overload gives a fresh server many more writers than it can serve, all at
// once, and prints over time how the ladder answers: the pressure, its signals,
// the windows, what is acknowledged and refused, how long writes take, and how
// long a topic beside them takes to be pushed. Then it checks what the governor
// promises: the ladder climbs before the first refusal, constant load is one
// climb with at most one change of direction after it, the pressure is gone a
// second after the load, and nothing acknowledged is missing.
func Overload(ctx context.Context, t Target, o OverloadOptions) error {
	r := &overload{Target: t, OverloadOptions: o.withDefaults()}
	c, err := t.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	for i := range overloadTopics {
		r.topics = append(r.topics, &given{name: fmt.Sprintf("load-%02d", i), config: fmt.Sprintf(`{"durability":%q}`, r.Class), pad: strings.Repeat("x", r.Pad)})
	}
	r.probe = &given{name: "probe", config: `{}`}
	for _, g := range append(r.topics, r.probe) {
		if _, err := c.do("PUT", "/v0/topics/"+g.name, []byte(g.config)); err != nil {
			return err
		}
	}
	var readers group
	defer readers.close()
	for topic, delays := range map[string]*delays{r.probe.name: &r.pushes, r.topics[0].name: &r.busy} {
		w, err := t.watch(ctx, c, load.StreamOptions{}, topic)
		if err != nil {
			return err
		}
		w.delays, w.every = delays, true
		readers.start(w)
	}
	if err := r.load(ctx); err != nil {
		return err
	}
	return errors.Join(r.judge(), r.complete(c))
}

// load runs writers and probe beside the sampler.
func (r *overload) load(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fmt.Fprintf(r.Out, "%d connections write records of class %s without pause to %d topics, refused ones when they may again;\n"+
		"the first of these and a topic of class disk beside them have a stream. Times in ms, p50/p99, from the start of the write.\n\n", r.Writers, r.Class, overloadTopics)
	fmt.Fprintf(r.Out, "%5s %5s %4s %6s %6s %6s %8s %6s %9s %6s %12s %12s %12s\n", "s", "p", "rung", "depth", "laten.", "pool", "coalesce", "commit",
		"writes/s", "429", "write", "push", "push beside")
	r.begin = time.Now()
	stalled := stall.Watch()
	defer func() { r.stalled = stalled() }()
	end := r.begin.Add(r.Length)
	var writers, beside sync.WaitGroup
	for i := range r.Writers {
		writers.Go(func() { r.fail(r.writer(ctx, end, r.topics[i%overloadTopics]), cancel) })
	}
	over, stop := context.WithCancel(ctx)
	beside.Go(func() { r.fail(r.probes(over), cancel) })
	beside.Go(func() { r.fail(r.sample(over), cancel) })
	writers.Wait()
	r.Length = time.Since(r.begin)
	fmt.Fprintf(r.Out, "%5.2f the load ends\n", r.Length.Seconds())
	_ = pause(ctx, 2*r.Calm) // an end that came before shows in failed
	stop()
	beside.Wait()
	return r.failed.err()
}

func (r *overload) fail(err error, cancel func()) {
	if err != nil {
		r.failed.add(err)
		cancel()
	}
}

// writer writes until the end; refused, it comes back when it may.
func (r *overload) writer(ctx context.Context, end time.Time, g *given) error {
	c, err := r.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	var buf []byte
	for now := time.Now(); now.Before(end); now = time.Now() {
		var wait time.Duration
		if buf, wait, err = g.write(c, buf, 1); err != nil {
			return err
		}
		if wait == 0 {
			r.acked.Add(1)
			r.writes.add(time.Since(now))
			continue
		}
		if r.refused.Add(1) == 1 {
			r.first = time.Since(r.begin)
			m, err := c.metrics()
			if err != nil {
				return err
			}
			r.rung = int(m["weir_governor_rung"])
		}
		if pause(ctx, min(wait, time.Until(end))) != nil {
			return ctx.Err()
		}
	}
	return nil
}

// probes writes a record now and then, whose push is measured.
func (r *overload) probes(ctx context.Context) error {
	c, err := r.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	var buf []byte
	for ctx.Err() == nil {
		if buf, _, err = r.probe.write(c, buf, 1); err != nil && ctx.Err() == nil {
			return err
		}
		_ = pause(ctx, 10*time.Millisecond)
	}
	return nil
}

// sample prints a line of the table every ladderStep.
func (r *overload) sample(ctx context.Context) error {
	c, err := r.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	ticks := time.NewTicker(ladderStep)
	defer ticks.Stop()
	var acked int64
	last := r.begin
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
		m, err := c.metrics()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		now, total := time.Now(), r.acked.Load()
		s := rungAt{now.Sub(r.begin), m["weir_pressure"], int(m["weir_governor_rung"])}
		r.seen = append(r.seen, s)
		in := &r.steps[stepOf(s.pressure)]
		in.samples++
		signal := func(name string) float64 { return m[`weir_pressure_signal{signal="`+name+`"}`] }
		fmt.Fprintf(r.Out, "%5.2f %5.2f %4d %6.2f %6.2f %6.2f %8.1f %6.2f %9.0f %6d %12s %12s %12s\n", s.at.Seconds(), s.pressure, s.rung,
			signal("depth"), signal("latency"), signal("pool"), m["weir_coalesce_window_ms"], m["weir_commit_window_ms"],
			float64(total-acked)/now.Sub(last).Seconds(), r.refused.Load(), r.writes.take(&in.writes), r.busy.take(&in.busy), r.pushes.take(&in.beside))
		acked, last = total, now
	}
}

// judge holds what was seen against what the governor promises.
func (r *overload) judge() error {
	broken := &firstOf{}
	var climbed, calmed time.Duration
	var loaded []float64
	highest, top := 0.0, 0
	for _, s := range r.seen {
		if s.at < r.Length {
			loaded = append(loaded, s.pressure)
			highest, top = max(highest, s.pressure), max(top, s.rung)
		}
		if climbed == 0 && s.rung > 0 {
			climbed = s.at
		}
		if calmed == 0 && s.at > r.Length && s.pressure < calm {
			calmed = s.at - r.Length
		}
	}
	p50, p99, longest := r.writes.all()
	fmt.Fprintf(r.Out, "\n%d writes acknowledged, %d refused, p50 %s, p99 %s, longest %s ms; highest pressure %.2f, highest rung %d\n",
		r.acked.Load(), r.refused.Load(), short(p50), short(p99), short(longest), highest, top)
	for i := range r.steps {
		if s := &r.steps[i]; s.samples > 0 {
			fmt.Fprintf(r.Out, "pressure %-10s %3d samples, writes %s, pushes %s, beside %s\n", stepNames[i], s.samples, quantiles(&s.writes), quantiles(&s.busy), quantiles(&s.beside))
		}
	}
	if r.refused.Load() > 0 {
		fmt.Fprintf(r.Out, "first climb seen after %v, first refusal after %v on rung %d\n", climbed.Round(time.Millisecond), r.first.Round(time.Millisecond), r.rung)
		if r.rung == 0 {
			broken.add(fmt.Errorf("a write was refused after %v, and the ladder had not climbed", r.first))
		}
	}
	n := turns(loaded)
	fmt.Fprintf(r.Out, "changes of direction under load: %d; pressure under %.2f %v after the load\n", n, calm, calmed.Round(time.Millisecond))
	if n > 1 && highest >= overloaded {
		broken.add(fmt.Errorf("under constant load the pressure changed its direction %d times", n))
	}
	if calmed == 0 || calmed > r.Calm+ladderStep+r.stalled {
		broken.add(fmt.Errorf("the pressure was under %.2f %v after the load (0: never), want %v; the machine stalled for %v", calm, calmed, r.Calm, r.stalled))
	}
	return broken.err()
}

// turns counts how often a series changes its direction by turnFrom or more.
func turns(all []float64) (n int) {
	if len(all) == 0 {
		return 0
	}
	up, extreme := true, all[0]
	for _, v := range all {
		switch {
		case up && v > extreme, !up && v < extreme:
			extreme = v
		case up && v < extreme-turnFrom, !up && v > extreme+turnFrom:
			up, extreme = !up, v
			n++
		}
	}
	return n
}

// complete checks that what was acknowledged is there.
func (r *overload) complete(c *caller) error {
	broken := &firstOf{}
	for _, g := range r.topics {
		broken.add(g.verify(c))
	}
	return broken.err()
}
