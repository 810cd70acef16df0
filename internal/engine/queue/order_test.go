package queue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
)

// listed is a record as the plain list has it.
type listed struct {
	flow    op.Flow
	doomed  bool // a change that may fail takes it
	claimed bool // it was handed out before
	state   state
	at      int64 // end of the lease or of the delay
	n       uint64
}

// list is a queue with tiers and fair keys in the slowest way: every question
// looks at all records.
type list struct {
	q      *Queue
	now    int64
	head   uint64
	staged []listed // above the head, not visible yet
	recs   map[uint64]*listed
	spans  []op.Span // of everything ever written
	shares shares
	last   []Pick
	id     uint64
}

func newList() *list { return &list{q: New(), recs: map[uint64]*listed{}, id: 1} }

// Free, NextFree, FreeRange and NextLive are Records.
func (m *list) Free(seq uint64) bool { return m.recs[seq] != nil && !m.recs[seq].doomed }

func (m *list) NextFree(above uint64) uint64 {
	for seq := above + 1; seq <= m.head; seq++ {
		if m.Free(seq) {
			return seq
		}
	}
	return max(above, m.head) + 1
}

func (m *list) FreeRange(pos, end uint64) (from, to uint64) { return freeRange(m, pos, end) }

func (m *list) NextLive(above uint64) uint64 {
	for seq := above + 1; seq <= m.head; seq++ {
		if m.recs[seq] != nil {
			return seq
		}
	}
	return m.head + 1
}

// ready returns a flow's claimable jobs in their order.
func (m *list) ready(f op.Flow) (seqs []uint64) {
	for _, claimed := range []bool{true, false} {
		for _, seq := range slices.Sorted(maps.Keys(m.recs)) {
			if r := m.recs[seq]; r.flow == f && r.claimed == claimed && r.state == ready && !r.doomed {
				seqs = append(seqs, seq)
			}
		}
	}
	return seqs
}

// rings returns, of each tier, the flows in the order in which the queue would
// ask them. Some may have no job: it drops them when they come first.
func (m *list) rings(t *rapid.T) (rings [api.Tiers][]op.Flow) {
	asked := map[op.Flow]bool{}
	if o := m.q.order; o != nil {
		for i := range o.tiers {
			for _, f := range o.tiers[i].flows[o.tiers[i].at:] {
				if asked[f.Flow] {
					t.Fatalf("flow %v waits twice", f.Flow)
				}
				asked[f.Flow] = true
				rings[i] = append(rings[i], f.Flow)
			}
		}
	}
	if plain := (op.Flow{}); !asked[plain] && len(m.ready(plain)) > 0 {
		asked[plain] = true
		normal := &rings[api.TierNormal.Rank()]
		if o := m.q.order; o != nil && !o.begun {
			*normal = append([]op.Flow{plain}, *normal...)
		} else {
			*normal = append(*normal, plain)
		}
	}
	for seq, r := range m.recs {
		if r.state == ready && !r.doomed && !asked[r.flow] {
			t.Fatalf("job %d of flow %v is ready, and the flow does not wait", seq, r.flow)
		}
	}
	return rings
}

// tier is whose turn it is, by the law.
func (m *list) tier(rings *[api.Tiers][]op.Flow) int {
	var waiting []int
	for i := range rings {
		for len(rings[i]) > 0 && len(m.ready(rings[i][0])) == 0 {
			rings[i] = rings[i][1:]
		}
		if len(rings[i]) > 0 {
			waiting = append(waiting, i)
		}
	}
	if len(waiting) == 0 {
		return -1
	}
	top := waiting[len(waiting)-1]
	lower := waiting[:len(waiting)-1]
	if len(lower) == 0 {
		m.took(top)
		return top
	}
	age := func(tier int) uint64 { return m.head - m.ready(rings[tier][0])[0] + 1 }
	every := lowerShare
	if aged := slices.DeleteFunc(slices.Clone(lower), func(i int) bool { return age(i) <= older*age(top) }); len(aged) > 0 {
		lower, every = aged, agedShare
	}
	if m.shares.n++; m.shares.n < every {
		m.took(top)
		return top
	}
	m.shares.n = 0
	next := slices.MinFunc(lower, func(a, b int) int {
		return cmp.Or(cmp.Compare(m.shares.last[a], m.shares.last[b]), cmp.Compare(b, a))
	})
	m.took(next)
	return next
}

