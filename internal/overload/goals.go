package overload

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Number is a measured value; one that could not be measured is NaN.
type Number float64

// MarshalJSON writes NaN and infinities as null.
func (n Number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

func (n Number) nan() bool { return math.IsNaN(float64(n)) }

// fixed, percent, in, span and whole are the forms in which the table prints numbers.
func (n Number) fixed(digits int) string {
	if n.nan() {
		return "–"
	}
	return strconv.FormatFloat(float64(n), 'f', digits, 64)
}

func (n Number) percent() string {
	if n.nan() {
		return "–"
	}
	return (100 * n).fixed(1) + " %"
}

func (n Number) in(deadline time.Duration) string {
	if n.nan() {
		return "–"
	}
	return strconv.FormatFloat(float64(n)/deadline.Seconds(), 'f', 2, 64) + "·D"
}

func (n Number) span() string {
	if n.nan() {
		return "–"
	}
	d := time.Duration(float64(n) * float64(time.Second))
	switch {
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		d = d.Round(10 * time.Microsecond)
	default:
		d = d.Round(time.Microsecond)
	}
	return d.String()
}

// Mark is how a result stands to one goal.
type Mark struct {
	Goal   string `json:"goal"`   // what is asked for
	Figure string `json:"figure"` // what was measured
	Met    bool   `json:"met"`
	Judged bool   `json:"judged"` // false: the goal does not apply, or nothing could be measured
}

// goal is one of the things that an overload control has to achieve.
type goal struct {
	name string
	mark func(r *Result) Mark
}

// goals are all of them, in the order of the table. The embedded engine and the server
// built on it serve tiers in order, so more is asked of their waits.
var goals = []goal{
	{"goodput", func(r *Result) Mark {
		least := Number(0.95)
		if r.Kind == "embedded" {
			least = 0.98
		}
		return Mark{Goal: "≥ " + plain(100*least) + " %", Figure: r.Goodput.percent(), Met: r.Goodput >= least, Judged: !r.Goodput.nan() && r.Scenario.Load > 1}
	}},
	{"top tier in time", func(r *Result) Mark {
		fits := r.Scenario.Load*Tiers[0].Share <= 0.8*r.Scenario.worst()
		return Mark{Goal: "≥ 99 % while it fits", Figure: r.Tiers[0].percent(), Met: r.Tiers[0] >= 0.99, Judged: !r.Tiers[0].nan() && fits}
	}},
	{"latency p99", func(r *Result) Mark { return r.latency(r.Latency.P99, 1.5, 1) }},
	{"top tier's p99", func(r *Result) Mark { return r.latency(r.TierP99[0], 1.5, 0.35) }},
	{"calm after", func(r *Result) Mark {
		m := Mark{Goal: "≤ 0.5·D", Figure: r.Calm.in(r.Scenario.Deadline), Met: float64(r.Calm) <= r.Scenario.Deadline.Seconds()/2, Judged: r.Scenario.Phases[2] >= 2}
		if r.Calm.nan() {
			m.Figure = "not in " + plain(Number(r.Scenario.Phases[2])) + "·D"
		}
		return m
	}},
	{"variation", func(r *Result) Mark {
		return Mark{Goal: "≤ 0.2", Figure: r.Variation.fixed(2), Met: r.Variation <= 0.2, Judged: !r.Variation.nan() && r.Scenario.worst() == 1}
	}},
	{"arrivals' variation", func(r *Result) Mark {
		return Mark{Goal: "≤ 0.3", Figure: r.Arrivals.fixed(2), Met: r.Arrivals <= 0.3, Judged: !r.Arrivals.nan() && r.Scenario.worst() > 0}
	}},
	{"refusal p99", func(r *Result) Mark {
		most := Number(0.001)
		if r.Kind == "http" {
			most = 0.005
		}
		return Mark{Goal: "≤ " + most.span(), Figure: r.Refusal.P99.span(), Met: r.Refusal.P99 <= most, Judged: !r.Refusal.P99.nan()}
	}},
	{"lost", func(r *Result) Mark {
		return Mark{Goal: "0", Figure: strconv.Itoa(r.Lost), Met: r.Lost == 0, Judged: true}
	}},
}

// latency judges a p99: shared is for backends that serve in order of arrival.
func (r *Result) latency(p99 Number, shared, ordered Number) Mark {
	most := shared
	if r.Kind == "embedded" || r.Kind == "http" {
		most = ordered
	}
	d := r.Scenario.Deadline
	return Mark{Goal: "≤ " + plain(most) + "·D", Figure: p99.in(d), Met: float64(p99) <= float64(most)*d.Seconds(), Judged: !p99.nan()}
}

func plain(n Number) string { return strconv.FormatFloat(float64(n), 'f', -1, 64) }

// Marks compares the result with every goal.
func (r *Result) Marks() map[string]Mark {
	marks := map[string]Mark{}
	for _, g := range goals {
		marks[g.name] = g.mark(r)
	}
	return marks
}

// Spoilt says why the figures cannot be trusted; empty if they can.
func (r *Result) Spoilt() string {
	switch {
	case r.Overrun > 0:
		return fmt.Sprintf("generator overrun: %d callers were not started, because %d were waiting", r.Overrun, maxCallers)
	case float64(r.LateP99) > r.Scenario.Deadline.Seconds()/10:
		return fmt.Sprintf("the machine is too slow for this load: 1 %% of the callers began more than %s late", r.LateP99.span())
	case r.Strangers > 0:
		return fmt.Sprintf("somebody else published to the stream: %d messages", r.Strangers)
	}
	return ""
}

// figures are the rows below the goals.
var figures = []struct {
	name string
	show func(r *Result) string
}{
	{"tiers in time", func(r *Result) string {
		text := ""
		for i, t := range r.Tiers {
			if i > 0 {
				text += " "
			}
			text += (100 * t).fixed(0)
		}
		return text + " %"
	}},
	{"latency p50", func(r *Result) string { return r.Latency.P50.in(r.Scenario.Deadline) }},
	{"wait p50, p99", func(r *Result) string {
		return r.Waited.P50.in(r.Scenario.Deadline) + " " + r.Waited.P99.in(r.Scenario.Deadline)
	}},
	{"workers busy", func(r *Result) string { return r.Busy.percent() }},
	{"handlers' slowdown", func(r *Result) string { return r.Slowdown.fixed(3) }},
	{"offered", func(r *Result) string { return strconv.Itoa(r.Offered) }},
	{"stored", func(r *Result) string { return strconv.Itoa(r.Stored) }},
	{"in time", func(r *Result) string { return strconv.Itoa(r.InTime) }},
	{"refusals", func(r *Result) string { return strconv.Itoa(r.Refused) }},
	{"waited in vain", func(r *Result) string { return strconv.Itoa(r.GaveUp) }},
	{"errors, unknown", func(r *Result) string { return fmt.Sprintf("%d %d", r.Failed, r.Unknown) }},
	{"expired", func(r *Result) string {
		if !r.Scenario.Expire {
			return ""
		}
		return strconv.Itoa(r.Expired)
	}},
	{"doubles", func(r *Result) string { return strconv.Itoa(r.Doubles) }},
	{"callers late p99", func(r *Result) string { return r.LateP99.span() }},
	{"recovery", func(r *Result) string {
		switch t := r.Trouble; {
		case t == nil:
			return ""
		case t.Recovery.nan():
			return "none"
		default:
			return t.Recovery.in(r.Scenario.Deadline)
		}
	}},
	{"goodput before it", func(r *Result) string { return r.Trouble.goodput(func(t *Trouble) Number { return t.Before }) }},
	{"goodput during it", func(r *Result) string { return r.Trouble.goodput(func(t *Trouble) Number { return t.During }) }},
	{"goodput after it", func(r *Result) string { return r.Trouble.goodput(func(t *Trouble) Number { return t.After }) }},
	{"processes' part", func(r *Result) string {
		var parts []string
		for _, p := range r.Processes {
			parts = append(parts, p.Part.fixed(3))
		}
		return strings.Join(parts, " ")
	}},
	{"greedy offered, in time", func(r *Result) string { return r.keys("greedy") }},
	{"others offered, in time", func(r *Result) string { return r.keys("others") }},
}

func (t *Trouble) goodput(of func(*Trouble) Number) string {
	if t == nil {
		return ""
	}
	return of(t).percent()
}

// keys shows what a group of fairness keys sent and got, and how much of its own was done
// in time.
func (r *Result) keys(group string) string {
	k, known := r.Keys[group]
	if !known {
		return ""
	}
	return k.Offered.percent() + " " + k.InTime.percent() + " (" + k.Served.percent() + " of its own)"
}

// Table writes the results side by side: the goals, each marked met or missed, and
// below them what explains the figures.
func Table(w io.Writer, results []*Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	cell := func(text string) { fmt.Fprint(t, text, "\t") }
	cell("")
	cell("goal")
	for _, r := range results {
		cell(r.Arm)
	}
	fmt.Fprintln(t)
	for _, g := range goals {
		cell(g.name)
		cell(g.mark(results[0]).Goal)
		for _, r := range results {
			cell(g.mark(r).text())
		}
		fmt.Fprintln(t)
	}
	for _, f := range figures {
		if f.show(results[0]) == "" {
			continue
		}
		cell(f.name)
		cell("")
		for _, r := range results {
			cell(f.show(r))
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		if why := r.Spoilt(); why != "" {
			if _, err := fmt.Fprintf(w, "%s does not count: %s\n", r.Arm, why); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m Mark) text() string {
	switch {
	case !m.Judged:
		return m.Figure
	case m.Met:
		return m.Figure + " met"
	}
	return m.Figure + " missed"
}
