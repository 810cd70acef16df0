package backendtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/weirmq/weir/backend"
)

const (
	modelSteps = 120
	// soon is how exactly a model knows when something was due.
	soon     = 10 * time.Millisecond
	changing = 300 * time.Millisecond // before and after something is due, readings may differ
	// slowClaim is how long a claim of a quick machine never takes: it has 250 ms for a shard once it has something.
	slowClaim = 200 * time.Millisecond
)

// modelCases compares random histories with what this package's documents allow. WEIRTEST_SEEDS
// is how many there are, for a longer search.
func (s *suite) modelCases() []testCase {
	seeds := 3
	if n, err := strconv.Atoi(os.Getenv("WEIRTEST_SEEDS")); err == nil {
		seeds = n
	}
	var cases []testCase
	for seed := range uint64(seeds) {
		cases = append(cases, testCase{fmt.Sprintf("every answer is one that the history allows: seed %d", seed), func(f *fixture) {
			f.untilQuick(10, "a claim", func() bool {
				m := newModel(f, seed)
				m.run()
				return !m.stalled
			})
		}})
	}
	return cases
}

// model is the history of one stream, as two handles have made it step by step. On each there
// are consumers with long and with short leases.
type model struct {
	*fixture
	random  *rand.Rand
	handles []backend.Backend
	entries []*entry
	number  int
	letters []*entry
	stalled bool // a claim had no time left for a shard, or its dead letters: what became of them is not known
	late    []past
	paused  bool
	short   time.Duration
	steps   []string
}

// entry is what is known of a message.
type entry struct {
	backend.Message
	id       string        // that its append returned
	number   int           // of its publish or redrive: the order of what nobody has had
	inOrder  bool          // nobody has had it, and it was never kept back
	over     bool          // done, or dead
	free     time.Time     // when anybody may claim it
	slow     time.Duration // how much later that may be: what the call took that said so
	held     *backend.Delivery
	handle   int // where it was claimed
	attempts int // that count
	error    string
	reason   string // why it is dead
	redrives int
}

// past is a lease that is over.
type past struct {
	handle int
	backend.Lease
}

func newModel(f *fixture, seed uint64) *model {
	m := &model{fixture: f, random: rand.New(rand.NewPCG(seed, 1)), short: max(f.short, 1500*time.Millisecond)}
	a, b := f.two()
	m.handles = []backend.Backend{a, b}
	return m
}

func (m *model) run() {
	for range modelSteps {
		switch n := m.random.IntN(100); {
		case n < 22:
			m.publish()
		case n < 50:
			m.claim(m.request())
		case n < 68:
			m.settle()
		case n < 78:
			m.settleMany()
		case n < 84:
			m.settleLate()
		case n < 90:
			m.checkStats()
		case n < 95:
			m.checkLetters()
		case n < 97:
			m.pause()
		default:
			time.Sleep(time.Duration(m.random.IntN(500)) * time.Millisecond)
		}
		if m.Failed() || m.stalled {
			break
		}
	}
	if m.Failed() || m.stalled {
		m.Logf("what was done:\n%s", m.steps)
		return
	}
	m.finish()
}

// step notes what was done, for who has to find out why it was wrong.
func (m *model) step(format string, args ...any) {
	m.steps = append(m.steps, fmt.Sprintf("%s "+format+"\n", append([]any{time.Now().Format("05.000")}, args...)...))
}

func (m *model) any() int { return m.random.IntN(len(m.handles)) }

