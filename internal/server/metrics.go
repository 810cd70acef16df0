package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
)

// maxTopicRows bounds the per-topic metrics.
const maxTopicRows = 1000

// metrics collects the numbers of contract 14 at each scrape; nothing is counted
// here between scrapes.
type metrics struct {
	s    *Server
	page http.Handler // for those who may see every topic
	desc map[string]*prometheus.Desc

	allowed func(topic string) bool // whose rows are shown; nil: all
}

var fsyncBounds = [...]float64{50, 100, 250, 500, 1000, 5000, 10000, 50000, 100000}

// metricName is a metric with its help and labels.
type metricName struct {
	name, help string
	labels     []string
}

// putFunc sends a value of a metric, which it knows by the name of contract 14.
type putFunc = func(kind prometheus.ValueType, name string, v float64, labels ...string)

// metricNames lists the metrics of contract 14.
var metricNames = []metricName{
	{"weir_topics", "Topics that exist.", nil},
	{"weir_routers", "Routers that exist.", nil},
	{"weir_routers_stopped", "Routers whose next copy is larger than their destination may ever hold.", nil},
	{"weir_records_live", "Live records of all topics.", nil},
	{"weir_bytes_live", "Bytes of data and meta of all live records.", nil},
	{"weir_idempotency_keys", "Idempotency keys that are remembered, all topics.", nil},
	{"weir_queue_topics", "Topics of type queue.", nil},
	{"weir_queue_leases_in_flight", "Jobs under an unexpired lease, all queues.", nil},
	{"weir_disk_free_bytes", "Free bytes of the data directory's file system.", nil},
	{"weir_disk_reserve_bytes", "Free bytes below which writes are refused.", nil},
	{"weir_writable", "0 while writes are refused because of the disk or the log.", nil},
	{"weir_replica_role", "1 for the role that this server has for its copy.", []string{"role"}},
	{"weir_replica_term", "Term of the copy that this server leads.", nil},
	{"weir_replica_lag_seconds", "For how long the copy has not had all that is here.", nil},
	{"weir_replica_lag_bytes", "Bytes of the log that the copy does not have.", nil},
	{"weir_replica_append_seconds", "Time until groups were stored in the copy, and how many.", nil},
	{"weir_replica_fenced_total", "1 once another server leads.", nil},
	{"weir_replica_base_age_seconds", "Since the newest base of the copy was taken.", nil},
	{"weir_sse_connections", "Open SSE streams and WebSockets.", nil},
	{"weir_watch_sessions", "Watch sessions that exist.", nil},
	{"weir_ready", "1 once recovery is done and until the server drains.", nil},
	{"weir_recovery_progress", "Share of the recovery that is done, 0 to 1.", nil},
	{"weir_uptime_ms", "Milliseconds since the process started to serve.", nil},
	{"weir_topics_by_class", "Topics by durability class.", []string{"class"}},
	{"weir_topic_head_seq", "Last assigned number of the topic.", []string{"topic"}},
	{"weir_topic_earliest_seq", "First record of the topic that can still be read.", []string{"topic"}},
	{"weir_topic_records_live", "Live records of the topic.", []string{"topic"}},
	{"weir_topic_bytes_live", "Bytes of data and meta of the topic's live records.", []string{"topic"}},
	{"weir_topic_queue_ready", "Jobs of the queue that can be claimed now.", []string{"topic"}},
	{"weir_topic_queue_in_flight", "Jobs of the queue under an unexpired lease.", []string{"topic"}},
	{"weir_topic_queue_wait_ms", "Milliseconds that a job is expected to wait; absent while not known.", []string{"topic"}},
	{"weir_topic_queue_drain_per_second", "Jobs done per second while jobs wait; absent while not known.", []string{"topic"}},
	{"weir_topic_queue_refused_share", "Share of the offered records that the queue refuses to hold its wait_slo_ms.", []string{"topic"}},
	{"weir_topic_queue_cut_tier", "Lowest priority that such a queue still takes, 0 (background) to 5 (critical).", []string{"topic"}},
	{"weir_topic_queue_offered_total", "Records that clients wanted to write to such a queue.", []string{"topic", "priority"}},
	{"weir_topic_queue_refused_total", "Those of them that were refused.", []string{"topic", "priority"}},
	{"sse_queue_depth", "Messages of the queue that are not done.", []string{"queue_name"}},
	{"sse_queue_produce_attempts_total", "Messages that were to be written to the queue.", []string{"queue_type", "stream"}},
	{"sse_queue_produce_success_total", "Messages that were written to the queue.", []string{"queue_type", "stream"}},
	{"sse_queue_produce_failures_total", "Messages that were not written to the queue, by reason.", []string{"queue_type", "stream", "reason"}},
	{"weir_topic_metrics_truncated", "1 if there are more topics than per-topic metrics.", nil},
	{"weir_wal_frames_total", "Operations written to the log.", nil},
	{"weir_wal_batches_total", "Groups written to the log, one write each.", nil},
	{"weir_wal_fsyncs_total", "Syncs of the log.", nil},
	{"weir_wal_bytes_written_total", "Bytes written to the log.", nil},
	{"weir_wal_rotations_total", "Log segments begun after the first.", nil},
	{"weir_wal_submit_full_total", "Submissions that found the ingest queue full.", nil},
	{"weir_wal_queue_depth", "Submissions waiting for the log.", nil},
	{"weir_wal_queue_depth_peak", "Most submissions that ever waited for the log.", nil},
	{"weir_wal_read_only", "1 while the log refuses writes after a failure.", nil},
	{"weir_damage_ranges_total", "Ranges of numbers announced as lost because the disk has damaged them.", nil},
	{"weir_damage_records_total", "Records in those ranges.", nil},
	{"weir_pressure", "Load of the server, 0 to 1.", nil},
	{"weir_pressure_signal", "What the pressure is made of, 0 to 1 each.", []string{"signal"}},
	{"weir_governor_rung", "Measures against load that are in force, 0 to 4.", nil},
	{"weir_coalesce_window_ms", "Milliseconds that pushes wait for company.", nil},
	{"weir_commit_window_ms", "Milliseconds that synced writes wait for company.", nil},
	{"weir_sched_ready", "Topics that wait for their push, by band.", []string{"band"}},
	{"weir_sched_deferred", "Topics whose push is put off under load.", nil},
	{"weir_sched_visits_total", "Pushes of topics, by band.", []string{"band"}},
	{"weir_sched_promotions_total", "Topics that were pushed early because they had waited long.", nil},
	{"weir_sched_wait_ms", "Milliseconds from a topic's first new record to its push.", nil},
	{"weir_throttled_total", "Answers of 429, by reason.", []string{"reason"}},
	{"weir_sse_lagged", "Streams whose client is behind what is queued for it.", nil},
	{"weir_sse_lagged_total", "Times that a stream's client fell behind.", nil},
	{"weir_sse_dropped_slow_total", "Streams that were closed because their client took nothing.", nil},
	{"weir_wal_fsync_latency_us", "Duration of the log's syncs in microseconds.", nil},
}

