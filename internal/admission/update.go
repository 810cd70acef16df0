package admission

import (
	"math"
	"slices"
	"time"
)

// Update computes the next cut from a reading that has arrived at now.
func (c *Controller) Update(r Reading, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.last.At.IsZero()
	dt := r.At.Sub(c.last.At).Seconds()
	if !first && dt < minInterval.Seconds()/2 {
		return
	}
	slo := time.Duration(c.slo.Load())
	if first {
		dt = 0
	}
	c.count(&r, dt, slo)
	if !r.Known {
		c.gap = true
		return
	}
	if r.Paused {
		// What the workers can do is as it was when they go on, and until then waiting is
		// what is wanted.
		c.last, c.gap = r, true
		cut := open()
		cut.at, cut.admitted = r.At, r.Admitted
		c.cut.Store(cut)
		return
	}
	switch {
	case c.gap: // the queue may have stood still until now: its workers had nothing to do
		r.At, c.gap = now, false
	case !first && r.Origin == c.last.Origin:
		c.drain.measure(&c.last, &r, slo, c.tuning.lookBack)
	}
	c.last = r
	c.cut.Store(c.next(&r, slo, now))
}

// count takes over what has been offered since the last update, dt seconds ago.
func (c *Controller) count(r *Reading, dt float64, slo time.Duration) {
	var now [Bins]uint32
	var total uint32
	for i := range now {
		now[i] = c.offered[i].Load()
		total += now[i]
	}
	quick, slow := decay(dt, slo.Seconds()/10), decay(dt, slo.Seconds()*4)
	if dt > 0 {
		c.own = c.own*quick + float64(total-c.total)/dt*(1-quick)
	}
	c.total = total
	alone := len(r.Offered) != Bins
	if !alone {
		now = [Bins]uint32(r.Offered)
	}
	if dt > 0 && alone == c.alone && !c.restarted(&now) {
		for t := range c.tiers {
			total := 0.0
			for i := t * perTier; i < (t+1)*perTier; i++ {
				rate := float64(now[i]-c.seen[i]) / dt
				total += rate
				c.bins[i] = c.bins[i]*slow + rate*(1-slow)
			}
			c.tiers[t] = c.tiers[t]*quick + total*(1-quick)
		}
	}
	c.seen, c.alone = now, alone
}

// restarted reports whether a counter is lower than it was.
func (c *Controller) restarted(now *[Bins]uint32) bool {
	for i := range now {
		if now[i]-c.seen[i] > 1<<31 {
			return true
		}
	}
	return false
}

// others is how many messages all processes are offered for each of this one.
func (c *Controller) others() float64 {
	sum := 0.0
	for _, r := range c.tiers {
		sum += r
	}
	if c.alone || c.own <= 0 {
		return 1
	}
	return min(max(1, sum/c.own), 1000)
}

// decay is what is left of a moving average after dt seconds.
func decay(dt, constant float64) float64 { return math.Exp(-dt / constant) }

// next computes the cut that follows from r.
func (c *Controller) next(r *Reading, slo time.Duration, now time.Time) *Cut {
	prev := c.cut.Load()
	cut := open()
	cut.at, cut.admitted, cut.queue = r.At, r.Admitted, float64(r.Waiting)
	cut.scale = c.others()
	rate, known := c.drain.rate(slo)
	if r.Working == 0 && r.Waiting > 0 && c.drain.still {
		return cut // nobody works
	}
	if !known {
		if rate = c.drain.guess(); rate == 0 {
			return cut
		}
	}
	delay := now.Sub(r.At) + r.At.Sub(prev.at) // how old what is seen will be at the next cut
	delay = min(delay, slo)
	cut.Drain, cut.until = rate, 4*max(c.Interval(), delay)
	// A queue of a few messages keeps that many workers busy.
	cut.target = c.tuning.target * max(rate*slo.Seconds()/aim, 2+math.Sqrt(float64(r.busy())))
	if r.Limit > 0 {
		cut.target = min(cut.target, float64(r.Limit)/2)
	}
	cut.Target = seconds(cut.target / rate)
	cut.Wait = seconds(cut.queue / rate)
	cut.Service = c.drain.service()
	for t := range cut.bound {
		cut.bound[t] = max(2*cut.target, rate*slo.Seconds()*(0.25+0.25*float64(Tiers-1-t)/(Tiers-1)))
		if !known { // it is only a guess
			cut.bound[t] = max(rate*slo.Seconds()/4, 32)
		}
	}
	cut.bounded = true
	if !known {
		return cut
	}
	if prev.Refused > 0 {
		c.full = r.At
	}
	if r.At.Sub(c.full) < slo {
		c.takeTurns(cut)
	}
	queue := max(0, cut.waiting(now, c.admitted.Load()))
	if queue <= cut.target/2 && prev.Refused == 0 {
		return cut
	}
	horizon := max(cut.target/max(rate, 1e-9), 2*delay.Seconds())
	c.foresee(cut, rate)
	c.divide(cut, max(0, rate+(cut.target-queue)/(horizon*c.tuning.horizon)))
	return cut
}

