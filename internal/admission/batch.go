package admission

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Part is the messages of a batch that are in one bin.
type Part struct {
	Bin int
	N   uint32
}

// Tier is the tier of the bin.
func (p Part) Tier() int { return p.Bin / perTier }

// OfferAll decides about a batch that came at now and is taken or refused as a whole.
// Its messages are offered one by one, and the batch passes with the share of them that
// would: so batches pass as much as single messages do, and one message of a high tier
// buys nothing for the low ones around it.
func (c *Controller) OfferAll(now time.Time, parts []Part) bool {
	cut := c.cut.Load()
	waiting := cut.waiting(now, c.admitted.Load())
	var n, pass uint64
	for _, p := range parts {
		c.offered[p.Bin].Add(p.N)
		n += uint64(p.N)
		k := uint64(p.N)
		if cut.bounded {
			room := cut.bound[p.Tier()] - waiting + 1 // the one that reaches the bound passes
			k = min(k, uint64(max(room, 0)))
		}
		if !cut.short(waiting) {
			k = c.through(p.Bin, cut.share[p.Bin], k)
		}
		waiting += float64(k) * cut.scale
		pass += k
	}
	if pass < n && rand.Uint64N(n) >= pass {
		return false
	}
	c.admitted.Add(n)
	return true
}

// through returns how many of k messages of a bin pass at its share.
func (c *Controller) through(bin int, share uint32, k uint64) uint64 {
	if share == whole {
		return k
	}
	sum := k * uint64(share)
	before := c.carry[bin].Add(uint32(sum)) - uint32(sum)
	return (uint64(before) + sum) >> 32
}

// Register counts a batch as offered and admitted that is let through whatever the cut says.
func (c *Controller) Register(parts []Part) {
	for _, p := range parts {
		c.offered[p.Bin].Add(p.N)
		c.admitted.Add(uint64(p.N))
	}
}

// Describe says what is refused. setting is the longest wait that is acceptable, by its
// name, and lowest the name of the cut's Tier.
func (c *Cut) Describe(setting, lowest string) string {
	return fmt.Sprintf("a message waits %s, %s; %.0f %% of the load is above what the workers can do, the lowest tier that passes is %s",
		max(0, c.Wait).Round(time.Millisecond), setting, 100*c.Refused, lowest)
}