func newMetrics(s *Server) *metrics {
	m := &metrics{s: s, desc: make(map[string]*prometheus.Desc, len(metricNames))}
	for _, n := range metricNames {
		m.desc[n.name] = prometheus.NewDesc(n.name, n.help, n.labels, nil)
	}
	m.page = m.handler()
	return m
}

func (m *metrics) handler() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(m)
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{DisableCompression: true, ErrorHandling: promhttp.PanicOnError})
}

// pageFor returns the page with the rows of the topics the key may see.
func (m *metrics) pageFor(k *apiKey) http.Handler {
	if !k.limited() {
		return m.page
	}
	own := &metrics{s: m.s, desc: m.desc, allowed: k.allows}
	return own.handler()
}

// Describe sends the descriptions of all metrics.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range m.desc {
		ch <- d
	}
}

// Collect sends the current values.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	put := func(kind prometheus.ValueType, name string, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(m.desc[name], kind, v, labels...)
	}
	n, _ := m.read()
	m.collectServing(put)
	m.collectEngine(&n, put)
	m.collectDisk(&n, func(name string, v float64, labels ...string) { put(prometheus.GaugeValue, name, v, labels...) })
	m.collectReplica(&n.Replica, ch, put)
	m.collectTopics(put)
	m.collectLoad(&n.Push, put)
	m.collectPush(&n.Push, put)
	m.collectLog(&n.WAL, put)
	ch <- m.schedWait(&n.Push, 1)
	ch <- m.fsyncLatency(&n.WAL, 1)
}