// aim is how many times shorter the wait that is aimed at is than the longest that is acceptable.
const aim = 16

func seconds(s float64) time.Duration {
	return time.Duration(min(s, 1e9) * float64(time.Second))
}

// takeTurns lets the cohorts of a tier have even parts of the queue that is aimed at until
// the next cut. Those that offer next to nothing do not count.
func (c *Controller) takeTurns(cut *Cut) {
	for t := range cut.turn {
		bins := c.bins[t*perTier : (t+1)*perTier]
		sum, n := 0.0, 0.0
		for _, r := range bins {
			sum += r
		}
		for _, r := range bins {
			if r > sum/perTier {
				n++
			}
		}
		if n > 1 {
			cut.turn[t] = uint32(max(2, cut.target/n/cut.scale))
		}
	}
}

// foresee computes what passes of each tier when drain messages per second are let through.
func (c *Controller) foresee(cut *Cut, drain float64) {
	below := 0.0
	for _, r := range c.tiers {
		below += r
	}
	left := drain
	for t, offered := range c.tiers {
		if offered > 0 {
			cut.passes[t] = min(1, max(left/offered, drain*floorShare/below))
		}
		left = max(0, left-offered)
		below -= offered
	}
}

// divide lets rate messages per second through.
func (c *Controller) divide(cut *Cut, rate float64) {
	total, passed := 0.0, 0.0
	for _, r := range c.tiers {
		total += r
	}
	if total <= rate {
		return
	}
	left := rate * (1 - floorShare)
	for t, offered := range c.tiers {
		if offered <= left {
			left -= offered
			passed += offered
			continue
		}
		cut.Tier = t
		below := 0.0
		for _, r := range c.tiers[t+1:] {
			below += r
		}
		if below == 0 {
			left += rate * floorShare
		}
		passed += c.fair(cut, t, left)
		floor := 1.0
		if below > 0 {
			floor = min(1, rate*floorShare/below)
		}
		passed += floor * below
		for i := t + 1; i < Tiers; i++ {
			for b := i * perTier; b < (i+1)*perTier; b++ {
				cut.share[b] = fixed(floor)
			}
		}
		break
	}
	cut.Refused = 1 - min(1, passed/total)
}

// fair divides rate among the cohorts of tier t: none gets more than it offers, and none
// less than another that wants more.
func (c *Controller) fair(cut *Cut, t int, rate float64) (passed float64) {
	bins := c.bins[t*perTier : (t+1)*perTier]
	sum := 0.0
	for _, r := range bins {
		sum += r
	}
	shares := cut.share[t*perTier : (t+1)*perTier]
	offered := c.tiers[t]
	if sum == 0 {
		for i := range shares {
			shares[i] = fixed(rate / offered)
		}
		return rate
	}
	// Messages without a key are as if they came from all cohorts.
	var each [cohorts]float64
	for i := range each {
		each[i] = (bins[i] + bins[cohorts]/cohorts) * offered / sum
	}
	level := waterLevel(each, rate)
	mean := 0.0
	for i, r := range each {
		share := 1.0
		if r > level {
			share = level / r
		}
		mean += share / cohorts
		shares[i] = fixed(share)
	}
	shares[cohorts] = fixed(mean)
	return rate
}

// waterLevel returns the level at which rates, cut off there, add up to total.
func waterLevel(rates [cohorts]float64, total float64) float64 {
	slices.Sort(rates[:])
	for i, r := range rates {
		if level := total / float64(cohorts-i); level <= r {
			return level
		}
		total -= r
	}
	return rates[cohorts-1]
}

// fixed is a share as Cut holds it.
func fixed(share float64) uint32 {
	return uint32(min(max(share, 0), 1) * whole)
}
