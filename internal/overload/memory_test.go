package overload

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weirmq/weir/backend"
)

// memory is a stream and its group for a bubble of synctest: no I/O, quick with a
// million messages. It reports the workers' load to producers as Redis does. With
// byTier it hands out the highest priority first, as the embedded engine does.
type memory struct {
	byTier bool
	// delay is how old the load is that producers are told.
	delay time.Duration
	// room is how many messages may wait before one of a tier is refused at once; nil
	// refuses none. It is a guard in the backend, as good as one can be that knows the
	// backlog as it is.
	room map[backend.Priority]int

	mu      sync.Mutex
	wake    chan struct{} // closed when a message comes while somebody waits
	sleeper bool          // somebody waits
	next    int
	waiting [6]fifo // by priority; all in the first one unless byTier
	count   int     // in all of them
	tops    int     // of the highest priority, since the last lower one while some waited
	pending map[string]*held
	workers *int64 // what the workers published
	ends    time.Time
	history []told
	gone    int64     // messages that were finished
	sums    []uint32  // what all producers were offered
	stands  time.Time // until then nothing is answered
}

// halt has the backend stand still.
func (b *memory) halt(_ context.Context, d time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stands = time.Now().Add(d)
	return nil
}

// pass waits until the backend does not stand still.
func (b *memory) pass(ctx context.Context) error {
	b.mu.Lock()
	until := b.stands
	b.mu.Unlock()
	if d := time.Until(until); d > 0 {
		return sleep(ctx, d)
	}
	return nil
}

// told is the load as it was at a time.
type told struct {
	at  time.Time
	sig backend.Signal
}

type entry struct {
	n    int
	id   string
	m    backend.Message
	when time.Time
}

// held is a message that a worker has, or had.
type held struct {
	entry
	attempt  int
	consumer string
	free     time.Time // when anybody may claim it
}

// fifo is a queue whose pops cost the same however long it is.
type fifo struct {
	in    []entry
	begun int
}

func (q *fifo) push(e entry) { q.in = append(q.in, e) }

func (q *fifo) pop() (e entry, ok bool) {
	if q.begun == len(q.in) {
		return entry{}, false
	}
	e, q.in[q.begun] = q.in[q.begun], entry{}
	if q.begun++; q.begun > 1000 && q.begun > len(q.in)/2 {
		q.in, q.begun = slices.Clone(q.in[q.begun:]), 0
	}
	return e, true
}

func (q *fifo) first() *entry {
	if q.begun == len(q.in) {
		return nil
	}
	return &q.in[q.begun]
}

func newMemory() *memory {
	return &memory{wake: make(chan struct{}), pending: map[string]*held{}}
}

func (b *memory) Info() backend.Info {
	kind := "memory"
	if b.byTier {
		kind = "embedded" // is judged as that
	}
	return backend.Info{Kind: kind, Stream: "twin", Group: "weir", DeadLetter: "twin.dlq", Durability: "ephemeral", Server: "memory"}
}

// Close does nothing: all handles are one.
func (b *memory) Close() error { return nil }

func (b *memory) Append(ctx context.Context, msgs []backend.Message) ([]backend.Appended, error) {
	if err := b.pass(ctx); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if most, bounded := b.room[msgs[0].Priority]; bounded && b.count >= most {
		return nil, &backend.FullError{Reason: backend.ReasonLoadShedding, RetryAfter: 50 * time.Millisecond, Err: errors.New("no room")}
	}
	all := make([]backend.Appended, len(msgs))
	for i, m := range msgs {
		b.next++
		e := entry{n: b.next, id: strconv.Itoa(b.next), m: m, when: time.Now()}
		line := 0
		if b.byTier {
			line = int(backend.Critical - m.Priority)
		}
		b.waiting[line].push(e)
		b.count++
		all[i].ID = e.id
	}
	b.rouse()
	return all, nil
}

// rouse wakes who waits for a message; the lock is held.
func (b *memory) rouse() {
	if b.sleeper {
		b.sleeper = false
		close(b.wake)
		b.wake = make(chan struct{})
	}
}

func (b *memory) Claim(ctx context.Context, req backend.ClaimRequest) (backend.Claimed, error) {
	end := time.NewTimer(req.Block)
	defer end.Stop()
	for {
		if err := b.pass(ctx); err != nil {
			return backend.Claimed{}, err
		}
		got, wake := b.claim(req)
		if len(got.Deliveries) > 0 || req.Block <= 0 {
			return got, nil
		}
		select {
		case <-wake:
		case <-end.C:
			return backend.Claimed{}, nil
		case <-ctx.Done():
			return backend.Claimed{}, ctx.Err()
		}
	}
}

func (b *memory) claim(req backend.ClaimRequest) (got backend.Claimed, wake <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, h := range b.pending {
		if len(got.Deliveries) < req.Max && !h.free.After(now) {
			got.Deliveries = append(got.Deliveries, h.hand(req, now))
			got.Reclaimed++
		}
	}
	for len(got.Deliveries) < req.Max {
		e, ok := b.take()
		if !ok {
			break
		}
		h := &held{entry: e}
		b.pending[e.id] = h
		got.Deliveries = append(got.Deliveries, h.hand(req, now))
	}
	b.sleeper = b.sleeper || len(got.Deliveries) == 0
	return got, b.wake
}

