package governor

import (
	"math"
	"testing"
	"time"
)

const (
	ms     = time.Millisecond
	second = 10 // samples
)

var idle = Inputs{Workers: 2}

// loads are inputs of which one is at the value that scales to 1.
var loads = map[string]Inputs{
	"depth":       {Workers: 2, Depth: 512},
	"mean wait":   {Workers: 2, PickUps: 1, MeanWait: 25 * ms},
	"oldest wait": {Workers: 2, OldestWait: 25 * ms},
	"busy":        {Workers: 2, BusyShare: 1},
	"debt":        {Workers: 2, DebtSegments: 4},
	"fill":        {Workers: 2, Fill: 1},
	"write wait":  {Workers: 2, WriteWait: 25 * ms},
}

func sample(g *Governor, in Inputs, n int) (all []float64) {
	for range n {
		all = append(all, g.Sample(in, false).Pressure)
	}
	return all
}

func TestPressureRisesAndFallsWithEachInput(t *testing.T) {
	for name, load := range loads {
		g := New()
		up := sample(g, load, second)
		if got := up[second-1]; got <= 0.95 {
			t.Errorf("%s at its full value for 1 s: pressure %v", name, got)
		}
		sample(g, load, 100)
		down := sample(g, idle, second)
		if got := down[second-1]; got >= 0.05 {
			t.Errorf("%s gone for 1 s: pressure %v", name, got)
		}
		for i := range second - 1 {
			if up[i+1] < up[i] || down[i+1] > down[i] {
				t.Errorf("%s: pressure turns round: %v, %v", name, up, down)
			}
		}
	}
}

func TestPressureStaysBetweenNoneAndFull(t *testing.T) {
	g := New()
	for _, in := range []Inputs{
		{Depth: math.MaxInt, Workers: -1, MeanWait: math.MaxInt64, OldestWait: math.MaxInt64, PickUps: math.MaxInt, BusyShare: math.Inf(1), Fill: math.Inf(1), WriteWait: math.MaxInt64, DebtSegments: math.MaxInt},
		{Depth: math.MinInt, MeanWait: math.MinInt64, OldestWait: math.MinInt64, PickUps: 1, BusyShare: math.NaN(), Fill: math.NaN(), WriteWait: math.MinInt64, DebtSegments: math.MinInt},
		{},
	} {
		for range 100 {
			if p := g.Sample(in, true).Pressure; !(p >= 0 && p <= 1) {
				t.Fatalf("%+v: pressure %v", in, p)
			}
		}
	}
}

func TestMoreLoadIsNeverLessPressure(t *testing.T) {
	raise := map[string]func(*Inputs, int){
		"depth":       func(in *Inputs, i int) { in.Depth = i * 8 },
		"mean wait":   func(in *Inputs, i int) { in.PickUps, in.MeanWait = 1, time.Duration(i)*ms/2 },
		"oldest wait": func(in *Inputs, i int) { in.OldestWait = time.Duration(i) * ms / 2 },
		"busy":        func(in *Inputs, i int) { in.BusyShare = float64(i) / 64 },
		"debt":        func(in *Inputs, i int) { in.DebtSegments = i / 10 },
		"fill":        func(in *Inputs, i int) { in.Fill = float64(i) / 64 },
		"write wait":  func(in *Inputs, i int) { in.WriteWait = time.Duration(i) * ms / 2 },
	}
	for _, before := range loads {
		for name, set := range raise {
			last := -1.0
			for i := range 70 {
				g, in := New(), idle
				set(&in, i)
				sample(g, before, 2)
				if p := g.Sample(in, false).Pressure; p < last {
					t.Fatalf("%s raised at step %d: pressure falls from %v to %v", name, i, last, p)
				} else {
					last = p
				}
			}
		}
	}
}

func TestConstantInputsSettleWithinASecond(t *testing.T) {
	for _, from := range []Inputs{idle, loads["depth"], loads["oldest wait"]} {
		for _, in := range []Inputs{
			{Workers: 2, Depth: 100}, {Workers: 2, OldestWait: 10 * ms}, {Workers: 2, BusyShare: 0.8},
			{Workers: 2, Depth: 300, PickUps: 9, MeanWait: 5 * ms, DebtSegments: 1},
		} {
			g := New()
			sample(g, from, 50)
			all := sample(g, in, 200)
			final := all[len(all)-1]
			for i, p := range all[second-1:] {
				if math.Abs(p-final) > 0.02 {
					t.Errorf("%+v: %v after %d samples, %v at last", in, p, second+i, final)
				}
			}
			if n := turns(all); n > 1 {
				t.Errorf("%+v: pressure turns round %d times", in, n)
			}
		}
	}
}

// turns counts the changes of direction.
func turns(all []float64) (n int) {
	last := 0.0
	for i := 1; i < len(all); i++ {
		d := all[i] - all[i-1]
		if math.Abs(d) < 1e-12 {
			continue
		}
		if d*last < 0 {
			n++
		}
		last = d
	}
	return n
}

func TestAVisitThatHangsKeepsThePressureUp(t *testing.T) {
	g, last := New(), 0.0
	for i := range 100 {
		p := g.Sample(Inputs{Workers: 2, Depth: 1, OldestWait: time.Duration(i) * 100 * ms}, false).Pressure
		if p < last {
			t.Fatalf("pressure falls from %v to %v", last, p)
		}
		last = p
	}
	if last < 0.95 {
		t.Errorf("pressure %v", last)
	}
}

func TestPausedTopicsDoNotHoldThePause(t *testing.T) {
	g := New()
	sample(g, loads["depth"], 50)
	if !g.State().Deferring {
		t.Fatal("full pressure does not defer")
	}
	sample(g, idle, second) // a thousand paused topics are no input
	if g.State().Deferring {
		t.Error("still deferring after 1 s")
	}
}

func TestFiveMillisecondsAreTheBorderOfHealthy(t *testing.T) {
	g := New()
	sample(g, Inputs{Workers: 2, PickUps: 100, MeanWait: 5 * ms}, 100)
	if st := g.State(); math.Abs(st.Latency-0.2) > 1e-9 || st.Rung != 0 {
		t.Errorf("%+v", st)
	}
}

// Groups of writers are released together and come back together.
func TestBetweenTwoWavesItIsNotCalm(t *testing.T) {
	g := New()
	sample(g, loads["write wait"], second)
	for range 50 {
		if p := sample(g, idle, 1)[0]; p < 0.95 {
			t.Fatalf("pressure %v between two waves", p)
		}
		sample(g, loads["write wait"], 1)
	}
}

func TestStateNamesTheSignals(t *testing.T) {
	g := New()
	st := g.Sample(Inputs{Workers: 2, Depth: 256, OldestWait: 10 * ms, BusyShare: 0.6, DebtSegments: 1}, false)
	want := State{Known: true, Pressure: 0.25, Depth: 0.5, Latency: 0.2, Pool: 0.25, Rung: 1, CoalesceWindow: 1250 * time.Microsecond, CommitWindow: 500 * time.Microsecond}
	if math.Abs(st.Latency-want.Latency) < 1e-9 {
		st.Latency = want.Latency
	}
	if d := st.CoalesceWindow - want.CoalesceWindow; d.Abs() < time.Microsecond {
		st.CoalesceWindow = want.CoalesceWindow
	}
	if st != want {
		t.Errorf("%+v\nwant %+v", st, want)
	}
}

func BenchmarkGovernorSample(b *testing.B) {
	g := New()
	b.ReportAllocs()
	for b.Loop() {
		g.Sample(loads["depth"], false)
	}
}
