package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
)

// writeFlows writes one job for each flow, "tier:key" or "tier" or ":key", and
// returns the number of the first.
func writeFlows(t fatal, e *Engine, queue string, flows ...string) uint64 {
	t.Helper()
	req := &api.WriteRequest{}
	for _, f := range flows {
		tier, key, _ := strings.Cut(f, ":")
		r := api.Record{Data: fmt.Appendf(nil, "%q", f), FairKey: []byte(key)}
		r.Tier, _ = api.ParseTier(tier)
		if tier == "" {
			r.Tier = api.TierNormal
		}
		req.Records = append(req.Records, r)
	}
	res, err := e.Write(bg, queue, req)
	if err != nil {
		t.Fatal(err)
	}
	return res.FirstSeq
}

// order claims all jobs one by one and returns their numbers.
func order(t testing.TB, e *Engine, queue string) string {
	t.Helper()
	var seqs []uint64
	for {
		jobs := claimJobs(t, e, queue, "w", 1)
		if len(jobs) == 0 {
			return fmt.Sprint(seqs)
		}
		seqs = append(seqs, jobs[0].Seq)
	}
}

func times(n int, flow string) []string { return slices.Repeat([]string{flow}, n) }

func TestHigherTiersComeFirstAndKeysInTurn(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	put(t, e, "q", configOf(api.Disk, queueConfig))
	writeFlows(t, e, "q", "bulk", ":a", ":a", ":a", "", "", ":b", "critical", "high:x", "high:x", "high:y", "background")
	if got, want := order(t, e, "q"), "[8 9 11 10 5 2 7 6 3 4 1 12]"; got != want {
		t.Fatalf("claimed in the order %s, want %s", got, want)
	}
}

// An answer is ascending in itself, whatever its jobs are.
func TestAClaimOfManyIsAscending(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	put(t, e, "q", configOf(api.Disk, queueConfig))
	writeFlows(t, e, "q", "bulk", "", "", "high", "background", "critical:a", "critical:b")
	for _, want := range []string{"[4 6 7]", "[1 2 3]", "[5]"} {
		if got := seqsOf(claimJobs(t, e, "q", "w", 3)); got != want {
			t.Fatalf("claimed %s, want %s", got, want)
		}
	}
}

// One key with nine tenths of the jobs gets no more turns than another.
func TestANoisyKeyTakesNobodysTurn(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	put(t, e, "q", configOf(api.Disk, queueConfig))
	writeFlows(t, e, "q", times(900, ":noisy")...)
	for range 25 {
		writeFlows(t, e, "q", ":a", ":b", ":c", "")
	}
	got := map[string]int{}
	for range 5 {
		for _, j := range claimJobs(t, e, "q", "w", 25) {
			got[string(j.FairKey)]++
		}
	}
	if want := map[string]int{"noisy": 25, "a": 25, "b": 25, "c": 25, "": 25}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("125 jobs are %v, want %v", got, want)
	}
}

// However many jobs of the highest tier there are, each lower tier that waits gets one
// of 250, and all of them together at most one of 5, however old they are.
func TestNoTierStarves(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	put(t, e, "q", configOf(api.Disk, queueConfig))
	lower := []string{"background", "bulk", "low", "", "high"}
	for _, tier := range lower {
		writeFlows(t, e, "q", times(4, tier)...)
	}
	taken, left := map[api.Tier]int{}, 4*len(lower)
	for n := 1; left > 0; n++ {
		writeFlows(t, e, "q", "critical")
		if j := claimJobs(t, e, "q", "w", 1)[0]; j.Tier < api.TierCritical {
			left--
			taken[j.Tier]++
		}
		for tier := api.TierBackground; tier < api.TierCritical; tier++ {
			if taken[tier] < min(4, n/250) {
				t.Fatalf("tier %s has got %d of the first %d jobs", tier, taken[tier], n)
			}
		}
		if got := 4*len(lower) - left; got > n/oneOfAged {
			t.Fatalf("lower tiers have got %d of the first %d jobs", got, n)
		}
	}
}