func (m *list) took(tier int) {
	m.shares.turns++
	m.shares.last[tier] = m.shares.turns
}

func (m *list) claim(t *rapid.T) {
	most, limit := rapid.SampledFrom([]int{1, 1, 2, 5, 70}).Draw(t, "max"), rapid.Uint64Range(0, 4).Draw(t, "limit")
	rings := m.rings(t)
	plainOnly := m.q.order == nil
	var want, wantDead []uint64
	for len(want) < most {
		before := m.shares
		tier := m.tier(&rings)
		if plainOnly {
			m.shares = before // nobody else waits: nothing is counted
		}
		if tier < 0 {
			break
		}
		f := rings[tier][0]
		rings[tier] = rings[tier][1:]
		got := false
		for _, seq := range m.ready(f) {
			r := m.recs[seq]
			if r.claimed && limit > 0 && r.n >= limit {
				wantDead = append(wantDead, seq)
				r.state = settling
				continue
			}
			want = append(want, seq)
			r.state, got = leased, true
			break
		}
		if !got {
			m.shares = before
		}
		if len(m.ready(f)) > 0 {
			rings[tier] = append(rings[tier], f)
		}
	}
	node, deadline := drawNode(t), m.now+rapid.Int64Range(0, 30).Draw(t, "lease")
	picks, dead := m.q.Claim(nil, nil, &Claim{Node: node, Max: most, Deadline: deadline, Limit: limit, Dead: 1 << 30, FirstID: m.id, Head: m.head, Live: uint64(len(m.recs)), Records: m})
	order := slices.Clone(want)
	slices.Sort(want)
	if got := pickSeqs(picks); !slices.Equal(got, want) {
		t.Fatalf("claimed %v, want %v in the order %v", got, want, order)
	}
	slices.Sort(wantDead)
	got := pickSeqs(dead)
	if slices.Sort(got); !slices.Equal(got, wantDead) {
		t.Fatalf("dead are %v, want %v", got, wantDead)
	}
	for _, seq := range want {
		r := m.recs[seq]
		r.claimed, r.at = true, deadline
		r.n++
	}
	m.id += uint64(len(want))
	m.last = picks
	for _, seq := range wantDead {
		m.q.Abort(seq)
		m.recs[seq].state = ready
	}
	if m.rings(t); len(wantDead) == 0 {
		m.sameRings(t, rings)
	}
}

// sameRings checks that who comes next is whom the law names.
func (m *list) sameRings(t *rapid.T, want [api.Tiers][]op.Flow) {
	if m.q.order == nil {
		return
	}
	got := m.rings(t)
	for i := range got {
		if !slices.Equal(got[i], want[i]) {
			t.Fatalf("the flows of tier %d wait in the order %v, want %v", i, got[i], want[i])
		}
	}
}

var drawnFlows = rapid.SampledFrom([]op.Flow{{}, {}, {}, {Key: "a"}, {Key: "b"}, {Tier: 2}, {Tier: 2, Key: "a"}, {Tier: 1}, {Tier: -1, Key: "b"}, {Tier: -3}, {Tier: -3, Key: "c"}})

func (m *list) write(t *rapid.T) {
	f := drawnFlows.Draw(t, "flow")
	for range rapid.IntRange(1, 40).Draw(t, "n") {
		if rapid.IntRange(0, 9).Draw(t, "another") == 0 {
			f = drawnFlows.Draw(t, "flow")
		}
		m.staged = append(m.staged, listed{flow: f})
	}
}

