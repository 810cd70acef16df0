package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/sched"
	"github.com/weirmq/weir/internal/op"
)

// Metrics are the numbers behind /v0/metrics, all read without a topic lock
// except the leases and the per-topic rows.
type Metrics struct {
	Topics         int
	TopicsByClass  [4]int // by api.Durability
	Routers        int
	RoutersStopped int // those whose next copy is larger than their destination may ever hold
	RecordsLive    int64
	BytesLive      int64
	QueueTopics    int
	Leases         int64
	DiskFree       int64 // bytes of the data directory's file system; -1: it does not say
	DiskUsed       int64 // bytes of it in use, by whomever; only if DiskFree is known
	DiskReserve    int64 // bytes of it that client writes leave free; 0: none
	Clock          op.Clock
	Writable       bool // false while writes are refused for the disk or the log

	// What a damaged place has cost since the start: ranges that were announced as
	// lost, and the records in them.
	DamageRanges, DamageRecords uint64
	WAL                         WALMetrics
	Push                        PushMetrics

	IdempotencyKeys int64 // remembered

	Replica ReplicaMetrics
}

// ReplicaMetrics are the numbers of the copy; zero if there is none.
type ReplicaMetrics struct {
	On       bool
	Fenced   int64 // 1 once another server leads
	Term     uint64
	Lag      time.Duration // for how long the copy has not been whole
	LagBytes int64         // that it does not have
	Appends  int64         // groups stored
	Storing  time.Duration // that took, from reading a group to its being stored
	BaseAge  time.Duration // since the newest base was taken; negative: none has been yet
}

// PushMetrics are the numbers of the scheduler, the governor and the streams
// (scheduler 9).
type PushMetrics struct {
	Known                            bool // false until the load has been measured once
	Pressure                         float64
	DepthSignal, LatencySignal, Pool float64 // the three inputs, 0 to 1
	Rung                             int     // 0 to 4
	CoalesceMS, CommitMS             float64
	Ready                            [sched.Bands]int   // waiting with credit, B0 first
	Deferred                         int                // waiting without credit
	Visits                           [sched.Bands]int64 // by band
	Promotions                       int64
	Waits                            [len(sched.WaitBounds) + 1]int64 // pick-ups by wait, not cumulative; see WaitBoundsMS
	WaitSumMS                        float64
	WatchSessions                    int
	Lagged                           int64 // streams that are behind their outbox now
	LaggedTotal                      int64
	DroppedSlow                      int64 // streams closed because nothing could be written
}

// WaitBoundsMS are the upper bounds of PushMetrics.Waits; one bucket more holds
// the rest.
func WaitBoundsMS() []float64 {
	bounds := make([]float64, len(sched.WaitBounds))
	for i, b := range sched.WaitBounds {
		bounds[i] = ms(b)
	}
	return bounds
}

// DroppedSlow counts a stream that was closed because nothing could be written
// to its connection for too long.
func (e *Engine) DroppedSlow() { e.push.DroppedSlow() }

func (e *Engine) pushMetrics() PushMetrics {
	g, s, p := e.governor.State(), e.sched.Stats(), e.push.Counts()
	return PushMetrics{
		Known: g.Known, Pressure: g.Pressure, DepthSignal: g.Depth, LatencySignal: g.Latency, Pool: g.Pool, Rung: g.Rung,
		CoalesceMS: ms(g.CoalesceWindow), CommitMS: ms(g.CommitWindow),
		Ready: s.Ready, Deferred: s.Deferred, Visits: s.Visits, Promotions: s.Promotions, Waits: s.Waits, WaitSumMS: ms(s.WaitSum),
		WatchSessions: p.Sessions, Lagged: p.Lagged, LaggedTotal: p.LaggedTotal, DroppedSlow: p.DroppedSlow,
	}
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
	defer guard()
	m := Metrics{
		Topics:      e.reg.len(),
		Routers:     e.routes.len(),
		RecordsLive: e.records.Load(),
		BytesLive:   e.bytes.Load(),
		QueueTopics: int(e.queueTopics.Load()),
		DiskFree:    e.space.free.Load(),
		DiskUsed:    e.space.used.Load(),
		DiskReserve: e.space.reserve,

		IdempotencyKeys: e.keys.Load(),
	}
	m.Clock, _ = e.clocks()
	for i := range m.TopicsByClass {
		m.TopicsByClass[i] = int(e.byClass[i].Load())
	}
	if m.QueueTopics > 0 {
		now := e.leaseClock()
		for _, t := range e.reg.all() {
			if t.jobs == nil {
				continue
			}
			t.mu.Lock()
			t.jobs.q.Expire(now)
			m.Leases += int64(t.jobs.q.InFlight())
			t.mu.Unlock()
		}
	}
	for _, r := range e.routes.sorted() {
		if r.stopped.Load() {
			m.RoutersStopped++
		}
	}
	m.Push = e.pushMetrics()
	m.Replica = e.ReplicaMetrics()
	m.DamageRanges, m.DamageRecords = e.damage.totals()
	w := e.log.Metrics()
	m.WAL = WALMetrics{Frames: w.Frames, Batches: w.Batches, Fsyncs: w.Fsyncs, BytesWritten: w.Bytes, Rotations: w.Rotations,
		SubmitFull: w.SubmitFull, QueueDepth: w.QueueDepth, QueueDepthPeak: w.QueueDepthPeak, ReadOnly: w.ReadOnly,
		FsyncMicros: w.FsyncMicros, FsyncBuckets: w.FsyncBuckets, DebtSegments: w.DebtSegments}
	m.Writable = !w.ReadOnly && !e.space.refuses() && !e.space.moved.Load() && e.clogged() == nil
	return m
}