// What an overload has left behind gets a fifth of the claims until it is gone, and
// what is not much older than the highest tier's jobs one of fifty.
func TestOldJobsOfLowerTiersAreWorkedOffSooner(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	put(t, e, "q", configOf(api.Disk, queueConfig))
	got := func(claims int) (low []int) {
		for n := 1; n <= claims; n++ {
			writeFlows(t, e, "q", "critical")
			if claimJobs(t, e, "q", "w", 1)[0].Tier < api.TierCritical {
				low = append(low, n)
			}
		}
		return low
	}
	writeFlows(t, e, "q", times(3, "low")...)
	writeFlows(t, e, "q", times(30, "critical")...)
	if low := got(80); fmt.Sprint(low) != "[50]" {
		t.Errorf("not much older than critical ones, low jobs are the %v, want the 50th", low)
	}
	order(t, e, "q")
	writeFlows(t, e, "q", times(3, "low")...)
	if low := got(30); fmt.Sprint(low) != "[5 10 15]" {
		t.Errorf("left behind, low jobs are the %v, want every fifth", low)
	}
}

// Copies of routers and dead letters have the tier and the key of their record,
// and a queue that gets them goes by them.
func TestCopiesAndDeadLettersKeepTierAndKey(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	put(t, e, "log", configOf(api.Disk))
	put(t, e, "dead", configOf(api.Disk, queueConfig))
	put(t, e, "q", configOf(api.Disk, queueConfig, func(c *api.Config) { c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter = 1, true, "dead" }))
	if _, err := e.PutRouter(bg, "r", api.RouterConfig{Source: "log", Dest: "q"}); err != nil {
		t.Fatal(err)
	}
	writeFlows(t, e, "log", "low", ":a", ":a", ":b", "critical:c")
	for _, want := range []string{"[5]", "[2]", "[4]", "[3]", "[1]"} {
		jobs := claimJobs(t, e, "q", "w", 1)
		if got := seqsOf(jobs); got != want {
			t.Fatalf("claimed the copy %s, want %s", got, want)
		}
		if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{jobs[0].Seq}, DelayMS: 3600_000}); err != nil {
			t.Fatal(err)
		}
	}
	writeFlows(t, e, "q", "", "high:x", ":a")
	for _, j := range claimJobs(t, e, "q", "w", 3) {
		if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{j.Seq}}); err != nil {
			t.Fatal(err)
		}
	}
	if jobs := claimJobs(t, e, "q", "w", 1); len(jobs) > 0 {
		t.Fatalf("job %d was handed out again", jobs[0].Seq)
	}
	var flows []op.Flow
	for range 3 {
		flows = append(flows, op.FlowOf(&claimJobs(t, e, "dead", "w", 1)[0].Record))
	}
	if want := []op.Flow{{Tier: 1, Key: "x"}, {}, {Key: "a"}}; !slices.Equal(flows, want) {
		t.Fatalf("dead letters are claimed in the order %v, want %v", flows, want)
	}
}

// A job that is leased does not count as waiting for its turn, also when the lease is
// older than the process.
func TestALeasedJobWaitsForNoTurn(t *testing.T) {
	fs := vfs.NewMem()
	e := openOn(t, fs, "a")
	put(t, e, "q", configOf(api.Disk, queueConfig, func(c *api.Config) { c.LeasesDurable = true }))
	writeFlows(t, e, "q", "low")
	claimJobs(t, e, "q", "w", 1)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openOn(t, fs, "b")
	writeFlows(t, e, "q", slices.Repeat([]string{"critical"}, 48)...)
	for range 48 {
		claimJobs(t, e, "q", "w", 1)
	}
	low := writeFlows(t, e, "q", append(slices.Repeat([]string{"critical"}, 60), "low")...) + 60
	for i := range 49 {
		if got := claimJobs(t, e, "q", "w", 1)[0].Seq; got == low {
			t.Fatalf("the low job is the %dth, with only a leased one before it", i+1)
		}
	}
	if got := claimJobs(t, e, "q", "w", 1)[0].Seq; got != low {
		t.Fatalf("job %d is the fiftieth, want the low one", got)
	}
}

