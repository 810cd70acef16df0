package overload

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// change is one way in which a run differs from the usual one.
type change struct {
	name string
	do   func(s *Scenario, b *memory)
}

// changes are the rows of the table of sensitivity.
func changes() []change {
	all := []change{{"as it is", func(*Scenario, *memory) {}}}
	add := func(name string, do func(s *Scenario, b *memory)) { all = append(all, change{name, do}) }
	for _, load := range []float64{1, 2, 5} {
		add(fmt.Sprintf("load %v×", load), func(s *Scenario, _ *memory) { s.Load = load })
	}
	add("messages expire", func(s *Scenario, _ *memory) { s.Expire = true })
	add("by tier, messages expire", func(s *Scenario, b *memory) { s.Expire, b.byTier = true, true })
	add("by tier", func(_ *Scenario, b *memory) { b.byTier = true })
	for _, part := range []time.Duration{20, 10, 5, 2, 1} {
		add(fmt.Sprintf("load told D/%d late", part), func(s *Scenario, b *memory) { b.delay = s.Deadline / part })
	}
	for _, shape := range Shapes[1:] {
		add(string(shape), func(s *Scenario, _ *memory) { s.Shape = shape })
	}
	for _, workers := range []int{2, 200} {
		add(fmt.Sprintf("%d workers", workers), func(s *Scenario, _ *memory) { s.Workers = workers })
	}
	add("16 producers", func(s *Scenario, _ *memory) { s.Producers = 16 })
	add("4s service, 60s deadline", func(s *Scenario, _ *memory) { s.Service, s.Deadline = 4*time.Second, time.Minute })
	for _, v := range Variants[1:] {
		add(string(v), func(s *Scenario, _ *memory) { s.Variant = v })
	}
	return all
}

// TestTwinSensitivity prints how an arm does when one thing is different:
//
//	go test ./internal/overload -run TestTwinSensitivity -v -arm adaptive -seeds 3
//
// The figures are means over the seeds; calm counts those that never were as the whole
// time after the plateau.
func TestTwinSensitivity(t *testing.T) {
	if twin.arms == "" {
		t.Skip("judges the arms of -arm")
	}
	for _, arm := range strings.Split(twin.arms, ",") {
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, arm+"\tgoodput\ttop tier\tp99\ttop p99\tcalm\tvariation\trefusal p99\tcalls in vain\tothers' served\t")
		for _, c := range changes() {
			fmt.Fprintln(w, c.name+"\t"+strings.Join(c.figures(t, arm), "\t")+"\t")
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
}

// figures are the cells of a row.
func (c change) figures(t *testing.T, arm string) []string {
	var goodput, top, p99, topP99, calm, variation, refusal, vain, others float64
	n := float64(twin.seeds)
	d := twin.deadline
	for seed := range twin.seeds {
		s := scenario(t, seed+1)
		probe := newMemory()
		c.do(&s, probe)
		s = s.WithDefaults()
		d = s.Deadline
		r := inBubbleOn(t, s, arm, func(b *memory) { b.byTier, b.delay = probe.byTier, probe.delay })
		clean(t, r)
		goodput += float64(r.Goodput) / n
		top += float64(r.Tiers[0]) / n
		p99 += float64(r.Latency.P99) / n
		topP99 += float64(r.TierP99[0]) / n
		variation += float64(r.Variation) / n
		refusal += float64(r.Refusal.P99) / n
		vain += float64(r.GaveUp) / float64(r.Offered) / n
		others += float64(r.Keys["others"].Served) / n
		if r.Calm.nan() {
			calm += s.Phases[2] * d.Seconds() / n
		} else {
			calm += float64(r.Calm) / n
		}
	}
	cells := []string{
		Number(goodput).percent(), Number(top).percent(), Number(p99).in(d), Number(topP99).in(d), Number(calm).in(d),
		strconv.FormatFloat(variation, 'f', 2, 64), Number(refusal).span(), Number(vain).percent(), "",
	}
	if others > 0 {
		cells[len(cells)-1] = Number(others).percent()
	}
	return cells
}
