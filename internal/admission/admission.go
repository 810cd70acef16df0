// Package admission decides which messages a loaded queue still takes, so that those it
// takes are served in time. It holds the expected wait of a message, not the depth of
// the queue: with callers that give up, a queue at any fixed depth that is longer than
// their patience completes only what nobody waits for any more.
//
// A Controller learns three things: what is offered (Offer), what waits and what has
// been finished (Update). Every Update computes a Cut: for each tier and cohort, the
// share of its messages that is let through.
//
//	drain   finished messages per second, measured while messages wait
//	target  drain × Target(SLO): the queue that keeps the workers busy, and no longer
//	rate    drain + (target − waiting) / horizon: what may come per second
//	cut     the tiers in their order take of rate what they offer; the first for
//	        which it is not enough shares it evenly among its cohorts; those after it
//	        share a floor of 2 %
//
// Compared with a controller that learns the refused share by feedback alone (DAGOR,
// SoCC 2018; Uber's Cinnamon), the measured drain and the measured offer tell the share
// at once, when a load begins and when it ends; the feedback on the queue corrects only
// what they get wrong. Cohorts are DAGOR's and Cinnamon's; dividing the last tier that
// gets through by max-min fairness instead of cutting it at a cohort keeps a key with
// most of the load from taking the others' share. While something is refused, no cohort
// takes more than its even part of target between two Updates.
//
// The package has no clock and no goroutines.
package admission

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Tiers is the number of priorities; tier 0 is the most important one.
	Tiers = 6
	// cohorts is how many groups the keys of a tier are divided into.
	cohorts = 128
	// perTier is the bins of a tier: one for each cohort, and one for messages without a key.
	perTier = cohorts + 1
	// Bins is the number of counters of what was offered.
	Bins = Tiers * perTier

	// floorShare of the rate is for the tiers below the cut, so that they show that
	// they are there. 5 % was measured to cost the top tier too much at ten times the load.
	floorShare = 0.02
	// whole is a share of 1.
	whole = math.MaxUint32
)

// Reading is what an Update is computed from.
type Reading struct {
	At       time.Time // when it was begun
	Admitted uint64    // Controller.Admitted at that time
	Known    bool      // whether the queue answered; if not, the last cut stays
	Waiting  int64     // messages that no worker has begun
	Working  int64     // messages that workers hold
	Resting  int64     // of these, those given back until they are tried again: nobody has them in hand
	Finished int64     // messages that left the queue since some moment
	Origin   int       // whose count that is: two of different origin are not compared
	Limit    int64     // the depth that must not be exceeded
	Paused   bool      // workers are given nothing on purpose: all is let through, and nothing learned
	// Offered is what all processes have offered, by bin, ever; nil if only this one is
	// known. Counters wrap.
	Offered []uint32
}

// Controller decides for one queue. It is safe for concurrent use.
type Controller struct {
	offered  [Bins]atomic.Uint32 // by bin; wraps
	carry    [Bins]atomic.Uint32 // of the shares: a message passes where it overflows
	admitted atomic.Uint64
	cut      atomic.Pointer[Cut]
	slo      atomic.Int64 // ns
	tuning   tuning

	objectives objectives

	mu    sync.Mutex
	last  Reading
	gap   bool         // the queue did not answer since
	taken [Bins]uint32 // offered at the last TakeOffered
	seen  [Bins]uint32 // offered at the last update, by all processes if that is known
	alone bool         // seen is what this process was offered
	own   float64      // offered per second to this process
	total uint32       // offered to this process at the last update
	full  time.Time    // the last reading after which something was refused
	drain drain
	tiers [Tiers]float64 // offered per second
	bins  [Bins]float64  // the same by bin, over a longer time
}

// tuning is what tests multiply the controller's constants by, to see how much they matter.
type tuning struct{ horizon, target, lookBack float64 }

// New returns a controller that holds the wait of messages well below slo.
func New(slo time.Duration) *Controller {
	c := &Controller{tuning: tuning{1, 1, 1}}
	c.Configure(slo)
	for i := range c.carry {
		c.carry[i].Store(rand.Uint32())
	}
	c.cut.Store(open())
	return c
}

// Configure replaces the longest wait that is acceptable.
func (c *Controller) Configure(slo time.Duration) { c.slo.Store(int64(slo)) }

// Admitted is how many messages have been let through.
func (c *Controller) Admitted() uint64 { return c.admitted.Load() }

// TakeOffered returns what has been offered since it was last called, by bin.
func (c *Controller) TakeOffered() []uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := make([]uint32, Bins)
	for i := range counts {
		n := c.offered[i].Load()
		counts[i] = n - c.taken[i]
		c.taken[i] = n
	}
	return counts
}

// Cut returns what is let through now.
func (c *Controller) Cut() *Cut { return c.cut.Load() }

// Interval is how often Update wants to be called while messages come: several times
// while the queue that is aimed at is worked off.
func (c *Controller) Interval() time.Duration {
	d := time.Duration(c.slo.Load()) / 50
	if target := c.cut.Load().Target; target > 0 {
		d = min(d, target/4)
	}
	return min(max(d, 10*time.Millisecond), 500*time.Millisecond)
}

// Due reports whether an Update is due at now: after Interval, or earlier when more has
// been let through than the queue can take unseen.
func (c *Controller) Due(now time.Time) bool {
	cut := c.cut.Load()
	since := now.Sub(cut.at)
	return since >= c.Interval() || cut.bounded && since >= minInterval &&
		float64(c.admitted.Load()-cut.admitted)*cut.scale > cut.target/8
}

