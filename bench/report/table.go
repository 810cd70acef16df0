package report

import (
	"fmt"
	"io"
	"time"
)

// Table prints rows as they are found.
type Table struct {
	W      io.Writer
	Judged bool // false: the sizes are too small for the goals, no row passes or misses
}

// Machine writes the lines above the rows.
func (t Table) Machine(m Machine) {
	w := t.W
	fmt.Fprintf(w, "%s, %d cores, %d MiB, kernel %s, %s, data on %s, load %.2f\n",
		m.CPU, m.Cores, m.MemoryMiB, m.Kernel, m.Go, m.FileSystem, m.LoadAtStart)
	fmt.Fprintf(w, "CPU is the server's, in seconds per million records, work left behind after the last answer included.\n\n")
}

// RatioHeader writes the head of the table of ratios.
func (t Table) RatioHeader() {
	fmt.Fprintf(t.W, "%-34s %-20s %9s %9s %6s %6s %-6s %6s %6s  %-15s %-15s\n", "work", "compared with",
		"weir/s", "peer/s", "ratio", "goal", "", "CPU", "peer", "p50/p99 weir", "p50/p99 peer")
}

// Ratio writes one row of the table of ratios.
func (t Table) Ratio(r *Ratio) {
	w := t.W
	if r.Error != "" {
		fmt.Fprintf(w, "%-34s %-20s not measured: %s\n", r.Title, r.Peer.Name, r.Error)
		return
	}
	fmt.Fprintf(w, "%-34s %-20s %9s %9s %6.2f %6.2f %-6s %6.2f %6.2f  %-15s %-15s%s\n",
		r.Title, r.Peer.Name, short(r.Weir.Rate), short(r.Peer.Rate), r.Value, r.Goal, t.verdict(r.Met),
		r.Weir.CPUPerMillion, r.Peer.CPUPerMillion, r.Weir.latency(), r.Peer.latency(), note(r.Note))
}

// FigureHeader writes the head of the table of figures.
func (t Table) FigureHeader() {
	fmt.Fprintf(t.W, "\n%-62s %10s %10s\n", "figure", "measured", "goal")
}

// Figure writes one row of the table of figures.
func (t Table) Figure(f *Figure) {
	w := t.W
	if f.Error != "" {
		fmt.Fprintf(w, "%-62s not measured: %s\n", f.Title, f.Error)
		return
	}
	fmt.Fprintf(w, "%-62s %10s %10s %-6s%s\n", f.Title,
		fmt.Sprintf("%.4g %s", f.Value, f.Unit), fmt.Sprintf("≤ %.4g %s", f.Goal, f.Unit), t.verdict(f.Met), note(f.Note))
}

func (t Table) verdict(met bool) string {
	if !t.Judged {
		return "-"
	}
	if met {
		return "pass"
	}
	return "MISS"
}

func note(text string) string {
	if text == "" {
		return ""
	}
	return "  (" + text + ")"
}

func (s *Side) latency() string {
	if s.P50us == 0 && s.P99us == 0 {
		return "" // a row without requests that could be timed
	}
	return micros(s.P50us) + "/" + micros(s.P99us)
}

func micros(us float64) string {
	d := time.Duration(us * float64(time.Microsecond))
	switch {
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}

// short writes a rate with three digits and a k or M.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2f M", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.1f k", v/1e3)
	}
	return fmt.Sprintf("%.1f", v)
}
