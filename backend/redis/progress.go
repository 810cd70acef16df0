package redis

import "sync"

// maxReturned bounds each of the two generations of returned deliveries that are
// remembered: others may finish them without this process being told.
const maxReturned = 10_000

// progress remembers how far this process got, so that a group which somebody
// destroyed can be made again there.
type progress struct {
	mu struct {
		sync.Mutex
		held            map[string]struct{} // delivered, not settled
		returned, older map[string]struct{} // given back, to be done by anybody
		acked           id                  // the highest acknowledged
	}
}

// took notes a delivery.
func (p *progress) took(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.held == nil {
		p.mu.held = map[string]struct{}{}
	}
	p.mu.held[text] = struct{}{}
}

// gaveBack notes a delivery that this process does not hold any more, undone.
func (p *progress) gaveBack(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.held, text)
	if p.mu.returned == nil || len(p.mu.returned) >= maxReturned {
		p.mu.older, p.mu.returned = p.mu.returned, map[string]struct{}{}
	}
	p.mu.returned[text] = struct{}{}
}

// finished notes a delivery that is done.
func (p *progress) finished(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.held, text)
	delete(p.mu.returned, text)
	delete(p.mu.older, text)
	if v, err := parseID(text); err == nil && p.mu.acked.less(v) {
		p.mu.acked = v
	}
}

// forgot notes a delivery that is somebody else's.
func (p *progress) forgot(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.held, text)
}

// position returns the ID behind which a new group has to start to deliver
// everything that this process has not acknowledged.
func (p *progress) position() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	start := p.mu.acked
	for _, open := range []map[string]struct{}{p.mu.held, p.mu.returned, p.mu.older} {
		for text := range open {
			if v, err := parseID(text); err == nil && !start.less(v) {
				start = v.previous()
			}
		}
	}
	if start == (id{}) {
		return "0"
	}
	return start.String()
}
