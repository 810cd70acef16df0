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
	Seed     uint64        `json:"seed"`
	Shape    Shape         `json:"distribution"`
	Variant  Variant       `json:"variant"`
	// Expire gives each message the deadline of its caller, so that workers set aside what
	// nobody waits for any more.
	Expire bool `json:"expire"`
	// Producers is how many producers share the load, each with a connection of its own.
	Producers int `json:"producers"`
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
	Halved    Variant = "halved"    // half of the workers are gone in the second half of the plateau
	Greedy    Variant = "greedy"    // one fairness key sends 90 % of the offers
	Slow      Variant = "slow"      // handlers that begin in the plateau take five times as long
	Impatient Variant = "impatient" // callers that call again at once and often
)

// Variants are all of them.
var Variants = []Variant{Plain, Halved, Greedy, Slow, Impatient}

// Tiers are the priorities of the offers, the top one first, and their shares.
var Tiers = [...]struct {
	Priority weir.Priority
	Share    float64
}{{weir.Critical, 0.1}, {weir.High, 0.2}, {weir.Normal, 0.3}, {weir.Low, 0.4}}

const (
	calmLoad   = 0.7 // before and after the plateau
	slowFactor = 5   // of Slow
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
	case s.Producers < 1 || s.Producers > 1000:
		return fmt.Errorf("producers %d is out of range: use 1 to 1000", s.Producers)
	case s.Variant == Halved && s.Workers < 2:
		return fmt.Errorf("variant halved needs at least 2 workers, not %d", s.Workers)
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

// halfway is when workers leave in the Halved variant.
func (s *Scenario) halfway() time.Duration { return (s.begin() + s.end()) / 2 }

func (s *Scenario) inPlateau(at time.Duration) bool { return at >= s.begin() && at < s.end() }

// Length is how long a run takes, without its drain.
func (s *Scenario) Length() time.Duration { return s.total() }

// able is how many messages per second the workers can do at a time.
func (s *Scenario) able(at time.Duration) float64 {
	switch {
	case s.Variant == Halved && at >= s.halfway() && at < s.end():
		return s.capacity() * float64(s.Workers-s.Workers/2) / float64(s.Workers)
	case s.Variant == Slow && s.inPlateau(at):
		return s.capacity() / slowFactor
	}
	return s.capacity()
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
