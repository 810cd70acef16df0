package redis

import (
	"slices"
	"sync"
	"time"

	"github.com/weirmq/weir/backend"
)

// maxReturned bounds each of the two remembered generations of returned deliveries:
// others may finish them without this process learning of it.
const maxReturned = 10_000

// heldLeases is after how many leases without a sign of life a delivery is assumed to
// be someone else's: no one is told of leases that simply expire.
const heldLeases = 4

// progress remembers how far this process got, so that a group someone destroyed can be
// created again at that point.
type progress struct {
	mu struct {
		sync.Mutex
		held            map[string]holding  // delivered, not settled
		swept           time.Time           // when held was last looked through
		returned, older map[string]struct{} // given back, for anyone to do
		acked           id                  // the highest acknowledged
		seen            id                  // the highest delivered
	}
}

// holding says since when this process has had a delivery, and when it last said so. A
// time.Time has a pointer, which the garbage collector would follow for each.
type holding struct{ since, seen time.Duration }

var began = time.Now()

// stamp is a time as a holding has it.
func stamp(t time.Time) time.Duration { return t.Sub(began) }

// took notes deliveries, the highest ID last, and returns those that this process has already.
func (p *progress) took(deliveries ...*backend.Delivery) (again []*backend.Delivery) {
	if len(deliveries) == 0 {
		return nil
	}
	last, err := parseID(deliveries[len(deliveries)-1].ID)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.held == nil {
		p.mu.held = map[string]holding{}
	}
	for _, d := range deliveries {
		since := stamp(d.Since)
		before := len(p.mu.held)
		if p.mu.held[d.ID] = (holding{since, since}); len(p.mu.held) == before {
			again = append(again, d)
		}
	}
	if err == nil && p.mu.seen.less(last) {
		p.mu.seen = last
	}
	return again
}

// restart forgets everything: the group begins behind an ID, in a stream that may be a
// different one.
func (p *progress) restart(behind string) {
	begin, _ := parseID(behind) // the server's
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.held, p.mu.returned, p.mu.older = nil, nil, nil
	p.mu.acked, p.mu.seen = begin, begin
}

// reached notes that the group has got as far as an ID.
func (p *progress) reached(v id) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.seen.less(v) {
		p.mu.seen = v
	}
}

// newest returns the highest ID that was delivered, as far as this process knows.
func (p *progress) newest() id {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.seen
}

// holds reports whether this process has a delivery that it has not settled.
func (p *progress) holds(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.mu.held[text]
	return ok
}

// extended notes that this process keeps a delivery.
func (p *progress) extended(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h, ok := p.mu.held[text]; ok {
		p.mu.held[text] = holding{h.since, stamp(time.Now())}
	}
}

// again reports whether this process received the delivery once more after since.
func (p *progress) again(text string, since time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, ok := p.mu.held[text]
	return ok && h.since > stamp(since)
}

// expire drops deliveries that have not been mentioned for several leases.
func (p *progress) expire(now time.Time, lease time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.mu.swept) < lease {
		return
	}
	p.mu.swept = now
	for text, h := range p.mu.held {
		if stamp(now)-h.seen > heldLeases*lease {
			delete(p.mu.held, text)
		}
	}
}

// gaveBack notes an unfinished delivery of since that this process no longer holds. By the
// time that it is noted, another claim of this process may have taken it again.
func (p *progress) gaveBack(text string, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(text, since)
	if p.mu.returned == nil || len(p.mu.returned) >= maxReturned {
		p.mu.older, p.mu.returned = p.mu.returned, map[string]struct{}{}
	}
	p.mu.returned[text] = struct{}{}
}

// acknowledged notes deliveries that are done, except for the lost ones.
func (p *progress) acknowledged(leases []backend.Lease, lost []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range leases {
		if slices.Contains(lost, l.ID) {
			p.drop(l.ID, l.Since)
		} else {
			p.finish(l.ID)
		}
	}
}

// finished notes a delivery that is done.
func (p *progress) finished(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finish(text)
}

// finish is finished; the lock is held.
func (p *progress) finish(text string) {
	delete(p.mu.held, text)
	delete(p.mu.returned, text)
	delete(p.mu.older, text)
	if v, err := parseID(text); err == nil && p.mu.acked.less(v) {
		p.mu.acked = v
	}
}

// forgot notes a delivery of since that is someone else's, or a later one of this process.
func (p *progress) forgot(text string, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(text, since)
}

// drop forgets a delivery, but no later one. The lock is held.
func (p *progress) drop(text string, since time.Time) {
	if p.mu.held[text].since <= stamp(since) {
		delete(p.mu.held, text)
	}
}

// position returns the ID after which a new group has to start to deliver everything
// this process has not acknowledged, and the newest ID it has seen.
func (p *progress) position() (behind, seen string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	start := p.mu.acked
	notDone := func(text string) {
		if v, err := parseID(text); err == nil && !start.less(v) {
			start = v.previous()
		}
	}
	for text := range p.mu.held {
		notDone(text)
	}
	for _, returned := range []map[string]struct{}{p.mu.returned, p.mu.older} {
		for text := range returned {
			notDone(text)
		}
	}
	if start == (id{}) {
		return "0", p.mu.seen.String()
	}
	return start.String(), p.mu.seen.String()
}
