package overload

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/tests/bubble"
)

// The twin is the scenario in virtual time over a backend in memory. To judge a guard:
//
//	go test ./internal/overload -run TestTwin$ -v -arm adaptive -load 10 -seeds 5
//
// prints the table, a column for each seed. -arm takes several arms, separated by
// commas, with settings: 'adaptive?wait_slo=500ms,proportional'. -bytier has the backend
// hand out high priorities first, as the embedded engine does; otherwise it is one FIFO,
// as Redis is. -delay makes what producers are told about the load that old. The other
// flags are those of weir bench overload.
var twin = struct {
	arms, phases, shape, variant string
	holds                        string
	load                         float64
	seeds, workers, producers    int
	processes, pools             int
	service, deadline, delay     time.Duration
	disturbance                  float64
	byTier, expire               bool
}{}

func init() {
	flag.StringVar(&twin.arms, "arm", "", "twin: arms to judge")
	flag.StringVar(&twin.holds, "holds", "adaptive", "twin: arms that have to meet every goal at 2, 5 and 10 times the capacity, with five seeds")
	flag.Float64Var(&twin.load, "load", 10, "twin: load of the plateau, as a multiple of the capacity")
	flag.IntVar(&twin.seeds, "seeds", 1, "twin: how many seeds, from 1 on")
	flag.StringVar(&twin.phases, "phases", "5,10,8", "twin: lengths of the phases, in deadlines")
	flag.DurationVar(&twin.service, "service", 40*time.Millisecond, "twin: mean time of a handler")
	flag.DurationVar(&twin.deadline, "deadline", time.Second, "twin: when callers give up")
	flag.IntVar(&twin.workers, "workers", 20, "twin: workers")
	flag.IntVar(&twin.pools, "pools", 1, "twin: pools among which the workers are spread")
	flag.IntVar(&twin.producers, "producers", 1, "twin: producers, each with a stream of its own")
	flag.IntVar(&twin.processes, "processes", 0, "twin: groups of callers that only talk to the judge as processes do")
	flag.StringVar(&twin.shape, "distribution", "", "twin: of the times of handlers: "+names(Shapes))
	flag.StringVar(&twin.variant, "variant", "", "twin: "+names(Variants))
	flag.Float64Var(&twin.disturbance, "disturbance", 0, "twin: how long the variant's trouble lasts, in deadlines")
	flag.DurationVar(&twin.delay, "delay", 0, "twin: age of the load that producers are told")
	flag.BoolVar(&twin.expire, "expire", false, "twin: messages carry the deadlines of their callers")
	flag.BoolVar(&twin.byTier, "bytier", false, "twin: the backend hands out high priorities first")
}

// inBubble runs one arm in virtual time.
func inBubble(t *testing.T, s Scenario, arm string) *Result {
	t.Helper()
	return inBubbleOn(t, s, arm, func(b *memory) { b.byTier, b.delay = twin.byTier, twin.delay })
}

// inBubbleOn is inBubble on a stream with its own properties.
func inBubbleOn(t *testing.T, s Scenario, arm string, set func(b *memory)) (res *Result) {
	t.Helper()
	bubble.Run(t, func(t *testing.T) {
		s := s.WithDefaults()
		a, err := ParseArm(arm, s)
		if err != nil {
			t.Fatal(err)
		}
		b := newMemory()
		set(b)
		target := Target{URL: "twin", Halt: b.halt, Open: func(context.Context) (*weir.Stream, error) { return weir.New(b), nil }}
		target.Spawn = func(ctx context.Context) (*Process, error) { return spawn(ctx, target) }
		res, err = Run(t.Context(), s, a, target)
		if err != nil {
			t.Fatal(err)
		}
	})
	return res
}