// collectServing sends what is known without an engine.
func (m *metrics) collectServing(put putFunc) {
	_, ready := m.read()
	if r := m.s.relay; r != nil {
		ready = r.Connected() && !m.s.draining.Load()
	}
	if m.s.standby.Load() {
		put(prometheus.GaugeValue, "weir_replica_role", 1, "standby")
	}
	put(prometheus.GaugeValue, "weir_sse_connections", float64(m.s.streams.count()))
	put(prometheus.GaugeValue, "weir_ready", number(ready))
	put(prometheus.GaugeValue, "weir_recovery_progress", m.s.Recovered())
	put(prometheus.CounterValue, "weir_uptime_ms", float64(m.s.uptime()))
	for _, reason := range throttleReasons {
		put(prometheus.CounterValue, "weir_throttled_total", float64(m.s.throttles[reason].Load()), reason)
	}
}

// collectEngine sends the sizes.
func (m *metrics) collectEngine(n *engine.Metrics, put putFunc) {
	gauge := func(name string, v float64) { put(prometheus.GaugeValue, name, v) }
	gauge("weir_topics", float64(n.Topics))
	gauge("weir_routers", float64(n.Routers))
	gauge("weir_routers_stopped", float64(n.RoutersStopped))
	gauge("weir_records_live", float64(n.RecordsLive))
	gauge("weir_bytes_live", float64(n.BytesLive))
	gauge("weir_idempotency_keys", float64(n.IdempotencyKeys))
	gauge("weir_queue_topics", float64(n.QueueTopics))
	gauge("weir_queue_leases_in_flight", float64(n.Leases))
	gauge("weir_watch_sessions", float64(n.Push.WatchSessions))
	for class, count := range n.TopicsByClass {
		put(prometheus.GaugeValue, "weir_topics_by_class", float64(count), api.Durability(class).String())
	}
	put(prometheus.CounterValue, "weir_damage_ranges_total", float64(n.DamageRanges))
	put(prometheus.CounterValue, "weir_damage_records_total", float64(n.DamageRecords))
}

func (m *metrics) collectDisk(n *engine.Metrics, gauge func(string, float64, ...string)) {
	if m.s.engine.Load() == nil {
		return // not known yet
	}
	if n.DiskFree >= 0 {
		gauge("weir_disk_free_bytes", float64(n.DiskFree))
	}
	gauge("weir_disk_reserve_bytes", float64(n.DiskReserve))
	gauge("weir_writable", number(n.Writable))
}

// collectReplica sends the numbers of the copy, if there is one.
func (m *metrics) collectReplica(r *engine.ReplicaMetrics, ch chan<- prometheus.Metric, put putFunc) {
	if !r.On {
		return
	}
	role := "leader"
	if r.Fenced > 0 {
		role = "fenced"
	}
	put(prometheus.GaugeValue, "weir_replica_role", 1, role)
	put(prometheus.GaugeValue, "weir_replica_term", float64(r.Term))
	put(prometheus.GaugeValue, "weir_replica_lag_seconds", r.Lag.Seconds())
	put(prometheus.GaugeValue, "weir_replica_lag_bytes", float64(r.LagBytes))
	put(prometheus.CounterValue, "weir_replica_fenced_total", float64(r.Fenced))
	if r.BaseAge >= 0 {
		put(prometheus.GaugeValue, "weir_replica_base_age_seconds", r.BaseAge.Seconds())
	}
	ch <- prometheus.MustNewConstSummary(m.desc["weir_replica_append_seconds"], uint64(r.Appends), r.Storing.Seconds(), nil)
}