func (m *model) publish() {
	count := 1 + m.random.IntN(4)
	if m.random.IntN(10) == 0 {
		count = 40
	}
	delayer, delays := m.handles[0].(backend.Delayer)
	var msgs []backend.Message
	for range count {
		msg := backend.Message{
			Data:     [][]byte{{}, []byte(`{"a":1}`), {0xff, 0}, bytes.Repeat([]byte("weir "), 2000), []byte("text\n")}[m.random.IntN(5)],
			Headers:  map[string]string{"n": strconv.Itoa(len(m.entries) + len(msgs)), "k": "v \n"},
			Priority: []backend.Priority{backend.Normal, backend.Normal, backend.High, backend.Bulk}[m.random.IntN(4)],
			FairKey:  []string{"", "", "one", "two"}[m.random.IntN(4)],
		}
		if m.random.IntN(6) == 0 {
			msg.Deadline = time.Now().Add(time.Hour).Truncate(time.Millisecond)
		}
		if !m.h.NoKeys && m.random.IntN(5) == 0 {
			msg.IdempotencyKey = "key " + msg.Headers["n"]
		}
		if delays && delayer.Delays() && m.random.IntN(6) == 0 {
			msg.Delay = time.Duration(1+m.random.IntN(900)) * time.Millisecond
		}
		msgs = append(msgs, msg)
	}
	began, before := time.Now(), len(m.entries)
	at, again := m.random.IntN(count), m.keyed()
	if again != nil {
		msgs = slices.Insert(msgs, at, again.Message)
	}
	got, err := m.handles[m.any()].Append(m.ctx(), msgs)
	took := time.Since(began)
	m.step("publish %d: %v, %v", count, got, err)
	if err != nil || len(got) != len(msgs) {
		m.Fatalf("append of %d: %v, %v", len(msgs), got, err)
	}
	for i, msg := range msgs {
		if known := again != nil && i == at; got[i].ID == "" || got[i].Deduped != known || known && msg.Delay == 0 && got[i].ID != again.id {
			m.Errorf("append of %s, stored before %v: %+v", msg.Headers["n"], known, got[i])
		} else if known {
			continue
		}
		m.number++
		m.entries = append(m.entries, &entry{Message: msg, id: got[i].ID, number: m.number, inOrder: msg.Delay == 0, free: began.Add(msg.Delay), slow: took})
	}
	if n := len(m.entries) - before; n != count && !m.Failed() {
		m.Errorf("%d of %d are new", n, count)
	}
}

// keyed returns a message with a key that is stored, to be sent once more; nil is none.
func (m *model) keyed() *entry {
	var with []*entry
	for _, e := range m.entries {
		if e.IdempotencyKey != "" {
			with = append(with, e)
		}
	}
	if len(with) == 0 || m.random.IntN(3) > 0 {
		return nil
	}
	return with[m.random.IntN(len(with))]
}

// request is a claim of a consumer with long leases or, every third, with short ones.
func (m *model) request() backend.ClaimRequest {
	req := request("long", []int{1, 2, 3, 10, 100}[m.random.IntN(5)])
	if m.random.IntN(3) == 0 {
		req.Consumer, req.ReclaimAfter = "short", m.short
	}
	req.Block = time.Duration(m.random.IntN(2)*m.random.IntN(200)) * time.Millisecond
	req.MaxDeliveries = []int{0, 2, 3}[m.random.IntN(3)]
	return req
}

