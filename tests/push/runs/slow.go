package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weirmq/weir/bench/load"
)

// SlowOptions of SlowReader. The zero value of a field takes the default.
type SlowOptions struct {
	Live    int           // readers that keep up; default 99
	Records int           // default 100,000
	Pad     int           // bytes of data in each record beside 40 others; default 200
	Cap     uint64        // cap_records of the topic, 0: none
	Pace    time.Duration // between two batches of slowBatch records; default 5 ms
	Topic   string        // its name; default "slow"
	Out     io.Writer     // default: nowhere
}

const (
	slowBatch    = 50
	stalledBytes = 4 << 10 // receive buffer of the stalled reader
	// slowGrowth is how much the resident set may grow: the queue of the stalled
	// reader is at most 4 MiB, the rest is the garbage of everyone else.
	slowGrowth = 256
)

func (o SlowOptions) withDefaults() SlowOptions {
	if o.Live == 0 {
		o.Live = 99
	}
	if o.Records == 0 {
		o.Records = 100_000
	}
	if o.Pad == 0 {
		o.Pad = 200
	}
	if o.Pace == 0 {
		o.Pace = 5 * time.Millisecond
	}
	if o.Topic == "" {
		o.Topic = "slow"
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	return o
}

// SlowReader writes to a topic that live readers follow, first alone and then
// beside one that does not read, and lets that one read afterwards: of an
// uncapped topic it gets everything, of a capped one exactly one tombstone and
// then the rest. The error lists every promise that was broken.
func SlowReader(ctx context.Context, t Target, o SlowOptions) error {
	o = o.withDefaults()
	alone, err := t.slowRun(ctx, o, o.Topic+"-alone", false)
	if err != nil {
		return fmt.Errorf("live readers alone: %w", err)
	}
	beside, err := t.slowRun(ctx, o, o.Topic, true)
	fmt.Fprintf(o.Out, "%d live readers, %d records, cap %d: p50/p99 %s ms alone, %s ms beside a stalled one (p99 × %.2f)\n",
		o.Live, o.Records, o.Cap, quantiles(alone), quantiles(beside), float64(beside.Quantile(0.99))/float64(alone.Quantile(0.99)))
	return err
}

// slowRun is one load of a fresh topic. It returns the delays of the live readers.
func (t Target) slowRun(ctx context.Context, o SlowOptions, topic string, stall bool) (*load.Latency, error) {
	d := &delays{}
	calls, err := t.dial(ctx)
	if err != nil {
		return &d.whole, err
	}
	defer calls.close()
	g := &given{name: topic, cap: o.Cap, pad: strings.Repeat("x", o.Pad)}
	if _, err := calls.do("PUT", "/v0/topics/"+topic, fmt.Appendf(nil, `{"cap_records":%d}`, o.Cap)); err != nil {
		return &d.whole, err
	}
	var readers group
	defer readers.close()
	var stalled *reader
	if stall {
		if stalled, err = t.watch(ctx, calls, load.StreamOptions{ReceiveBuffer: stalledBytes}, topic); err != nil {
			return &d.whole, err
		}
		defer stalled.stream.Close()
	}
	for range o.Live {
		r, err := t.watch(ctx, calls, load.StreamOptions{}, topic)
		if err != nil {
			return &d.whole, err
		}
		r.delays = d
		readers.start(r)
	}
	before := t.memory("VmRSS")
	if err := g.writeAll(ctx, calls, o); err != nil {
		return &d.whole, err
	}
	heads := map[string]uint64{topic: uint64(o.Records)}
	if err := await(ctx, readers.all, heads, drainLimit); err != nil {
		return &d.whole, err
	}
	broken := &firstOf{}
	growth := t.memory("VmRSS") - before
	if growth > slowGrowth {
		broken.add(fmt.Errorf("the resident set grew by %.0f MiB, want at most %d", growth, slowGrowth))
	}
	if stall {
		broken.add(t.judgeStalled(ctx, calls, o, stalled, heads, growth))
	}
	broken.add(g.verify(calls))
	return &d.whole, broken.err()
}

func (g *given) writeAll(ctx context.Context, c *caller, o SlowOptions) error {
	ticks := time.NewTicker(o.Pace)
	defer ticks.Stop()
	var buf []byte
	for left := o.Records; left > 0; {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		n := min(left, slowBatch)
		var wait time.Duration
		var err error
		if buf, wait, err = g.write(c, buf, n); err != nil {
			return err
		}
		if wait == 0 {
			left -= n
		} else if err := pause(ctx, wait); err != nil {
			return err
		}
	}
	return nil
}

// judgeStalled lets the stalled reader read and checks what it gets.
func (t Target) judgeStalled(ctx context.Context, c *caller, o SlowOptions, r *reader, heads map[string]uint64, growth float64) error {
	m, err := c.metrics()
	if err != nil {
		return err
	}
	lagged := m["weir_sse_lagged"]
	begin := time.Now()
	var one group
	one.start(r)
	defer one.close()
	if err := await(ctx, one.all, heads, drainLimit); err != nil {
		return fmt.Errorf("the stalled reader: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(o.Out, "stalled reader: %d records and %d tombstones, %v after it read again; memory grew by %.1f MiB meanwhile\n",
		r.records, r.tombstones, time.Since(begin).Round(time.Millisecond), growth)
	var broken error
	if lagged != 1 {
		broken = fmt.Errorf("%v connections were lagged, want the stalled one", lagged)
	}
	want := 0
	if o.Cap > 0 {
		want = 1
	}
	if r.tombstones != want {
		broken = errors.Join(broken, fmt.Errorf("the stalled reader got %d tombstones, want %d", r.tombstones, want))
	}
	if o.Cap == 0 && r.records != int64(o.Records) {
		broken = errors.Join(broken, fmt.Errorf("the stalled reader got %d records of %d", r.records, o.Records))
	}
	return broken
}