const producedFor = "weir" // label queue_type

func (m *metrics) collectTopics(put putFunc) {
	var rows []engine.TopicRow
	var more bool
	if e := m.s.engine.Load(); e != nil {
		rows, more = e.TopicRows(maxTopicRows, m.allowed)
	}
	m.collectRows(rows, more, put)
}

func (m *metrics) collectRows(rows []engine.TopicRow, more bool, put putFunc) {
	gauge := func(name string, v float64, labels ...string) { put(prometheus.GaugeValue, name, v, labels...) }
	count := func(name string, v int64, labels ...string) {
		put(prometheus.CounterValue, name, float64(v), labels...)
	}
	for i := range rows {
		r := &rows[i]
		gauge("weir_topic_head_seq", float64(r.HeadSeq), r.Topic)
		gauge("weir_topic_earliest_seq", float64(r.EarliestSeq), r.Topic)
		gauge("weir_topic_records_live", float64(r.Count), r.Topic)
		gauge("weir_topic_bytes_live", float64(r.Bytes), r.Topic)
		if r.Queue {
			gauge("weir_topic_queue_ready", float64(r.Jobs.Ready), r.Topic)
			gauge("weir_topic_queue_in_flight", float64(r.Jobs.InFlight), r.Topic)
			gauge("sse_queue_depth", float64(r.Count), r.Topic)
			count("sse_queue_produce_attempts_total", r.Produced.Attempts, producedFor, r.Topic)
			count("sse_queue_produce_success_total", r.Produced.Stored, producedFor, r.Topic)
			for i, n := range r.Produced.Failed { // zeroes too: a rate has to see the first event
				count("sse_queue_produce_failures_total", n, producedFor, r.Topic, engine.ProduceReasons[i])
			}
			if r.Overload != nil {
				collectOverload(r.Topic, r.Overload, put)
			}
		}
	}
	gauge("weir_topic_metrics_truncated", number(more))
}

// collectOverload sends what a queue with a wait_slo_ms takes.
func collectOverload(topic string, o *api.Overload, put putFunc) {
	if o.Wait >= 0 {
		put(prometheus.GaugeValue, "weir_topic_queue_wait_ms", float64(o.Wait.Milliseconds()), topic)
	}
	if o.Drain > 0 {
		put(prometheus.GaugeValue, "weir_topic_queue_drain_per_second", o.Drain, topic)
	}
	put(prometheus.GaugeValue, "weir_topic_queue_refused_share", o.Refused, topic)
	put(prometheus.GaugeValue, "weir_topic_queue_cut_tier", float64(o.Lowest.Rank()), topic)
	for rank, n := range o.Tiers {
		tier, _ := api.TierOf(rank)
		put(prometheus.CounterValue, "weir_topic_queue_offered_total", float64(n.Offered), topic, tier.String())
		put(prometheus.CounterValue, "weir_topic_queue_refused_total", float64(n.Refused), topic, tier.String())
	}
}

// collectLoad sends what the governor has measured.
func (m *metrics) collectLoad(p *engine.PushMetrics, put putFunc) {
	gauge := func(name string, v float64, labels ...string) { put(prometheus.GaugeValue, name, v, labels...) }
	gauge("weir_pressure", p.Pressure)
	gauge("weir_pressure_signal", p.DepthSignal, "depth")
	gauge("weir_pressure_signal", p.LatencySignal, "latency")
	gauge("weir_pressure_signal", p.Pool, "pool")
	gauge("weir_governor_rung", float64(p.Rung))
	gauge("weir_coalesce_window_ms", p.CoalesceMS)
	gauge("weir_commit_window_ms", p.CommitMS)
}

