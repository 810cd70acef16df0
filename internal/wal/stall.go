package wal

import (
	"fmt"
	"runtime/debug"
	"time"
)

// stallLooks is how many looks in a row have to find the log standing still.
// Looks are counted, not time: a process that was suspended has not looked.
const stallLooks = 30

// A stance is what the watchdog sees at one moment.
type stance struct {
	// What moves.
	written, synced, gen uint64
	steps                uint64 // of the keeper, in files it prepares
	syncs                uint64 // begun

	// What waits. If locked nobody could look at the rest.
	locked    bool
	readOnly  bool // for a cause that every write reports
	healing   bool
	closing   bool
	unwritten bool
	unsynced  bool // wanted by somebody, or due
	callers   int32
}

func (l *Log) stance() stance {
	s := stance{gen: l.gen.Load(), written: l.written.Load(), synced: l.synced.Load(),
		steps: l.steps.Load(), syncs: l.syncs.Load(), callers: l.callers.Load()}
	// The lock may be what the log waits for.
	if !l.mu.TryLock() {
		s.locked = true
		return s
	}
	defer l.mu.Unlock()
	s.closing = l.mu.closed
	s.readOnly = l.mu.broken != nil && l.blocked.Load()&blockReadOnly != 0
	s.healing = l.mu.broken != nil && !s.readOnly
	s.unwritten = l.mu.writing || l.mu.group.chunk != nil || len(l.mu.pending) > 0
	s.unsynced = l.mu.syncing || l.mu.syncWaiters > 0 ||
		!l.mu.dirtySince.IsZero() && time.Since(l.mu.dirtySince) > l.opt.FlushEvery
	return s
}

// A stallWatch counts for how many looks each kind of work has stood still.
type stallWatch struct {
	period time.Duration
	at     time.Time
	last   stance

	write, sync, all int
}

// look compares s with the look before and says what stands still, or "".
func (w *stallWatch) look(now time.Time, s stance) string {
	last, gap := w.last, now.Sub(w.at)
	w.last, w.at = s, now
	if gap > 3*w.period {
		// The process or its machine was suspended: start counting again.
		w.write, w.sync, w.all = 0, 0, 0
		return ""
	}
	same, prepared := s.gen == last.gen, s.steps != last.steps
	count := func(n *int, still bool) bool {
		if !still {
			*n = 0
			return false
		}
		*n++
		return *n >= stallLooks
	}
	wrote := s.written != last.written
	writing := same && !prepared && !wrote
	// A sync waits for a write, and that for a file, before it begins.
	syncing := same && !(prepared && s.unwritten && !wrote) && s.synced == last.synced && s.syncs == last.syncs
	ok := !s.readOnly && !s.healing
	write := count(&w.write, writing && (s.locked || ok && s.unwritten))
	sync := count(&w.sync, syncing && (s.locked || ok && s.unsynced))
	all := count(&w.all, writing && syncing && (s.locked || s.closing || s.healing || !s.readOnly && s.callers > 0))
	switch {
	case s.locked && (write || sync || all):
		return "its lock is held"
	case write:
		return "what was appended is not written"
	case sync:
		return "what was written is not synced"
	case all && s.healing:
		return "a failed file is not replaced"
	case all && s.closing:
		return "it does not close"
	case all:
		return fmt.Sprintf("%d callers wait", s.callers)
	}
	return ""
}

// runWatch tells Options.Stalled when the log stands still. It ends after
// everything else of the log, so that a Close that hangs is seen too.
func (l *Log) runWatch() {
	defer close(l.watched)
	w := stallWatch{period: max(l.opt.StallAfter/stallLooks, time.Millisecond), at: time.Now(), last: l.stance()}
	tick := time.NewTicker(w.period)
	defer tick.Stop()
	for {
		select {
		case <-l.unwatch:
			return
		case <-tick.C:
		}
		if what := w.look(time.Now(), l.stance()); what != "" {
			l.opt.Stalled(what)
			return
		}
	}
}

// dieOfPanic ends the process if the function that defers it panics. Its
// caller may recover, as net/http does for handlers, and go on with a log whose
// lock nobody gives back.
func dieOfPanic() {
	cause := recover()
	if cause == nil {
		return
	}
	stack := debug.Stack()
	go func() { panic(fmt.Sprintf("wal: %v\n\n%s", cause, stack)) }() // nobody recovers this one
	select {}
}
