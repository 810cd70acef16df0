package engine

import (
	"github.com/weirmq/weir/internal/api"
)

// Metrics are the numbers behind /v0/metrics, all read without a topic lock
// except the leases and the per-topic rows.
type Metrics struct {
	Topics        int
	TopicsByClass [4]int // by api.Durability
	Routers       int
	RecordsLive   int64
	BytesLive     int64
	QueueTopics   int
	Leases        int64

	WAL WALMetrics
}

// WALMetrics are the counters of the log.
type WALMetrics struct {
	Frames, Batches, Fsyncs, BytesWritten, Rotations int64
	SubmitFull                                       int64
	QueueDepth, QueueDepthPeak                       int64
	ReadOnly                                         bool
	FsyncMicros                                      int64
	FsyncBuckets                                     [10]int64 // not cumulative: ≤50, 100, 250, 500, 1000, 5000, 10000, 50000, 100000 µs, +Inf
	DebtSegments                                     int       // sealed segments waiting for the builder
}

// Metrics returns the current numbers.
func (e *Engine) Metrics() Metrics {
	m := Metrics{
		Topics:      e.reg.len(),
		RecordsLive: e.records.Load(),
		BytesLive:   e.bytes.Load(),
		QueueTopics: int(e.queueTopics.Load()),
	}
	for i := range m.TopicsByClass {
		m.TopicsByClass[i] = int(e.byClass[i].Load())
	}
	if m.QueueTopics > 0 {
		now := e.leaseClock()
		for _, t := range e.reg.all() {
			if t.q == nil {
				continue
			}
			t.mu.Lock()
			t.q.Expire(now)
			m.Leases += int64(t.q.InFlight())
			t.mu.Unlock()
		}
	}
	w := e.log.Metrics()
	m.WAL = WALMetrics{Frames: w.Frames, Batches: w.Batches, Fsyncs: w.Fsyncs, BytesWritten: w.Bytes, Rotations: w.Rotations,
		SubmitFull: w.SubmitFull, QueueDepth: w.QueueDepth, QueueDepthPeak: w.QueueDepthPeak, ReadOnly: w.ReadOnly,
		FsyncMicros: w.FsyncMicros, FsyncBuckets: w.FsyncBuckets, DebtSegments: w.DebtSegments}
	return m
}

// TopicRow is one line of the per-topic metrics.
type TopicRow struct {
	Topic string
	Queue bool
	api.TopicCounters
	Jobs api.QueueCounters
}

// TopicRows returns at most max rows in name order and whether there are more.
func (e *Engine) TopicRows(max int) ([]TopicRow, bool) {
	names := e.reg.names()
	rows := make([]TopicRow, 0, min(max, len(names)))
	for _, name := range names {
		if len(rows) == max {
			return rows, true
		}
		t, err := e.lock(name)
		if err != nil {
			continue
		}
		r := TopicRow{Topic: t.Name, Queue: t.q != nil, TopicCounters: t.counters()}
		if r.Queue {
			r.Jobs = t.jobs(e.leaseClock())
		}
		t.mu.Unlock()
		rows = append(rows, r)
	}
	return rows, false
}
