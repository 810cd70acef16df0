package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/bench/load"
	"github.com/weirmq/weir/tests/stall"
)

// SaturateOptions of Saturate. The zero value is the full run; sizes are chosen
// for a small machine, on which they are far more than it can do.
type SaturateOptions struct {
	Length    time.Duration // of the load; default 20 s
	Low       int           // topics of negative priority; default 1000
	MaxMiB    float64       // bound of the resident set; default 1024
	Pinned    bool          // the pressure is pinned by the server's environment: it is not judged
	LowRate   int           // writes per second to the low topics together; default 6000
	Bulk      int           // connections that write batches without pause; default 48
	BulkBatch int           // records in one of those; default 100
	Routers   int           // each with a source and a destination of its own; default none
	Out       io.Writer     // the table; default: nowhere
}

func (o SaturateOptions) withDefaults() SaturateOptions {
	set := func(v *int, to int) {
		if *v == 0 {
			*v = to
		}
	}
	set(&o.Low, 1000)
	set(&o.LowRate, 6000)
	set(&o.Bulk, 48)
	set(&o.BulkBatch, 100)
	if o.Length == 0 {
		o.Length = 20 * time.Second
	}
	if o.MaxMiB == 0 {
		o.MaxMiB = 1024
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	return o
}

const (
	bulkTopics    = 4 // half of them capped and fsync, the others disk
	bulkCap       = 20_000
	bulkReaders   = 2 // streams of each bulk topic
	feedBatch     = 10
	feedPace      = 5 * time.Millisecond
	probePace     = 20 * time.Millisecond
	lowWriters    = 16
	perStream     = 250 // low topics of one stream
	sampleStep    = 250 * time.Millisecond
	drainLimit    = 90 * time.Second
	starvation    = 10050 * time.Millisecond // the 10 s rule plus one tick
	calm          = 0.05
	calmWithin    = 2 * time.Second
	visitsInRound = 16
)

// bands are the priorities whose push delay is measured, the highest first; the
// low topics are the fifth band.
var bands = []int{900, 600, 300, 100}

const lowBand = 4

// saturation is one run.
type saturation struct {
	Target
	SaturateOptions
	calls   *caller
	bulk    []*given
	feeds   []*given
	probes  []*given
	low     []*given
	delay   [lowBand + 1]delays
	readers group
	refused atomic.Int64
	acked   atomic.Int64
	failed  firstOf
	peakMiB float64
	visits  float64       // per second, the most of a sample
	highest float64       // pressure
	stalled time.Duration // this machine, from the first write to the end
	rungs   map[int]int
}

// Saturate loads a fresh server with more than it can do, prints a table over
// time and checks the promises. The error lists every one that was broken.
func Saturate(ctx context.Context, t Target, o SaturateOptions) error {
	s := &saturation{Target: t, SaturateOptions: o.withDefaults(), rungs: map[int]int{}}
	calls, err := t.dial(ctx)
	if err != nil {
		return err
	}
	defer calls.close()
	s.calls = calls
	if err := s.prepare(ctx); err != nil {
		return err
	}
	defer s.readers.close()
	stalled := stall.Watch()
	if err := s.load(ctx); err != nil {
		return err
	}
	err = s.settle(ctx)
	s.stalled = stalled()
	return errors.Join(err, s.judge())
}

// prepare makes the topics, routers and streams.
func (s *saturation) prepare(ctx context.Context) error {
	pad := strings.Repeat("x", 80)
	for i := range bulkTopics {
		g := &given{name: fmt.Sprintf("bulk-%d", i), config: `{}`, pad: pad}
		if i%2 == 1 {
			g.cap, g.config = bulkCap, fmt.Sprintf(`{"cap_records":%d,"durability":"fsync"}`, bulkCap)
		}
		s.bulk = append(s.bulk, g)
	}
	for i := range s.Routers {
		s.feeds = append(s.feeds, &given{name: fmt.Sprintf("feed-%d", i), config: `{}`, pad: pad})
	}
	for i, p := range bands {
		s.probes = append(s.probes, &given{name: fmt.Sprintf("probe-%d", i), config: fmt.Sprintf(`{"priority":%d}`, p)})
	}
	for i := range s.Low {
		s.low = append(s.low, &given{name: fmt.Sprintf("low-%04d", i), config: fmt.Sprintf(`{"priority":%d}`, -1-i%1000)})
	}
	for _, g := range s.topics() {
		if _, err := s.calls.do("PUT", "/v0/topics/"+g.name, []byte(g.config)); err != nil {
			return err
		}
	}
	for i, g := range s.feeds {
		body := fmt.Appendf(nil, `{"source":%q,"dest":%q}`, g.name, copyOf(g))
		if _, err := s.calls.do("PUT", fmt.Sprintf("/v0/routers/route-%d", i), body); err != nil {
			return err
		}
	}
	return s.openStreams(ctx)
}

func copyOf(g *given) string { return strings.Replace(g.name, "feed", "copy", 1) }

func (s *saturation) topics() (all []*given) {
	for _, some := range [][]*given{s.bulk, s.feeds, s.probes, s.low} {
		all = append(all, some...)
	}
	return all
}

func (s *saturation) openStreams(ctx context.Context) error {
	open := func(d *delays, topics ...string) error {
		r, err := s.watch(ctx, s.calls, load.StreamOptions{}, topics...)
		if err != nil {
			return err
		}
		r.delays, r.every = d, true
		s.readers.start(r)
		return nil
	}
	var err error
	for _, g := range s.bulk {
		for range bulkReaders {
			err = errors.Join(err, open(nil, g.name))
		}
	}
	for _, g := range s.feeds {
		err = errors.Join(err, open(nil, g.name, copyOf(g)))
	}
	for i, g := range s.probes {
		err = errors.Join(err, open(&s.delay[i], g.name))
	}
	for from := 0; from < len(s.low); from += perStream {
		var names []string
		for _, g := range s.low[from:min(from+perStream, len(s.low))] {
			names = append(names, g.name)
		}
		err = errors.Join(err, open(&s.delay[lowBand], names...))
	}
	return err
}

// load runs every writer for the length of the run beside the sampler.
func (s *saturation) load(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := time.Now().Add(s.Length)
	var writers sync.WaitGroup
	start := func(topics []*given, count int, pace time.Duration) {
		writers.Go(func() {
			if err := s.writer(ctx, end, topics, count, pace); err != nil {
				s.failed.add(err)
				cancel()
			}
		})
	}
	for i := range s.Bulk {
		start(s.bulk[i%bulkTopics:i%bulkTopics+1], s.BulkBatch, 0)
	}
	for i := range s.feeds {
		start(s.feeds[i:i+1], feedBatch, feedPace)
	}
	for i := range s.probes {
		start(s.probes[i:i+1], 1, probePace)
	}
	for i := range lowWriters {
		share := s.low[i*len(s.low)/lowWriters : (i+1)*len(s.low)/lowWriters]
		start(share, 1, lowWriters*time.Second/time.Duration(s.LowRate))
	}
	sampled := make(chan struct{})
	go func() {
		defer close(sampled)
		s.failed.add(s.sample(ctx, end))
	}()
	writers.Wait()
	<-sampled
	return s.failed.err()
}

// writer writes to its topics in turn until the end.
func (s *saturation) writer(ctx context.Context, end time.Time, topics []*given, count int, pace time.Duration) error {
	c, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	var buf []byte
	due := time.Now()
	for i := 0; time.Now().Before(end); i++ {
		var wait time.Duration
		if buf, wait, err = topics[i%len(topics)].write(c, buf, count); err != nil {
			return err
		}
		if wait == 0 {
			s.acked.Add(int64(count))
		} else {
			s.refused.Add(1)
		}
		due = due.Add(pace)
		if now := time.Now(); due.Before(now) {
			due = now // what could not be written in time is not made up for
		}
		if wait = max(wait, time.Until(due)); wait > 0 && pause(ctx, wait) != nil {
			return ctx.Err()
		}
	}
	return nil
}

// settle waits until the pressure is gone and every reader is at its heads,
// then compares every topic with what was acknowledged.
func (s *saturation) settle(ctx context.Context) error {
	broken := &firstOf{}
	ended := time.Now()
	broken.add(s.awaitCalm(ctx, ended))
	heads := map[string]uint64{}
	for _, g := range s.topics() {
		head, err := s.calls.number(g.name, "head_seq")
		if err != nil {
			return err
		}
		if head != g.total() {
			broken.add(fmt.Errorf("topic %s has head %d, acknowledged are %d", g.name, head, g.total()))
		}
		heads[g.name] = head
	}
	for _, g := range s.feeds {
		heads[copyOf(g)] = heads[g.name]
	}
	if err := await(ctx, s.readers.all, heads, drainLimit); err != nil {
		broken.add(err)
	}
	fmt.Fprintf(s.Out, "every reader is at its heads after %v\n", time.Since(ended).Round(time.Millisecond))
	for _, g := range s.topics() {
		broken.add(g.verify(s.calls))
	}
	for _, g := range s.feeds {
		broken.add(g.verifyCopy(s.calls, copyOf(g)))
	}
	return broken.err()
}

// awaitCalm measures how long the pressure stays after the load.
func (s *saturation) awaitCalm(ctx context.Context, ended time.Time) error {
	if s.Pinned {
		return nil
	}
	stalled := stall.Busy()
	took, err := s.untilCalm(ctx, ended)
	lost := stalled()
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "\npressure is under %.2f %v after the load\n", calm, took.Round(time.Millisecond))
	if took > calmWithin+lost {
		return fmt.Errorf("pressure was under %.2f only %v after the load, want %v; the machine stood still for %v", calm, took, calmWithin, lost)
	}
	return nil
}

func (s *saturation) untilCalm(ctx context.Context, ended time.Time) (took time.Duration, err error) {
	for {
		m, err := s.calls.metrics()
		if err != nil {
			return 0, err
		}
		took = time.Since(ended)
		p := m["weir_pressure"]
		if p < calm {
			return took, nil
		}
		if took > 10*calmWithin {
			return 0, fmt.Errorf("pressure is still %.2f, %v after the load", p, took.Round(time.Second))
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return 0, err
		}
	}
}
