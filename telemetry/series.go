package telemetry

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirmq/weir"
)

// streamLabels are the labels of weir's own metrics; a fourth one says what kind
// of thing was counted.
var streamLabels = []string{"queue_type", "stream", "group"}

// vectors are the counters and histograms.
type vectors struct {
	attempts, stored, failures, retries *prometheus.CounterVec

	messages, reclaimed, slowed, slowedSeconds, shadowed *prometheus.CounterVec
	publish, handler                                     *prometheus.HistogramVec
}

func newVectors() vectors {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	own := func(name, help string, more ...string) *prometheus.CounterVec {
		return counter(name, help, append(streamLabels[:3:3], more...)...)
	}
	times := func(name, help string, more ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 4, 10), // 0.5 ms to 131 s
		}, append(streamLabels[:3:3], more...))
	}
	return vectors{
		attempts: counter("sse_queue_produce_attempts_total", "Messages offered for publishing.", "queue_type", "stream"),
		stored:   counter("sse_queue_produce_success_total", "Messages that were stored.", "queue_type", "stream"),
		failures: counter("sse_queue_produce_failures_total", "Messages not confirmed as stored, by reason.", "queue_type", "stream", "reason"),
		retries:  counter("sse_queue_backpressure_retries_total", "Times that a publish waited and checked the depth again.", "queue_type", "stream"),

		messages:      own("weir_stream_messages_total", "Deliveries that ended: acked, retried, returned unstarted, dead, expired, lost, unsettled.", "outcome"),
		reclaimed:     own("weir_stream_reclaimed_total", "Deliveries taken over from workers that gave no sign of life."),
		slowed:        own("weir_stream_slowed_total", "Times that a publish was delayed: sleep, pause, depth, window.", "kind"),
		slowedSeconds: own("weir_stream_slowed_seconds_total", "Seconds that publishes were delayed.", "kind"),
		shadowed:      own("weir_stream_shadow_decisions_total", "What a guard in shadow mode would have done.", "decision"),
		publish:       times("weir_stream_publish_seconds", "Duration of successful publishes in seconds, including waits."),
		handler:       times("weir_stream_handler_seconds", "Duration of handlers in seconds, by result: ok, error.", "result"),
	}
}

func (v *vectors) all() []prometheus.Collector {
	return []prometheus.Collector{
		v.attempts, v.stored, v.failures, v.retries,
		v.messages, v.reclaimed, v.slowed, v.slowedSeconds, v.shadowed, v.publish, v.handler,
	}
}

// series is what is counted for one stream and group.
type series struct {
	name weir.StreamName

	attempts, stored, retries prometheus.Counter
	reclaimed                 prometheus.Counter
	acked, retried            prometheus.Counter
	dead, expired             prometheus.Counter
	publish, handlerOK        prometheus.Observer
	handlerFailed             prometheus.Observer

	signalKnown atomic.Int32 // 0: never said
	up          atomic.Int32 // the same
	judgedAt    atomic.Int64 // when a guard last looked at the signal and the capacity; Unix ns
	waiting     atomic.Int64 // publishes that a guard delays, and looks again for

	mu      sync.Mutex
	reading reading
	workers map[*owner]workerCount // of pools that run; nil: there was none
	near    map[*owner]bool        // of producers that are; nil: none ever was
}

// owner is whom hooks were made for.
type owner struct{ _ byte }

// newSeries also makes the counters that have not counted yet appear as 0, so
// that a rate sees their first event.
func newSeries(name weir.StreamName, v *vectors) *series {
	s := &series{name: name}
	s.attempts = v.attempts.WithLabelValues(name.Kind, name.Stream)
	s.stored = v.stored.WithLabelValues(name.Kind, name.Stream)
	s.retries = v.retries.WithLabelValues(name.Kind, name.Stream)
	for _, reason := range []string{string(weir.LoadShedding), string(weir.BufferFull), string(weir.QueueFull),
		"outcome_unknown", "unavailable", "expired", "cancelled", "error"} { // Hooks.PublishFailed's
		v.failures.WithLabelValues(name.Kind, name.Stream, reason)
	}
	s.reclaimed = v.reclaimed.WithLabelValues(s.labels()...)
	s.acked = v.messages.WithLabelValues(s.labels(string(weir.Acked))...)
	s.retried = v.messages.WithLabelValues(s.labels(string(weir.Retried))...)
	s.dead = v.messages.WithLabelValues(s.labels(string(weir.Dead))...)
	s.expired = v.messages.WithLabelValues(s.labels(string(weir.Expired))...)
	v.messages.WithLabelValues(s.labels(string(weir.Lost))...)
	s.publish = v.publish.WithLabelValues(s.labels()...)
	s.handlerOK = v.handler.WithLabelValues(s.labels("ok")...)
	s.handlerFailed = v.handler.WithLabelValues(s.labels("error")...)
	return s
}

