package queue

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirmq/weir/internal/op"
)

// modelJob is what is known of a number that was claimed before.
type modelJob struct {
	state      state
	node       string
	id         uint64
	deadline   int64 // of a lease, or the end of a delay
	deliveries uint64
	held       bool // settling: it was under a lease
}

// model is the same queue in the slowest way: every question looks at all jobs.
type model struct {
	q    *Queue
	now  int64
	head uint64
	live map[uint64]bool
	jobs map[uint64]*modelJob // a live number that is absent was never claimed
	told [][]Pick             // of each claim, the latest last
	id   uint64
	fix  []uint64 // dead candidates, still settling
}

func newModel() *model {
	return &model{q: New(), now: 1000, live: map[uint64]bool{}, jobs: map[uint64]*modelJob{}, id: 1}
}

// expire is what time does.
func (m *model) expire() (returned bool) {
	for _, j := range m.jobs {
		if j.state == leased && j.deadline < m.now || j.state == delayed && j.deadline <= m.now {
			j.state, returned = ready, true
		}
	}
	return returned
}

// settle lets time do the same to both before a call.
func (m *model) settle(t *rapid.T) {
	want := m.expire()
	if got := m.q.Expire(m.now); got != want {
		t.Fatalf("at %d Expire reports %v, want %v", m.now, got, want)
	}
}

