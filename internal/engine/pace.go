package engine

import (
	"context"
	"io"
	"sync/atomic"
	"time"
)

// pacer holds the builder of sealed segments to paceFactor times the rate at
// which records come in, so that it keeps ahead of them without taking the
// disk and the processors from the writers; while nothing comes in, to idle.
// Measured: unpaced, the builder cost the writers 9 ms at p99.
type pacer struct {
	ingested *atomic.Int64 // bytes taken into the log so far
	idle     float64       // bytes per second
	start    time.Time
	from     int64
	built    int64
	work     *atomic.Int64 // ns between the waits
	resumed  time.Time
}

const (
	paceFactor = 1.5
	paceStep   = 5 * time.Millisecond

	// A sealed segment has a second: jobs that are done by then need not be
	// copied at all.
	paceSeal = 64 << 20
	// Space is given back within seconds.
	paceShrink = 256 << 20
)

// newPacer returns a pacer that adds the time between its waits to work.
func newPacer(ingested *atomic.Int64, idle float64, work *atomic.Int64) *pacer {
	now := time.Now()
	return &pacer{ingested: ingested, idle: idle, start: now, from: ingested.Load(), work: work, resumed: now}
}

// Wait returns when n more bytes may be built, or with the context's error.
func (p *pacer) Wait(ctx context.Context, n int) error {
	p.built += int64(n)
	p.work.Add(int64(time.Since(p.resumed)))
	defer func() { p.resumed = time.Now() }()
	for {
		allowed := paceFactor*float64(p.ingested.Load()-p.from) + p.idle*time.Since(p.start).Seconds()
		if float64(p.built) <= allowed {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(paceStep):
		}
	}
}

// rate holds a copy to so many bytes per second.
type rate struct {
	ctx, stop context.Context
	perSecond int64 // 0 is no limit
	begun     time.Time
	total     int64 // bytes so far
}

// Of a file that is read at a rate, so much is read at once.
const paceRead = 1 << 20

func newRate(ctx, stop context.Context, perSecond int64) *rate {
	return &rate{ctx: ctx, stop: stop, perSecond: perSecond, begun: time.Now()}
}

// wait returns once what has been copied was due, or with the error of the
// context that ended.
func (r *rate) wait() error {
	if r.stop.Err() != nil {
		return errShuttingDown()
	}
	if r.perSecond <= 0 {
		return r.ctx.Err()
	}
	due := r.begun.Add(time.Duration(float64(r.total) / float64(r.perSecond) * float64(time.Second)))
	ahead := time.Until(due)
	if ahead < -time.Second {
		// What was slow for a while is not made up for in a rush.
		r.begun = r.begun.Add(-ahead - time.Second)
	}
	if ahead < paceStep {
		return r.ctx.Err()
	}
	select {
	case <-time.After(ahead):
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	case <-r.stop.Done():
		return errShuttingDown()
	}
}

// Pace returns a writer to nowhere that takes perSecond bytes at most in a
// second, 0 for no limit, until ctx ends.
func Pace(ctx context.Context, perSecond int64) io.Writer {
	defer guard()
	return &paceWriter{newRate(ctx, context.Background(), perSecond)}
}

type paceWriter struct{ rate *rate }

func (w *paceWriter) Write(p []byte) (int, error) {
	w.rate.total += int64(len(p))
	return len(p), w.rate.wait()
}
