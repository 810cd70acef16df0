package shard_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/backend/shard"
	"github.com/weirmq/weir/tests/bubble"
)

// cellar is a set of shards in memory whose number is recorded.
type cellar struct {
	mu     sync.Mutex
	fakes  []*backendtest.Fake
	number backend.Shards
	failed error // why the number is not known
}

// fail makes the number unknown; nil makes it known again.
func (c *cellar) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
}

// keeper is a handle on a shard that also records the number.
type keeper struct {
	*backendtest.Fake
	cellar *cellar
}

func (k keeper) Shards(_ context.Context, least int) (backend.Shards, error) {
	k.cellar.mu.Lock()
	defer k.cellar.mu.Unlock()
	if err := k.cellar.failed; err != nil {
		return backend.Shards{}, err
	}
	n := &k.cellar.number
	if least > n.Now {
		n.Now = least
		if n.First == 0 {
			n.First = least
		}
	}
	return *n, nil
}

// open opens a handle on all of them.
func (c *cellar) open(t *testing.T, shards int) backend.Backend {
	t.Helper()
	return c.openWith(t, shards, func(int, *backendtest.Fake) {})
}

// openWith is open for a handle on each of whose shards prepare is called.
func (c *cellar) openWith(t *testing.T, shards int, prepare func(number int, f *backendtest.Fake)) backend.Backend {
	t.Helper()
	b, err := shard.Open(t.Context(), shard.Options{Name: "jobs", Shards: shards, Open: func(_ context.Context, number int) (backend.Backend, error) {
		f := c.fake(number).Again()
		prepare(number, f)
		return keeper{f, c}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func (c *cellar) fake(number int) *backendtest.Fake {
	c.mu.Lock()
	defer c.mu.Unlock()
	for number >= len(c.fakes) {
		c.fakes = append(c.fakes, backendtest.NewFake(backendtest.FakeOptions{Stream: fmt.Sprintf("jobs.%d", len(c.fakes))}))
	}
	return c.fakes[number]
}

// entry is what a plain queue would know about a message.
type entry struct {
	data    string
	attempt int
	lease   backend.Lease
	free    time.Time // when it may be claimed
	dead    bool
}

// model is one plain queue, and the sharded one that has to do the same.
type model struct {
	*testing.T
	cellar  *cellar
	b       backend.Backend   // one of handles
	handles []backend.Backend // opened with more shards each
	random  *rand.Rand
	entries map[string]*entry // unfinished, by ID
	keys    map[string]string
	next    int
	shards  int
}

const modelLease = time.Minute

// Whatever is done to a sharded stream, also while it grows, it does what one queue
// would do, except for the order.
func TestShardsDoWhatOneQueueDoes(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				c := &cellar{}
				m := &model{
					T: t, cellar: c, handles: []backend.Backend{c.open(t, 2)}, random: rand.New(rand.NewPCG(seed, 1)),
					entries: map[string]*entry{}, keys: map[string]string{}, shards: 2,
				}
				for range 400 {
					m.b = m.handles[m.random.IntN(len(m.handles))]
					m.step()
				}
				m.drain()
			})
		})
	}
}

func (m *model) step() {
	switch n := m.random.IntN(100); {
	case n < 30:
		m.append()
	case n < 60:
		m.claim(1 + m.random.IntN(8))
	case n < 75:
		m.settle()
	case n < 80:
		m.letters()
	case n < 90:
		time.Sleep(time.Duration(m.random.IntN(int(modelLease / 2))))
	case n < 92 && m.shards < 7:
		m.shards++
		m.b = m.cellar.open(m.T, m.shards)
		m.handles = append(m.handles, m.b)
		m.append() // which makes it grow
		time.Sleep(time.Second)
	default:
		m.numbers()
	}
}

