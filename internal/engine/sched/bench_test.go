package sched

import (
	"testing"
	"time"
)

func BenchmarkMarkDirtyAgain(b *testing.B) {
	s, tp := New(1), newTopic("", 0)
	s.Mark(&tp.Task, 0)
	b.ReportAllocs()
	for b.Loop() {
		s.Mark(&tp.Task, 0)
	}
}

func BenchmarkNext(b *testing.B) {
	for name, topics := range map[string]int{"one": 1, "100k": 100_000} {
		b.Run(name, func(b *testing.B) {
			s, now := New(1), time.Duration(0)
			for i := range topics {
				tp := newTopic("", bases[i%Bands])
				s.Mark(&tp.Task, now)
			}
			b.ReportAllocs()
			for b.Loop() {
				now += time.Microsecond
				t, _, _ := s.Next(0, now)
				s.Mark(t, now)
			}
		})
	}
}

const crowd = 100_000 // topics

func BenchmarkTick100k(b *testing.B) {
	s, now := New(1), time.Duration(0)
	for range crowd {
		s.Mark(&newTopic("", 0).Task, now)
	}
	b.ReportAllocs()
	for b.Loop() {
		now += 50 * time.Millisecond
		s.Tick(now)
	}
	reportHold(b)
}

// BenchmarkTickMoves100k moves every entry to another band.
func BenchmarkTickMoves100k(b *testing.B) {
	s, base := New(1), 0
	for range crowd {
		tp := newTopic("", 0)
		tp.Init(ids, tp, func() int { return base })
		s.Mark(&tp.Task, 0)
	}
	for b.Loop() {
		base = 600 - base
		s.Tick(0)
	}
	reportHold(b)
}

// reportHold reports how long a tick holds the lock at a time, which may be 1 ms.
func reportHold(b *testing.B) {
	b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(b.N)*chunk/crowd, "us/hold")
}

func BenchmarkSample(b *testing.B) {
	s := New(2)
	b.ReportAllocs()
	for b.Loop() {
		s.Sample(0)
	}
}
