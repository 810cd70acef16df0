package overload

import (
	"math"
	"slices"
	"time"
)

// Result is what one arm achieved. Times are seconds; a number that nothing could be
// measured for is NaN, in JSON null.
type Result struct {
	Arm      string   `json:"arm"`
	Kind     string   `json:"backend"` // weir.StreamName.Kind
	Server   string   `json:"server"`
	Scenario Scenario `json:"scenario"`

	Goodput   Number              `json:"goodput"` // 1 is all that was possible
	Tiers     [len(Tiers)]Number  `json:"tiers"`   // share of each tier's offers that was completed in time
	Latency   Spread              `json:"latency"`
	TierP99   [len(Tiers)]Number  `json:"tier_latency_p99"`
	Waited    Spread              `json:"waited"` // intended start to the begin of the handler
	Calm      Number              `json:"calm"`   // NaN: not before the run's end
	Variation Number              `json:"variation"`
	Refusal   Spread              `json:"refusal"`
	Keys      map[string]KeyShare `json:"keys,omitempty"` // of Greedy

	Offered   int            `json:"offered"` // in the plateau; so are the next ones
	Stored    int            `json:"stored"`  // publishes that succeeded
	InTime    int            `json:"in_time"` // offers completed in time
	Refused   int            `json:"refused"` // publishes refused
	GaveUp    int            `json:"gave_up"` // publishes that a caller waited for in vain
	Unknown   int            `json:"unknown"` // publishes whose message may be stored
	Failed    int            `json:"failed"`  // publishes with another error
	Errors    map[string]int `json:"errors,omitempty"`
	Accepted  int            `json:"accepted"` // in the whole run; so are the next ones
	Lost      int            `json:"lost"`
	Expired   int            `json:"expired"` // set aside past their deadlines
	Doubles   int            `json:"doubles"`
	Strangers int            `json:"strangers"` // deliveries of messages of somebody else
	Overrun   int64          `json:"overrun"`   // callers that the generator could not start
	LateP99   Number         `json:"late_p99"`  // how late callers were started
	Busy      Number         `json:"busy"`      // share of the plateau in which workers ran handlers
	Slowdown  Number         `json:"slowdown"`  // time that handlers took ÷ time drawn for them, in the plateau

	Samples []Sample `json:"samples"`
}

// KeyShare is what a group of fairness keys got in the plateau.
type KeyShare struct {
	Offered Number `json:"offered"` // share of all offers
	InTime  Number `json:"in_time"` // share of all that was completed in time
	Served  Number `json:"served"`  // share of its own offers that was completed in time
}

// Spread is a distribution.
type Spread struct {
	P50 Number `json:"p50"`
	P99 Number `json:"p99"`
	Max Number `json:"max"`
}

// Report is what a run with several arms writes as JSON.
type Report struct {
	Results []Judged `json:"results"`
}

// Judged is a result and how it stands to the goals.
type Judged struct {
	*Result
	Marks  map[string]Mark `json:"goals"`
	Spoilt string          `json:"spoilt,omitempty"` // why it does not count
}

// NewReport marks the results.
func NewReport(results []*Result) Report {
	var r Report
	for _, res := range results {
		r.Results = append(r.Results, Judged{res, res.Marks(), res.Spoilt()})
	}
	return r
}

// judge computes the result of a run that is over. Nothing of it is running any more.
func (r *run) judge() *Result {
	info := r.streams[0].Info()
	res := &Result{
		Arm: r.arm.Name, Kind: info.Kind, Server: info.Server, Scenario: r.Scenario,
		Samples: r.ledger.samples, Errors: r.ledger.errs, Strangers: r.ledger.strange, Overrun: r.overrun.Load(),
	}
	r.judgeOffers(res)
	res.Expired = r.ledger.expired
	res.Lost = max(0, res.Lost-res.Expired)
	r.judgeCalls(res)
	r.judgeWorkers(res)
	res.Goodput = Number(r.goodput())
	res.Variation = Number(r.variation())
	res.Calm = Number(r.calm())
	if r.Variant == Greedy {
		res.Keys = r.shares()
	}
	return res
}

// inTime reports whether offer i was completed within the deadline.
func (r *run) inTime(i int) bool {
	f := &r.ledger.fates[i]
	return f.ended != never && f.ended-r.offers[i].at <= r.Deadline
}

// judgeOffers follows the offers of the plateau, and counts what was lost.
func (r *run) judgeOffers(res *Result) {
	var latency, waited, late []float64
	var byTier [len(Tiers)][]float64
	var offered, served [len(Tiers)]int
	for i := range r.offers {
		o, f := &r.offers[i], &r.ledger.fates[i]
		late = append(late, f.late.Seconds())
		if f.stored != never {
			res.Accepted++
			if f.ended == never {
				res.Lost++
			}
		}
		res.Doubles += max(0, int(f.handlers)-1)
		if !r.inPlateau(o.at) {
			continue
		}
		offered[o.tier]++
		if r.inTime(i) {
			served[o.tier]++
		}
		if f.stored != never {
			res.Stored++
		}
		if f.started != never && f.started <= r.total() {
			waited = append(waited, (f.started - o.at).Seconds())
		}
		if f.ended != never && f.ended <= r.total() {
			d := (f.ended - o.at).Seconds()
			latency = append(latency, d)
			byTier[o.tier] = append(byTier[o.tier], d)
		}
	}
	for tier := range Tiers {
		res.Offered += offered[tier]
		res.InTime += served[tier]
		res.Tiers[tier] = ratio(served[tier], offered[tier])
		res.TierP99[tier] = spread(byTier[tier]).P99
	}
	res.Latency, res.Waited, res.LateP99 = spread(latency), spread(waited), spread(late).P99
}

