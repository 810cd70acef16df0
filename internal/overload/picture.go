package overload

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// Sizes of the picture, in its own units.
const (
	panelWidth  = 760.0
	panelHeight = 190.0
	marginLeft  = 64.0
	marginTop   = 56.0
	panelGap    = 44.0
)

// colours of the arms, for eyes that see few colours too.
var colours = []string{"#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

// point is a value at a time, in seconds.
type point struct{ x, y float64 }

// panel is one diagram; a curve for each arm.
type panel struct {
	title string
	curve func(r *Result) []point
	log   bool // the curves differ by powers of ten
}

var panels = []panel{
	{title: "backlog: stored messages that no handler has begun", curve: (*Result).backlog, log: true},
	{title: "stored per second", curve: (*Result).admitted},
	{title: "done in time per second", curve: (*Result).done},
}

// Draw writes an SVG of the results over time.
func Draw(w io.Writer, results []*Result) {
	s := results[0].Scenario
	height := marginTop + float64(len(panels))*(panelHeight+panelGap)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="12">`+"\n",
		marginLeft+panelWidth+16, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	fmt.Fprintf(&b, `<text x="%.0f" y="18" font-size="14">%s: %s× the capacity of %d workers, %s per message, callers give up after %s</text>`+"\n",
		marginLeft, results[0].Kind, plain(Number(math.Round(100*s.Load)/100)), s.Workers, s.Service, s.Deadline)
	x := marginLeft
	for i, r := range results {
		name := escape(r.Arm)
		fmt.Fprintf(&b, `<line x1="%.0f" y1="34" x2="%.0f" y2="34" stroke="%s" stroke-width="2.5"/><text x="%.0f" y="38">%s</text>`+"\n",
			x, x+18, colours[i%len(colours)], x+23, name)
		x += 40 + 7*float64(len(r.Arm))
	}
	for i, p := range panels {
		p.draw(&b, results, marginTop+float64(i)*(panelHeight+panelGap))
	}
	b.WriteString("</svg>\n")
	_, _ = io.WriteString(w, b.String())
}

var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace

// draw draws a panel whose upper edge is at top.
func (p panel) draw(b *strings.Builder, results []*Result, top float64) {
	s := results[0].Scenario
	length := s.total().Seconds()
	curves, most := make([][]point, len(results)), 0.0
	for i, r := range results {
		curves[i] = p.curve(r)
		for _, at := range curves[i] {
			most = max(most, at.y)
		}
	}
	marks, share := p.scale(most)
	most = marks[len(marks)-1]
	x := func(t float64) float64 { return marginLeft + t/length*panelWidth }
	y := func(v float64) float64 { return top + 16 + (1-share(v))*(panelHeight-16) }
	fmt.Fprintf(b, `<text x="%.0f" y="%.1f">%s</text>`+"\n", marginLeft, top+8, p.title)
	fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#f3f0e6"/>`+"\n",
		x(s.begin().Seconds()), y(most), x(s.end().Seconds())-x(s.begin().Seconds()), y(0)-y(most))
	for _, v := range marks {
		fmt.Fprintf(b, `<line x1="%.0f" y1="%.1f" x2="%.0f" y2="%.1f" stroke="#ddd"/><text x="%.0f" y="%.1f" text-anchor="end">%s</text>`+"\n",
			marginLeft, y(v), marginLeft+panelWidth, y(v), marginLeft-6, y(v)+4, plain(Number(v)))
	}
	every := nice(length / 10)
	for t := 0.0; t <= length*1.001; t += every {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s s</text>`+"\n", x(t), y(0)+15, plain(Number(t)))
	}
	for i, curve := range curves {
		var path strings.Builder
		for _, at := range curve {
			fmt.Fprintf(&path, "%.1f,%.1f ", x(at.x), y(at.y))
		}
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.6" points="%s"/>`+"\n", colours[i%len(colours)], strings.TrimSpace(path.String()))
	}
}

// scale returns the marks of an axis up to most, and where on it a value is, from 0 to 1.
func (p panel) scale(most float64) (marks []float64, share func(v float64) float64) {
	if !p.log {
		step := nice(most / 4)
		for v := 0.0; v < max(most, step)+step*0.999; v += step {
			marks = append(marks, v)
		}
		return marks, func(v float64) float64 { return v / marks[len(marks)-1] }
	}
	marks = []float64{0, 1}
	for v := 10.0; v < 10*most; v *= 10 {
		marks = append(marks, v)
	}
	decades := math.Log10(marks[len(marks)-1]) + 1 // the first one for values below 1
	return marks, func(v float64) float64 { return max(0, 1+math.Log10(max(v, 0.1))) / decades }
}

// nice is a step of 1, 2 or 5 times a power of ten, not below least.
func nice(least float64) float64 {
	if !(least > 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, n := range []float64{1, 2, 5} {
		if n*power >= least*0.999 {
			return n * power
		}
	}
	return 10 * power
}

func (r *Result) backlog() []point {
	var all []point
	for i := 0; i < len(r.Samples); i += 1 + len(r.Samples)/400 {
		all = append(all, point{r.Samples[i].At, float64(r.Samples[i].Waiting)})
	}
	return all
}

func (r *Result) admitted() []point { return r.rate(func(s Sample) int { return s.Stored }) }
func (r *Result) done() []point     { return r.rate(func(s Sample) int { return s.Good }) }

// rate is how a count grows per second, over a fifth of a deadline each.
func (r *Result) rate(count func(Sample) int) []point {
	const over = sampling / 5
	var all []point
	for i := over; i < len(r.Samples); i += over {
		a, b := r.Samples[i-over], r.Samples[i]
		if b.At > a.At {
			all = append(all, point{b.At, float64(count(b)-count(a)) / (b.At - a.At)})
		}
	}
	return all
}
