package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/weirmq/weir/bench/load"
	"github.com/weirmq/weir/bench/report"
)

const (
	idlePace   = 2 * time.Millisecond  // between two writes that meet an idle server
	fanPace    = 50 * time.Millisecond // between two writes to many watchers
	turns      = 2                     // each side of a comparison of latencies is measured so often
	ballast    = 32 << 20              // bytes that a stalled stream does not read
	stalledBuf = 4 << 10               // receive buffer of a stalled stream
)

// pushFigures are the rows on latency and memory of streams. All topics have
// the default class, disk; times are from the call of the write to the frame.
var pushFigures = []figure{
	{rows: []report.Figure{
		{Name: "push-idle-p50", Title: "write to frame, idle, 1 watcher, p50", Unit: "ms", Goal: 0.5},
		{Name: "push-idle-p99", Title: "write to frame, idle, 1 watcher, p99", Unit: "ms", Goal: 3},
	}, measure: idlePush},
	{rows: []report.Figure{
		{Name: "fan-p50", Title: "1,000 watchers, 20 writes/s, p50 over that of a bare hub", Unit: "×", Goal: 1.1},
		{Name: "fan-p99", Title: "1,000 watchers, 20 writes/s, p99 over that of a bare hub", Unit: "×", Goal: 1.3},
	}, measure: fanLatency},
	{rows: []report.Figure{
		{Name: "stalled-p99", Title: "999 live watchers beside a stalled one, p99 over that alone", Unit: "×", Goal: 1.2},
	}, measure: besideStalled},
	{rows: []report.Figure{
		{Name: "idle-streams", Title: "10,000 idle streams, memory of one over a bare handler's", Unit: "×", Goal: 1},
		{Name: "idle-stream-memory", Title: "memory of an idle stream", Unit: "KiB", Goal: 23},
	}, measure: idleStreams},
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func quantiles(l *load.Latency) string {
	return micros(l.Quantile(0.5)) + "/" + micros(l.Quantile(0.99))
}

func micros(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }

func idlePush(ctx context.Context, s *session) ([]value, error) {
	w, err := s.freshTopic(ctx, writeTopic, "log", "disk")
	if err != nil {
		return nil, err
	}
	got, err := s.collect(ctx, w.addr, idlePace, s.Sample, w.watch(load.StreamOptions{}, writeTopic), 1, writeTopic)
	if err != nil {
		return nil, err
	}
	return []value{{amount: millis(got.Quantile(0.5))}, {amount: millis(got.Quantile(0.99))}}, nil
}

// collect opens n streams, writes at a pace and returns the latencies once
// everything has arrived. Writes during a warm-up are not counted.
func (s *session) collect(ctx context.Context, addr string, pace, length time.Duration, open opener, n int, topic string) (*load.Latency, error) {
	f, err := openFan(ctx, n, open)
	if err != nil {
		return nil, err
	}
	defer f.close()
	if err := f.window(ctx, addr, pace, s.size.warmup, topic); err != nil {
		return nil, fmt.Errorf("warm-up: %w", err)
	}
	f.take()
	if err := f.window(ctx, addr, pace, length, topic); err != nil {
		return nil, err
	}
	_, got := f.take()
	return got, nil
}

// window writes for a time and waits until every stream has got everything.
func (f *fan) window(ctx context.Context, addr string, pace, length time.Duration, topic string) error {
	wrote, err := paced(ctx, addr, pace, length, topic)
	if err != nil {
		return err
	}
	return f.await(ctx, wrote)
}

// fanLatency compares the deliveries of weir and of a bare hub, in turn.
func fanLatency(ctx context.Context, s *session) ([]value, error) {
	w, err := s.freshTopic(ctx, writeTopic, "log", "disk")
	if err != nil {
		return nil, err
	}
	_, hub, err := s.peer(ctx, handlersProgram, "hub")
	if err != nil {
		return nil, err
	}
	weirSide := func(ctx context.Context) (*load.Latency, error) {
		return s.collect(ctx, w.addr, fanPace, s.Sample, w.watch(load.StreamOptions{}, writeTopic), s.size.watchers, writeTopic)
	}
	hubSide := func(ctx context.Context) (*load.Latency, error) {
		return s.collect(ctx, hub, fanPace, s.Sample, bareStream(hub), s.size.watchers, writeTopic)
	}
	ours, theirs, err := inTurn(ctx, weirSide, hubSide)
	if err != nil {
		return nil, err
	}
	note := fmt.Sprintf("p50/p99 weir %s, hub %s", quantiles(ours), quantiles(theirs))
	return []value{
		{amount: quotient(ours, theirs, 0.5), note: note},
		{amount: quotient(ours, theirs, 0.99)},
	}, nil
}

// inTurn measures two sides by turns and adds up what each found.
func inTurn(ctx context.Context, a, b func(context.Context) (*load.Latency, error)) (fromA, fromB *load.Latency, err error) {
	fromA, fromB = &load.Latency{}, &load.Latency{}
	for range turns {
		for _, side := range []struct {
			take func(context.Context) (*load.Latency, error)
			sum  *load.Latency
		}{{a, fromA}, {b, fromB}} {
			got, err := side.take(ctx)
			if err != nil {
				return nil, nil, err
			}
			side.sum.Merge(got)
		}
	}
	return fromA, fromB, nil
}

// quotient is a quantile of a over the same of b.
func quotient(a, b *load.Latency, q float64) float64 {
	return float64(a.Quantile(q)) / float64(b.Quantile(q))
}

// besideStalled compares live watchers alone with live watchers beside one that
// does not read. What fills the stalled one comes from a topic of its own, so
// that the live ones have the same to read in both cases.
func besideStalled(ctx context.Context, s *session) ([]value, error) {
	const filler = "filler"
	w, err := s.freshTopic(ctx, writeTopic, "log", "disk")
	if err != nil {
		return nil, err
	}
	if err := w.createTopic(ctx, filler, "log", "disk"); err != nil {
		return nil, err
	}
	live := s.size.watchers - 1
	alone := func(ctx context.Context) (*load.Latency, error) {
		return s.collect(ctx, w.addr, fanPace, s.Sample, w.watch(load.StreamOptions{}, writeTopic), live, writeTopic)
	}
	beside := func(ctx context.Context) (*load.Latency, error) {
		stalled, err := w.watch(load.StreamOptions{ReceiveBuffer: stalledBuf}, writeTopic, filler)(ctx)
		if err != nil {
			return nil, err
		}
		defer stalled.Close()
		if err := writeAll(ctx, w, filler, ballast/(recordSize*bulkBatch), bulkBatch); err != nil {
			return nil, err
		}
		w.settle(ctx)
		return alone(ctx)
	}
	with, without, err := inTurn(ctx, beside, alone)
	if err != nil {
		return nil, err
	}
	note := fmt.Sprintf("p50/p99 %s beside it, %s alone", quantiles(with), quantiles(without))
	return []value{{quotient(with, without, 0.99), note}}, nil
}

// idleStreams compares the growth of the resident set. The streams are held by
// a process of their own.
func idleStreams(ctx context.Context, s *session) ([]value, error) {
	w, err := s.freshTopic(ctx, writeTopic, "log", "disk")
	if err != nil {
		return nil, err
	}
	ours, err := s.perStream(ctx, w.proc, "-addr", w.addr, "-topic", writeTopic)
	if err != nil {
		return nil, fmt.Errorf("weir: %w", err)
	}
	bare, addr, err := s.peer(ctx, handlersProgram, "idle")
	if err != nil {
		return nil, err
	}
	theirs, err := s.perStream(ctx, bare, "-addr", addr)
	if err != nil {
		return nil, fmt.Errorf("bare handler: %w", err)
	}
	note := fmt.Sprintf("%.1f KiB each, bare handler %.1f KiB", ours, theirs)
	return []value{{ours / theirs, note}, {amount: ours}}, nil
}

// perStream is how much the resident set of a server grows with each stream,
// in KiB.
func (s *session) perStream(ctx context.Context, server *proc, args ...string) (float64, error) {
	server.settle(ctx)
	before, err := server.rss()
	if err != nil {
		return 0, err
	}
	clients, _, err := s.peer(ctx, watchersProgram, append(args, "-n", fmt.Sprint(s.size.streams))...)
	if err != nil {
		return 0, err
	}
	server.settle(ctx)
	after, err := server.rss()
	if err != nil {
		return 0, err
	}
	if err := clients.stop(stopLimit); err != nil {
		return 0, err
	}
	return (after - before) * 1024 / float64(s.size.streams), nil
}