// judged notes that a guard looks at the stream.
func (s *series) judged(now time.Time) { s.judgedAt.Store(now.UnixNano()) }

// isJudged reports whether what a guard has told of the stream is true still: it tells
// changes only, and looks for none while nothing is published.
func (s *series) isJudged(now time.Time) bool {
	return s.waiting.Load() > 0 || fresh(now, time.Unix(0, s.judgedAt.Load()))
}

// labels are the values of streamLabels and of one more label.
func (s *series) labels(more ...string) []string {
	return append([]string{s.name.Kind, s.name.Stream, s.name.Group}, more...)
}

func (s *series) settled(v *vectors, o weir.Outcome) prometheus.Counter {
	switch o {
	case weir.Acked:
		return s.acked
	case weir.Retried:
		return s.retried
	case weir.Dead:
		return s.dead
	case weir.Expired:
		return s.expired
	}
	return v.messages.WithLabelValues(s.labels(string(o))...)
}

func (s *series) handled(err error) prometheus.Observer {
	if err != nil {
		return s.handlerFailed
	}
	return s.handlerOK
}

// workerCount is the size of a pool.
type workerCount struct{ workers, busy int }

// tellWorkers notes the size of a pool, which is 0 when it has ended.
func (s *series) tellWorkers(of *owner, n workerCount) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.workers == nil {
		s.workers = map[*owner]workerCount{}
	}
	if n.workers > 0 {
		s.workers[of] = n
	} else {
		delete(s.workers, of)
	}
}

// allWorkers are those of all pools.
func (s *series) allWorkers() (n workerCount, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.workers {
		n.workers += one.workers
		n.busy += one.busy
	}
	return n, s.workers != nil
}

// tellNear notes whether a producer is near its capacity.
func (s *series) tellNear(of *owner, near bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.near == nil {
		s.near = map[*owner]bool{}
	}
	if near {
		s.near[of] = true
	} else {
		delete(s.near, of)
	}
}

// anyNear reports whether a producer is near its capacity.
func (s *series) anyNear() (near, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.near) > 0, s.near != nil
}

// The states of what is yes or no.
const (
	no  = 1
	yes = 2
)

func state(is bool) int32 {
	if is {
		return yes
	}
	return no
}

// reading is the last that is known of a stream. A reading without lag is one of
// a server that does not know it, so it takes the lag away; the other fields that
// a reading leaves out were only not asked for.
type reading struct {
	at, pendingAt, ageAt, deadAt, entriesAt, tripAt, attendedAt time.Time

	depth, pending, dead, entries int64
	lag                           *int64
	age, trip                     time.Duration
	attended                      bool
}

func (s *series) measured(now time.Time, m weir.Measurement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.reading
	r.at, r.depth, r.lag = now, m.Depth, m.Lag
	if m.Pending != nil {
		r.pendingAt, r.pending = now, *m.Pending
	}
	if m.OldestAge != nil {
		r.ageAt, r.age = now, *m.OldestAge
	}
	if m.DeadLetters != nil {
		r.deadAt, r.dead = now, *m.DeadLetters
	}
	if m.XLen != nil {
		r.entriesAt, r.entries = now, *m.XLen
	}
	if m.RoundTrip != nil {
		r.tripAt, r.trip = now, *m.RoundTrip
	}
	if m.Attended != nil {
		r.attendedAt, r.attended = now, *m.Attended
	}
}

func (s *series) last() reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reading
}