// collectPush sends the other numbers of scheduler 9, except the histogram.
func (m *metrics) collectPush(p *engine.PushMetrics, put putFunc) {
	gauge := func(name string, v float64, labels ...string) { put(prometheus.GaugeValue, name, v, labels...) }
	count := func(name string, v int64, labels ...string) {
		put(prometheus.CounterValue, name, float64(v), labels...)
	}
	for band := range p.Ready {
		name := "B" + strconv.Itoa(band)
		gauge("weir_sched_ready", float64(p.Ready[band]), name)
		count("weir_sched_visits_total", p.Visits[band], name)
	}
	gauge("weir_sched_deferred", float64(p.Deferred))
	count("weir_sched_promotions_total", p.Promotions)
	gauge("weir_sse_lagged", float64(p.Lagged))
	count("weir_sse_lagged_total", p.LaggedTotal)
	count("weir_sse_dropped_slow_total", p.DroppedSlow)
}

func (m *metrics) schedWait(p *engine.PushMetrics, per float64) prometheus.Metric {
	bounds := engine.WaitBoundsMS()
	buckets := make(map[float64]uint64, len(bounds))
	var sum uint64
	for i, bound := range bounds {
		sum += uint64(p.Waits[i])
		buckets[bound/per] = sum
	}
	sum += uint64(p.Waits[len(bounds)])
	return prometheus.MustNewConstHistogram(m.desc["weir_sched_wait_ms"], sum, p.WaitSumMS/per, buckets)
}

func (m *metrics) collectLog(w *engine.WALMetrics, put putFunc) {
	for name, v := range map[string]int64{
		"weir_wal_frames_total":        w.Frames,
		"weir_wal_batches_total":       w.Batches,
		"weir_wal_fsyncs_total":        w.Fsyncs,
		"weir_wal_bytes_written_total": w.BytesWritten,
		"weir_wal_rotations_total":     w.Rotations,
		"weir_wal_submit_full_total":   w.SubmitFull,
	} {
		put(prometheus.CounterValue, name, float64(v))
	}
	put(prometheus.GaugeValue, "weir_wal_queue_depth", float64(w.QueueDepth))
	put(prometheus.GaugeValue, "weir_wal_queue_depth_peak", float64(w.QueueDepthPeak))
	put(prometheus.GaugeValue, "weir_wal_read_only", number(w.ReadOnly))
}

func (m *metrics) fsyncLatency(w *engine.WALMetrics, per float64) prometheus.Metric {
	buckets := make(map[float64]uint64, len(fsyncBounds))
	var sum uint64
	for i, bound := range fsyncBounds {
		sum += uint64(w.FsyncBuckets[i])
		buckets[bound/per] = sum
	}
	sum += uint64(w.FsyncBuckets[len(fsyncBounds)])
	return prometheus.MustNewConstHistogram(m.desc["weir_wal_fsync_latency_us"], sum, float64(w.FsyncMicros)/per, buckets)
}

