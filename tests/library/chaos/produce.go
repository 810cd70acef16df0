package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
)

// producers publish numbered messages, most of them until they are known to be stored:
// under its key a repeat stores nothing twice. Those without a key are published once,
// whatever becomes of them. What goes on at the same time is gathered.
type producers struct {
	producer *weir.Producer
	options
	next    atomic.Int64
	unknown atomic.Int64 // answers that left open what became of a message
	refused atomic.Int64 // answers that it is not stored

	mu       sync.Mutex
	broken   []string // what no repeat mended
	outcomes map[int]outcome
}

// outcome is what the last publish of a message returned.
type outcome struct {
	id  string
	err error
}

func (o outcome) unknown() bool { return errors.Is(o.err, weir.ErrOutcomeUnknown) }

// once says that a message has no key, and is published once.
func once(seq int) bool { return seq%5 == 4 }

// lanes is how many messages are published at once.
const lanes = 32

// kindOf is a message's kind; every message of a run has it by its number.
func kindOf(seq int) byte {
	switch {
	case seq%50 == 11:
		return kindFails
	case seq%200 == 77:
		return kindPoison
	}
	return kindGood
}

// task makes the message of a number. Some run for longer than a lease, some are large.
func (p *producers) message(seq int, random *rand.Rand) weir.Message {
	t := task{seq: seq, kind: kindOf(seq), work: time.Duration(5+random.IntN(395)) * time.Millisecond}
	padding := 100
	switch {
	case seq%300 == 5:
		t.work = p.reclaimAfter * 3 / 2
	case seq%100 == 50:
		padding = 8 << 10
	}
	m := weir.Message{Data: t.data(strings.Repeat("x", padding))}
	if !once(seq) && (p.fault != faultPublishTwice || !hit(seq)) {
		m.IdempotencyKey = fmt.Sprintf("chaos-%d", seq)
	}
	return m
}

// run publishes until ctx ends, and then what has a number already.
func (p *producers) run(ctx context.Context) {
	var all sync.WaitGroup
	for lane := range lanes {
		random := rand.New(rand.NewPCG(p.seed, uint64(lane)+100))
		all.Go(func() {
			tick := time.NewTicker(lanes * time.Second / time.Duration(p.rate))
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					seq := int(p.next.Add(1) - 1)
					m := p.message(seq, random)
					p.publish(seq, m)
					if p.fault == faultPublishTwice && hit(seq) {
						p.publish(seq, m)
					}
				case <-ctx.Done():
					return
				}
			}
		})
	}
	all.Wait()
}

// publish repeats a message until it is stored, or publishes it once.
func (p *producers) publish(seq int, m weir.Message) {
	const patience = time.Minute
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		receipt, err := p.producer.Send(ctx, m)
		cancel()
		if p.fault == faultUnsaid && once(seq) {
			receipt, err = weir.Receipt{}, errors.New("planted")
		}
		p.note(seq, outcome{receipt.ID, err})
		var full *weir.QueueFullError
		switch {
		case err == nil:
			return
		case errors.Is(err, weir.ErrOutcomeUnknown):
			p.unknown.Add(1)
		case backend.Retryable(err), errors.As(err, &full), errors.Is(err, context.DeadlineExceeded):
			p.refused.Add(1)
		default:
			p.give(seq, err)
			return
		}
		if once(seq) {
			return
		}
		if time.Since(begin) > patience {
			p.give(seq, err)
			return
		}
	}
}

func (p *producers) note(seq int, o outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outcomes[seq] = o
}

func (p *producers) give(seq int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = append(p.broken, fmt.Sprintf("message %d could not be published: %v", seq, err))
}
