package overload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir"
)

const (
	tries          = 4  // calls of a patient caller
	impatientTries = 21 // of an impatient one
	impatientPart  = 4  // of the deadline is what it gives a call
	firstBackoff   = 20 // of the deadline is the wait before the second call, at least

	// maxCallers bounds how many callers wait at once; any more are an overrun of the
	// generator, which spoils the run.
	maxCallers = 50_000
)

// callers are those of a run, or of one process of it: they have every parts-th offer,
// beginning with that of their part.
type callers struct {
	Scenario
	offers      []offer
	id          uint64 // of the run
	part, parts int
	producers   []*weir.Producer
	tell        func(attempt) // of every call

	start   time.Time
	about   atomic.Int64 // callers who have not given up or succeeded
	overrun atomic.Int64
	ended   chan error
}

// attempt is one call of a caller.
type attempt struct {
	Offer   int
	Late    time.Duration // how long after its intended start the caller began
	At, Now time.Duration // when the call began and when it was over
	Kind    outcome
	Text    string // of the error of a broken one
}

// now is the time since the start of the run.
func (c *callers) now() time.Duration { return time.Since(c.start) }

// hire opens a producer for each connection.
func (c *callers) hire(config weir.ProducerConfig, open func() (*weir.Stream, error)) error {
	for range c.Producers {
		s, err := open()
		if err != nil {
			return err
		}
		config.Logger = slog.New(slog.DiscardHandler)
		p, err := weir.NewProducer(s, config)
		if err != nil {
			return err
		}
		c.producers = append(c.producers, p)
	}
	return nil
}

// begin starts the callers, each at its offer's time.
func (c *callers) begin(ctx context.Context, start time.Time) error {
	c.start, c.ended = start, make(chan error, 1)
	go func() {
		var all sync.WaitGroup
		err := c.generate(ctx, &all)
		all.Wait()
		for _, p := range c.producers {
			err = errors.Join(err, p.Close())
		}
		c.ended <- err
	}()
	return nil
}

// end waits until the last caller is done.
func (c *callers) end() error { return <-c.ended }

// state is how many callers there are, and how many could not be started.
func (c *callers) state() (about, overrun int64) { return c.about.Load(), c.overrun.Load() }

// generate starts a caller at each offer's time.
func (c *callers) generate(ctx context.Context, all *sync.WaitGroup) error {
	for i := c.part; i < len(c.offers); i += c.parts {
		if d := c.offers[i].at - c.now(); d > 0 {
			if err := sleep(ctx, d); err != nil {
				return err
			}
		}
		if c.about.Add(1) > maxCallers {
			c.about.Add(-1)
			c.overrun.Add(1)
			continue
		}
		all.Go(func() {
			defer c.about.Add(-1)
			c.call(ctx, c.producers[i/c.parts%len(c.producers)], i)
		})
	}
	return nil
}

// call is one caller: it publishes offer i and tries again until it succeeds, has had
// enough, or its time is over.
func (c *callers) call(ctx context.Context, p *weir.Producer, i int) {
	o := &c.offers[i]
	until := c.start.Add(o.at + c.Deadline)
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	late := c.now() - o.at

	m := weir.Message{Data: payload(c.id, i), Priority: Tiers[o.tier].Priority, FairKey: fmt.Sprintf("user-%d", o.key)}
	if c.Expire {
		m.Deadline = until
	}
	most := tries
	if c.impatient(o.at) {
		most, m.IdempotencyKey = impatientTries, fmt.Sprintf("%x-%d", c.id, i)
	}
	var jitter *rand.Rand
	for try := 1; try <= most; try++ {
		a := attempt{Offer: i, Late: late, At: c.now()}
		err := c.publish(ctx, p, m, o.at)
		a.Now, a.Kind = c.now(), outcomeOf(err)
		if a.Kind == broken {
			a.Text = err.Error()
		}
		c.tell(a)
		if err == nil || ctx.Err() != nil || try == most || a.Kind == unclear && m.IdempotencyKey == "" {
			return
		}
		if jitter == nil {
			jitter = rand.New(rand.NewPCG(c.Seed, uint64(i)))
		}
		wait := c.pause(err, try, jitter, o.at)
		if time.Until(until) <= wait || sleep(ctx, wait) != nil {
			return
		}
	}
}

// publish is one call of a caller that came at a time.
func (c *callers) publish(ctx context.Context, p *weir.Producer, m weir.Message, came time.Duration) error {
	if c.impatient(came) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Deadline/impatientPart)
		defer cancel()
	}
	return p.Publish(ctx, m)
}

// pause is how long a caller that came at a time waits after its try-th call.
func (c *callers) pause(err error, try int, jitter *rand.Rand, came time.Duration) time.Duration {
	if c.impatient(came) {
		return time.Millisecond + time.Duration(jitter.Int64N(int64(10*time.Millisecond)))
	}
	wait := c.Deadline / firstBackoff << (try - 1)
	var full *weir.QueueFullError
	if errors.As(err, &full) {
		wait = max(wait, full.RetryAfter)
	}
	return wait + time.Duration(jitter.Int64N(int64(wait)))
}

// payload is what a message carries: the run and the offer's number.
func payload(run uint64, i int) []byte {
	data := binary.BigEndian.AppendUint64(make([]byte, 0, 16), run)
	return binary.BigEndian.AppendUint64(data, uint64(i))
}

// outcomeOf is what became of a publish.
func outcomeOf(err error) outcome {
	var full *weir.QueueFullError
	switch {
	case err == nil:
		return kept
	case errors.Is(err, weir.ErrOutcomeUnknown):
		return unclear
	case errors.As(err, &full):
		return shed
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, weir.ErrExpired), errors.Is(err, context.Canceled):
		return gaveUp
	}
	return broken
}
