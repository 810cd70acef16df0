package api

import "slices"

// Tier is the priority of a record among the jobs of its queue. The zero value
// is TierNormal.
type Tier int8

// The lowest, the usual and the highest tier.
const (
	TierBackground Tier = -3
	TierNormal     Tier = 0
	TierCritical   Tier = 2
)

// Tiers is how many there are.
const Tiers = int(TierCritical-TierBackground) + 1

var tierNames = [Tiers]string{"background", "bulk", "low", "normal", "high", "critical"}

// String returns the tier's name.
func (t Tier) String() string { return tierNames[t.Rank()] }

// Rank counts the tiers from 0, the lowest.
func (t Tier) Rank() int { return int(t - TierBackground) }

// TierOf is the tier of a rank; false if there is none.
func TierOf(rank int) (Tier, bool) {
	return TierBackground + Tier(rank), rank >= 0 && rank < Tiers
}

// ParseTier reads the name of a tier; false if there is none of that name.
func ParseTier(name string) (Tier, bool) {
	return TierOf(slices.Index(tierNames[:], name))
}
