package runs

import (
	"context"
	"fmt"
	"time"
)

// sample prints a line of the table every sampleStep until the end.
func (s *saturation) sample(ctx context.Context, end time.Time) error {
	c, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	s.head()
	begin := time.Now()
	ticks := time.NewTicker(sampleStep)
	defer ticks.Stop()
	var m metrics
	visits := -1.0
	lastAcked, last := int64(0), begin
	for time.Now().Before(end) {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if m, err = c.metrics(); err != nil {
			return err
		}
		if _, ok := m["weir_pressure"]; !ok {
			return fmt.Errorf("the server has no metric weir_pressure")
		}
		acked, now := s.acked.Load(), time.Now()
		made := m.sum("weir_sched_visits_total")
		if visits >= 0 {
			s.visits = max(s.visits, (made-visits)/now.Sub(last).Seconds())
		}
		visits = made
		s.line(now.Sub(begin), m, float64(acked-lastAcked)/now.Sub(last).Seconds())
		lastAcked, last = acked, now
	}
	return nil
}

func (s *saturation) head() {
	fmt.Fprintf(s.Out, "%d connections write batches of %d to %d topics (half with cap_records %d, %d readers each); %d routers;\n",
		s.Bulk, s.BulkBatch, bulkTopics, bulkCap, bulkReaders, s.Routers)
	fmt.Fprintf(s.Out, "%d topics of negative priority, %d writes/s; a probe of each other band every %v. Times in ms, push delays p50/p99.\n\n",
		s.Low, s.LowRate, probePace)
	fmt.Fprintf(s.Out, "%5s %5s %4s %8s %6s %6s %9s %6s %6s %6s %6s %12s %12s %12s %12s %12s\n", "s", "p", "rung", "coalesce", "commit",
		"MiB", "records/s", "429", "ready", "defer", "lagged", "B4", "B3", "B2", "B1", "B0")
}

func (s *saturation) line(at time.Duration, m metrics, rate float64) {
	rss := s.memory("VmRSS")
	s.peakMiB = max(s.peakMiB, rss)
	s.highest = max(s.highest, m["weir_pressure"])
	s.rungs[int(m["weir_governor_rung"])]++
	fmt.Fprintf(s.Out, "%5.2f %5.2f %4.0f %8.1f %6.2f %6.0f %9.0f %6d %6.0f %6.0f %6.0f", at.Seconds(), m["weir_pressure"],
		m["weir_governor_rung"], m["weir_coalesce_window_ms"], m["weir_commit_window_ms"], rss, rate, s.refused.Load(),
		m.sum("weir_sched_ready"), m["weir_sched_deferred"], m["weir_sse_lagged"])
	for i := range s.delay {
		fmt.Fprintf(s.Out, " %12s", s.delay[i].take())
	}
	fmt.Fprintln(s.Out)
}

// judge prints what the run came to and returns what broke a promise.
func (s *saturation) judge() error {
	broken := &firstOf{}
	s.peakMiB = max(s.peakMiB, s.memory("VmHWM"))
	var records int64
	var tombstones, advice int
	for _, r := range s.readers.all {
		r.mu.Lock()
		records, tombstones, advice = records+r.records, tombstones+r.tombstones, advice+r.advice
		r.mu.Unlock()
	}
	fmt.Fprintf(s.Out, "%d records acknowledged, %d writes refused; readers got %d records and %d tombstones without another gap, %d advice frames\n",
		s.acked.Load(), s.refused.Load(), records, tombstones, advice)
	fmt.Fprintf(s.Out, "samples per rung: %v, highest pressure %.2f, resident set at most %.0f MiB\n", s.rungs, s.highest, s.peakMiB)
	if s.peakMiB > s.MaxMiB {
		broken.add(fmt.Errorf("the resident set reached %.0f MiB, want at most %.0f", s.peakMiB, s.MaxMiB))
	}
	rounds := s.roundsBefore()
	fmt.Fprintf(s.Out, "%.0f visits/s at most: the rounds before the last of %d entries that wait take %v\n", s.visits, s.Low, rounds.Round(time.Millisecond))
	for i := range s.delay {
		p50, p99, longest := s.delay[i].all()
		fmt.Fprintf(s.Out, "B%d: push delay p50 %s, p99 %s, longest %s ms\n", lowBand-i, short(p50), short(p99), short(longest))
		if bound := starvation + rounds + s.stalled; longest > bound {
			broken.add(fmt.Errorf("a topic of B%d waited %v, want at most %v", lowBand-i, longest, bound))
		}
	}
	return broken.err()
}

// roundsBefore is how long the rounds last that the youngest of the low topics
// has to wait for if all of them reach the top band together and have been
// paused before: every eighth visit of that band is theirs.
func (s *saturation) roundsBefore() time.Duration {
	if s.visits <= 0 {
		return 0
	}
	rounds := 8 * float64(s.Low/8+1)
	return time.Duration(rounds * visitsInRound / s.visits * float64(time.Second))
}
