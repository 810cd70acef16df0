package shard

import (
	"context"
	"slices"
	"time"

	"github.com/weirmq/weir/backend"
)

// overdue is how long a shard may take to answer once a claim has enough.
const overdue = 250 * time.Millisecond

// claim is one call of Claim.
type claim struct {
	stream *Stream
	req    backend.ClaimRequest
	got    backend.Claimed
	fresh  []*backend.Delivery // the deliveries that are not reclaimed
	first  error               // the first that went wrong
	failed int                 // how many shards did not answer in the last round
}

// Claim takes what there is, from one shard after the other, each time beginning with
// another one. If there is nothing it waits at all of them, and returns what the first
// has that gets something, and the others by then. Shards that do not answer are left
// out: Claimed.Failed says so, or the error if none answers.
func (s *Stream) Claim(ctx context.Context, req backend.ClaimRequest) (backend.Claimed, error) {
	err := ctx.Err()
	if err == nil {
		err = s.ensure(ctx)
	}
	if err != nil {
		return backend.Claimed{}, err
	}
	c := &claim{stream: s, req: req}
	for end := time.Now().Add(req.Block); ; {
		more, all := s.changed(), s.all()
		asked := up(all)
		c.pass(ctx, asked)
		left := time.Until(end)
		if c.empty() && c.failed < len(asked) && left > 0 && ctx.Err() == nil {
			c.wait(ctx, asked, left, more)
		}
		if c.empty() && time.Until(end) > 0 && ctx.Err() == nil && over(more) && !req.HasEnough() {
			continue // there may be something in a new shard
		}
		return c.result(ctx, all, len(asked))
	}
}

func (c *claim) result(ctx context.Context, all []*part, asked int) (backend.Claimed, error) {
	if c.empty() && c.first != nil && (c.failed == asked || ctx.Err() != nil) {
		return backend.Claimed{}, c.first
	}
	if c.empty() && ctx.Err() != nil {
		return backend.Claimed{}, ctx.Err() // between two shards
	}
	c.got.Deliveries = append(c.got.Deliveries, c.fresh...)
	c.got.Failed = c.first
	for _, p := range all { // also of those that this claim has not asked
		for _, out := range []*outage{p.down.Load(), p.lacks.Load()} {
			if out != nil && c.got.Failed == nil {
				c.got.Failed = p.named(out.err)
			}
		}
	}
	return c.got, nil
}

func (c *claim) empty() bool {
	return len(c.got.Deliveries)+len(c.fresh)+len(c.got.Dead)+len(c.got.Lost) == 0
}

func (c *claim) room() int { return c.req.Max - len(c.got.Deliveries) - len(c.fresh) }

// pass takes what there is without waiting.
func (c *claim) pass(ctx context.Context, from []*part) {
	c.failed = 0
	start := int(c.stream.start.Add(1) % uint64(len(from)))
	for i := range from {
		if c.room() <= 0 || ctx.Err() != nil {
			return
		}
		p := from[(start+i)%len(from)]
		req := c.request(p)
		req.Max, req.Block, req.Enough = c.room(), 0, nil
		call, cancel := ctx, func() {}
		if !c.empty() { // the leases of what it has run already
			call, cancel = context.WithTimeout(ctx, max(overdue, req.ReclaimAfter/10))
		}
		began := time.Now()
		got, err := p.Claim(call, req)
		cancel()
		c.add(ctx, p, began, got, err)
	}
}

// request is what is asked of a shard.
func (c *claim) request(p *part) backend.ClaimRequest {
	req := c.req
	req.DeadLetter = c.stream.shelf(p, req.DeadLetter)
	return req
}

// add adds what a shard answered to a call that began then.
func (c *claim) add(ctx context.Context, p *part, began time.Time, got backend.Claimed, err error) {
	failed := got.Failed
	if err != nil {
		c.failed++
		p.failed(ctx, began, err)
		failed = err
	}
	if failed != nil && c.first == nil {
		c.first = p.named(failed)
	}
	switch {
	case failed == nil:
		p.lacks.Store(nil)
	case ctx.Err() == nil: // a caller who is gone says nothing about it
		p.lacks.Store(&outage{failed})
	}
	c.take(p, got)
}

// take adds what a shard has handed out.
func (c *claim) take(p *part, got backend.Claimed) {
	for _, d := range got.Deliveries {
		d.ID = p.prefix + d.ID
	}
	c.got.Deliveries = append(c.got.Deliveries, got.Deliveries[:got.Reclaimed]...)
	c.got.Reclaimed += got.Reclaimed
	c.fresh = append(c.fresh, got.Deliveries[got.Reclaimed:]...)
	p.waiting.Add(-int64(len(got.Deliveries) - got.Reclaimed))
	for _, d := range got.Dead {
		c.got.Dead = append(c.got.Dead, p.letter(d, c.stream.opt.Name))
	}
	for _, id := range got.Lost {
		c.got.Lost = append(c.got.Lost, p.prefix+id)
	}
}

// wait waits at all shards. When one has something, the others are told that it is
// enough, and not cut off: that might leave messages with nobody.
func (c *claim) wait(ctx context.Context, at []*part, d time.Duration, more <-chan struct{}) {
	type answer struct {
		part *part
		got  backend.Claimed
		err  error
	}
	c.failed = 0
	began := time.Now()
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	enough, answers := make(chan struct{}), make(chan answer, len(at))
	for _, p := range at {
		req := c.request(p)
		req.Max, req.Block, req.Enough, req.Slack = max(1, c.req.Max/len(at)), d, enough, 0
		go func() {
			got, err := p.Claim(call, req)
			answers <- answer{p, got, err}
		}()
	}
	ended := false
	stop := func() {
		if !ended {
			ended = true
			close(enough)
			time.AfterFunc(overdue, cancel)
		}
	}
	upTo := c.req.Enough
	for range at {
		var a answer
		for a.part == nil {
			select {
			case a = <-answers:
			case <-more:
				more = nil
				stop()
			case <-upTo:
				upTo = nil
				stop()
			}
		}
		if a.err != nil && ended && call.Err() != nil && ctx.Err() == nil {
			c.take(a.part, a.got) // it was cut off
		} else {
			c.add(ctx, a.part, began.Add(min(d, time.Since(began))), a.got, a.err) // it may say nothing for as long as d
		}
		if !c.empty() {
			stop()
		}
	}
	c.giveBack(ctx)
}

// giveBack gives back what is more than was asked for, first what is new.
func (c *claim) giveBack(ctx context.Context) {
	over := -c.room()
	if over <= 0 {
		return
	}
	fresh := max(0, len(c.fresh)-over)
	old := len(c.got.Deliveries) - (over - (len(c.fresh) - fresh))
	var returns []backend.Return
	for _, d := range slices.Concat(c.fresh[fresh:], c.got.Deliveries[old:]) {
		returns = append(returns, backend.Return{Lease: d.Lease, NotStarted: true})
	}
	c.fresh, c.got.Deliveries, c.got.Reclaimed = c.fresh[:fresh], c.got.Deliveries[:old], old
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	_, _ = c.stream.Nack(ctx, returns) // otherwise they are orphans after ReclaimAfter
}

// over reports whether a channel is closed.
func over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