// minInterval is between two updates at least.
const minInterval = 5 * time.Millisecond

// Bin returns the bin of a message's tier and key in the given hour.
func Bin(tier int, key string, hour int64) int {
	if key == "" {
		return tier*perTier + cohorts
	}
	h := uint64(14695981039346656037) ^ uint64(hour)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211 // FNV-1a
	}
	h ^= h >> 32
	return tier*perTier + int(h*0x9E3779B97F4A7C15>>(64-7))
}

// Offer decides about one message that came at now; one that is too late is refused. It
// counts it as offered and, if it returns true, as admitted.
func (c *Controller) Offer(now time.Time, bin int, late bool) bool {
	c.offered[bin].Add(1)
	return !late && c.Again(now, bin)
}

// Again decides once more about a message that is counted already.
func (c *Controller) Again(now time.Time, bin int) bool {
	cut := c.cut.Load()
	waiting := 0.0
	if cut.bounded {
		waiting = cut.waiting(now, c.admitted.Load())
		if waiting > cut.bound[bin/perTier] {
			return false
		}
	}
	if share := cut.share[bin]; share != whole && !cut.short(waiting) && c.carry[bin].Add(share) >= share {
		return false
	}
	if turn := cut.turn[bin/perTier]; turn > 0 && cut.taken[bin].Add(1) > turn {
		return false
	}
	c.admitted.Add(1)
	return true
}

// Admit counts n messages as admitted that were let through whatever Offer said.
func (c *Controller) Admit(n int) { c.admitted.Add(uint64(n)) }

// Cut is what is let through, until the next one.
type Cut struct {
	Wait    time.Duration // that a message which comes now is expected to have; -1: not known
	Target  time.Duration // the wait that is aimed at
	Refused float64       // share of what is offered
	Drain   float64       // messages per second; 0: not known
	Service time.Duration // that a worker has a message on average; 0: not known
	Tier    int           // the last tier of which something besides the floor passes

	share  [Bins]uint32   // of a bin, of which 2³²-1 is all
	passes [Tiers]float64 // share of a tier while the queue is as long as it should be

	// How many a cohort may bring until the next cut, by tier, and has brought; 0: any
	// number. Callers who come again at once until they are refused would otherwise fill
	// the queue between two cuts, and the other cohorts wait until it is worked off.
	turn  [Tiers]uint32
	taken [Bins]atomic.Uint32

	// How much may wait, by tier, whatever the shares are: they were computed from an
	// offer that may have changed since.
	bounded  bool
	bound    [Tiers]float64
	at       time.Time
	admitted uint64
	queue    float64 // at that time
	target   float64
	scale    float64 // messages admitted by all processes for each of this one
	until    time.Duration
}

func open() *Cut {
	c := &Cut{Wait: -1, Tier: Tiers - 1, scale: 1}
	for i := range c.share {
		c.share[i] = whole
	}
	for t := range c.passes {
		c.passes[t] = 1
	}
	return c
}

// TooLate reports whether a message that comes at now cannot be expected to be done by
// deadline. It is false while nothing is refused, and without a deadline.
func (c *Cut) TooLate(now, deadline time.Time) bool {
	return !deadline.IsZero() && c.Refused > 0 && deadline.Before(now.Add(c.Wait+c.Service))
}

// Holds reports whether the cut limits how much may wait, and follows from a reading that
// is younger than age at now.
func (c *Cut) Holds(now time.Time, age time.Duration) bool {
	return c.bounded && now.Sub(c.at) < age
}

// RetryAfter is when a message of that bin that is refused at now had better come again:
// when the queue is as long as it should be, and after that as many times target as it
// would still be refused. It is at most a tenth of slo: a caller who comes three times
// more, and adds as much at random to each wait, has its message done within slo or has
// stopped. And with the half that is added it is no later than the queue is empty: he may
// be the only one who fills it.
func (c *Controller) RetryAfter(now time.Time, bin int) time.Duration {
	cut := c.cut.Load()
	d := time.Duration(c.slo.Load()) / 10
	if passes := cut.passes[bin/perTier]; passes > 0 {
		d = min(d, max(0, cut.Wait-cut.Target)+seconds(cut.Target.Seconds()*(1/passes-1)))
	}
	return max(min(d, c.untilEmpty(cut, now)*2/3), minInterval)
}

// SlowFor is how long a publish that may wait does so before it is judged once more: no
// longer than RetryAfter could say.
func (c *Controller) SlowFor(now time.Time) time.Duration {
	cut := c.cut.Load()
	return min(cut.Target, max(c.untilEmpty(cut, now)*2/3, minInterval))
}

// untilEmpty is when the queue would be empty if nothing came.
func (c *Controller) untilEmpty(cut *Cut, now time.Time) time.Duration {
	if cut.Drain == 0 {
		return time.Hour
	}
	waiting := cut.queue + float64(c.admitted.Load()-cut.admitted)*cut.scale
	return seconds(waiting/cut.Drain) - now.Sub(cut.at)
}

// short reports whether so few wait that the workers may soon have nothing to do. Then the
// shares do not count: they follow from what was offered before the cut, and that may have
// stopped.
func (c *Cut) short(waiting float64) bool { return c.bounded && waiting <= c.target/4 }

// waiting estimates how many messages wait at now.
func (c *Cut) waiting(now time.Time, admitted uint64) float64 {
	since := min(now.Sub(c.at), c.until)
	return c.queue + float64(admitted-c.admitted)*c.scale - c.Drain*since.Seconds()
}
