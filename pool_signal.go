package weir

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirmq/weir/backend"
)

const (
	signalEvery  = 50 * time.Millisecond // between two publications at least
	signalBeat   = 3 * time.Second       // between two publications at most while handlers run
	measureEvery = 5 * time.Second       // between two readings for Hooks.Measured
)

// beatLoop reports to producers and hooks how busy the pool is: after each change, and
// from time to time while handlers run. Changes during its wait are reported after it,
// so that the last value is right.
func (p *Pool) beatLoop(ctx, calls context.Context) {
	signaler, _ := p.backend.(backend.Signaler)
	tick := time.NewTicker(min(signalBeat, p.cfg.LagTTL/3))
	defer tick.Stop()
	b := beater{pool: p, signaler: signaler, workers: -1}
	b.tell() // that there are workers, though there be no work
	for {
		select {
		case <-p.beat:
		case <-tick.C:
			if p.Stats().Busy == 0 {
				continue
			}
		case <-ctx.Done():
			b.beat(calls) // what the last ack changed
			if told := p.cfg.Hooks.Workers; told != nil {
				told(p.name, 0, 0)
			}
			return
		}
		b.beat(calls)
		_ = pause(ctx, signalEvery)
	}
}

// beater is the state of the beat loop.
type beater struct {
	pool     *Pool
	signaler backend.Signaler // nil: the backend has none
	workers  int              // as they were last told, and how many were busy
	busy     int
	failed   bool
}

// tell tells the hook if there is something new.
func (b *beater) tell() {
	p := b.pool
	if told := p.cfg.Hooks.Workers; told != nil {
		if s := p.Stats(); s.Workers != b.workers || s.Busy != b.busy {
			b.workers, b.busy = s.Workers, s.Busy
			told(p.name, s.Workers, s.Busy)
		}
	}
}

func (b *beater) beat(ctx context.Context) {
	p := b.pool
	b.tell()
	if b.signaler == nil || ctx.Err() != nil {
		return
	}
	call, cancel := context.WithTimeout(ctx, cutDelay/2)
	defer cancel()
	err := b.signaler.PublishSignal(call, p.cfg.LagTTL)
	// The claimer reports an outage, that there is no group yet, and the end of the stream.
	ours := !backend.Retryable(err) && !errors.Is(err, ErrStreamNotFound) && !errors.Is(err, ErrGroupNotFound) && !errors.Is(err, ErrClosed)
	if err != nil && !b.failed && ours && ctx.Err() == nil {
		p.log.Warn("weir: the workers' signal cannot be published, so producers do not see the load", "stream", p.name.Stream, "error", err)
	}
	b.failed = err != nil
}

// busyChanged is called when a handler begins or ends.
func (p *Pool) busyChanged() {
	if p.cfg.Hooks.Workers != nil {
		kick(p.beat)
	}
}

// startPeriodic starts what a pool does from time to time, if configured.
func (p *Pool) startPeriodic(ctx context.Context, group *sync.WaitGroup) {
	if trimmer, can := p.backend.(backend.Trimmer); can && p.cfg.Trim != TrimOff {
		group.Go(func() { p.trimLoop(ctx, trimmer) })
	}
	if retainer, can := p.backend.(backend.Retainer); can {
		group.Go(func() { p.retentionLoop(ctx, retainer) })
	}
	if p.cfg.Hooks.Measured != nil {
		group.Go(func() { p.every(ctx, measureEvery, p.measure) })
	}
}

// every calls do until ctx ends.
func (p *Pool) every(ctx context.Context, d time.Duration, do func(context.Context)) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		do(call)
		cancel()
	}
}

func (p *Pool) measure(ctx context.Context) {
	if pressure, err := p.stream.Pressure(ctx); err == nil {
		p.cfg.Hooks.Measured(p.name, pressure.Measurement())
	}
}
