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
	Arrivals  Number              `json:"arrivals_variation"`
	Refusal   Spread              `json:"refusal"`
	Keys      map[string]KeyShare `json:"keys,omitempty"` // of Greedy

	Trouble *Trouble `json:"disturbance,omitempty"`
	// Processes is what each process of callers got in the plateau.
	Processes []ProcessShare `json:"processes,omitempty"`

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

// ProcessShare is what the callers of a process offered in the plateau, and what came of it.
type ProcessShare struct {
	Offered int    `json:"offered"`
	Stored  int    `json:"stored"`
	InTime  int    `json:"in_time"`
	Part    Number `json:"part"` // its share of what was stored ÷ its share of what was offered
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
		Samples: r.ledger.samples, Errors: r.ledger.errs, Strangers: r.ledger.strange,
	}
	_, res.Overrun = r.callers.state()
	r.judgeOffers(res)
	res.Expired = r.ledger.expired
	res.Lost = max(0, res.Lost-res.Expired)
	r.judgeCalls(res)
	r.judgeWorkers(res)
	res.Goodput = r.goodput(r.begin(), r.end())
	res.Variation, res.Arrivals = r.variation(), r.arrivals()
	res.Calm = r.below(r.Deadline/10, r.end())
	res.Trouble = r.trouble()
	if r.Variant == Greedy {
		res.Keys = r.shares()
	}
	res.Processes = r.parts(res)
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
	if r.Variant == Slow && r.disturbed(r.ledger.fates[i].started) {
		return slowFactor * r.offers[i].service
	}
	return r.offers[i].service
}

// variation is the coefficient of variation of what was stored per deadline.
func (r *run) variation() Number {
	counts := make([]int, int(r.Phases[1]))
	for i := range r.ledger.fates {
		if at := r.ledger.fates[i].stored; at >= r.begin() {
			if bin := int((at - r.begin()) / r.Deadline); bin < len(counts) {
				counts[bin]++
			}
		}
	}
	if len(counts) < 3 {
		return Number(math.NaN())
	}
	mean, variance := moments(counts[1:])
	return Number(math.Sqrt(variance) / mean)
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

// parts compares the processes.
func (r *run) parts(res *Result) []ProcessShare {
	parts := make([]ProcessShare, r.Processes)
	for i := range r.offers {
		if len(parts) == 0 || !r.inPlateau(r.offers[i].at) {
			continue
		}
		p := &parts[i%len(parts)]
		p.Offered++
		if r.ledger.fates[i].stored != never {
			p.Stored++
		}
		if r.inTime(i) {
			p.InTime++
		}
	}
	for i := range parts {
		p := &parts[i]
		p.Part = ratio(p.Stored, res.Stored) / ratio(p.Offered, res.Offered)
	}
	return parts
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
