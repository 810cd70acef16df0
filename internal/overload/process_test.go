package overload

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir"
)

// Callers in several processes are judged as if they were in one: every offer is made
// once, and nothing of what became of it is lost on the way to the judge.
func TestTwinInSeveralProcesses(t *testing.T) {
	for _, arm := range []string{"off", "adaptive"} {
		s := Scenario{Load: 3, Phases: [3]float64{1, 6, 3}, Variant: Greedy}
		one := inBubble(t, s, arm)
		s.Processes, s.Producers = 3, 2
		many := inBubble(t, s, arm)
		clean(t, many)
		if arm == "off" && (many.Stored != one.Stored || many.Accepted != one.Accepted || many.LateP99 != one.LateP99 || many.Goodput != one.Goodput || many.Latency != one.Latency) {
			t.Errorf("one process: %d stored, goodput %v, latency %v; three: %d, %v, %v", one.Stored, one.Goodput, one.Latency, many.Stored, many.Goodput, many.Latency)
		}
		near(t, arm+": goodput", float64(many.Goodput), float64(one.Goodput), 0.05)
		near(t, arm+": arrivals", float64(many.Arrivals), float64(one.Arrivals), 0.1)
		offered, stored := 0, 0
		for _, p := range many.Processes {
			offered += p.Offered
			stored += p.Stored
			near(t, arm+": a process's part", float64(p.Part), 1, 0.1)
		}
		if len(many.Processes) != 3 || offered != many.Offered || stored != many.Stored {
			t.Errorf("%s: %+v of %d offered, %d stored", arm, many.Processes, many.Offered, many.Stored)
		}
		if got, want := many.Keys["others"].Offered, one.Keys["others"].Offered; got != want {
			t.Errorf("%s: others offered %v, in one process %v", arm, got, want)
		}
	}
}

// A process that begins late makes its callers late, and a run of them does not count.
func TestAProcessThatIsLateSpoilsTheRun(t *testing.T) {
	in, orders := io.Pipe()
	said, out := io.Pipe()
	s := Scenario{Load: 1, Deadline: 100 * time.Millisecond, Service: time.Millisecond, Workers: 1, Phases: [3]float64{1, 1, 1}, Processes: 1}.WithDefaults()
	go func() {
		err := Callers(t.Context(), in, out, func(context.Context, string) (*weir.Stream, error) { return weir.New(newMemory()), nil })
		_ = out.CloseWithError(errors.Join(err, io.EOF))
	}()
	l := newLedger(len(s.offers()), time.Second)
	p, err := startProcess(t.Context(), Target{Spawn: func(context.Context) (*Process, error) {
		return &Process{In: orders, Out: said}, nil
	}}, job{Scenario: s, Arm: "off"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.next(&news{}); err != nil {
		t.Fatal(err)
	}
	ps := &processes{all: []*process{p}, tell: l.called}
	if err := errors.Join(ps.begin(t.Context(), time.Now().Add(-time.Second)), ps.end()); err != nil {
		t.Fatal(err)
	}
	if f := l.fates[0]; f.late < 500*time.Millisecond {
		t.Errorf("%+v", f)
	}
}

// What goes wrong in a process is said, and which one it was.
func TestAProcessThatFailsIsAnError(t *testing.T) {
	a, err := ParseArm("off", Scenario{Deadline: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	open := func(context.Context) (*weir.Stream, error) { return weir.New(newMemory()), nil }
	s := Scenario{Deadline: 10 * time.Millisecond, Service: time.Millisecond, Phases: [3]float64{1, 1, 1}, Processes: 2}
	for want, spawn := range map[string]func(context.Context) (*Process, error){
		"process 1 of the callers: no such program": func(context.Context) (*Process, error) { return nil, errors.New("no such program") },
		"process 1 of the callers: no route": func(ctx context.Context) (*Process, error) {
			return spawn(ctx, Target{Open: func(context.Context) (*weir.Stream, error) { return nil, errors.New("no route") }})
		},
		"cannot be used from several processes": nil,
	} {
		if _, err := Run(t.Context(), s, a, Target{Open: open, Spawn: spawn}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