func (m *model) append() {
	msgs := make([]backend.Message, 1+m.random.IntN(4))
	for i := range msgs {
		m.next++
		msgs[i].Data = fmt.Appendf(nil, "message %d", m.next)
		if m.random.IntN(2) == 0 {
			msgs[i].IdempotencyKey = fmt.Sprintf("key %d", m.random.IntN(50))
		}
	}
	out, err := m.b.Append(m.Context(), msgs)
	if err != nil || len(out) != len(msgs) {
		m.Fatalf("append: %v, %v", out, err)
	}
	for i, a := range out {
		key := msgs[i].IdempotencyKey
		if before, known := m.keys[key]; known && key != "" {
			if !a.Deduped || a.ID != before {
				m.Fatalf("%s was stored as %s, its repeat says %+v", key, before, a)
			}
			continue
		}
		if a.Deduped || m.entries[a.ID] != nil {
			m.Fatalf("a new message is %+v", a)
		}
		m.entries[a.ID] = &entry{data: string(msgs[i].Data)}
		if key != "" {
			m.keys[key] = a.ID
		}
	}
}

// claimable are the IDs of what can be claimed now.
func (m *model) claimable() (ids []string) {
	for id, e := range m.entries {
		if !e.dead && !e.free.After(time.Now()) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (m *model) claim(most int) (n int) {
	want := m.claimable()
	got, err := m.b.Claim(m.Context(), backend.ClaimRequest{Consumer: fmt.Sprint(m.random.IntN(3)), Max: most, ReclaimAfter: modelLease})
	if err != nil || len(got.Deliveries) != min(most, len(want)) || len(got.Dead)+len(got.Lost) > 0 {
		m.Fatalf("a claim of %d of %d gave %d, dead %v, lost %v, %v", most, len(want), len(got.Deliveries), got.Dead, got.Lost, err)
	}
	for i, d := range got.Deliveries {
		e := m.entries[d.ID]
		if !slices.Contains(want, d.ID) || string(d.Data) != e.data || d.Attempt != e.attempt+1 || (i < got.Reclaimed) != (d.Attempt > 1) {
			m.Fatalf("claimed %+v, known is %+v", d, e)
		}
		e.attempt, e.lease, e.free = d.Attempt, d.Lease, time.Now().Add(modelLease)
	}
	return len(got.Deliveries)
}

// settle does one thing with several messages that are held.
func (m *model) settle() {
	var leases []backend.Lease
	for _, e := range m.entries {
		if !e.dead && e.lease.ID != "" && e.free.After(time.Now()) && len(leases) < 5 {
			leases = append(leases, e.lease)
		}
	}
	if len(leases) == 0 {
		return
	}
	var lost []string
	var err error
	switch m.random.IntN(4) {
	case 0:
		if lost, err = m.b.Extend(m.Context(), leases, modelLease); err == nil {
			m.each(leases, func(e *entry) { e.free = time.Now().Add(modelLease) })
		}
	case 1:
		var returns []backend.Return
		for _, l := range leases {
			returns = append(returns, backend.Return{Lease: l, Delay: time.Second})
		}
		if lost, err = m.b.Nack(m.Context(), returns); err == nil {
			m.each(leases, func(e *entry) { e.free, e.lease = time.Now().Add(time.Second), backend.Lease{} })
		}
	case 2:
		d := &backend.Delivery{Lease: leases[0]}
		if err = m.b.DeadLetter(m.Context(), d, "", backend.Cause{Reason: backend.ReasonPoison}); err == nil {
			m.entries[d.ID].dead = true
		}
	default:
		if lost, err = m.b.Ack(m.Context(), leases); err == nil {
			for _, l := range leases {
				delete(m.entries, l.ID)
			}
		}
	}
	if err != nil || len(lost) > 0 {
		m.Fatalf("settled %v: lost %v, %v", leases, lost, err)
	}
}

func (m *model) each(leases []backend.Lease, do func(*entry)) {
	for _, l := range leases {
		do(m.entries[l.ID])
	}
}

// letters sends the dead letters back, page by page.
func (m *model) letters() {
	shelf := m.b.(backend.DeadLetters)
	after, all := "", map[string]bool{}
	for {
		list, err := shelf.List(m.Context(), "", after, 2)
		if err != nil || len(list) > 2 {
			m.Fatalf("letters after %q: %+v, %v", after, list, err)
		}
		if len(list) == 0 {
			break
		}
		for _, l := range list {
			if e := m.entries[l.OriginID]; all[l.OriginID] || e == nil || !e.dead || e.data != string(l.Data) || l.Stream != "jobs" {
				m.Fatalf("letter %+v of %+v", l, e)
			}
			all[l.OriginID] = true
		}
		after = list[len(list)-1].ID
	}
	for id, e := range m.entries {
		if e.dead && !all[id] {
			m.Fatalf("no letter of %s", id)
		}
	}
	if list, _ := shelf.List(m.Context(), "", "", 1); len(list) > 0 {
		n, err := shelf.Purge(m.Context(), "", []string{list[0].ID})
		if n != 1 || err != nil {
			m.Fatalf("purge: %d, %v", n, err)
		}
		delete(m.entries, list[0].OriginID)
	}
}

// numbers compares the reading.
func (m *model) numbers() {
	held, waiting, dead := int64(0), int64(0), int64(0)
	for _, e := range m.entries {
		switch {
		case e.dead:
			dead++
		case e.attempt > 0:
			held++
		default:
			waiting++
		}
	}
	stats, err := m.b.Stats(m.Context())
	if err != nil || stats.Pending != held || *stats.Lag != waiting || *stats.DeadLetters != dead {
		m.Fatalf("stats %+v (lag %d, dead %d), %v; want %d held, %d waiting, %d dead", stats, *stats.Lag, *stats.DeadLetters, err, held, waiting, dead)
	}
	sig, err := m.b.(backend.Signaler).Signal(m.Context(), 1000)
	if err != nil || sig.Pending != held || *sig.Lag != waiting {
		m.Fatalf("signal %+v, %v; want %d held, %d waiting", sig, err, held, waiting)
	}
}

// drain finishes everything with the handle that was opened first.
func (m *model) drain() {
	m.b = m.handles[0]
	for {
		time.Sleep(2 * modelLease)
		n := m.claim(1000)
		if n == 0 {
			return
		}
		for id, e := range m.entries {
			if e.dead {
				continue
			}
			if lost, err := m.b.Ack(m.Context(), []backend.Lease{e.lease}); err != nil || len(lost) > 0 {
				m.Fatalf("ack of %s: %v, %v", id, lost, err)
			}
			delete(m.entries, id)
		}
	}
}

// A claim that waits is given no more than it wants, though orphans of several shards are
// free at the same time; the next one gets the others.
func TestAClaimThatWaitsGetsNoMoreThanItWants(t *testing.T) {
	bubble.Run(t, claimsThatWaitGetNoMoreThanTheyWant)
}

func claimsThatWaitGetNoMoreThanTheyWant(t *testing.T) {
	b := openURL(t, "mem://most?shards=4")
	defer b.Close()
	const n = 40
	for range n {
		if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(most, want, attempt int, block, lease time.Duration) (leases []backend.Lease) {
		t.Helper()
		got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "w", Max: most, Block: block, ReclaimAfter: lease})
		if err != nil || len(got.Deliveries) != want || attempt > 1 && got.Reclaimed != want {
			t.Fatalf("a claim of %d gave %d, %d reclaimed, %v", most, len(got.Deliveries), got.Reclaimed, err)
		}
		for _, d := range got.Deliveries {
			if d.Attempt != attempt {
				t.Fatalf("%s came with attempt %d instead of %d", d.ID, d.Attempt, attempt)
			}
			leases = append(leases, d.Lease)
		}
		return leases
	}
	held := claim(n, n, 1, 0, time.Minute)
	for attempt := 2; attempt < 10; attempt++ {
		if lost, err := b.Extend(t.Context(), held, 150*time.Millisecond); err != nil || len(lost) > 0 {
			t.Fatalf("extend: lost %v, %v", lost, err)
		}
		held = claim(1, 1, attempt, 5*time.Second, time.Minute)
		time.Sleep(50 * time.Millisecond) // of the other shards, too, the leases are over
		held = append(held, claim(n, n-1, attempt, 0, time.Minute)...)
	}
}