// spawn stands in for a process: the bubble has one clock only.
func spawn(ctx context.Context, target Target) (*Process, error) {
	in, orders := io.Pipe()
	news, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := Callers(ctx, in, out, func(ctx context.Context, url string) (*weir.Stream, error) {
			if url != target.URL {
				return nil, fmt.Errorf("URL %q", url)
			}
			return target.Open(ctx)
		})
		_ = out.CloseWithError(io.EOF)
		_ = in.Close()
		ended <- err
	}()
	return &Process{In: orders, Out: news, Wait: func() error { return <-ended }}, nil
}

// scenario is what the flags say, with a seed.
func scenario(t *testing.T, seed int) Scenario {
	t.Helper()
	phases, err := ParsePhases(twin.phases)
	if err != nil {
		t.Fatal(err)
	}
	return Scenario{
		Load: twin.load, Service: twin.service, Deadline: twin.deadline, Phases: phases, Workers: twin.workers,
		Seed: uint64(seed), Shape: Shape(twin.shape), Variant: Variant(twin.variant), Producers: twin.producers,
		Expire: twin.expire, Disturbance: twin.disturbance, Processes: twin.processes, Pools: twin.pools,
	}
}

func TestTwin(t *testing.T) {
	if twin.arms == "" {
		t.Skip("judges the arms of -arm")
	}
	arms := strings.Split(twin.arms, ",")
	var results []*Result
	for _, arm := range arms {
		for seed := range twin.seeds {
			r := inBubble(t, scenario(t, seed+1), arm)
			if twin.seeds > 1 {
				r.Arm = fmt.Sprintf("%s, seed %d", arm, seed+1)
			}
			results = append(results, r)
		}
		if twin.seeds > 1 || arm == arms[len(arms)-1] {
			if err := Table(os.Stdout, results); err != nil {
				t.Fatal(err)
			}
			results = nil
		}
	}
}

// raced says that the race detector is on: the twin judges without it.
var raced bool

// What the guards without a controller do is the yardstick of the others: a queue that
// is never refused, and limits on its depth, keep the workers busy with messages that
// nobody waits for any more.
func TestTwinShowsThatFixedLimitsCollapse(t *testing.T) {
	if raced {
		t.Skip("without the race detector")
	}
	for _, c := range []struct {
		arm     string
		load    float64
		goodput [2]Number
		calm    bool
	}{
		{"off", 0.7, [2]Number{0.98, 1.02}, true},
		{"off", 2, [2]Number{0, 0.3}, false},
		{"static", 2, [2]Number{0, 0.3}, false},
		{"static", 10, [2]Number{0, 0.15}, false},
		{"proportional?lag_signal=pending", 10, [2]Number{0, 0.15}, false},
		{"proportional", 10, [2]Number{0.3, 0.8}, true},
	} {
		r := inBubble(t, Scenario{Load: c.load, Phases: [3]float64{5, 10, 8}}, c.arm)
		if r.Goodput < c.goodput[0] || r.Goodput > c.goodput[1] {
			t.Errorf("%s at %v×: goodput %s, want %v", c.arm, c.load, r.Goodput.percent(), c.goodput)
		}
		if r.Calm.nan() == c.calm {
			t.Errorf("%s at %v×: calm %v after the plateau, want calm: %v", c.arm, c.load, r.Calm, c.calm)
		}
		clean(t, r)
	}
}

// The goals can be met, and are marked as met, by a guard that has no delay: here the
// backend itself refuses at once, low tiers first, and callers get through to it. Not
// by tier at ten times the load: the top one alone is all that the workers can do.
func TestTwinKnowsAGoodGuard(t *testing.T) {
	if raced {
		t.Skip("without the race detector")
	}
	for _, byTier := range []bool{false, true} {
		for _, load := range []float64{2, 5, 10} {
			if byTier && load == 10 {
				continue
			}
			r := inBubbleOn(t, Scenario{Load: load, Phases: [3]float64{5, 10, 8}}, "off", func(b *memory) {
				b.byTier, b.room = byTier, map[weir.Priority]int{weir.Critical: 45, weir.High: 34, weir.Normal: 22, weir.Low: 10}
			})
			clean(t, r)
			for name, m := range r.Marks() {
				if m.Judged && !m.Met {
					t.Errorf("%v×, by tier %v: %s is %s, want %s", load, byTier, name, m.Figure, m.Goal)
				}
			}
		}
	}
}

