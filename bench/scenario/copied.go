package scenario

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirmq/weir/bench/load"
	"github.com/weirmq/weir/bench/report"
)

// What a copy of the log costs. The bucket is gofakes3 in a process of its own on the same
// cores, so its work is in the rates of an asynchronous copy, but not in the CPU.

// copyRuns is the number of samples of each side: the two are close, and the last percents of
// the latencies waver.
const copyRuns = 7

var copiedRatios = []ratio{
	{name: "copied", title: "1 record, 64 conns, fsync", unit: "records", weirName: "a copy in a bucket",
		peer: "no copy", goal: 0.95, runs: copyRuns, setup: func(ctx context.Context, s *session) (measure, measure, error) {
			return s.copiedOrNot(ctx)
		}},
}

// far is how much longer a bucket in a region takes to answer than one on this machine.
const far = 60 * time.Millisecond

var copiedFigures = []figure{
	{rows: []report.Figure{
		{Name: "copied-p99", Title: "64 fsync writers with an asynchronous copy, p99 ÷ without", Unit: "×", Goal: 1.1},
		{Name: "copied-cpu", Title: "the same, CPU of the server per record", Unit: "×", Goal: 1.1},
		{Name: "copied-memory", Title: "the same, more memory", Unit: "MiB", Goal: 32},
	}, measure: copied},
	{rows: []report.Figure{
		{Name: "copied-sync-1", Title: "1 fsync writer, synchronous copy 60 ms away, p50", Unit: "ms", Goal: 70},
		{Name: "copied-sync-64", Title: "64 fsync writers, synchronous copy 60 ms away, p50", Unit: "ms", Goal: 70},
		{Name: "copied-sync-write", Title: "the same, time per write (1.11 ms: 900 a second)", Unit: "ms", Goal: 1.11},
		{Name: "copied-sync-pressure", Title: "the same, highest pressure", Unit: "of 1", Goal: 0.05},
	}, measure: copiedSync},
}

// bucket starts a store of a copy that takes so much longer for every answer, and returns
// the settings of a server that uses it.
func (s *session) bucket(ctx context.Context, delay time.Duration) ([]string, error) {
	const name = "weir"
	_, addr, err := s.peer(ctx, bucketProgram, name, delay.String())
	return []string{
		"WEIR_REPLICA=s3://" + name + "/copy?endpoint=http://" + addr + "&region=us-east-1",
		"AWS_ACCESS_KEY_ID=bench", "AWS_SECRET_ACCESS_KEY=bench",
	}, err
}

// copiedOrNot returns 64 writers to a server with an asynchronous copy and to one without any.
func (s *session) copiedOrNot(ctx context.Context) (with, without measure, err error) {
	settings, err := s.bucket(ctx, 0)
	if err != nil {
		return nil, nil, err
	}
	return s.withAndWithout(ctx, settings)
}

// withAndWithout returns 64 writers to a server with settings and to one without any.
func (s *session) withAndWithout(ctx context.Context, settings []string) (with, without measure, err error) {
	sides := map[string]measure{}
	for name, settings := range map[string][]string{"copied": settings, "alone": nil} {
		w, err := s.weir(ctx, name, settings...)
		if err != nil {
			return nil, nil, err
		}
		if err := w.createTopic(ctx, writeTopic, "log", "fsync"); err != nil {
			return nil, nil, err
		}
		sides[name] = withMemory(w, over(w.proc, s.writers(w.addr, writeTopic, manyConns, 1)))
	}
	return sides["copied"], sides["alone"], nil
}

// withMemory notes the memory of the server at the end of a sample.
func withMemory(w *weir, take measure) measure {
	return func(ctx context.Context) (measured, error) {
		m, err := take(ctx)
		if err != nil {
			return m, err
		}
		m.memory, err = w.rss()
		return m, err
	}
}