// judge is the law of the order of claims, seen from outside: it knows which
// jobs are ready and judges the next one handed out.
type judge struct {
	flows   map[uint64]op.Flow
	ready   map[op.Flow][]uint64        // given back first, then the others, each ascending
	passed  map[op.Flow]map[op.Flow]int // how often others of its tier came while one waited
	head    uint64
	tops    int // jobs of the highest tier since the last of a lower one
	slack   int // jobs that went unclaimed since: the queue may have counted them as waiting
	settled map[uint64]bool
}

func newJudge() *judge {
	return &judge{flows: map[uint64]op.Flow{}, ready: map[op.Flow][]uint64{}, settled: map[uint64]bool{}}
}

func (u *judge) wrote(seq uint64, f op.Flow) {
	u.flows[seq], u.head = f, seq
	u.ready[f] = append(u.ready[f], seq)
}

// restarted forgets whose turn it was.
func (u *judge) restarted() { u.passed, u.tops, u.slack = nil, 0, 0 }

// Of how many jobs the queue hands out one is of a lower tier, and of one whose next
// job is older times as old as the highest tier's.
const (
	oneOf     = 50
	oneOfAged = 5
	older     = 4
)

// age is how many numbers have been given out since seq.
func (u *judge) age(seq uint64) uint64 { return u.head - seq + 1 }

// ages returns the least and the greatest age of the flows' next jobs in a tier.
func (u *judge) ages(tier func(api.Tier) bool) (least, most uint64) {
	for g, jobs := range u.ready {
		if len(jobs) > 0 && tier(g.Tier) {
			a := u.age(jobs[0])
			if most = max(most, a); least == 0 || a < least {
				least = a
			}
		}
	}
	return least, most
}

func (u *judge) claimed(t *rapid.T, seq uint64) {
	f := u.flows[seq]
	if len(u.ready[f]) == 0 || u.ready[f][0] != seq {
		t.Fatalf("job %d of flow %v was handed out, its ready jobs are %v", seq, f, u.ready[f])
	}
	top, lower := f.Tier, false
	for g, jobs := range u.ready {
		if len(jobs) > 0 {
			top = max(top, g.Tier)
		}
	}
	for g, jobs := range u.ready {
		lower = lower || len(jobs) > 0 && g.Tier < top
	}
	youngTop, oldTop := u.ages(func(t api.Tier) bool { return t == top })
	youngest, _ := u.ages(func(t api.Tier) bool { return t < top })
	soonest, latest := oneOf, oneOf
	if u.age(seq) > older*youngTop {
		soonest = oneOfAged
	}
	if lower && youngest > older*oldTop {
		latest = oneOfAged
	}
	switch {
	case f.Tier < top && u.tops+u.slack < soonest-1:
		t.Fatalf("job %d of tier %s was handed out before one of tier %s, %d after the last one of a lower tier", seq, f.Tier, top, u.tops)
	case f.Tier < top:
		u.tops, u.slack = 0, 0
	case lower:
		if u.tops++; u.tops >= latest {
			t.Fatalf("%d jobs of the highest tier in a row while others wait, want a lower one after %d", u.tops, latest-1)
		}
	}
	if u.passed == nil {
		u.passed = map[op.Flow]map[op.Flow]int{}
	}
	u.passed[f] = nil
	for g, jobs := range u.ready {
		if g == f || g.Tier != f.Tier {
			continue
		}
		if len(jobs) == 0 {
			u.passed[g] = nil
			continue
		}
		if u.passed[g] == nil {
			u.passed[g] = map[op.Flow]int{}
		}
		if u.passed[g][f]++; u.passed[g][f] > 1 {
			t.Fatalf("flow %v came twice while %v waited", f, g)
		}
	}
	u.ready[f] = u.ready[f][1:]
}

// back gives a job back.
func (u *judge) back(seq uint64) {
	f := u.flows[seq]
	u.settled[seq] = true // handed out before
	i := 0
	for i < len(u.ready[f]) && u.settled[u.ready[f][i]] && u.ready[f][i] < seq {
		i++
	}
	u.ready[f] = slices.Insert(u.ready[f], i, seq)
}

func (u *judge) gone(seq uint64) {
	f := u.flows[seq]
	if slices.Contains(u.ready[f], seq) {
		u.slack += oneOf
	}
	u.ready[f] = slices.DeleteFunc(u.ready[f], func(s uint64) bool { return s == seq })
	if len(u.ready[f]) == 0 {
		delete(u.passed, f) // what it gets later has not waited
	}
	delete(u.flows, seq)
}