// read returns the engine's numbers, zeros while there is no engine.
func (m *metrics) read() (n engine.Metrics, ready bool) {
	if e := m.s.engine.Load(); e != nil {
		return e.Metrics(), !m.s.draining.Load()
	}
	return engine.Metrics{}, false
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// getMetrics answers with Prometheus text, or with a JSON snapshot if Accept
// names JSON.
func (q *request) getMetrics() error {
	m := q.s.metrics
	if strings.Contains(strings.Join(q.r.Header.Values("Accept"), ","), "application/json") {
		b, err := json.Marshal(m.snapshot())
		if err != nil {
			return err
		}
		q.out = append(q.out[:0], b...)
		return q.send(http.StatusOK)
	}
	q.out = append(q.out[:0], rendered(m.pageFor(q.key), nil).Bytes()...)
	q.w.Header()["Content-Type"] = headerText
	return q.sendAs(http.StatusOK)
}

// pageBuffer takes an answer of promhttp.
type pageBuffer struct {
	bytes.Buffer
	head http.Header
}

// rendered is a page of promhttp, in the form that accept asks for; nil: text.
func rendered(page http.Handler, accept []string) *pageBuffer {
	p := &pageBuffer{head: make(http.Header)}
	page.ServeHTTP(p, &http.Request{Method: http.MethodGet, Header: http.Header{"Accept": accept}})
	return p
}

func (p *pageBuffer) Header() http.Header { return p.head }
func (p *pageBuffer) WriteHeader(int)     {}

// snapshot is the JSON form of the metrics.
type snapshot struct {
	Topics          int     `json:"topics"`
	TopicsEphemeral int     `json:"topics_ephemeral"`
	TopicsMemory    int     `json:"topics_memory"`
	TopicsDisk      int     `json:"topics_disk"`
	TopicsFsync     int     `json:"topics_fsync"`
	Routers         int     `json:"routers"`
	RoutersStopped  int     `json:"routers_stopped"`
	RecordsLive     int64   `json:"records_live"`
	BytesLive       int64   `json:"bytes_live"`
	IdempotencyKeys int64   `json:"idempotency_keys"`
	QueueTopics     int     `json:"queue_topics"`
	Leases          int64   `json:"queue_leases_in_flight"`
	SSEConnections  int64   `json:"sse_connections"`
	WatchSessions   int     `json:"watch_sessions"`
	Ready           bool    `json:"ready"`
	ReplayProgress  float64 `json:"replay_progress"`
	DiskFree        int64   `json:"disk_free_bytes,omitempty"`
	DiskReserve     int64   `json:"disk_reserve_bytes"`
	Writable        bool    `json:"writable"`
	UptimeMS        int64   `json:"uptime_ms"`
	WAL             walPart `json:"wal"`
}

type walPart struct {
	Fsyncs         int64 `json:"fsyncs"`
	Frames         int64 `json:"frames"`
	Batches        int64 `json:"batches"`
	BytesWritten   int64 `json:"bytes_written"`
	Rotations      int64 `json:"rotations"`
	QueueDepth     int64 `json:"queue_depth"`
	QueueDepthPeak int64 `json:"queue_depth_peak"`
	SubmitFull     int64 `json:"submit_full_total"`
	ReadOnly       bool  `json:"read_only"`
	FsyncCount     int64 `json:"fsync_count"`
	FsyncMicros    int64 `json:"fsync_micros_total"`
}

func (m *metrics) snapshot() snapshot {
	n, ready := m.read()
	w := &n.WAL
	var syncs int64
	for _, b := range w.FsyncBuckets {
		syncs += b
	}
	return snapshot{
		Topics:          n.Topics,
		TopicsEphemeral: n.TopicsByClass[api.Ephemeral],
		TopicsMemory:    n.TopicsByClass[api.Memory],
		TopicsDisk:      n.TopicsByClass[api.Disk],
		TopicsFsync:     n.TopicsByClass[api.Fsync],
		Routers:         n.Routers,
		RoutersStopped:  n.RoutersStopped,
		RecordsLive:     n.RecordsLive,
		BytesLive:       n.BytesLive,
		IdempotencyKeys: n.IdempotencyKeys,
		QueueTopics:     n.QueueTopics,
		Leases:          n.Leases,
		SSEConnections:  m.s.streams.count(),
		WatchSessions:   n.Push.WatchSessions,
		Ready:           ready,
		ReplayProgress:  m.s.Recovered(),
		DiskFree:        max(0, n.DiskFree),
		DiskReserve:     n.DiskReserve,
		Writable:        n.Writable,
		UptimeMS:        m.s.uptime(),
		WAL: walPart{
			Fsyncs: w.Fsyncs, Frames: w.Frames, Batches: w.Batches, BytesWritten: w.BytesWritten,
			Rotations: w.Rotations, QueueDepth: w.QueueDepth, QueueDepthPeak: w.QueueDepthPeak,
			SubmitFull: w.SubmitFull, ReadOnly: w.ReadOnly, FsyncCount: syncs, FsyncMicros: w.FsyncMicros,
		},
	}
}
