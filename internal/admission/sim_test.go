package admission

import (
	"container/heap"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// world is a queue with callers and workers in virtual time.
type world struct {
	opt    options
	rnd    *rand.Rand
	now    float64 // seconds
	events eventHeap
	c      *Controller

	queues   [Tiers][]job // one if not ordered
	waiting  int
	working  int
	finished int64
	reading  bool

	result
	perBin  map[int]int
	lats    [Tiers][]float64
	calmAt  float64
	workers int
	picks   int
}

type options struct {
	load, service, deadline float64
	workers                 int
	phases                  [3]float64 // in deadlines
	ordered                 bool
	expire                  bool
	delay                   float64 // of readings
	dist                    func(r *rand.Rand, mean float64) float64
	seed                    uint64
	halve                   bool
	greedy                  float64 // share of one key in the load
	aging                   int
	keys                    int
	slow                    float64
	slo                     time.Duration
	mix                     [Tiers]float64
	noRetry                 bool
	tuning                  tuning
}

type result struct {
	offered, good     [Tiers]float64
	goodput, top, p99 float64
	topP99            float64
	calm, cov         float64
	refusedCalm       float64 // share refused before the load
	greedyIn          float64
	tier              [Tiers]float64
}

type job struct {
	tier, bin int
	born      float64
	tries     int
	key       int
	plateau   bool
	admitted  float64
}

type event struct {
	at float64
	do func()
}
type eventHeap []event

func (h eventHeap) Len() int           { return len(h) }
func (h eventHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h eventHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)        { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	return e
}

func (w *world) after(d float64, do func()) { heap.Push(&w.events, event{at: w.now + d, do: do}) }

var epoch = time.Unix(1e9, 0)

func (w *world) clock() time.Time { return epoch.Add(time.Duration(w.now * 1e9)) }

func exponential(r *rand.Rand, mean float64) float64 { return r.ExpFloat64() * mean }
func constant(_ *rand.Rand, mean float64) float64    { return mean }
func twoHumped(r *rand.Rand, mean float64) float64 {
	if r.Float64() < 0.9 {
		return mean * 0.5
	}
	return mean * 5.5
}
func heavy(r *rand.Rand, mean float64) float64 {
	const a = 1.6
	return mean * (a - 1) / a * math.Pow(1-r.Float64(), -1/a)
}

func simulate(o options) result {
	w := &world{opt: o, rnd: rand.New(rand.NewPCG(o.seed, 7)), perBin: map[int]int{}, calmAt: -1, workers: o.workers}
	if o.dist == nil {
		w.opt.dist = exponential
	}
	if o.mix == ([Tiers]float64{}) {
		w.opt.mix = [Tiers]float64{0.1, 0.2, 0.3, 0.4}
	}
	slo := o.slo
	if slo == 0 {
		slo = time.Duration(o.deadline * 1e9)
	}
	w.c = New(slo)
	for i := range w.c.carry { // so that a seed repeats itself
		w.c.carry[i].Store(w.rnd.Uint32())
	}
	if o.tuning != (tuning{}) {
		w.c.tuning = o.tuning
	}
	w.arrive()
	w.watch()
	end := (o.phases[0] + o.phases[1] + o.phases[2]) * o.deadline
	w.after(o.phases[0]*o.deadline, func() {
		if o.halve {
			w.workers /= 2
		}
	})
	for len(w.events) > 0 {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		if w.now > end+3*o.deadline {
			break
		}
		e.do()
	}
	w.sum()
	return w.result
}

func (w *world) phase(t float64) int {
	switch d := t / w.opt.deadline; {
	case d < w.opt.phases[0]:
		return 0
	case d < w.opt.phases[0]+w.opt.phases[1]:
		return 1
	case d < w.opt.phases[0]+w.opt.phases[1]+w.opt.phases[2]:
		return 2
	}
	return 3
}

func (w *world) capacity() float64 { return float64(w.workers) / w.opt.service }

func (w *world) arrive() {
	load := 0.7
	ph := w.phase(w.now)
	if ph == 3 {
		return
	}
	if ph == 1 {
		load = w.opt.load
	}
	rate := load * float64(w.opt.workers) / w.opt.service
	w.after(w.rnd.ExpFloat64()/rate, func() {
		j := &job{born: w.now, plateau: w.phase(w.now) == 1}
		x := w.rnd.Float64()
		for x -= w.opt.mix[j.tier]; x > 0 && j.tier < Tiers-1; x -= w.opt.mix[j.tier] {
			j.tier++
		}
		key := ""
		if w.opt.keys > 0 {
			j.key = w.rnd.IntN(w.opt.keys) + 1
			if w.rnd.Float64() < w.opt.greedy {
				j.key = 0
			}
			key = fmt.Sprint("k", j.key)
		}
		j.bin = Bin(j.tier, key, 1)
		w.offered[j.tier]++
		if ph := w.phase(w.now); ph == 1 {
			w.tierOffered(j)
		}
		w.offer(j)
		w.arrive()
	})
}

func (w *world) tierOffered(j *job) { w.result.tier[j.tier]++ }

func (w *world) offer(j *job) {
	pass := w.c.Offer(w.clock(), j.bin, w.opt.expire && w.c.Cut().TooLate(w.clock(), epoch.Add(time.Duration((j.born+w.opt.deadline)*1e9))))
	w.due()
	if pass {
		w.perBin[int(w.now/w.opt.deadline)]++
		j.admitted = w.now
		w.waiting++
		q := 0
		if w.opt.ordered {
			q = j.tier
		}
		w.queues[q] = append(w.queues[q], *j)
		w.start()
		return
	}
	if !j.plateau && j.born < w.opt.phases[0]*w.opt.deadline {
		w.refusedCalm++
	}
	if j.tries == 3 || w.opt.noRetry {
		return
	}
	back := 0.1 * w.opt.deadline * float64(int(1)<<j.tries) * (0.5 + w.rnd.Float64())
	j.tries++
	if w.now+back < j.born+w.opt.deadline {
		w.after(back, func() { w.offer(j) })
	}
}

func (w *world) due() {
	if !w.reading && w.c.Due(w.clock()) {
		w.reading = true
		limit := int64(0)
		r := Reading{At: w.clock(), Admitted: w.c.Admitted(), Known: true, Waiting: int64(w.waiting), Working: int64(w.working), Finished: w.finished, Limit: limit}
		w.after(w.opt.delay, func() { w.reading = false; w.c.Update(r, w.clock()) })
	}
}

func (w *world) watch() {
	w.after(w.c.Interval().Seconds()/2, func() {
		ph := w.phase(w.now)
		if ph == 2 { // calm is to stay calm
			if float64(w.waiting)/w.capacity() >= w.opt.deadline/10 {
				w.calmAt = -1
			} else if w.calmAt < 0 {
				w.calmAt = w.now
			}
		}
		if ph < 3 {
			w.watch()
		}
	})
}

func (w *world) start() {
	for w.working < w.workers && w.waiting > 0 {
		var j job
		w.picks++
		pick := -1
		for q := range w.queues {
			if len(w.queues[q]) == 0 {
				continue
			}
			if pick < 0 || w.opt.aging > 0 && w.picks%w.opt.aging == 0 && w.queues[q][0].born < w.queues[pick][0].born {
				pick = q
			}
		}
		j = w.queues[pick][0]
		w.queues[pick] = w.queues[pick][1:]
		w.waiting--
		if w.opt.expire && w.now > j.born+w.opt.deadline {
			w.finished++
			continue
		}
		w.working++
		mean := w.opt.service
		if w.opt.slow > 0 && w.phase(w.now) == 1 {
			mean *= w.opt.slow
		}
		w.after(w.opt.dist(w.rnd, mean), func() {
			w.working--
			w.finished++
			lat := w.now - j.born
			if j.plateau {
				w.lats[j.tier] = append(w.lats[j.tier], lat)
				if lat <= w.opt.deadline {
					w.good[j.tier]++
				}
			}
			if j.key == 0 && w.opt.keys > 0 && j.plateau {
				w.greedyIn++
			}
			w.start()
		})
	}
}

func (w *world) sum() {
	var good, offered, all, n float64
	var lats []float64
	for t := range Tiers {
		good += w.good[t]
		offered += w.tier[t]
		lats = append(lats, w.lats[t]...)
		n += float64(len(w.lats[t]))
	}
	_ = all
	capacity := float64(w.workers) / w.opt.service * w.opt.phases[1] * w.opt.deadline
	if w.opt.slow > 0 {
		capacity /= w.opt.slow
	}
	w.goodput = good / min(capacity, offered)
	w.top = w.good[0] / min(w.tier[0], capacity)
	w.p99 = percentile(lats, 0.99) / w.opt.deadline
	w.topP99 = percentile(w.lats[0], 0.99) / w.opt.deadline
	w.calm = (w.calmAt - (w.opt.phases[0]+w.opt.phases[1])*w.opt.deadline) / w.opt.deadline
	if w.calmAt < 0 {
		w.calm = math.Inf(1)
	}
	w.greedyIn /= n
	first, last := int(w.opt.phases[0])+1, int(w.opt.phases[0]+w.opt.phases[1])
	var s, ss, k float64
	for b := first; b < last; b++ {
		x := float64(w.perBin[b])
		s, ss, k = s+x, ss+x*x, k+1
	}
	mean := s / k
	w.cov = math.Sqrt(max(0, ss/k-mean*mean)) / mean
}

func percentile(v []float64, p float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	slices.Sort(v)
	return v[min(len(v)-1, int(p*float64(len(v))))]
}

// Under every load the workers do what is wanted, and no more waits than keeps them busy:
// with one queue or one per tier, with old readings, and for handlers of any shape.
func TestGoodputIsKept(t *testing.T) {
	base := options{load: 10, service: 0.04, deadline: 1, workers: 20, phases: [3]float64{3, 6, 3}, delay: 0.002}
	for name, c := range map[string]struct {
		with         func(o *options)
		goodput, top float64
	}{
		"twice":              {func(o *options) { o.load = 2 }, 0.97, 0.99},
		"five times":         {func(o *options) { o.load = 5 }, 0.97, 0.99},
		"ten times":          {func(o *options) {}, 0.97, 0.90},
		"in order":           {func(o *options) { o.ordered, o.expire = true, true }, 0.97, 0.90},
		"readings of D/5":    {func(o *options) { o.delay = 0.2 }, 0.94, 0.80},
		"long jobs":          {func(o *options) { o.service, o.deadline = 4, 60 }, 0.97, 0.88},
		"fixed":              {func(o *options) { o.dist = constant }, 0.97, 0.90},
		"two-humped":         {func(o *options) { o.dist = twoHumped }, 0.95, 0.88},
		"heavy tail":         {func(o *options) { o.dist = heavy }, 0.95, 0.88},
		"two workers":        {func(o *options) { o.workers = 2 }, 0.90, 0.75},
		"two hundred":        {func(o *options) { o.workers, o.phases = 200, [3]float64{2, 3, 1} }, 0.97, 0.93},
		"workers halved":     {func(o *options) { o.halve = true }, 0.95, 0.80},
		"SLO far too short":  {func(o *options) { o.service, o.deadline, o.slo = 4, 60, time.Second }, 0.95, 0.80},
		"handlers slow down": {func(o *options) { o.load, o.slow = 2, 5 }, 0.85, 0.55},
	} {
		t.Run(name, func(t *testing.T) {
			o := base
			c.with(&o)
			o.seed = 1
			if got := simulate(o); got.goodput < c.goodput || got.top < c.top || got.cov > 0.25 {
				t.Errorf("%v, want a goodput of %.0f %% and %.0f %% of the top tier", got, 100*c.goodput, 100*c.top)
			}
		})
	}
}

// One key with nearly all of the load gets what the others leave.
func TestAGreedyKeyTakesWhatOthersLeave(t *testing.T) {
	for load, most := range map[float64]float64{2: 0.86, 5: 0.6} {
		got := simulate(options{load: load, service: 0.04, deadline: 1, workers: 20, phases: [3]float64{3, 8, 3}, delay: 0.002,
			keys: 50, greedy: 0.9, mix: [Tiers]float64{0, 0, 1}, seed: 3})
		if got.greedyIn > most || got.goodput < 0.97 {
			t.Errorf("%g times the load: 0.9 of it is of one key, which got %.2f of what was done, want at most %.2f; %v", load, got.greedyIn, most, got)
		}
	}
}

// Nothing is refused while the workers keep up, whatever they were seen to do before.
func TestNothingIsRefusedBelowCapacity(t *testing.T) {
	for _, load := range []float64{0.1, 0.5, 0.9} {
		got := simulate(options{load: load, service: 0.04, deadline: 5, workers: 20, phases: [3]float64{1, 3, 1}, delay: 0.002, seed: 2})
		if got.refusedCalm > 0 || got.goodput < 0.999 {
			t.Errorf("load %g: %v", load, got)
		}
	}
}

// While the queue does not answer, and nothing can be finished, nothing is learned about
// the workers.
func TestAStandstillIsNoMeasureOfTheWorkers(t *testing.T) {
	c := New(time.Second)
	now, finished := epoch, int64(0)
	read := func(after time.Duration, done int64, known bool) {
		now = now.Add(after)
		finished += done
		c.Update(Reading{At: now, Known: known, Waiting: 100, Working: 20, Finished: finished}, now)
	}
	for range 200 {
		read(20*time.Millisecond, 10, true)
	}
	before := c.Cut().Drain
	read(time.Second, 0, false)
	read(time.Second, 10, true)
	read(20*time.Millisecond, 10, true)
	if after := c.Cut().Drain; before < 450 || before > 550 || after < 0.9*before {
		t.Errorf("%.0f messages per second before a standstill, %.0f after it", before, after)
	}
}

// Nor is a night in which nobody publishes and the workers are off: those that come back in
// the morning are as quick as they were.
func TestANightWithoutWorkersIsNoMeasureOfThem(t *testing.T) {
	c := New(time.Second)
	now, finished := epoch, int64(0)
	read := func(after time.Duration, done int64) {
		for range 10 {
			c.Offer(now, Bin(2, "", 1), false)
		}
		now = now.Add(after)
		finished += done
		c.Update(Reading{At: now, Admitted: c.Admitted(), Known: true, Waiting: 20, Working: 20, Finished: finished}, now)
	}
	for range 200 {
		read(20*time.Millisecond, 10)
	}
	before := c.Cut().Drain
	read(8*time.Hour, 20) // they ended what they had
	for range 5 {
		read(20*time.Millisecond, 10)
		if cut := c.Cut(); before < 450 || before > 550 || cut.Drain < 0.9*before || cut.Refused > 0 || cut.Service > time.Second {
			t.Fatalf("%.0f messages per second in the evening; in the morning %.0f, %.2f are refused and one takes %v", before, cut.Drain, cut.Refused, cut.Service)
		}
	}
}

// Workers that take a minute for each message are measured, too, though nobody publishes more
// often than every five seconds.
func TestSlowWorkersAreMeasured(t *testing.T) {
	c := New(time.Second)
	now, refused := epoch, 0.0
	for i := range int64(120) {
		c.Offer(now, Bin(2, "", 1), false)
		c.Update(Reading{At: now, Admitted: c.Admitted(), Known: true, Waiting: i, Working: 1, Finished: i / 12}, now)
		now = now.Add(5 * time.Second)
		refused = c.Cut().Refused
	}
	if cut := c.Cut(); cut.Drain > 0.1 || refused == 0 {
		t.Errorf("one a minute is done, measured are %.2f a second, and %.2f are refused", cut.Drain, refused)
	}
}

var table = flag.Bool("table", false, "print the tables")

func (r result) String() string {
	return fmt.Sprintf("goodput %5.1f  top %5.1f  p99 %4.2f  top p99 %4.2f  calm %5.2f  cov %4.2f  refused when calm %.0f", 100*r.goodput, 100*r.top, r.p99, r.topP99, r.calm, r.cov, r.refusedCalm)
}

func TestTable(t *testing.T) {
	if !*table {
		t.Skip()
	}
	base := options{service: 0.04, deadline: 1, workers: 20, phases: [3]float64{5, 10, 8}, delay: 0.002}
	long := base
	long.service, long.deadline = 4, 60
	run := func(name string, o options) {
		var sum result
		worst := result{goodput: 9, top: 9}
		const seeds = 5
		for s := range uint64(seeds) {
			o.seed = s + 1
			r := simulate(o)
			sum.goodput += r.goodput / seeds
			sum.top += r.top / seeds
			sum.p99 += r.p99 / seeds
			sum.topP99 += r.topP99 / seeds
			sum.calm += r.calm / seeds
			sum.cov += r.cov / seeds
			sum.refusedCalm += r.refusedCalm / seeds
			sum.greedyIn += r.greedyIn / seeds
			worst.goodput = min(worst.goodput, r.goodput)
			worst.top = min(worst.top, r.top)
		}
		fmt.Printf("%-28s %s  (least %.1f %.1f) greedy %.2f\n", name, sum, 100*worst.goodput, 100*worst.top, sum.greedyIn)
	}
	for _, l := range []float64{1, 2, 5, 10} {
		for _, ordered := range []bool{false, true} {
			o := base
			o.load, o.ordered = l, ordered
			run(fmt.Sprintf("40ms %gx ordered=%v", l, ordered), o)
			o = long
			o.load, o.ordered = l, ordered
			run(fmt.Sprintf("4s %gx ordered=%v", l, ordered), o)
		}
	}
	for _, l := range []float64{2, 5, 10} {
		o := base
		o.load, o.ordered, o.expire = l, true, true
		run(fmt.Sprintf("40ms %gx expire", l), o)
		o = long
		o.load, o.ordered, o.expire = l, true, true
		run(fmt.Sprintf("4s %gx expire", l), o)
		o.aging = 16
		run(fmt.Sprintf("4s %gx expire aging", l), o)
		o.expire = false
		run(fmt.Sprintf("4s %gx aging", l), o)
	}
	o := base
	o.load = 10
	for _, d := range []float64{0.01, 0.05, 0.1, 0.2, 0.5, 1} {
		p := o
		p.delay = d
		run(fmt.Sprintf("10x delay %g", d), p)
	}
	for name, d := range map[string]func(*rand.Rand, float64) float64{"fixed": constant, "two-humped": twoHumped, "heavy": heavy} {
		p := o
		p.dist = d
		run("10x "+name, p)
	}
	for _, n := range []int{2, 200} {
		p := o
		p.workers = n
		run(fmt.Sprint("10x workers ", n), p)
	}
	p := o
	p.halve = true
	run("10x halved", p)
	p = o
	p.load, p.slow = 2, 5
	run("2x slow x5", p)
	for _, l := range []float64{2, 5} {
		p = o
		p.load, p.keys, p.greedy, p.mix = l, 50, 0.9, [Tiers]float64{0, 0, 1}
		run(fmt.Sprintf("%gx greedy", l), p)
	}
	p = long
	p.load, p.slo = 10, time.Second
	run("4s 10x slo 1s", p)
	p = long
	p.load, p.slo = 10, 30*time.Second
	run("4s 10x slo 30s", p)
	for _, by := range []float64{0.5, 2, 4} {
		for _, row := range []struct {
			name string
			with tuning
		}{{"feedback", tuning{1 / by, 1, 1}}, {"target", tuning{1, by, 1}}, {"look-back", tuning{1, 1, by}}} {
			for _, l := range []float64{2, 10} {
				p = o
				p.load, p.tuning = l, row.with
				run(fmt.Sprintf("%gx %s x%g", l, row.name, by), p)
			}
		}
	}
}
