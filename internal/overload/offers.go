package overload

import (
	"math"
	"math/rand/v2"
	"time"
)

// offer is one message that somebody wants to publish.
type offer struct {
	at      time.Duration // intended start
	service time.Duration // what its handler will take
	tier    int8
	key     int16 // of its user; 0 is the greedy one
}

// expected is about how many offers there will be.
func (s *Scenario) expected() float64 {
	if len(s.Recorded) > 0 {
		return float64(len(s.Recorded))
	}
	return s.capacity() * s.Deadline.Seconds() * (calmLoad*(s.Phases[0]+s.Phases[2]) + s.Load*s.Phases[1])
}

// offers draws the offers in their order.
func (s *Scenario) offers() []offer {
	times := rand.New(rand.NewPCG(s.Seed, 1))
	traits := rand.New(rand.NewPCG(s.Seed, 2))
	if len(s.Recorded) > 0 {
		all := make([]offer, len(s.Recorded))
		for i, a := range s.Recorded {
			all[i] = s.draw(traits, a.At)
			if a.Tier >= 0 {
				all[i].tier = int8(a.Tier)
			}
		}
		return all
	}
	all := make([]offer, 0, int(s.expected()*1.05)+100)
	from := time.Duration(0)
	for i, n := range s.Phases {
		load, until := calmLoad, from+s.deadlines(n)
		if i == 1 {
			load = s.Load
		}
		gap := float64(time.Second) / (s.capacity() * load)
		at := float64(from)
		for {
			at += times.ExpFloat64() * gap
			if at >= float64(until) {
				break
			}
			all = append(all, s.draw(traits, time.Duration(at)))
		}
		from = until
	}
	return all
}

// draw gives an offer its tier, its user and its handler's time.
func (s *Scenario) draw(r *rand.Rand, at time.Duration) offer {
	o := offer{at: at, tier: int8(len(Tiers) - 1), key: int16(1 + r.IntN(users))}
	level := r.Float64()
	for tier := range Tiers {
		if level -= Tiers[tier].Share; level < 0 {
			o.tier = int8(tier)
			break
		}
	}
	if s.Variant == Greedy && r.Float64() < greedyPart {
		o.key = 0
	}
	o.service = time.Duration(s.Shape.draw(r) * float64(s.Service))
	return o
}

// draw returns a time whose mean is 1.
func (s Shape) draw(r *rand.Rand) float64 {
	switch s {
	case Fixed:
		return 1
	case TwoHumped:
		spread := 0.8 + 0.4*r.Float64()
		if r.IntN(4) == 0 {
			return 2.5 * spread
		}
		return 0.5 * spread
	case HeavyTail:
		const (
			exponent = 1.8
			most     = 40 // times the least
		)
		mean := (exponent - math.Pow(most, 1-exponent)) / (exponent - 1)
		return min(math.Pow(1-r.Float64(), -1/exponent), most) / mean
	}
	return r.ExpFloat64()
}
