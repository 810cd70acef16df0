package weir

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// stage is what the attribute of the same name holds, for filters and alerts.
type stage int

const (
	stageBackpressure stage = iota // a publish was slowed, paused or refused for pressure
	stageShedding                  // a publish was refused by the gate or the window
	stageRetry                     // a publish checks the depth again
	stageWarning                   // the stream is near its capacity
	stages
)

var stageNames = [stages]string{"QUEUE.BACKPRESSURE", "QUEUE.LOAD_SHEDDING", "QUEUE.RETRY", "QUEUE.WARNING"}

// stageEvery is the shortest time between two lines of one stage and stream.
const stageEvery = time.Second

// stageLog writes at most one line per stage and second for its stream. What happens
// in between is counted and reported by the next line, at the latest when the second
// is over.
type stageLog struct {
	stream string
	stages [stages]struct {
		sync.Mutex
		last  time.Time // of the last line
		held  int       // events since then
		event event     // the last of these
		timer *time.Timer
	}
}

// event is what a line says about the last thing that it stands for.
type event struct {
	logger   *slog.Logger
	text     string
	decision string // a SlowKind or a Reason
	shadow   bool   // it was only simulated
	signal   int64  // -1: not known
	depth    int64  // -1: not known
	max      int64
	try      int // 0: not a retry
	wait     time.Duration
}

// note counts e, and writes it if the stage has been silent for long enough.
func (l *stageLog) note(which stage, e event) {
	s := &l.stages[which]
	s.Lock()
	defer s.Unlock()
	now := time.Now()
	s.held++
	s.event = e
	switch quiet := now.Sub(s.last); {
	case s.timer != nil: // it will tell
	case s.last.IsZero() || quiet >= stageEvery:
		l.write(which, now)
	default:
		s.timer = time.AfterFunc(stageEvery-quiet, func() { l.tell(which) })
	}
}

// tell writes what a stage holds back.
func (l *stageLog) tell(which stage) {
	s := &l.stages[which]
	s.Lock()
	defer s.Unlock()
	if s.timer == nil {
		return // flush was quicker
	}
	s.timer.Stop()
	s.timer = nil
	l.write(which, time.Now())
}

// flush writes what all stages hold back, even if their second is not over.
func (l *stageLog) flush() {
	for which := range stages {
		l.tell(which)
	}
}

// write needs the stage's lock; the line is written under it, so that nothing is
// logged once flush has returned.
func (l *stageLog) write(which stage, now time.Time) {
	s := &l.stages[which]
	e := s.event
	attrs := []slog.Attr{
		slog.String("stage", stageNames[which]),
		slog.String("stream", l.stream),
		slog.Int("count", s.held),
		slog.String("decision", e.decision),
		slog.Int64("max_depth", e.max),
	}
	if e.signal >= 0 {
		attrs = append(attrs, slog.Int64("signal", e.signal))
	}
	if e.depth >= 0 {
		attrs = append(attrs, slog.Int64("depth", e.depth))
	}
	if e.try > 0 {
		attrs = append(attrs, slog.Int("try", e.try))
	}
	if e.wait > 0 {
		attrs = append(attrs, slog.Duration("wait", e.wait))
	}
	if e.shadow {
		attrs = append(attrs, slog.Bool("shadow", true))
	}
	s.held, s.event, s.last = 0, event{}, now
	e.logger.LogAttrs(context.Background(), slog.LevelWarn, e.text, attrs...)
}