// copied compares in turn, pair by pair.
func copied(ctx context.Context, s *session) ([]value, error) {
	with, without, err := s.copiedOrNot(ctx)
	if err != nil {
		return nil, err
	}
	runs := copyRuns
	if s.Quick {
		runs = 1
	}
	var p99, cpu, memory []float64
	for range runs {
		a, err := sample(ctx, with)
		if err != nil {
			return nil, err
		}
		b, err := sample(ctx, without)
		if err != nil {
			return nil, err
		}
		p99 = append(p99, float64(a.p99)/float64(b.p99))
		cpu = append(cpu, a.cpuPerMillion/b.cpuPerMillion)
		memory = append(memory, a.memory-b.memory)
	}
	return []value{{report.Median(p99), ""}, {report.Median(cpu), ""}, {max(0, report.Median(memory)), ""}}, nil
}

// copiedSync writes to a server whose writes wait for a bucket that is far away.
func copiedSync(ctx context.Context, s *session) ([]value, error) {
	settings, err := s.bucket(ctx, far)
	if err != nil {
		return nil, err
	}
	w, err := s.freshTopic(ctx, writeTopic, "log", "fsync", append(settings, "WEIR_REPLICA_SYNC=true")...)
	if err != nil {
		return nil, err
	}
	var one, many measured
	pressure, err := w.highestPressure(ctx, func() (err error) {
		if one, err = sample(ctx, over(w.proc, s.writers(w.addr, writeTopic, 1, 1))); err == nil {
			many, err = sample(ctx, over(w.proc, s.writers(w.addr, writeTopic, manyConns, 1)))
		}
		return err
	})
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	return []value{
		{ms(one.p50), fmt.Sprintf("p99 %.0f ms", ms(one.p99))},
		{ms(many.p50), fmt.Sprintf("p99 %.0f ms", ms(many.p99))},
		{1000 / many.rate, fmt.Sprintf("%.0f a second", many.rate)},
		{pressure, ""},
	}, err
}

// pressureEvery is how often the governor looks, and highestPressure at it.
const pressureEvery = 100 * time.Millisecond

// highestPressure is that of the server while do runs.
func (w *weir) highestPressure(ctx context.Context, do func() error) (highest float64, err error) {
	ctx, end := context.WithCancel(ctx)
	var watching sync.WaitGroup
	var failed error
	watching.Go(func() {
		for ctx.Err() == nil {
			p, err := w.pressure(ctx)
			if err != nil && ctx.Err() == nil {
				failed = err
				return
			}
			highest = max(highest, p)
			_ = pause(ctx, pressureEvery) // ends with the context, as the loop does
		}
	})
	err = do()
	end()
	watching.Wait()
	return highest, errors.Join(err, failed)
}

// pressure is the load that the server sees now, 0 to 1.
func (w *weir) pressure(ctx context.Context) (float64, error) {
	c, err := load.Dial(ctx, w.addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_, page, err := c.Fetch(load.Request("GET", "/v0/metrics", nil))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(page)) {
		if text, ok := strings.CutPrefix(line, "weir_pressure "); ok {
			return strconv.ParseFloat(strings.TrimSpace(text), 64)
		}
	}
	return 0, errors.New("weir_pressure is not among the metrics")
}

// Copied prints how 64 fsync writers of a server that has a synchronous copy at a URL compare
// with those of one without.
func Copied(ctx context.Context, c Config, title, url string, goal float64) error {
	b, err := newBench(c)
	if err != nil {
		return err
	}
	b.table().RatioHeader()
	found := b.runRatio(ctx, ratio{
		name: "copied-log", title: title, unit: "records", weirName: title, peer: "no copy", goal: goal, runs: b.Rounds,
		setup: func(ctx context.Context, s *session) (measure, measure, error) {
			return s.withAndWithout(ctx, []string{"WEIR_REPLICA=" + url, "WEIR_REPLICA_SYNC=true"})
		},
	})
	b.table().Ratio(&found)
	if found.Error != "" {
		return errors.New(found.Error)
	}
	return nil
}