// visible makes what was written visible.
func (m *list) visible() {
	var spans []op.Span
	for i := range m.staged {
		m.head++
		r := m.staged[i]
		m.recs[m.head] = &r
		spans = op.AppendSpan(spans, m.head, &api.Record{Tier: r.flow.Tier, FairKey: []byte(r.flow.Key)})
	}
	m.staged = nil
	m.spans = append(m.spans, spans...)
	if len(spans) > 0 {
		m.q.Add(spans, uint64(len(m.recs)), m)
	}
}

func (m *list) expire() {
	m.q.Expire(m.now)
	for _, r := range m.recs {
		if r.state == leased && r.at < m.now || r.state == delayed && r.at <= m.now {
			r.state = ready
		}
	}
}

// held draws one of the leased jobs; 0 if there is none.
func (m *list) held(t *rapid.T) uint64 {
	var seqs []uint64
	for seq, r := range m.recs {
		if r.state == leased {
			seqs = append(seqs, seq)
		}
	}
	if len(seqs) == 0 {
		return 0
	}
	slices.Sort(seqs)
	return rapid.SampledFrom(seqs).Draw(t, "held")
}

func (m *list) nack(t *rapid.T) {
	if seq := m.held(t); seq > 0 {
		r, until := m.recs[seq], m.now+rapid.Int64Range(-5, 5).Draw(t, "delay")
		m.q.Nack(seq, m.now, until, false)
		if r.state = ready; until > m.now {
			r.state, r.at = delayed, until
		}
	}
}

func (m *list) forget(from, to uint64) {
	m.q.ForgetRange(from, to)
	for seq := from; seq <= to; seq++ {
		delete(m.recs, seq)
	}
}

// doom stages a delete, and some of it may be in the log already when it fails.
func (m *list) doom(t *rapid.T) {
	from := rapid.Uint64Range(1, m.head+1).Draw(t, "from")
	for seq := from; seq < from+rapid.Uint64Range(1, 60).Draw(t, "n"); seq++ {
		if r := m.recs[seq]; r != nil && r.state != settling {
			r.doomed = true
		}
	}
}

func (m *list) undo(t *rapid.T) {
	for _, seq := range slices.Sorted(maps.Keys(m.recs)) {
		if r := m.recs[seq]; r.doomed && rapid.Bool().Draw(t, "logged") {
			m.forget(seq, seq)
		} else {
			r.doomed = false
		}
	}
	m.staged = nil
	m.q.Rewind(1)
}

func (m *list) applied() {
	for seq, r := range m.recs {
		if r.doomed {
			m.forget(seq, seq)
		}
	}
}

func (m *list) restart(t *rapid.T) {
	m.q, m.shares, m.staged = New(), shares{}, nil
	m.applied()
	for _, s := range m.spans {
		m.q.Add([]op.Span{s}, uint64(len(m.recs)), m)
	}
	durable := rapid.Bool().Draw(t, "durable")
	for _, seq := range slices.Sorted(maps.Keys(m.recs)) {
		r := m.recs[seq]
		if !r.claimed {
			continue
		}
		node, at := "w0", r.at
		switch r.state {
		case ready:
			node, at = "", 0
		case delayed:
			node = ""
		}
		m.q.Restore(seq, node, m.id, at, r.n)
		m.id++
		if !durable {
			r.claimed, r.state, r.n = false, ready, 0
		}
	}
	if !durable {
		m.q.ForgetLeases()
	}
	m.q.Recovered(m)
}

