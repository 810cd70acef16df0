package weir

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/backend"
)

// Bounds of what is gathered. More than a quarter of either is appended on its own: it
// would gain nothing, and make others wait.
const (
	maxGathered      = 512
	maxGatheredBytes = 256 << 10
)

const (
	// gatherStalled is how long all appends may be under way without an end before
	// another one may begin: one that hangs must not hold up everything behind it.
	gatherStalled = time.Second
	// lastMoment is how long a publish whose context has ended waits for the answer to
	// what is under way.
	lastMoment = 20 * time.Millisecond
)

// gatherer makes one append of what concurrent publishes of a producer have to store, as
// the log does with commits. There is no timer: a publish that comes while there is a
// free slot is appended at once, on its own goroutine and under its own context; what
// comes while all slots are taken waits, and goes together as soon as one is free.
//
//	              free slot
//	publish ─────────────────────────> backend.Append      slots: as many as
//	   │                                    │ ends         the backend asks for
//	   │ none                               v
//	   └────────> waiting ── all ──> flush: backend.Append, again until nothing waits
//
// Each publish keeps its context and its outcome. If it ends while it waits, it is taken
// out and nothing is stored. If it ends while its append is under way, the publish leaves
// with an unknown outcome; the append goes on for the others, and is cancelled once all
// have left. So an append has messages of its own: see parcel.copy.
type gatherer struct {
	backend backend.Backend
	how     backend.Gathering
	landed  func(took int64) // room of a publish that left is free again

	mu      sync.Mutex
	under   int       // appends under way that have a slot
	moved   time.Time // when the last slot was taken, or the last append ended since then
	waiting []*parcel
	flushes int // goroutines
	closed  bool
	quiet   sync.Cond // nothing waits and no goroutine is left

	parcels sync.Pool
}

// parcel is what one publish gives to a common append.
type parcel struct {
	ctx   context.Context
	msgs  []Message // copies
	data  []byte    // of all of them
	bytes int       // of all that they have
	keyed bool
	took  int64 // of the room below the limits, once the publish has left
	with  *joint
	state atomic.Int32

	done    chan struct{} // one element, once results and err are there
	results []backend.Appended
	err     error
}

const (
	parcelOpen int32 = iota
	parcelSettled
	parcelLeft // the publish waits no longer
)

// joint is an append for several publishes.
type joint struct {
	ctx        context.Context // ends when all publishes have left
	cancel     context.CancelFunc
	interested atomic.Int64 // publishes that have not left
}

var (
	errAlone = errors.New("append it alone")  // the refusal may be due to another message
	errAgain = errors.New("look at it again") // its deadline passed while it waited
)

// newGatherer returns nil if the backend does not ask for it.
func newGatherer(b backend.Backend, landed func(int64)) *gatherer {
	asks, ok := b.(backend.Gatherer)
	if !ok {
		return nil
	}
	g := &gatherer{backend: b, how: asks.Gathering(), landed: landed}
	if g.how.Appends < 1 {
		return nil
	}
	g.quiet.L = &g.mu
	g.parcels.New = func() any { return &parcel{done: make(chan struct{}, 1)} }
	return g
}

// append is backend.Append for a publish that has taken room. If the publish leaves while
// its messages are under way, that room is given back later, and took is 0.
func (g *gatherer) append(ctx context.Context, msgs []Message, took *int64) ([]backend.Appended, error) {
	keyed, bytes, fits := g.fits(msgs)
	if !fits {
		return g.backend.Append(ctx, msgs)
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return g.backend.Append(ctx, msgs)
	}
	if len(g.waiting) == 0 && g.free() {
		g.take()
		g.mu.Unlock()
		defer g.next()
		return g.backend.Append(ctx, msgs)
	}
	p := g.parcels.Get().(*parcel)
	p.ctx, p.keyed, p.bytes = ctx, keyed, bytes
	p.copy(msgs)
	g.waiting = append(g.waiting, p)
	if g.free() {
		g.take()
		g.start()
	}
	g.mu.Unlock()
	return g.wait(p, msgs, took)
}