// judgeCalls looks at the publishes of the plateau that stored nothing.
func (r *run) judgeCalls(res *Result) {
	var took []float64
	for _, c := range r.ledger.failed {
		if !r.inPlateau(c.at) {
			continue
		}
		switch c.kind {
		case shed:
			res.Refused++
			took = append(took, c.took.Seconds())
		case gaveUp:
			res.GaveUp++
			took = append(took, c.took.Seconds())
		case unclear:
			res.Unknown++
		case broken:
			res.Failed++
		}
	}
	res.Refusal = spread(took)
}

// judgeWorkers says how busy the workers were in the plateau, and how much longer than
// drawn their handlers took because the machine woke them late.
func (r *run) judgeWorkers(res *Result) {
	var busy, took, drawn time.Duration
	for i := range r.offers {
		f := &r.ledger.fates[i]
		if f.ended == never {
			continue
		}
		busy += max(0, min(f.ended, r.end())-max(f.started, r.begin()))
		if r.inPlateau(f.started) && r.inPlateau(f.ended) {
			took += f.ended - f.started
			drawn += r.service(i)
		}
	}
	res.Busy = Number(busy.Seconds() / float64(r.Workers) / r.plateau())
	res.Slowdown = Number(took.Seconds() / drawn.Seconds())
}

// service is the time drawn for the handler of offer i, which has begun.
func (r *run) service(i int) time.Duration {
	if r.Variant == Slow && r.inPlateau(r.ledger.fates[i].started) {
		return slowFactor * r.offers[i].service
	}
	return r.offers[i].service
}

// goodput is what was completed in time during the plateau ÷ what was possible.
func (r *run) goodput() float64 {
	good, drawn, completed := 0, time.Duration(0), 0
	for i := range r.offers {
		if ended := r.ledger.fates[i].ended; ended == never || !r.inPlateau(ended) {
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
	return float64(good) / r.possible(luck)
}

// possible is the lesser of what was offered and what the workers could do, over the
// parts of the plateau between which one of them changes. With recorded arrivals a
// part is one deadline.
func (r *run) possible(luck float64) float64 {
	edges := []time.Duration{r.begin(), r.end()}
	if len(r.Recorded) > 0 {
		edges = edges[:1]
		for at := r.begin() + r.Deadline; at < r.end(); at += r.Deadline {
			edges = append(edges, at)
		}
		edges = append(edges, r.end())
	}
	if r.Variant == Halved {
		edges = append(edges, r.halfway())
	}
	slices.Sort(edges)
	total, next := 0.0, 0
	for next < len(r.offers) && r.offers[next].at < r.begin() {
		next++
	}
	for k, from := range edges[:len(edges)-1] {
		offered := 0
		for ; next < len(r.offers) && r.offers[next].at < edges[k+1]; next++ {
			offered++
		}
		total += min(float64(offered), luck*r.able(from)*(edges[k+1]-from).Seconds())
	}
	return total
}

// variation is the coefficient of variation of what was stored per deadline.
func (r *run) variation() float64 {
	bins := make([]float64, int(r.Phases[1]))
	for i := range r.ledger.fates {
		if at := r.ledger.fates[i].stored; at >= r.begin() {
			if bin := int((at - r.begin()) / r.Deadline); bin < len(bins) {
				bins[bin]++
			}
		}
	}
	if len(bins) < 3 {
		return math.NaN()
	}
	bins = bins[1:]
	mean, square := 0.0, 0.0
	for _, n := range bins {
		mean += n / float64(len(bins))
	}
	for _, n := range bins {
		square += (n - mean) * (n - mean) / float64(len(bins))
	}
	return math.Sqrt(square) / mean
}

// calm is how long after the plateau the wait had fallen for good.
func (r *run) calm() float64 {
	limit, since := r.Deadline.Seconds()/10, math.NaN()
	for _, s := range r.ledger.samples {
		after := s.At - r.end().Seconds()
		switch {
		case after < 0:
		case s.Wait >= limit:
			since = math.NaN()
		case math.IsNaN(since):
			since = after
		case after-since >= r.Deadline.Seconds():
			return since
		}
	}
	return math.NaN()
}

// shares compares the greedy key with all others.
func (r *run) shares() map[string]KeyShare {
	var offered, served [2]int
	for i := range r.offers {
		if !r.inPlateau(r.offers[i].at) {
			continue
		}
		who := min(int(r.offers[i].key), 1)
		offered[who]++
		if r.inTime(i) {
			served[who]++
		}
	}
	shares := map[string]KeyShare{}
	for who, name := range []string{"greedy", "others"} {
		shares[name] = KeyShare{
			Offered: ratio(offered[who], offered[0]+offered[1]), InTime: ratio(served[who], served[0]+served[1]),
			Served: ratio(served[who], offered[who]),
		}
	}
	return shares
}

func ratio(part, whole int) Number { return Number(float64(part) / float64(whole)) }

// spread sorts values.
func spread(values []float64) Spread {
	if len(values) == 0 {
		nan := Number(math.NaN())
		return Spread{nan, nan, nan}
	}
	slices.Sort(values)
	at := func(share float64) Number { return Number(values[int(math.Ceil(share*float64(len(values))))-1]) }
	return Spread{at(0.5), at(0.99), at(1)}
}
