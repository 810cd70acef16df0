package weir

import "time"

// Hooks are called when something happens; nil hooks are skipped. They run
// synchronously, so they must be quick and must not call back into weir. No hook gets
// a message's own data, so that metrics made of them have few labels.
type Hooks struct {
	// PublishAttempt is called once for each message that enters Publish,
	// TryPublish or PublishBatch.
	PublishAttempt func(s StreamName, messages int)
	// Published is called for messages that are stored.
	Published func(s StreamName, messages int, took time.Duration)
	// PublishFailed is called for messages that are not confirmed as stored. reason
	// is a Reason, "outcome_unknown", "unavailable", "expired", "cancelled" or "error".
	PublishFailed func(s StreamName, messages int, reason string)
	// Slowing is called when a publish begins to be delayed: of a HardPause at its
	// beginning, which may be long before its end. why is for people; it names the limit
	// and what was read.
	Slowing func(s StreamName, kind SlowKind, why string)
	// Slowed is called after a publish was delayed.
	Slowed func(s StreamName, kind SlowKind, d time.Duration)
	// BackpressureRetry is called each time a publish checks the depth again.
	BackpressureRetry func(s StreamName, try int)
	// Shadowed is called for what a guard in shadow mode would have done: a
	// SlowKind or a Reason.
	Shadowed func(s StreamName, decision string)
	// SignalKnown is called when the guard's signal becomes known or unknown.
	SignalKnown func(s StreamName, known bool)
	// NearCapacity is called when the depth reaches 80 % of the limit from which a
	// publish waits, and when it falls below that again.
	NearCapacity func(s StreamName, near bool)
	// Measured is called with each reading that a guard, a pool or a sample takes.
	Measured func(s StreamName, m Measurement)

	// Settled is called when deliveries end.
	Settled func(s StreamName, o Outcome, messages int)
	// Handled is called when a handler returns.
	Handled func(s StreamName, took time.Duration, err error)
	// Reclaimed is called with the number of deliveries taken over from other workers.
	Reclaimed func(s StreamName, messages int)
	// Workers is called when a pool starts, when its number of workers or of busy ones
	// changes, and with 0 when it has ended.
	Workers func(s StreamName, workers, busy int)
}

// And returns hooks that call those of h and then those of other.
func (h Hooks) And(other Hooks) Hooks {
	return Hooks{
		PublishAttempt:    both(h.PublishAttempt, other.PublishAttempt),
		Published:         bothOf(h.Published, other.Published),
		PublishFailed:     bothOf(h.PublishFailed, other.PublishFailed),
		Slowing:           bothOf(h.Slowing, other.Slowing),
		Slowed:            bothOf(h.Slowed, other.Slowed),
		BackpressureRetry: both(h.BackpressureRetry, other.BackpressureRetry),
		Shadowed:          both(h.Shadowed, other.Shadowed),
		SignalKnown:       both(h.SignalKnown, other.SignalKnown),
		NearCapacity:      both(h.NearCapacity, other.NearCapacity),
		Measured:          both(h.Measured, other.Measured),
		Settled:           bothOf(h.Settled, other.Settled),
		Handled:           bothOf(h.Handled, other.Handled),
		Reclaimed:         both(h.Reclaimed, other.Reclaimed),
		Workers:           bothOf(h.Workers, other.Workers),
	}
}

// both calls two hooks with one value; nil if both are.
func both[A any](f, g func(StreamName, A)) func(StreamName, A) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(s StreamName, a A) {
		f(s, a)
		g(s, a)
	}
}

// bothOf calls two hooks with two values; nil if both are.
func bothOf[A, B any](f, g func(StreamName, A, B)) func(StreamName, A, B) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(s StreamName, a A, b B) {
		f(s, a, b)
		g(s, a, b)
	}
}

// StreamName names a stream in hooks and metrics.
type StreamName struct {
	Kind   string // "redis", "kafka", "embedded" or "http"
	Stream string
	Group  string
}

// SlowKind is how a publish was delayed.
type SlowKind string

// The ways in which a publish is delayed.
const (
	SoftSleep  SlowKind = "sleep"  // once, above the soft limit
	HardPause  SlowKind = "pause"  // while above the hard limit
	DepthWait  SlowKind = "depth"  // before another check of the depth
	WindowWait SlowKind = "window" // until the window of requests ends
)

// Outcome is how a delivery ended.
type Outcome string

// The outcomes of deliveries.
const (
	Acked    Outcome = "acked"
	Retried  Outcome = "retried"  // given back to be retried
	Returned Outcome = "returned" // given back before its handler began
	Dead     Outcome = "dead"     // moved to the dead letters
	Expired  Outcome = "expired"  // set aside: its deadline passed before its handler began
	Lost     Outcome = "lost"     // its data was gone before it was done
	// Unsettled: another worker had it by then, or the backend did not answer; it will be handled elsewhere or again.
	Unsettled Outcome = "unsettled"
)

// Measurement is a reading of a stream; nil fields are unknown.
type Measurement struct {
	Depth       int64 // what takes room: the backlog, as far as it was counted if the lag is unknown, and what is not due
	Pending     *int64
	Lag         *int64
	OldestAge   *time.Duration
	DeadLetters *int64
	XLen        *int64         // entries stored
	RoundTrip   *time.Duration // to the server
	Attended    *bool          // whether a worker has said within LagTTL how loaded it is
}