// wait waits for the outcome of a parcel, or leaves it.
func (g *gatherer) wait(p *parcel, msgs []Message, took *int64) ([]backend.Appended, error) {
	select {
	case <-p.done:
	case <-p.ctx.Done():
		switch {
		case g.withdraw(p):
			return nil, notSent(p.ctx.Err())
		case p.with == nil:
			<-p.done // it is sent under the same context
		case g.leave(p, took):
			return nil, fmt.Errorf("%w: %w", ErrOutcomeUnknown, whyEnded(p.ctx))
		}
	}
	ctx, results, err := p.ctx, p.results, p.err
	g.recycle(p)
	if err == errAlone {
		return g.backend.Append(ctx, msgs)
	}
	return results, err
}

// withdraw takes out a parcel that is not sent yet.
func (g *gatherer) withdraw(p *parcel) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, p)
	if i < 0 {
		return false
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	g.quiet.Broadcast()
	return true
}

// leave ends the wait for a parcel that is under way with others. It returns false if its
// outcome is there after all; p.done has been received then.
func (g *gatherer) leave(p *parcel, took *int64) bool {
	timer := time.NewTimer(lastMoment)
	defer timer.Stop()
	select {
	case <-p.done:
		return false
	case <-timer.C:
	}
	p.took = *took
	if !p.state.CompareAndSwap(parcelOpen, parcelLeft) {
		<-p.done
		return false
	}
	*took = 0
	if p.with.interested.Add(-1) == 0 {
		p.with.cancel()
	}
	return true
}

func (g *gatherer) recycle(p *parcel) {
	clear(p.msgs)
	p.ctx, p.with, p.results, p.err, p.took = nil, nil, nil, nil, 0
	p.state.Store(parcelOpen)
	g.parcels.Put(p)
}

// close waits until nothing is gathered any more. What comes later is appended on its own.
func (g *gatherer) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for len(g.waiting) > 0 || g.flushes > 0 {
		g.quiet.Wait()
	}
}

// fits reports whether messages may be gathered, whether they have keys, and how large they are.
func (g *gatherer) fits(msgs []Message) (keyed bool, bytes int, fits bool) {
	if len(msgs) > maxGathered/4 {
		return false, 0, false
	}
	for i := range msgs {
		m := &msgs[i]
		has := m.IdempotencyKey != ""
		if i > 0 && has != keyed || has && !g.how.Keyed {
			return false, 0, false
		}
		keyed = has
		bytes += sizeOf(m)
	}
	return keyed, bytes, bytes <= maxGatheredBytes/4
}

func sizeOf(m *Message) int {
	n := len(m.Data) + len(m.FairKey) + len(m.IdempotencyKey)
	for name, value := range m.Headers {
		n += len(name) + len(value)
	}
	return n
}

// copy makes the parcel independent of the publish, which may return before its messages
// are sent.
func (p *parcel) copy(msgs []Message) {
	p.msgs, p.data = append(p.msgs[:0], msgs...), p.data[:0]
	for i := range msgs {
		p.data = append(p.data, msgs[i].Data...)
	}
	rest := p.data
	for i := range p.msgs {
		m := &p.msgs[i]
		n := len(m.Data)
		m.Data, rest = rest[:n:n], rest[n:]
		m.Headers = maps.Clone(m.Headers)
	}
}

// free reports whether an append may begin. It needs mu, as all that follow do.
func (g *gatherer) free() bool {
	return g.under < g.how.Appends || time.Since(g.moved) > gatherStalled
}

// take takes a slot.
func (g *gatherer) take() {
	if g.under++; g.under >= g.how.Appends {
		g.moved = time.Now()
	}
}

func (g *gatherer) start() {
	g.flushes++
	go g.flush()
}

// next is called when an append on a publish's own goroutine is over.
func (g *gatherer) next() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended(); len(g.waiting) == 0 {
		g.under--
		return
	}
	g.start()
}

