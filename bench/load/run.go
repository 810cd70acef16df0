package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Step is one measured piece of work on a connection, usually one request. It
// returns how many units it did; 0 units end this connection's loop, for
// loads that use something up.
type Step func(c *Conn) (units int, err error)

// Plan says what a run does and for how long.
type Plan struct {
	Addr   string
	TLS    *tls.Config // nil: none
	Conns  int
	Step   func(i int) Step // makes the loop body of connection i
	Warmup time.Duration    // runs uncounted before the measurement
	Length time.Duration    // measured time; 0: until Units are done or every loop has ended itself
	Units  int64            // if > 0, stop once this many units are done
	// Begin is called when counting starts, after the warm-up; may be nil.
	Begin func()
}

// Sample is what a run measured. Everything that began after the warm-up is
// counted, also what was in flight when the time was up.
type Sample struct {
	Units   int64
	Steps   int64
	Elapsed time.Duration
	Latency *Latency
}

// Rate is units per second.
func (s Sample) Rate() float64 {
	if s.Elapsed <= 0 {
		return 0
	}
	return float64(s.Units) / s.Elapsed.Seconds()
}

// Run dials every connection, then lets each loop over its step in a goroutine
// of its own until the plan is fulfilled. The first error ends the run.
func Run(ctx context.Context, p Plan) (Sample, error) {
	conns, err := dialAll(ctx, &p)
	defer closeAll(conns)
	if err != nil {
		return Sample{}, err
	}
	r := &run{plan: p, failed: make(chan struct{})}
	r.samples = make([]Sample, p.Conns)
	var wg sync.WaitGroup
	for i, c := range conns {
		step := p.Step(i)
		wg.Go(func() { r.loop(c, step, &r.samples[i]) })
	}
	loops := make(chan struct{})
	go func() { wg.Wait(); close(loops) }()

	if p.Warmup > 0 {
		r.wait(ctx, p.Warmup, loops)
	}
	if p.Begin != nil {
		p.Begin()
	}
	begin := time.Now()
	r.counting.Store(true)
	r.wait(ctx, p.Length, loops)
	r.stop.Store(true)
	if ctx.Err() != nil {
		closeAll(conns)
	}
	<-loops
	elapsed := time.Since(begin)
	return r.result(elapsed), errors.Join(r.err, ctx.Err())
}

func dialAll(ctx context.Context, p *Plan) ([]*Conn, error) {
	conns := make([]*Conn, 0, p.Conns)
	for range p.Conns {
		c, err := DialTLS(ctx, p.Addr, p.TLS)
		if err != nil {
			return conns, err
		}
		conns = append(conns, c)
	}
	return conns, nil
}

func closeAll(conns []*Conn) {
	for _, c := range conns {
		c.Close()
	}
}

// run is the shared state of one Run.
type run struct {
	plan     Plan
	counting atomic.Bool
	stop     atomic.Bool
	units    atomic.Int64 // of all connections, kept only if the plan bounds them
	once     sync.Once
	failed   chan struct{}
	err      error // set once, before failed is closed
	samples  []Sample
}

// loop is the life of one connection. One clock reading per step: the end of
// a step is the beginning of the next.
func (r *run) loop(c *Conn, step Step, out *Sample) {
	s := Sample{Latency: new(Latency)}
	defer func() { *out = s }()
	begin := time.Now()
	for !r.stop.Load() {
		counted := r.counting.Load()
		n, err := step(c)
		if err != nil {
			r.fail(err)
			return
		}
		if n == 0 {
			return
		}
		end := time.Now()
		if counted {
			s.Units += int64(n)
			s.Steps++
			s.Latency.Add(end.Sub(begin))
			if r.plan.Units > 0 && r.units.Add(int64(n)) >= r.plan.Units {
				r.stop.Store(true)
			}
		}
		begin = end
	}
}

func (r *run) fail(err error) {
	r.once.Do(func() {
		r.err = fmt.Errorf("load: %w", err)
		r.stop.Store(true)
		close(r.failed)
	})
}

// wait returns after d (0: no limit), at the end of the loops, when a loop has
// failed or when ctx has ended.
func (r *run) wait(ctx context.Context, d time.Duration, loops <-chan struct{}) {
	var timer <-chan time.Time
	if d > 0 {
		timer = time.After(d)
	}
	select {
	case <-timer:
	case <-loops:
	case <-r.failed:
	case <-ctx.Done():
	}
}

func (r *run) result(elapsed time.Duration) Sample {
	total := Sample{Elapsed: elapsed, Latency: new(Latency)}
	for _, s := range r.samples {
		total.Units += s.Units
		total.Steps += s.Steps
		total.Latency.Merge(s.Latency)
	}
	return total
}