// claim judges what a claim gives.
func (m *model) claim(req backend.ClaimRequest) {
	handle := m.any()
	req.Consumer += strconv.Itoa(handle)
	began := time.Now()
	got, err := m.handles[handle].Claim(m.ctx(), req)
	ended := time.Now()
	m.step("claim of %s, up to %d, limit %d: %s, dead %v", req.Consumer, req.Max, req.MaxDeliveries, describe(got.Deliveries), got.Dead)
	if ended.Sub(began) >= slowClaim && (errors.Is(got.Failed, backend.ErrOutcomeUnknown) || errors.Is(got.Failed, context.DeadlineExceeded)) {
		m.stalled = true
		return
	}
	if err != nil || got.Failed != nil || len(got.Lost) > 0 || len(got.Deliveries) > req.Max || m.paused && len(got.Deliveries)+len(got.Dead) > 0 {
		m.Errorf("claim of %d, paused %v: %s, lost %v, failed %v, %v", req.Max, m.paused, describe(got.Deliveries), got.Lost, got.Failed, err)
	}
	for i, d := range got.Deliveries {
		e := m.of(d.Headers)
		m.compare(e, d.Data, d.Headers, "delivery")
		if e.over || e.free.After(ended.Add(soon)) {
			m.Errorf("%s came; it is over %v, free in %s", d.Headers["n"], e.over, time.Until(e.free))
		}
		if d.Attempt != e.attempts+1 || req.MaxDeliveries > 0 && d.Attempt > req.MaxDeliveries || i < got.Reclaimed && e.inOrder && d.Attempt > 1 {
			m.Errorf("%s had %d deliveries and came with attempt %d, limit %d", d.Headers["n"], e.attempts, d.Attempt, req.MaxDeliveries)
		}
		if i >= got.Reclaimed && e.attempts > 0 {
			m.Errorf("%s had %d deliveries and does not count as reclaimed", d.Headers["n"], e.attempts)
		}
		if !d.Deadline.Equal(e.Deadline) || d.Consumer != req.Consumer || d.Since.Before(began.Add(-soon)) || d.Since.After(ended) {
			m.Errorf("lease %+v with the deadline %s, want %s", d.Lease, d.Deadline, e.Deadline)
		}
		m.end(e)
		e.held, e.handle, e.attempts = d, handle, d.Attempt
		e.free, e.slow = d.Since.Add(req.ReclaimAfter), ended.Sub(d.Since)
	}
	m.checkOrder(&got)
	for i := range got.Dead {
		e := m.of(got.Dead[i].Headers)
		if e.over || e.free.After(ended.Add(soon)) || req.MaxDeliveries > 0 && e.attempts < req.MaxDeliveries || req.MaxDeliveries == 0 && m.h.MaxDeliveries == 0 {
			m.Errorf("%q died after %d deliveries with the limit %d", got.Dead[i].Headers, e.attempts, req.MaxDeliveries)
		}
		m.bury(e, backend.ReasonMaxDeliveries)
	}
}

// of finds the entry of a message.
func (m *model) of(headers map[string]string) *entry {
	m.Helper()
	n, err := strconv.Atoi(headers["n"])
	if err != nil || n >= len(m.entries) {
		m.Fatalf("nobody has published %q", headers)
	}
	return m.entries[n]
}

// compare compares what came with what was published.
func (m *model) compare(e *entry, data []byte, headers map[string]string, what string) {
	m.Helper()
	want, got := maps.Clone(e.Headers), maps.Clone(headers)
	if e.Priority != backend.Normal {
		want[backend.HeaderPriority] = e.Priority.String()
	}
	if e.FairKey != "" {
		want[backend.HeaderFairKey] = e.FairKey
	}
	if !e.Deadline.IsZero() {
		want[backend.HeaderDeadline] = backend.FormatDeadline(e.Deadline)
	}
	if e.redrives > 0 && what == "delivery" {
		want[backend.HeaderRedrives] = strconv.Itoa(e.redrives)
	} else if what == "letter" {
		delete(got, backend.HeaderRedrives) // it may be there beside Redrives
	}
	if !bytes.Equal(data, e.Data) || !maps.Equal(got, want) {
		m.Errorf("%s %.40q %q, published was %.40q %q", what, data, got, e.Data, want)
	}
}

// checkOrder: of each tier and key, what nobody has had comes in the order of its publishing. What a
// claim has read beside orphans it may have handed back.
func (m *model) checkOrder(got *backend.Claimed) {
	last := map[string]int{}
	flow := func(e *entry) string { return fmt.Sprint(e.Priority, e.FairKey) }
	for _, d := range got.Deliveries {
		if e := m.of(d.Headers); e.inOrder {
			if e.number < last[flow(e)] && !m.h.Unordered {
				m.Errorf("%s came behind one that was published after it", d.Headers["n"])
			}
			last[flow(e)] = max(e.number, last[flow(e)])
			e.inOrder = false
		}
	}
	for n, e := range m.entries {
		if e.inOrder && e.number < last[flow(e)] && !m.h.Unordered {
			m.Errorf("%d was passed over by one that was published after it", n)
		}
		e.inOrder = e.inOrder && got.Reclaimed == 0
	}
}