// TopicCount returns how many topics there are. It waits for none of them.
func (e *Engine) TopicCount() int {
	defer guard()
	return e.reg.len()
}

// ReplicaMetrics returns the numbers of the copy. It waits for no topic.
func (e *Engine) ReplicaMetrics() ReplicaMetrics {
	defer guard()
	if e.copier == nil {
		return ReplicaMetrics{}
	}
	return e.copier.metrics()
}

// TopicRow is one line of the per-topic metrics.
type TopicRow struct {
	Topic  string
	Queue  bool
	Config api.Config
	api.TopicCounters
	Jobs     api.QueueCounters
	Done     JobTotals
	Produced Produced
	Overload *api.Overload // nil unless the queue has a wait_slo_ms
	Streams  int           // work streams that are open
	Asked    time.Duration // since a worker has claimed last; negative: none has
	Heard    time.Duration // since a worker has claimed, acked, nacked or extended last; negative: none has
	Lease    time.Duration // that a worker has asked for last
}

// attended fills in who asks for jobs.
func (l *leased) attended(r *TopicRow, now int64) {
	if l.workers != nil {
		r.Streams = len(l.workers.all) - l.workers.claims
		if l.workers.claims > 0 {
			l.claimed = now // they are asking
		}
	}
	since := func(at int64) time.Duration {
		if at == 0 {
			return -1
		}
		return time.Duration(now-at) * time.Millisecond
	}
	r.Asked, r.Heard = since(l.claimed), since(max(l.claimed, l.settled))
	r.Lease = time.Duration(l.lease) * time.Millisecond
}

// TopicRows returns at most max rows in name order, of the topics that allowed
// accepts (nil: all), and whether there are more.
func (e *Engine) TopicRows(max int, allowed func(string) bool) ([]TopicRow, bool) {
	defer guard()
	names := e.reg.names()
	rows := make([]TopicRow, 0, min(max, len(names)))
	for _, name := range names {
		if allowed != nil && !allowed(name) {
			continue
		}
		if len(rows) == max {
			return rows, true
		}
		if r, ok := e.topicRow(name); ok {
			rows = append(rows, r)
		}
	}
	return rows, false
}

// topicRow returns the row of a topic, and whether it is there.
func (e *Engine) topicRow(name string) (TopicRow, bool) {
	t, err := e.look(name)
	if err != nil {
		return TopicRow{}, false
	}
	defer t.mu.Unlock()
	r := TopicRow{Topic: t.Name, Queue: t.jobs != nil, Config: t.Config, TopicCounters: t.counters()}
	if r.Queue {
		r.Jobs, r.Produced = t.jobCounters(e.leaseClock()), t.jobs.produced.read()
		r.Overload = e.overloadState(t)
		t.jobs.attended(&r, e.leaseClock())
		r.Done = t.jobTotals()
	}
	return r, true
}

// Busiest is TopicRows with the topics in whose backlog an operator is interested most:
// queues before logs, and among them those with most records first.
func (e *Engine) Busiest(max int, allowed func(string) bool) (rows []TopicRow, more bool) {
	defer guard()
	type size struct {
		name  string
		queue bool
		count uint64
	}
	names := e.reg.names()
	sizes := make([]size, 0, len(names))
	for _, name := range names {
		if t := e.reg.get(name); t != nil && (allowed == nil || allowed(name)) {
			t.mu.Lock()
			sizes = append(sizes, size{name, t.jobs != nil, t.Count})
			t.mu.Unlock()
		}
	}
	if more = len(sizes) > max; more {
		slices.SortFunc(sizes, func(a, b size) int {
			if a.queue != b.queue {
				if a.queue {
					return -1
				}
				return 1
			}
			return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.name, b.name))
		})
		sizes = sizes[:max]
	}
	for _, s := range sizes {
		if r, ok := e.topicRow(s.name); ok {
			rows = append(rows, r)
		}
	}
	return rows, more
}