var someFlows = []string{"", "", ":a", ":b", "critical", "critical:a", "low", "background:b", "background"}

// Whatever is done to a queue, seals and restarts included, the next job is the
// one that the law of the order names.
func TestTheOrderOfClaimsHoldsOverRestarts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := vfs.NewMem()
		opt := Options{Dir: "/data", FS: fs, BootID: "a", SegmentBytes: 64 << 10}
		e, err := Open(bg, opt)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { e.Close() }()
		durable := rapid.Bool().Draw(t, "durable")
		if _, err := e.PutTopic(bg, "q", configOf(api.Disk, queueConfig, func(c *api.Config) { c.LeasesDurable = durable })); err != nil {
			t.Fatal(err)
		}
		u := newJudge()
		held := []uint64{}
		claim := func(t *rapid.T) {
			for range rapid.IntRange(1, 30).Draw(t, "claims") {
				var seq uint64
				var flow op.Flow
				res, err := e.Claim(bg, "q", &api.ClaimRequest{Node: "w", Max: 1, LeaseMS: 3600_000, HasLease: true}, func(j *api.Job) {
					seq, flow = j.Seq, op.FlowOf(&j.Record)
				})
				if err != nil {
					t.Fatal(err)
				}
				if res.Count == 0 {
					return
				}
				if flow != u.flows[seq] {
					t.Fatalf("job %d comes back with %v, was written with %v", seq, flow, u.flows[seq])
				}
				u.claimed(t, seq)
				held = append(held, seq)
			}
		}
		settle := func(t *rapid.T, verb string) {
			if len(held) == 0 {
				return
			}
			i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
			req := &api.SettleRequest{Node: "w", Seqs: held[i : i+1]}
			do := e.Ack
			if verb == "nack" {
				do = e.Nack
			}
			if res, err := do(bg, "q", req); err != nil || res.Done != 1 {
				t.Fatal(verb, res, err)
			}
			if seq := held[i]; verb == "nack" {
				u.back(seq)
			} else {
				u.gone(seq)
			}
			held = slices.Delete(held, i, i+1)
		}
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				var flows []string
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					flows = append(flows, rapid.SampledFrom(someFlows).Draw(t, "flow"))
				}
				seq := writeFlows(t, e, "q", flows...)
				for i, f := range flows {
					tier, key, _ := strings.Cut(f, ":")
					w := op.Flow{Key: key}
					w.Tier, _ = api.ParseTier(tier)
					if tier == "" {
						w.Tier = 0
					}
					u.wrote(seq+uint64(i), w)
				}
			},
			"claim":  claim,
			"claim2": claim,
			"ack":    func(t *rapid.T) { settle(t, "ack") },
			"nack":   func(t *rapid.T) { settle(t, "nack") },
			"delete": func(t *rapid.T) {
				var live []uint64
				for seq := range u.flows {
					live = append(live, seq)
				}
				if len(live) == 0 {
					return
				}
				slices.Sort(live)
				before := live[0] + rapid.Uint64Range(0, 5).Draw(t, "n")
				if _, err := e.DeleteRecords(bg, "q", &api.DeleteRequest{HasBefore: true, BeforeSeq: before}); err != nil {
					t.Fatal(err)
				}
				for _, seq := range live {
					if seq < before {
						u.gone(seq)
						held = slices.DeleteFunc(held, func(s uint64) bool { return s == seq })
					}
				}
			},
			"seal": func(t *rapid.T) { sealNow(t, e) },
			"restart": func(t *rapid.T) {
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
				if e, err = Open(bg, opt); err != nil {
					t.Fatal(err)
				}
				u.restarted()
				if !durable {
					held = held[:0]
					u.settled = map[uint64]bool{}
					for f := range u.ready {
						u.ready[f] = nil
					}
					for seq, f := range u.flows {
						u.ready[f] = append(u.ready[f], seq)
					}
					for f := range u.ready {
						slices.Sort(u.ready[f])
					}
				}
			},
		})
	})
}