// end ends the lease of an entry.
func (m *model) end(e *entry) {
	if e.held != nil {
		m.late = append(m.late, past{e.handle, e.held.Lease})
		e.held = nil
	}
}

func (m *model) bury(e *entry, reason string) {
	m.end(e)
	e.over, e.reason = true, reason
	m.letters = append(m.letters, e)
}

// settle settles a held message.
func (m *model) settle() {
	var held []*entry
	for _, e := range m.entries {
		if e.held != nil {
			held = append(held, e)
		}
	}
	if len(held) == 0 {
		return
	}
	e := held[m.random.IntN(len(held))]
	b, lease, began := m.handles[e.handle], e.held.Lease, time.Now()
	var lost []string
	var err error
	free, text := began, e.error
	var back backend.Return
	what := m.random.IntN(8)
	switch what {
	case 0, 1:
		lost, err = b.Ack(m.ctx(), []backend.Lease{lease})
	case 2, 3, 4:
		back = backend.Return{Lease: lease, Delay: []time.Duration{0, 300 * time.Millisecond, 2 * time.Second}[m.random.IntN(3)], Error: fmt.Sprint("error ", len(m.steps))}
		if m.random.IntN(4) == 0 {
			back = backend.Return{Lease: lease, NotStarted: true}
		}
		lost, err = b.Nack(m.ctx(), []backend.Return{back})
	case 5, 6:
		d := leaseFor(lease, m.short)
		lost, err = b.Extend(m.ctx(), []backend.Lease{lease}, d)
		free = began.Add(d)
	default:
		text = fmt.Sprint("poison ", len(m.steps))
		if err = b.DeadLetter(m.ctx(), e.held, "", backend.Cause{Reason: backend.ReasonPoison, Error: text}); errors.Is(err, backend.ErrLeaseLost) {
			lost, err = []string{lease.ID}, nil
		}
	}
	m.step("settle (%d) %s of %s: lost %v, %v", what, lease.ID, lease.Consumer, lost, err)
	if err != nil || len(lost) > 0 && e.free.After(time.Now()) {
		m.Errorf("settle (%d) of a lease that lasts %s: lost %v, %v", what, time.Until(e.free), lost, err)
	}
	if len(lost) > 0 {
		m.end(e)
		return
	}
	switch e.free, e.slow, e.error = free, time.Since(began), text; what {
	case 0, 1:
		e.over = true
		m.end(e)
	case 2, 3, 4:
		m.returned(e, &back, began)
	case 7:
		m.bury(e, backend.ReasonPoison)
	}
}