// clean checks what holds for every guard and every load.
func clean(t *testing.T, r *Result) {
	t.Helper()
	if r.Lost != 0 || r.Doubles != 0 || r.Failed != 0 || r.Spoilt() != "" {
		t.Errorf("%s at %v×, %s: lost %d, doubles %d, errors %v %s", r.Arm, r.Scenario.Load, r.Scenario.Variant, r.Lost, r.Doubles, r.Errors, r.Spoilt())
	}
}

// An arm that is named here meets every goal that applies, at every load and with every
// seed, on one line of messages and on a backend that orders them. Only the top tier's
// latency on the latter is not asked for where that tier alone is all that the workers can
// do: who is refused then and tries again has waited.
func TestTwinMeetsTheGoals(t *testing.T) {
	if raced || twin.holds == "" {
		t.Skip("without the race detector, for the arms of -holds")
	}
	for _, arm := range strings.Split(twin.holds, ",") {
		for _, byTier := range []bool{false, true} {
			for _, load := range []float64{2, 5, 10} {
				for seed := range max(5, twin.seeds) {
					s := scenario(t, seed+1)
					s.Load = load
					r := inBubbleOn(t, s, arm, func(b *memory) { b.byTier = byTier })
					clean(t, r)
					for name, m := range r.Marks() {
						if byTier && load == 10 && name == "top tier's p99" {
							continue
						}
						if m.Judged && !m.Met {
							t.Errorf("%s at %v×, by tier %v, seed %d: %s is %s, want %s", arm, load, byTier, seed+1, name, m.Figure, m.Goal)
						}
					}
				}
			}
		}
	}
}

// Workers are often spread among many small pools, each a process on a machine of its own.
// What these have claimed and not begun is no queue that a guard sees.
func TestTwinMeetsTheGoalsWithManyPools(t *testing.T) {
	if raced || twin.holds == "" {
		t.Skip("without the race detector, for the arms of -holds")
	}
	for _, arm := range strings.Split(twin.holds, ",") {
		for _, service := range []time.Duration{40 * time.Millisecond, 150 * time.Millisecond} {
			s := scenario(t, 1)
			s.Pools, s.Service, s.Load = s.Workers, service, 5
			r := inBubble(t, s, arm)
			clean(t, r)
			if r.Goodput < 0.95 {
				t.Errorf("%s, %d pools with handlers of %s: goodput %s, p99 %s", arm, s.Pools, service, r.Goodput.percent(), r.Latency.P99.in(s.Deadline))
			}
		}
	}
}

// A backend that stands still for two deadlines, in the middle of the overload, costs no
// more than that: what callers wanted meanwhile is not stored for nobody when it goes on,
// and the workers' speed is still known.
func TestTwinForgetsAStandstill(t *testing.T) {
	if raced || twin.holds == "" {
		t.Skip("without the race detector, for the arms of -holds")
	}
	for _, arm := range strings.Split(twin.holds, ",") {
		for _, load := range []float64{2, 5, 10} {
			s := scenario(t, 1)
			s.Load, s.Variant = load, Paused
			r := inBubble(t, s, arm)
			clean(t, r)
			if d := s.Deadline.Seconds(); r.Goodput < 0.75 || float64(r.Calm) > d/2 {
				t.Errorf("%s at %v×: goodput %s (at most 80 %%), p99 %s, calm after %s", arm, load,
					r.Goodput.percent(), r.Latency.P99.in(s.Deadline), r.Calm.in(s.Deadline))
			}
		}
	}
}