func (g *gatherer) ended() {
	if g.under >= g.how.Appends {
		g.moved = time.Now()
	}
}

// flush appends what waits until nothing does.
func (g *gatherer) flush() {
	var all []Message
	for {
		g.mu.Lock()
		some := g.pick()
		if len(some) == 0 {
			g.under--
			g.flushes--
			g.quiet.Broadcast()
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		all = g.send(some, all[:0])
		runtime.Gosched() // those that it woke may have more
		g.mu.Lock()
		g.ended()
		g.mu.Unlock()
	}
}

// pick takes what goes together from what waits: the first, and those behind it that are
// like it, up to the bounds.
func (g *gatherer) pick() (some []*parcel) {
	n, bytes := 0, 0
	rest := g.waiting[:0]
	for i, p := range g.waiting {
		switch err := p.unsendable(); {
		case err != nil:
			p.settle(nil, err)
			continue
		case len(some) > 0 && p.keyed != some[0].keyed:
			rest = append(rest, p)
			continue
		}
		n += len(p.msgs)
		bytes += p.bytes
		if n > maxGathered || bytes > maxGatheredBytes {
			rest = append(rest, g.waiting[i:]...)
			break
		}
		some = append(some, p)
	}
	clear(g.waiting[len(rest):])
	g.waiting = rest
	if len(some) > 1 {
		j := &joint{}
		j.ctx, j.cancel = context.WithCancel(context.Background())
		j.interested.Store(int64(len(some)))
		for _, p := range some {
			p.with = j
		}
	}
	return some
}

// unsendable is why nothing of a parcel may be sent any more.
func (p *parcel) unsendable() error {
	if err := p.ctx.Err(); err != nil {
		return notSent(err)
	}
	for i := range p.msgs {
		if isLate(&p.msgs[i]) {
			return errAgain
		}
	}
	return nil
}

// whyEnded is the error of a context that has ended, and its cause if that is another one.
func whyEnded(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) || cause == errSilent {
		return cause
	}
	return fmt.Errorf("%w: %w", cause, err)
}

func notSent(err error) error { return fmt.Errorf("not sent: %w", err) }

// send appends parcels; all is room for their messages.
func (g *gatherer) send(some []*parcel, all []Message) []Message {
	if len(some) == 1 {
		p := some[0]
		p.settle(g.backend.Append(p.ctx, p.msgs))
		return all
	}
	with := some[0].with
	defer with.cancel()
	for _, p := range some {
		all = append(all, p.msgs...)
	}
	results, err := g.backend.Append(with.ctx, all)
	g.share(some, results, err, len(all))
	clear(all)
	return all
}

// share tells each parcel what became of its messages.
func (g *gatherer) share(some []*parcel, results []backend.Appended, err error, n int) {
	alone, each := g.how.Joint && refused(err), len(results) == n
	for _, p := range some {
		var mine []backend.Appended
		of := err
		if each {
			mine, results = results[:len(p.msgs)], results[len(p.msgs):]
			of = firstOf(mine)
		}
		if alone && of != nil && !errors.Is(of, ErrOutcomeUnknown) {
			mine, of = nil, errAlone
		}
		if !p.settle(mine, of) {
			g.landed(p.took)
		}
	}
}

// refused reports whether the backend has refused something of an append, as opposed to
// being away.
func refused(err error) bool {
	return err != nil && !errors.Is(err, ErrOutcomeUnknown) && !errors.Is(err, ErrUnavailable) && !errors.Is(err, context.Canceled)
}

func firstOf(results []backend.Appended) error {
	for i := range results {
		if results[i].Err != nil {
			return results[i].Err
		}
	}
	return nil
}

// settle ends a parcel. It returns false if the publish has left.
func (p *parcel) settle(results []backend.Appended, err error) bool {
	if p.state.Load() == parcelOpen {
		p.results, p.err = results, err
		if p.state.CompareAndSwap(parcelOpen, parcelSettled) {
			p.done <- struct{}{}
			return true
		}
	}
	return false
}