// settleMany settles several messages in one call, of both consumers of a handle; by an extend
// those of one. Leases that are over are among them.
func (m *model) settleMany() {
	handle, how := m.any(), m.random.IntN(3)
	var some []*entry
	for _, i := range m.random.Perm(len(m.entries)) {
		e := m.entries[i]
		if e.held != nil && e.handle == handle && len(some) < 8 && (how < 2 || len(some) == 0 || e.held.Consumer == some[0].held.Consumer) {
			some = append(some, e)
		}
	}
	if len(some) == 0 {
		return
	}
	var all []backend.Lease
	for _, e := range some {
		all = append(all, e.held.Lease)
	}
	for _, l := range m.late {
		known := slices.ContainsFunc(all, func(o backend.Lease) bool { return o.ID == l.ID })
		if how > 0 && l.handle == handle && !known && m.random.IntN(4) == 0 { // an ack need not look that soon
			all = append(all, l.Lease)
		}
	}
	over := all[len(some):]
	returns := make([]backend.Return, len(all))
	for i, l := range all {
		returns[i] = backend.Return{Lease: l, Delay: []time.Duration{0, 0, 400 * time.Millisecond}[m.random.IntN(3)], Error: fmt.Sprint("error ", len(m.steps)), NotStarted: m.random.IntN(4) == 0}
		if returns[i].NotStarted {
			returns[i].Delay, returns[i].Error = 0, ""
		}
	}
	m.random.Shuffle(len(all), func(i, j int) {
		returns[i], returns[j] = returns[j], returns[i]
	})
	b, began, d := m.handles[handle], time.Now(), leaseFor(all[0], m.short)
	var lost []string
	var err error
	switch how {
	case 0:
		lost, err = b.Ack(m.ctx(), all)
	case 1:
		lost, err = b.Nack(m.ctx(), returns)
	default:
		lost, err = b.Extend(m.ctx(), all, d)
	}
	m.step("settle many (%d) %+v, over %+v: lost %v, %v", how, returns, over, lost, err)
	if err != nil {
		m.Errorf("settle of %d: %v", len(all), err)
		return
	}
	for _, l := range over {
		if !slices.Contains(lost, l.ID) {
			m.Errorf("%+v is over and was settled among others: lost %v", l, lost)
		}
	}
	for _, e := range some {
		lease := e.held.Lease
		if slices.Contains(lost, lease.ID) {
			if e.free.After(time.Now()) {
				m.Errorf("%+v lasts %s and was lost among others", lease, time.Until(e.free))
			}
			m.end(e)
			continue
		}
		switch how {
		case 0:
			e.over = true
			m.end(e)
		case 1:
			r := returns[slices.IndexFunc(returns, func(r backend.Return) bool { return r.ID == lease.ID })]
			m.returned(e, &r, began)
		default:
			e.free, e.slow = began.Add(d), time.Since(began)
		}
	}
}

// returned notes that a message was given back.
func (m *model) returned(e *entry, r *backend.Return, began time.Time) {
	e.free, e.slow = began.Add(r.Delay), time.Since(began)
	switch {
	case !r.NotStarted:
		e.error = r.Error
	case !m.h.CountsUnstarted:
		e.attempts--
		e.held = nil // not every backend can tell its lease from the next
	}
	m.end(e)
}

// leaseFor is how long the leases of a consumer last.
func leaseFor(l backend.Lease, short time.Duration) time.Duration {
	if l.Consumer[0] == 's' {
		return short
	}
	return held
}

// settleLate settles by a lease that is over. An ack need not be checked that soon.
func (m *model) settleLate() {
	if len(m.late) == 0 {
		return
	}
	l := m.late[m.random.IntN(len(m.late))]
	b := m.handles[l.handle]
	var lost []string
	var err error
	switch m.random.IntN(3) {
	case 0:
		lost, err = b.Nack(m.ctx(), []backend.Return{{Lease: l.Lease}})
	case 1:
		lost, err = b.Extend(m.ctx(), []backend.Lease{l.Lease}, leaseFor(l.Lease, m.short))
	default:
		if err = b.DeadLetter(m.ctx(), &backend.Delivery{Lease: l.Lease}, "", backend.Cause{Reason: backend.ReasonPoison}); errors.Is(err, backend.ErrLeaseLost) {
			lost, err = []string{l.ID}, nil
		}
	}
	if m.step("late %+v: lost %v, %v", l.Lease, lost, err); err != nil || len(lost) != 1 {
		m.Errorf("settled late by %+v: lost %v, %v", l.Lease, lost, err)
	}
}

