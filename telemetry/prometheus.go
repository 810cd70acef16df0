// Package telemetry turns weir's hooks into Prometheus metrics.
//
// Pass the hooks of one Prometheus to every Producer and Pool of the process:
//
//	m, err := telemetry.NewPrometheus(registry)
//	p, err := weir.NewProducer(s, weir.ProducerConfig{Hooks: m.Hooks()})
//
// The sse_queue_ metrics have the names and labels that dashboards and alerts for
// guarded queues use; the weir_stream_ metrics are weir's own. No label contains a
// message's ID, key or text, and MaxStreams bounds the number of streams.
package telemetry

import (
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirmq/weir"
)

// MaxStreams is how many pairs of stream and group have metrics of their own. The
// others share the stream name "_other" and have no gauges.
const MaxStreams = 1000

// StaleAfter is how old a reading may be to be shown. A stream that is no longer read
// has no depth, rather than its last one forever.
const StaleAfter = time.Minute

// Prometheus counts what happens to streams.
type Prometheus struct {
	vecs vectors

	// series is replaced, never changed: hooks read it without a lock.
	series atomic.Pointer[map[weir.StreamName]*series]
	mu     sync.Mutex // held to replace series
}

// NewPrometheus registers the metrics with reg, which accepts them only once.
func NewPrometheus(reg prometheus.Registerer) (*Prometheus, error) {
	if reg == nil {
		return nil, errors.New("weir: NewPrometheus: the registerer is nil; prometheus.DefaultRegisterer is the usual one")
	}
	p := &Prometheus{vecs: newVectors()}
	p.series.Store(&map[weir.StreamName]*series{})
	var registered []prometheus.Collector
	for _, c := range append(p.vecs.all(), gauges{p}) {
		if err := reg.Register(c); err != nil {
			for _, r := range registered {
				reg.Unregister(r)
			}
			var twice prometheus.AlreadyRegisteredError
			if errors.As(err, &twice) {
				return nil, errors.New("weir's metrics are already in this registry: use the Hooks of the first Prometheus")
			}
			return nil, err
		}
		registered = append(registered, c)
	}
	return p, nil
}

// Hooks returns the counting hooks. Any number of Producers and Pools may share them, but
// of several of one stream each needs hooks from a call of its own: its workers, and
// whether it is near its capacity, take the place of what the same hooks told before.
func (p *Prometheus) Hooks() weir.Hooks {
	own := new(owner)
	return weir.Hooks{
		PublishAttempt: func(s weir.StreamName, n int) {
			row := p.of(s)
			row.attempts.Add(float64(n))
			row.judged(time.Now())
		},
		Published: func(s weir.StreamName, n int, took time.Duration) {
			row := p.of(s)
			row.stored.Add(float64(n))
			row.publish.Observe(took.Seconds())
		},
		PublishFailed: func(s weir.StreamName, n int, reason string) {
			p.vecs.failures.WithLabelValues(s.Kind, p.of(s).name.Stream, reason).Add(float64(n))
		},
		BackpressureRetry: func(s weir.StreamName, _ int) { p.of(s).retries.Inc() },
		Slowing:           func(s weir.StreamName, _ weir.SlowKind, _ string) { p.of(s).waiting.Add(1) },
		Slowed: func(s weir.StreamName, kind weir.SlowKind, d time.Duration) {
			row := p.of(s)
			row.waiting.Add(-1)
			row.judged(time.Now())
			labels := row.labels(string(kind))
			p.vecs.slowed.WithLabelValues(labels...).Inc()
			p.vecs.slowedSeconds.WithLabelValues(labels...).Add(d.Seconds())
		},
		Shadowed: func(s weir.StreamName, decision string) {
			p.vecs.shadowed.WithLabelValues(p.of(s).labels(decision)...).Inc()
		},
		SignalKnown: func(s weir.StreamName, known bool) {
			row := p.of(s)
			row.signalKnown.Store(state(known))
			row.judged(time.Now())
		},
		NearCapacity: func(s weir.StreamName, near bool) {
			row := p.of(s)
			row.tellNear(own, near)
			row.judged(time.Now())
		},
		Measured: func(s weir.StreamName, m weir.Measurement) { p.of(s).measured(time.Now(), m) },
		Settled: func(s weir.StreamName, o weir.Outcome, n int) {
			p.of(s).settled(&p.vecs, o).Add(float64(n))
		},
		Handled: func(s weir.StreamName, took time.Duration, err error) {
			p.of(s).handled(err).Observe(took.Seconds())
		},
		Reclaimed: func(s weir.StreamName, n int) { p.of(s).reclaimed.Add(float64(n)) },
		Workers: func(s weir.StreamName, workers, busy int) {
			p.of(s).tellWorkers(own, workerCount{workers, busy})
		},
	}
}

// Reached records whether a reading of a stream could be taken.
func (p *Prometheus) Reached(s weir.StreamName, up bool) { p.of(s).up.Store(state(up)) }

// other is the name of what is past MaxStreams.
const other = "_other"

// of returns the series of a stream.
func (p *Prometheus) of(s weir.StreamName) *series {
	if row := (*p.series.Load())[s]; row != nil {
		return row
	}
	if name := valid(s); name != s {
		return p.of(name)
	}
	return p.add(s)
}

// valid returns a name as labels may have it, which are UTF-8. Redis takes any bytes.
func valid(s weir.StreamName) weir.StreamName {
	s.Stream, s.Group = strings.ToValidUTF8(s.Stream, "\uFFFD"), strings.ToValidUTF8(s.Group, "\uFFFD")
	return s
}

func (p *Prometheus) add(s weir.StreamName) *series {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := *p.series.Load()
	if row := now[s]; row != nil {
		return row
	}
	if len(now) >= MaxStreams {
		s = weir.StreamName{Kind: s.Kind, Stream: other, Group: other}
		if row := now[s]; row != nil {
			return row
		}
	}
	row := newSeries(s, &p.vecs)
	next := maps.Clone(now)
	next[s] = row
	p.series.Store(&next)
	return row
}