// Whatever is called in whatever order, jobs are handed out as a list of all
// records says that is searched from one end to the other: the highest tier
// first but for the share of the lower ones, the keys in turn, each key's jobs
// in their order; and none is left out, doomed and saved or not.
func TestOrderOfClaimsIsThatOfAPlainList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newList()
		t.Repeat(map[string]func(*rapid.T){
			"write":   func(t *rapid.T) { m.write(t) },
			"visible": func(t *rapid.T) { m.visible() },
			"write 2": func(t *rapid.T) { m.write(t); m.visible() },
			"time":    func(t *rapid.T) { m.now += rapid.Int64Range(1, 15).Draw(t, "ms"); m.expire() },
			"claim":   m.claim,
			"claim 2": m.claim,
			"unclaim": func(*rapid.T) {
				for _, p := range m.last {
					if r, id := m.recs[p.Seq], p.ID; r != nil && r.state == leased && m.q.jobs.get(p.Seq) == p.job && p.job.id == id {
						r.state = ready
						r.n--
					}
				}
				m.q.Unclaim(m.last)
				m.last = nil
			},
			"nack": m.nack,
			"ack": func(t *rapid.T) {
				if seq := m.held(t); seq > 0 {
					m.forget(seq, seq)
				}
			},
			"delete": func(t *rapid.T) {
				from := rapid.Uint64Range(1, m.head+1).Draw(t, "from")
				m.forget(from, from+rapid.Uint64Range(0, 30).Draw(t, "n"))
			},
			"doom":    m.doom,
			"undo":    m.undo,
			"applied": func(*rapid.T) { m.applied() },
			"restart": m.restart,
			"sweep": func(*rapid.T) {
				if m.q.order != nil {
					m.q.sweep(m)
				}
			},
			"": func(t *rapid.T) { m.rings(t) },
		})
	})
}

func TestAJobPassedOverForAFailedDeleteComesBack(t *testing.T) {
	for _, f := range []op.Flow{{}, {Tier: 1, Key: "a"}} {
		m := newList()
		m.staged = []listed{{flow: f}}
		m.visible()
		claim := func() []Pick {
			picks, _ := m.q.Claim(nil, nil, &Claim{Node: "w", Max: 1, FirstID: 1, Head: m.head, Live: uint64(len(m.recs)), Records: m})
			return picks
		}
		for range 2 { // never claimed, and given back
			m.recs[1].doomed = true
			if picks := claim(); len(picks) > 0 {
				t.Fatalf("flow %v: a job that is being deleted is handed out", f)
			}
			m.recs[1].doomed = false
			m.q.Rewind(1)
			picks := claim()
			if len(picks) != 1 {
				t.Fatalf("flow %v: the job is not handed out again", f)
			}
			m.q.Unclaim(picks)
		}
	}
}

// window is a topic that keeps only its newest records.
type window struct{ head, live uint64 }

func (w *window) start() uint64                               { return w.head - min(w.live, w.head) }
func (w *window) Free(seq uint64) bool                        { return seq > w.start() && seq <= w.head }
func (w *window) NextFree(above uint64) uint64                { return max(above, w.start()) + 1 }
func (w *window) FreeRange(pos, end uint64) (from, to uint64) { return freeRange(w, pos, end) }

func (w *window) NextLive(above uint64) uint64 { return w.NextFree(above) }

// Jobs that a cap takes before anybody claims them leave nothing behind.
func TestUnclaimedJobsDoNotGather(t *testing.T) {
	q, w := New(), &window{live: 1000}
	for range 200_000 {
		w.head++
		q.Add([]op.Span{{Range: op.Range{From: w.head, To: w.head}, Flow: op.Flow{Key: fmt.Sprint("k", w.head%7_000)}}}, 1000, w)
	}
	if n, keys := q.order.spans, len(q.order.flows); n > 4000 || keys > 4000 {
		t.Errorf("1000 live jobs take %d spans and %d keys", n, keys)
	}
	picks, _ := q.Claim(nil, nil, &Claim{Node: "w", Max: 2000, Deadline: 1, FirstID: 1, Head: w.head, Live: w.live, Records: w})
	if len(picks) != 1000 || q.order != nil {
		t.Errorf("%d jobs are claimed of 1000, and the order is %v", len(picks), q.order)
	}
}
