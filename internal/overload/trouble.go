package overload

import (
	"math"
	"slices"
	"time"
)

// Trouble is how an arm fared while the variant's disturbance lasted, and after it. The
// goodputs are of the parts of the plateau before it, in it and behind it; if it lasts to
// the plateau's end, the last one is of the time that follows.
type Trouble struct {
	From   Number `json:"from"` // seconds since the start
	To     Number `json:"to"`
	Before Number `json:"goodput_before"`
	During Number `json:"goodput_during"`
	After  Number `json:"goodput_after"`
	// Recovery is how long after it the wait was below half a deadline for good: then
	// what comes is done in time again.
	Recovery Number `json:"recovery"`
}

// trouble is nil without a disturbance.
func (r *run) trouble() *Trouble {
	if r.Variant == Plain || r.Variant == Greedy {
		return nil
	}
	from, to := r.disturbance()
	behind := r.end()
	if to >= behind {
		behind = r.total()
	}
	return &Trouble{
		From: Number(from.Seconds()), To: Number(to.Seconds()),
		Before: r.goodput(r.begin(), from), During: r.goodput(from, to), After: r.goodput(to, behind),
		Recovery: r.below(r.Deadline/2, to),
	}
}

// below is how long after a moment the wait had fallen below a limit and stayed there for
// a deadline.
func (r *run) below(limit, from time.Duration) Number {
	since := math.NaN()
	for _, s := range r.ledger.samples {
		after := s.At - from.Seconds()
		switch {
		case after < 0:
		case s.Wait >= limit.Seconds():
			since = math.NaN()
		case math.IsNaN(since):
			since = after
		case after-since >= r.Deadline.Seconds():
			return Number(since)
		}
	}
	return Number(math.NaN())
}

// goodput is what was completed in time from one moment to another ÷ what was possible.
func (r *run) goodput(from, to time.Duration) Number {
	good, drawn, completed := 0, time.Duration(0), 0
	for i := range r.offers {
		if ended := r.ledger.fates[i].ended; ended == never || ended < from || ended >= to {
			continue
		}
		completed++
		drawn += r.offers[i].service
		if r.inTime(i) {
			good++
		}
	}
	luck := 1.0
	if completed > 0 && drawn > 0 {
		luck = float64(r.Service) * float64(completed) / float64(drawn)
	}
	possible := r.possible(from, to, luck)
	if possible == 0 {
		return Number(math.NaN())
	}
	return Number(float64(good) / possible)
}

// possible is the lesser of what was offered and what the workers could do, over the
// parts between which one of them changes. With recorded arrivals a part is one
// deadline.
func (r *run) possible(from, to time.Duration, luck float64) float64 {
	edges := []time.Duration{from, to}
	inside := func(at time.Duration) {
		if at > from && at < to {
			edges = append(edges, at)
		}
	}
	if len(r.Recorded) > 0 {
		for at := from + r.Deadline; at < to; at += r.Deadline {
			inside(at)
		}
	}
	begins, ends := r.disturbance()
	inside(begins)
	inside(ends)
	slices.Sort(edges)
	total, next := 0.0, 0
	for next < len(r.offers) && r.offers[next].at < from {
		next++
	}
	for k, edge := range edges[:len(edges)-1] {
		offered := 0
		for ; next < len(r.offers) && r.offers[next].at < edges[k+1]; next++ {
			offered++
		}
		total += min(float64(offered), luck*r.reachable(edge)*(edges[k+1]-edge).Seconds())
	}
	return total
}

// arrivals is the coefficient of variation of the calls per tenth of a deadline in the
// plateau, without its first deadline, beyond what chance alone makes of it.
func (r *run) arrivals() Number {
	first, last := int((r.begin()+r.Deadline)/r.ledger.width)+1, int(r.end()/r.ledger.width)
	if last-first < bins || last > len(r.ledger.calls) {
		return Number(math.NaN())
	}
	mean, square := moments(r.ledger.calls[first:last])
	return Number(math.Sqrt(max(0, square/mean/mean-1/mean)))
}

// moments are the mean and the variance.
func moments(counts []int) (mean, variance float64) {
	for _, n := range counts {
		mean += float64(n) / float64(len(counts))
	}
	for _, n := range counts {
		variance += (float64(n) - mean) * (float64(n) - mean) / float64(len(counts))
	}
	return mean, variance
}
