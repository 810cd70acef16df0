package overload

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirmq/weir"
)

// Scenario is the load and the workers, the same for every arm.
type Scenario struct {
	Load     float64       `json:"load"`        // in the plateau, as a multiple of what the workers can do
	Service  time.Duration `json:"service_ns"`  // mean time of a handler
	Deadline time.Duration `json:"deadline_ns"` // when callers give up
	Phases   [3]float64    `json:"phases"`      // before the plateau, the plateau and after it, in deadlines
	Workers  int           `json:"workers"`
	Pools    int           `json:"pools"` // among which the workers are spread, as among processes
	Seed     uint64        `json:"seed"`
	Shape    Shape         `json:"distribution"`
	Variant  Variant       `json:"variant"`
	// Disturbance is how long the variant's trouble lasts, in deadlines, around the middle of
	// the plateau. 0 is as long as the variant says.
	Disturbance float64 `json:"disturbance"`
	// Expire gives each message the deadline of its caller, so that workers set aside what
	// nobody waits for any more.
	Expire bool `json:"expire"`
	// Producers is how many producers share the load, each with a connection of its own.
	Producers int `json:"producers"`
	// Processes is over how many processes the callers are spread, each with that many producers;
	// 0 keeps them in this one.
	Processes int `json:"processes"`
	// Recorded replaces the Poisson process. The plateau is then as long as the
	// recording, nothing comes before it or after it, and Load has no effect.
	Recorded []Arrival `json:"-"`
}

// Arrival is one recorded offer.
type Arrival struct {
	At   time.Duration // since the first one
	Tier int           // 0 is the top; -1: draw it
}

// Shape is how the times of handlers are distributed.
type Shape string

// The shapes; the mean of all is Scenario.Service.
const (
	Exponential Shape = "exponential"
	Fixed       Shape = "fixed"
	TwoHumped   Shape = "two-humped" // three of four take about half of it, the others about two and a half times
	HeavyTail   Shape = "heavy-tail" // Pareto, exponent 1.8, up to 18 times the mean
)

// Shapes are all of them.
var Shapes = []Shape{Exponential, Fixed, TwoHumped, HeavyTail}

// Variant is what else goes wrong.
type Variant string

// The variants.
const (
	Plain     Variant = "none"
	Halved    Variant = "halved"    // half of the workers are gone, in the second half of the plateau
	Greedy    Variant = "greedy"    // one fairness key sends 90 % of the offers
	Slow      Variant = "slow"      // handlers that begin in the plateau take five times as long
	Impatient Variant = "impatient" // callers that call again at once and often, from the first one to the last
	Paused    Variant = "paused"    // the backend stands still for two seconds
)

// Variants are all of them.
var Variants = []Variant{Plain, Halved, Greedy, Slow, Impatient, Paused}

// Tiers are the priorities of the offers, the top one first, and their shares.
var Tiers = [...]struct {
	Priority weir.Priority
	Share    float64
}{{weir.Critical, 0.1}, {weir.High, 0.2}, {weir.Normal, 0.3}, {weir.Low, 0.4}}

const (
	calmLoad   = 0.7 // before and after the plateau
	slowFactor = 5   // of Slow
	standstill = 2 * time.Second
	greedyPart = 0.9 // of Greedy
	users      = 1000
	// maxOffers bounds what a run keeps in memory.
	maxOffers = 20_000_000
)

// WithDefaults returns a copy of s in which every zero field has its default.
func (s Scenario) WithDefaults() Scenario {
	or(&s.Load, 10)
	or(&s.Service, 40*time.Millisecond)
	or(&s.Deadline, time.Second)
	or(&s.Phases, [3]float64{20, 30, 30})
	or(&s.Workers, 20)
	or(&s.Pools, 1)
	or(&s.Seed, 1)
	or(&s.Shape, Exponential)
	or(&s.Variant, Plain)
	or(&s.Producers, 1)
	if n := len(s.Recorded); n > 0 {
		s.Phases = [3]float64{0, float64(s.Recorded[n-1].At+1) / float64(s.Deadline), s.Phases[2]}
		s.Load = float64(n) / s.plateau() / s.capacity()
	}
	return s
}

// plateau is its length in seconds.
func (s *Scenario) plateau() float64 { return s.Phases[1] * s.Deadline.Seconds() }