// checkStats compares a reading with what is left, unless something is about to change.
func (m *model) checkStats() {
	if m.h.LocalLeases {
		return // its numbers are a little late, and transactions count
	}
	began := time.Now()
	stats := m.stats(m.handles[m.any()])
	ended := time.Now()
	var left, later int64
	for _, e := range m.entries {
		switch {
		case e.over:
		case ended.After(e.free.Add(-changing)) && began.Before(e.free.Add(e.slow+changing)) && (e.held != nil || !e.inOrder):
			return
		case e.Delay > 0 && e.attempts == 0 && e.held == nil && e.redrives == 0 && e.free.After(ended):
			later++
		default:
			left++
		}
	}
	if stats.Lag != nil && stats.Pending+*stats.Lag != left || stats.Delayed != later || stats.Paused != m.paused {
		m.Errorf("pending %d, lag %s, delayed %d, paused %v; want %d together, %d and %v", stats.Pending, number(stats.Lag), stats.Delayed, stats.Paused, left, later, m.paused)
	}
	if stats.DeadLetters != nil && *stats.DeadLetters != int64(len(m.letters)) {
		m.Errorf("%d dead letters, want %d", *stats.DeadLetters, len(m.letters))
	}
}

// checkLetters compares the dead letters, and sends one back or removes it.
func (m *model) checkLetters() {
	b := m.handles[m.any()]
	list, can := m.fixture.letters(b, "")
	if !can {
		return
	}
	if len(list) != len(m.letters) {
		m.Fatalf("%d letters, want %d", len(list), len(m.letters))
	}
	if len(list) == 0 {
		return
	}
	for _, l := range list {
		e := m.of(l.Headers)
		m.compare(e, l.Data, l.Headers, "letter")
		if l.Reason != e.reason || l.Attempts != e.attempts || l.Redrives != e.redrives || l.Reason == backend.ReasonPoison && l.Error != e.error {
			m.Errorf("letter %+v, want %s after %d deliveries, %q", l, e.reason, e.attempts, e.error)
		}
	}
	l := list[m.random.IntN(len(list))]
	e := m.of(l.Headers)
	shelf := b.(backend.DeadLetters)
	if m.letters = slices.DeleteFunc(m.letters, func(o *entry) bool { return o == e }); m.random.IntN(3) == 0 {
		ids := []string{l.ID}
		for _, o := range list {
			if o.ID != l.ID && m.random.IntN(3) == 0 {
				gone := m.of(o.Headers)
				ids, m.letters = append(ids, o.ID), slices.DeleteFunc(m.letters, func(o *entry) bool { return o == gone })
			}
		}
		m.random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		m.step("purge of %v", ids)
		if n, err := shelf.Purge(m.ctx(), "", ids); n != len(ids) || err != nil {
			m.Errorf("purge of %d: %d, %v", len(ids), n, err)
		}
		return
	}
	if err := shelf.Redrive(m.ctx(), "", l); err != nil {
		m.Errorf("redrive: %v", err)
	}
	m.step("redrive of %s", l.Headers["n"])
	m.number++
	e.over, e.number, e.inOrder, e.free, e.attempts, e.error = false, m.number, true, time.Now(), 0, ""
	e.redrives++
	e.Deadline = time.Time{}
}

// pause pauses the group, or resumes it. Of other handles that is true a while later.
func (m *model) pause() {
	if _, can := m.handles[0].(backend.Pauser); can {
		m.paused = !m.paused
		m.step("paused %v", m.paused)
		m.fixture.pause(m.handles[m.any()], m.paused)
		time.Sleep(pauseReach)
	}
}

// finish finishes all that is left.
func (m *model) finish() {
	if m.paused {
		m.pause()
	}
	for start := time.Now(); slices.ContainsFunc(m.entries, func(e *entry) bool { return !e.over }); {
		for _, e := range m.entries {
			if e.held == nil {
				continue
			}
			lost, err := m.handles[e.handle].Ack(m.ctx(), []backend.Lease{e.held.Lease})
			if err != nil || len(lost) > 0 && e.free.After(time.Now()) {
				m.Errorf("ack of %+v: lost %v, %v", e.held.Lease, lost, err)
			}
			e.over = len(lost) == 0
			m.end(e)
		}
		req := request("long", 100)
		if m.claim(req); m.stalled {
			return
		}
		if m.Failed() || time.Since(start) > m.patience() {
			m.Fatalf("not all was done in %s; what was done:\n%s", time.Since(start), m.steps)
		}
	}
	m.done(m.handles[0])
	m.checkLetters()
}