// take hands out the highest priority first, but of 50 messages one of a lower one, and
// of 5 one whose age, in messages since, is more than four times that of the highest.
func (b *memory) take() (entry, bool) {
	var top, low *fifo
	for i := range b.waiting {
		switch q := &b.waiting[i]; {
		case q.first() == nil:
		case top == nil:
			top = q
		case low == nil || q.first().n < low.first().n:
			low = q
		}
	}
	if top == nil {
		return entry{}, false
	}
	if low != nil {
		every := 50
		if b.next-low.first().n+1 > 4*(b.next-top.first().n+1) {
			every = 5
		}
		if b.tops++; b.tops >= every {
			top, b.tops = low, 0
		}
	}
	b.count--
	return top.pop()
}

func (h *held) hand(req backend.ClaimRequest, now time.Time) *backend.Delivery {
	h.attempt++
	h.consumer, h.free = req.Consumer, now.Add(req.ReclaimAfter)
	return &backend.Delivery{
		Lease: backend.Lease{ID: h.id, Token: strconv.Itoa(h.attempt), Consumer: h.consumer, Attempt: h.attempt, Since: now},
		Data:  h.m.Data, Enqueued: h.when, Deadline: h.m.Deadline,
	}
}

// settle runs do for the leases that are held and returns the others.
func (b *memory) settle(leases []backend.Lease, do func(i int, h *held)) (lost []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, l := range leases {
		if h := b.pending[l.ID]; h != nil && strconv.Itoa(h.attempt) == l.Token {
			do(i, h)
		} else {
			lost = append(lost, l.ID)
		}
	}
	return lost
}

func (b *memory) Ack(ctx context.Context, leases []backend.Lease) ([]string, error) {
	if err := b.pass(ctx); err != nil {
		return nil, err
	}
	return b.settle(leases, func(_ int, h *held) {
		b.gone++
		delete(b.pending, h.id)
	}), nil
}

func (b *memory) Extend(ctx context.Context, leases []backend.Lease, d time.Duration) ([]string, error) {
	if err := b.pass(ctx); err != nil {
		return nil, err
	}
	return b.settle(leases, func(_ int, h *held) { h.free = time.Now().Add(d) }), nil
}

func (b *memory) Nack(ctx context.Context, returns []backend.Return) ([]string, error) {
	if err := b.pass(ctx); err != nil {
		return nil, err
	}
	leases := make([]backend.Lease, len(returns))
	for i, r := range returns {
		leases[i] = r.Lease
	}
	return b.settle(leases, func(i int, h *held) {
		h.free = time.Now().Add(returns[i].Delay)
		if returns[i].NotStarted {
			h.attempt--
		}
		b.rouse()
	}), nil
}

func (b *memory) DeadLetter(context.Context, *backend.Delivery, string, backend.Cause) error {
	return errors.New("memory: no dead letters")
}

func (b *memory) Stats(ctx context.Context) (backend.Stats, error) {
	if err := b.pass(ctx); err != nil {
		return backend.Stats{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now, lag := time.Now(), int64(b.count)
	s := backend.Stats{At: now, XLen: lag + int64(len(b.pending)), Pending: int64(len(b.pending)), Lag: &lag, OldestSource: backend.AgeNone}
	oldest := now
	for _, h := range b.pending {
		if h.when.Before(oldest) {
			oldest, s.OldestSource = h.when, backend.AgePending
		}
	}
	for i := range b.waiting {
		if e := b.waiting[i].first(); e != nil && e.when.Before(oldest) {
			oldest, s.OldestSource = e.when, backend.AgeBacklog
		}
	}
	s.OldestAge = now.Sub(oldest)
	return s, nil
}

// Signal returns the load as it was delay ago.
func (b *memory) Signal(ctx context.Context, _ int64) (backend.Signal, error) {
	if err := b.pass(ctx); err != nil {
		return backend.Signal{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now, lag := time.Now(), int64(b.count)
	gone := b.gone
	sig := backend.Signal{Pending: int64(len(b.pending)), Lag: &lag, XLen: lag + int64(len(b.pending)), Finished: &gone}
	if b.workers != nil && now.Before(b.ends) {
		n := *b.workers
		sig.Workers = &n
	}
	if b.delay == 0 {
		return sig, nil
	}
	b.history = append(b.history, told{now, sig})
	for len(b.history) > 1 && now.Sub(b.history[1].at) >= b.delay {
		b.history = b.history[1:]
	}
	return b.history[0].sig, nil
}

// Tally adds up what several producers count.
func (b *memory) Tally(ctx context.Context, add []uint32) ([]uint32, *backend.Signal, error) {
	if err := b.pass(ctx); err != nil {
		return nil, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sums == nil {
		b.sums = make([]uint32, len(add))
	}
	for i, n := range add {
		b.sums[i] += n
	}
	return slices.Clone(b.sums), nil, nil
}

func (b *memory) PublishSignal(ctx context.Context, ttl time.Duration) error {
	if err := b.pass(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := int64(len(b.pending))
	b.workers, b.ends = &n, time.Now().Add(ttl)
	return nil
}

var (
	_ backend.Backend  = (*memory)(nil)
	_ backend.Signaler = (*memory)(nil)
	_ backend.Tallier  = (*memory)(nil)
)