func (m *model) claimable() (seqs []uint64) {
	for _, seq := range slices.Sorted(maps.Keys(m.live)) {
		if j := m.jobs[seq]; j != nil && j.state == ready {
			seqs = append(seqs, seq)
		}
	}
	for _, seq := range slices.Sorted(maps.Keys(m.live)) {
		if m.jobs[seq] == nil {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// Free, NextFree, FreeRange and NextLive are Records.
func (m *model) Free(seq uint64) bool { return m.live[seq] }

func (m *model) NextFree(above uint64) uint64 {
	for seq := above + 1; seq <= m.head; seq++ {
		if m.live[seq] {
			return seq
		}
	}
	return m.head + 1
}

func (m *model) FreeRange(pos, end uint64) (from, to uint64) { return freeRange(m, pos, end) }

func (m *model) NextLive(above uint64) uint64 { return m.NextFree(above) }

// freeRange is FreeRange in the slowest way.
func freeRange(records Records, pos, end uint64) (from, to uint64) {
	from = records.NextFree(pos)
	for to = from; to < end && records.Free(to+1); to++ {
	}
	return from, min(to, end)
}

func (m *model) claim(t *rapid.T) {
	node, most, limit := drawNode(t), rapid.IntRange(1, 6).Draw(t, "max"), rapid.Uint64Range(0, 3).Draw(t, "limit")
	deadline := m.now + rapid.Int64Range(0, 30).Draw(t, "lease")
	var want, wantDead []uint64
	for _, seq := range m.claimable() {
		if len(want) == most {
			break
		}
		if j := m.jobs[seq]; j != nil && limit > 0 && j.deliveries >= limit {
			wantDead = append(wantDead, seq)
		} else {
			want = append(want, seq)
		}
	}
	slices.Sort(want)
	picks, dead := m.q.Claim(nil, nil, &Claim{Node: node, Max: most, Deadline: deadline, Limit: limit, Dead: 1 << 30, FirstID: m.id, Head: m.head, Live: uint64(len(m.live)), Records: m})
	if got := pickSeqs(picks); !slices.Equal(got, want) {
		t.Fatalf("claimed %v, want %v", got, want)
	}
	if got := pickSeqs(dead); !slices.Equal(got, wantDead) {
		t.Fatalf("dead are %v, want %v", got, wantDead)
	}
	for i, seq := range want {
		j := m.jobs[seq]
		if j == nil {
			j = &modelJob{}
			m.jobs[seq] = j
		}
		j.state, j.node, j.id, j.deadline = leased, node, m.id, deadline
		j.deliveries++
		m.id++
		if p := picks[i]; p.ID != j.id || p.Deliveries != j.deliveries {
			t.Fatalf("pick %+v, want %+v", p, *j)
		}
	}
	for i, seq := range wantDead {
		m.jobs[seq].state, m.jobs[seq].held = settling, false
		m.fix = append(m.fix, seq)
		if dead[i].Deliveries != m.jobs[seq].deliveries {
			t.Fatalf("dead %+v, want %+v", dead[i], *m.jobs[seq])
		}
	}
	m.told = append(m.told, picks)
}

// drawClaim draws a claim, or nothing if there was none.
func (m *model) drawClaim(t *rapid.T) []Pick {
	if len(m.told) == 0 {
		return nil
	}
	return m.told[len(m.told)-1-rapid.IntRange(0, min(len(m.told)-1, 3)).Draw(t, "ago")]
}

// unclaim takes a claim back, maybe for the second time.
func (m *model) unclaim(t *rapid.T) {
	picks := m.drawClaim(t)
	m.q.Unclaim(picks)
	for _, p := range picks {
		if j := m.jobs[p.Seq]; j != nil && j.state == leased && j.id == p.ID {
			j.state = ready
			j.deliveries--
		}
	}
}

// pickHeld draws a number with a node and a lease id that may or may not hold it.
func (m *model) pickHeld(t *rapid.T) (seq uint64, node string, id uint64, held bool) {
	seq, node = rapid.Uint64Range(1, m.head+1).Draw(t, "seq"), drawNode(t)
	j := m.jobs[seq]
	if j != nil && rapid.Bool().Draw(t, "holder") {
		node = j.node
	}
	if rapid.Bool().Draw(t, "fenced") {
		id = rapid.Uint64Range(1, m.id).Draw(t, "id")
		if j != nil && rapid.Bool().Draw(t, "its id") {
			id = j.id
		}
	}
	held = j != nil && j.state == leased && j.node == node && (id == 0 || j.id == id)
	if got := m.q.Held(seq, node, id); got != held {
		t.Fatalf("Held(%d, %s, %d) is %v, want %v", seq, node, id, got, held)
	}
	return seq, node, id, held
}

func (m *model) settleJob(t *rapid.T) {
	seq, node, id, held := m.pickHeld(t)
	if _, ok := m.q.Settle(seq, node, id); ok != held {
		t.Fatalf("Settle of %d is %v, want %v", seq, ok, held)
	}
	if held {
		m.jobs[seq].state, m.jobs[seq].held = settling, true
		m.fix = append(m.fix, seq)
	}
}

// outcome ends what settles: the removal is in the log, or the giving back, or
// it failed.
func (m *model) outcome(t *rapid.T) {
	for _, seq := range m.fix {
		if rapid.Bool().Draw(t, "logged") {
			m.forget(seq, seq)
			continue
		}
		j := m.jobs[seq]
		if j == nil || j.state != settling {
			m.q.Abort(seq)
			continue
		}
		if rapid.Bool().Draw(t, "given back") {
			m.q.Release(seq, m.now, m.now, false)
			j.state = ready
			continue
		}
		m.q.Abort(seq)
		if j.state = ready; j.held {
			j.state = leased
		}
	}
	m.fix = nil
}

func (m *model) forget(from, to uint64) {
	m.q.ForgetRange(from, to)
	for seq := from; seq <= to; seq++ {
		delete(m.live, seq)
		delete(m.jobs, seq)
	}
}

func (m *model) nack(t *rapid.T) {
	seq, _, _, held := m.pickHeld(t)
	if !held {
		return
	}
	until, notStarted := m.now+rapid.Int64Range(-1, 20).Draw(t, "delay"), rapid.Bool().Draw(t, "not started")
	m.q.Nack(seq, m.now, until, notStarted)
	j := m.jobs[seq]
	if notStarted {
		j.deliveries--
	}
	j.state = ready
	if until > m.now {
		j.state, j.deadline = delayed, until
	}
}

func (m *model) extend(t *rapid.T) {
	seqs := rapid.SliceOfN(rapid.Uint64Range(1, m.head+1), 1, 6).Draw(t, "seqs")
	node, deadline := drawNode(t), m.now+rapid.Int64Range(0, 40).Draw(t, "lease")
	if picks := m.drawClaim(t); len(picks) > 0 && rapid.Bool().Draw(t, "its own") { // some of what it has claimed
		seqs = pickSeqs(picks[:rapid.IntRange(1, len(picks)).Draw(t, "n")])
		if j := m.jobs[seqs[0]]; j != nil {
			node = j.node
		}
	}
	var ids, want, wantSkipped []uint64
	fenced := rapid.Bool().Draw(t, "fenced")
	for _, seq := range seqs {
		j, id := m.jobs[seq], uint64(0)
		if fenced {
			id = rapid.Uint64Range(0, 1).Draw(t, "id")
			if j != nil && id == 1 {
				id = j.id
			}
			ids = append(ids, id)
		}
		if j == nil || j.state != leased || j.node != node || id != 0 && j.id != id || slices.Contains(want, seq) {
			wantSkipped = append(wantSkipped, seq)
			continue
		}
		j.deadline = deadline
		want = append(want, seq)
	}
	done, skipped := m.q.Extend(nil, nil, seqs, ids, node, deadline)
	if !slices.Equal(done, want) || !slices.Equal(skipped, wantSkipped) {
		t.Fatalf("extended %v, skipped %v, want %v and %v", done, skipped, want, wantSkipped)
	}
	if rapid.Bool().Draw(t, "not logged") {
		for _, seq := range done {
			j := m.jobs[seq]
			m.q.Unextend(seq, j.id+1, deadline, 0) // another lease: nothing
			m.q.Unextend(seq, j.id, deadline+1, 0) // it was extended once more: nothing
			m.q.Unextend(seq, j.id, deadline, m.now)
			j.deadline = m.now
		}
	}
}

// restart forgets all and puts durable leases back.
func (m *model) restart() {
	m.q = New()
	m.told, m.fix = nil, nil
	for _, seq := range slices.Sorted(maps.Keys(m.jobs)) {
		j := m.jobs[seq]
		switch j.state {
		case settling: // what was on its way is not there: as if never claimed
			delete(m.jobs, seq)
		case leased:
			m.q.Restore(seq, "former", j.id+1, j.deadline+9, j.deliveries) // a later lease replaces it
			m.q.Restore(seq, j.node, j.id, j.deadline, j.deliveries)
		case delayed:
			m.q.Restore(seq, "", j.id, j.deadline, j.deliveries)
		case ready:
			m.q.Restore(seq, "", j.id, 0, j.deliveries)
		}
	}
}

// check compares what can be asked at any time.
func (m *model) check(t *rapid.T) {
	var inFlight, waiting, later uint64
	event := int64(-1)
	soonest := func(at int64) {
		if event < 0 || at < event {
			event = at
		}
	}
	for seq, j := range m.jobs {
		switch j.state {
		case leased:
			soonest(j.deadline + 1)
			inFlight++
		case settling:
			inFlight++
		case delayed:
			waiting++
			if j.id == 0 {
				later++
			}
			soonest(j.deadline)
		}
		if id, n := m.q.Lease(seq); n != j.deliveries || id != j.id {
			t.Fatalf("Lease(%d) is %d, %d, want %d, %d", seq, id, n, j.id, j.deliveries)
		}
	}
	if a, b, c := m.q.InFlight(), m.q.Delayed(), m.q.Scheduled(); a != inFlight || b != waiting || c != later {
		t.Fatalf("%d in flight, %d delayed and %d of these scheduled, want %d, %d and %d", a, b, c, inFlight, waiting, later)
	}
	// A waker may come too early, never too late.
	if at, ok := m.q.NextEvent(); event >= 0 && (!ok || at > event) {
		t.Fatalf("the next event is at %d %v, want %d", at, ok, event)
	}
}

func pickSeqs(picks []Pick) (seqs []uint64) {
	for _, p := range picks {
		seqs = append(seqs, p.Seq)
	}
	return seqs
}

func drawNode(t *rapid.T) string { return fmt.Sprint("w", rapid.IntRange(0, 2).Draw(t, "node")) }

// Whatever is called in whatever order, the queue answers as a list of all
// jobs would that is searched from one end to the other.
func TestQueueBehavesAsAPlainList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel()
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				for range rapid.IntRange(1, 5).Draw(t, "n") {
					m.head++
					m.live[m.head] = true
				}
			},
			"schedule": func(t *rapid.T) {
				m.head++
				until := m.now + rapid.Int64Range(1, 20).Draw(t, "delay")
				m.q.Delay(m.head, until, op.Flow{})
				m.live[m.head] = true
				m.jobs[m.head] = &modelJob{state: delayed, deadline: until}
			},
			"time":    func(t *rapid.T) { m.now += rapid.Int64Range(1, 15).Draw(t, "ms"); m.settle(t) },
			"claim":   m.claim,
			"unclaim": m.unclaim,
			"settle":  m.settleJob,
			"outcome": m.outcome,
			"nack":    m.nack,
			"extend":  m.extend,
			"delete": func(t *rapid.T) {
				from := rapid.Uint64Range(1, m.head+1).Draw(t, "from")
				m.forget(from, from+rapid.Uint64Range(0, 4).Draw(t, "n"))
			},
			"rewind":  func(t *rapid.T) { m.q.Rewind(rapid.Uint64Range(1, m.head+1).Draw(t, "seq")) },
			"restart": func(*rapid.T) { m.restart() },
			"":        m.check,
		})
	})
}