// Validate returns an error that names the invalid field and its valid values.
func (s Scenario) Validate() error {
	switch {
	case !(s.Load >= 0.01 && s.Load <= 1000):
		return fmt.Errorf("load %v is out of range: use 0.01 to 1000", s.Load)
	case s.Service < time.Millisecond || s.Service > time.Hour:
		return fmt.Errorf("service %s is out of range: use 1ms to 1h", s.Service)
	case s.Deadline < 10*time.Millisecond || s.Deadline > 24*time.Hour:
		return fmt.Errorf("deadline %s is out of range: use 10ms to 24h", s.Deadline)
	case s.Workers < 1 || s.Workers > 10_000:
		return fmt.Errorf("workers %d is out of range: use 1 to 10000", s.Workers)
	case s.Pools < 1 || s.Pools > s.Workers:
		return fmt.Errorf("pools %d is out of range: use 1 to %d, the number of workers", s.Pools, s.Workers)
	case s.Producers < 1 || s.Producers > 1000:
		return fmt.Errorf("producers %d is out of range: use 1 to 1000", s.Producers)
	case s.Processes < 0 || s.Processes > 100:
		return fmt.Errorf("processes %d is out of range: use 0 to 100", s.Processes)
	case s.Variant == Halved && s.Workers < 2:
		return fmt.Errorf("variant halved needs at least 2 workers, not %d", s.Workers)
	case !(s.Disturbance >= 0 && s.Disturbance <= s.Phases[1]):
		return fmt.Errorf("disturbance %v is out of range: use 0 to %v, the length of the plateau in deadlines", s.Disturbance, s.Phases[1])
	case s.Disturbance > 0 && (s.Variant == Plain || s.Variant == Greedy):
		return fmt.Errorf("disturbance %v: variant %s has none; use halved, slow, impatient or paused", s.Disturbance, s.Variant)
	case s.Variant == Paused && s.Disturbance == 0 && s.deadlines(s.Phases[1]) < standstill:
		return fmt.Errorf("variant paused stands still for %s, longer than the plateau: lengthen the phases or set disturbance", standstill)
	}
	for i, n := range s.Phases {
		if !(n >= 0 && n <= 1e6) || i == 1 && n == 0 {
			return fmt.Errorf("phases %v: each is a number of deadlines from 0 to 1000000, and the plateau is longer than 0", s.Phases)
		}
	}
	if n := s.expected(); n > maxOffers {
		return fmt.Errorf("load, workers, service and phases make %.0f offers, at most %d: shorten the phases", n, maxOffers)
	}
	if !slices.Contains(Shapes, s.Shape) {
		return fmt.Errorf("distribution %q is unknown; known: %s", s.Shape, names(Shapes))
	}
	if !slices.Contains(Variants, s.Variant) {
		return fmt.Errorf("variant %q is unknown; known: %s", s.Variant, names(Variants))
	}
	return nil
}

func names[T ~string](all []T) string {
	var text []string
	for _, name := range all {
		text = append(text, string(name))
	}
	return strings.Join(text, ", ")
}

func or[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// capacity is how many messages per second all workers do.
func (s *Scenario) capacity() float64 { return float64(s.Workers) / s.Service.Seconds() }

func (s *Scenario) deadlines(n float64) time.Duration {
	return time.Duration(math.Round(n * float64(s.Deadline)))
}

// begin, end and total are when the plateau begins and ends, and when the run is over.
func (s *Scenario) begin() time.Duration { return s.deadlines(s.Phases[0]) }
func (s *Scenario) end() time.Duration   { return s.begin() + s.deadlines(s.Phases[1]) }
func (s *Scenario) total() time.Duration { return s.end() + s.deadlines(s.Phases[2]) }

// disturbance is when the trouble of the variant begins and ends: without one, or if it has
// no length of its own, the plateau.
func (s *Scenario) disturbance() (from, to time.Duration) {
	middle, length := (s.begin()+s.end())/2, s.deadlines(s.Disturbance)
	switch {
	case length > 0:
	case s.Variant == Halved:
		return middle, s.end()
	case s.Variant == Paused:
		length = standstill
	default:
		return s.begin(), s.end()
	}
	return middle - length/2, middle + length/2
}

func (s *Scenario) disturbed(at time.Duration) bool {
	from, to := s.disturbance()
	return at >= from && at < to
}

// impatient reports whether a caller that comes at a time is.
func (s *Scenario) impatient(at time.Duration) bool {
	return s.Variant == Impatient && (s.Disturbance == 0 || s.disturbed(at))
}

func (s *Scenario) inPlateau(at time.Duration) bool { return at >= s.begin() && at < s.end() }

// Length is how long a run takes, without its drain.
func (s *Scenario) Length() time.Duration { return s.total() }

// able is how many messages per second the workers can do at a time.
func (s *Scenario) able(at time.Duration) float64 {
	switch {
	case !s.disturbed(at):
	case s.Variant == Halved:
		return s.capacity() * float64(s.Workers-s.Workers/2) / float64(s.Workers)
	case s.Variant == Slow:
		return s.capacity() / slowFactor
	}
	return s.capacity()
}

// worst is the least share of the capacity that there is in the plateau.
func (s *Scenario) worst() float64 {
	from, _ := s.disturbance()
	return s.reachable(from) / s.capacity()
}

// reachable is able, less what a backend that stands still keeps from the workers.
func (s *Scenario) reachable(at time.Duration) float64 {
	if s.Variant == Paused && s.disturbed(at) {
		return 0
	}
	return s.able(at)
}

// ParsePhases reads the lengths of the three phases, in deadlines: "5,10,8".
func ParsePhases(text string) (phases [3]float64, err error) {
	parts := strings.Split(text, ",")
	if len(parts) != len(phases) {
		return phases, fmt.Errorf("phases %q: three numbers of deadlines, as in 20,30,30", text)
	}
	for i, part := range parts {
		if phases[i], err = strconv.ParseFloat(strings.TrimSpace(part), 64); err != nil {
			return phases, fmt.Errorf("phases %q: %q is not a number of deadlines", text, part)
		}
	}
	return phases, nil
}
