package overload

import (
	"sync"
	"time"
)

// never is a time that has not come.
const never = time.Duration(-1)

// fate is what became of an offer. Times count from the start of the run.
type fate struct {
	late     time.Duration // how long after its intended start its goroutine began
	stored   time.Duration // when the publish returned that stored it
	started  time.Duration // when its handler began, the first time
	ended    time.Duration // when it ended
	calls    int32
	handlers int32
	unknown  bool // a publish may have stored it
}

// refused is a publish that stored nothing.
type refused struct {
	at, took time.Duration
	kind     outcome
}

// outcome is what became of a publish.
type outcome int8

const (
	kept    outcome = iota // it is stored
	shed                   // the guard, or the server, refused
	gaveUp                 // the caller's time was over
	unclear                // it may be stored
	broken                 // any other error
)

// ledger is the outcome of a run as it goes on.
type ledger struct {
	mu      sync.Mutex
	fates   []fate
	failed  []refused
	waiting int // stored, no handler has begun
	running int // handlers at work
	stored  int // publishes that succeeded
	handled int // offers of which a handler has ended
	good    int // of these, in time
	expired int // messages that workers set aside
	strange int // deliveries that are no offer of this run
	samples []Sample
	errs    map[string]int // texts of the errors of kind broken
	width   time.Duration  // of a bin
	calls   []int          // by bin of their begin
}

// bins is how many bins of calls there are per deadline.
const bins = 10

// Sample is the state of a run at one time.
type Sample struct {
	At      float64 `json:"at"`      // seconds
	Waiting int     `json:"waiting"` // stored, no handler has begun
	Running int     `json:"running"` // handlers at work
	Stored  int     `json:"stored"`  // so far
	Handled int     `json:"handled"` // so far
	Good    int     `json:"good"`    // of these, in time
	Callers int64   `json:"callers"` // who have not given up or succeeded
	Wait    float64 `json:"wait"`    // expected wait in seconds
}

func newLedger(offers int, width time.Duration) *ledger {
	l := &ledger{fates: make([]fate, offers), errs: map[string]int{}, width: width}
	for i := range l.fates {
		l.fates[i] = fate{stored: never, started: never, ended: never}
	}
	return l
}

// called notes a call that is over.
func (l *ledger) called(a attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &l.fates[a.Offer]
	f.late = a.Late
	f.calls++
	bin := int(max(a.At, 0) / l.width)
	for len(l.calls) <= bin {
		l.calls = append(l.calls, 0)
	}
	l.calls[bin]++
	switch a.Kind {
	case kept:
		f.stored = a.Now
		l.stored++
		if f.started == never {
			l.waiting++
		}
		return
	case unclear:
		f.unknown = true
	case broken:
		l.errs[a.Text]++
	}
	l.failed = append(l.failed, refused{at: a.At, took: a.Now - a.At, kind: a.Kind})
}

// begin notes that a handler begins with offer i.
func (l *ledger) begin(i int, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &l.fates[i]
	l.running++
	if f.handlers++; f.handlers > 1 {
		return
	}
	f.started = now
	if f.stored != never {
		l.waiting--
	}
}

// end notes that it is over, whether it did its work, and whether that was in time.
func (l *ledger) end(i int, now time.Duration, done, good bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	if f := &l.fates[i]; done && f.ended == never {
		f.ended = now
		l.handled++
		if good {
			l.good++
		}
	}
}

// stranger notes a delivery of something else.
func (l *ledger) stranger() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.strange++
}

// sample notes the state at now, when the workers can do able messages per second.
func (l *ledger) sample(now time.Duration, able float64, callers int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.samples = append(l.samples, Sample{
		At: now.Seconds(), Waiting: l.waiting, Running: l.running, Stored: l.stored, Handled: l.handled, Good: l.good,
		Callers: callers, Wait: float64(l.waiting) / able,
	})
}

// setAside notes that workers have set messages aside that no handler began.
func (l *ledger) setAside(messages int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expired += messages
	l.waiting = max(0, l.waiting-messages)
}

// left is how many stored messages are not done with, and how many are.
func (l *ledger) left() (left, done int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.fates {
		if f := &l.fates[i]; f.stored != never && f.ended == never {
			left++
		}
	}
	return max(0, left-l.expired), l.handled + l.expired
}
