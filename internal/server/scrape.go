package server

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirmq/weir/internal/engine"
)

// inBaseUnits says what the metrics of the contract that are not in base units are called
// on the page /metrics, and how many of their units are one. /v0/metrics keeps their names
// for good.
var inBaseUnits = map[string]struct {
	name, help string
	per        float64
}{
	"weir_uptime_ms":            {"weir_uptime_seconds", "Seconds since the process started to serve.", 1e3},
	"weir_topic_queue_wait_ms":  {"weir_topic_queue_wait_seconds", "Seconds that a job is expected to wait; absent while not known.", 1e3},
	"weir_coalesce_window_ms":   {"weir_coalesce_window_seconds", "Seconds that pushes wait for company.", 1e3},
	"weir_commit_window_ms":     {"weir_commit_window_seconds", "Seconds that synced writes wait for company.", 1e3},
	"weir_sched_wait_ms":        {"weir_sched_wait_seconds", "Seconds from a topic's first new record to its push.", 1e3},
	"weir_wal_fsync_latency_us": {"weir_wal_fsync_duration_seconds", "Duration of the log's syncs in seconds.", 1e6},
}

// scrapeNames lists what only the page /metrics has.
var scrapeNames = []metricName{
	{"weir_build_info", "1, with the version of weir.", []string{"version"}},
	{"weir_records_appended_total", "Records written since the start, all topics.", nil},
	{"weir_jobs_claimed_total", "Deliveries of jobs since the start, all queues.", nil},
	{"weir_jobs_acked_total", "Jobs acknowledged since the start, all queues.", nil},
	{"weir_jobs_nacked_total", "Deliveries that workers gave back since the start, all queues.", nil},
	{"weir_jobs_expired_total", "Deliveries whose lease ran out since the start, all queues.", nil},
	{"weir_jobs_dead_total", "Jobs that the server has moved to the dead letters since the start, all queues.", nil},
	{"weir_disk_used_bytes", "Bytes in use on the data directory's file system, by whomever.", nil},
	{"weir_last_backup_timestamp_seconds", "When the last backup was sent to its end, in Unix seconds; absent if none was since the start.", nil},
	{"weir_tls_certificate_end_timestamp_seconds", "When the certificate in use ends, in Unix seconds; absent without TLS.", nil},
	{"weir_logins_refused_total", "Requests refused for a missing or unknown key.", nil},
	{"weir_webhook_deliveries_total", "Deliveries of a webhook that have ended, by result: ok or failed.", []string{"webhook", "result"}},
	{"weir_webhook_in_flight", "Deliveries of a webhook under way.", []string{"webhook"}},
	{"weir_webhook_failing", "1 while a webhook's deliveries fail, or no jobs can be taken for it.", []string{"webhook"}},
	{"weir_topic_queue_claimed_total", "Deliveries of the queue's jobs.", []string{"topic"}},
	{"weir_topic_queue_acked_total", "Jobs of the queue acknowledged.", []string{"topic"}},
	{"weir_topic_queue_nacked_total", "Deliveries that workers gave back.", []string{"topic"}},
	{"weir_topic_queue_expired_total", "Deliveries whose lease ran out.", []string{"topic"}},
	{"weir_topic_queue_dead_total", "Jobs that the server has moved to the dead letters.", []string{"topic"}},
	{"weir_topic_queue_dead_letters", "Dead letters of the queue that are there.", []string{"topic"}},
	{"weir_topic_queue_oldest_ready_seconds", "Age of the oldest job that can be claimed; absent if there is none or it is not known.", []string{"topic"}},
	{"weir_topic_queue_wait_objective_seconds", "The queue's wait_slo_ms.", []string{"topic"}},
	{"weir_topic_queue_attended", "1 if a worker has a work stream open, holds a job or has claimed within 10 s.", []string{"topic"}},
}

// maxAgeReads bounds how many queues' oldest jobs a page reads from the disk; the rest is
// absent until the next page.
const maxAgeReads = 200

// scrape is the collector behind /metrics: the numbers of contract 14 in base units, those
// of scrapeNames, and nothing that is not known.
type scrape struct {
	metrics
	per map[string]float64 // by the contract's name; see inBaseUnits
}

func newScrape(s *Server, allowed func(string) bool) *scrape {
	p := &scrape{metrics: metrics{s: s, allowed: allowed, desc: make(map[string]*prometheus.Desc)}, per: make(map[string]float64)}
	for _, n := range metricNames {
		name, help := n.name, n.help
		if unit, ok := inBaseUnits[name]; ok {
			name, help, p.per[n.name] = unit.name, unit.help, unit.per
		}
		p.desc[n.name] = prometheus.NewDesc(name, help, n.labels, nil)
	}
	for _, n := range scrapeNames {
		p.desc[n.name] = prometheus.NewDesc(n.name, n.help, n.labels, nil)
	}
	return p
}

// handler serves the page. extra are collectors of what concerns the whole process.
func (p *scrape) handler(extra ...prometheus.Collector) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(p)
	reg.MustRegister(extra...)
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{DisableCompression: true, EnableOpenMetrics: true})
}

func newProcessCollectors() []prometheus.Collector {
	return []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewBuildInfoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}
}

// Collect sends the current values.
func (p *scrape) Collect(ch chan<- prometheus.Metric) {
	put := func(kind prometheus.ValueType, name string, v float64, labels ...string) {
		if per, ok := p.per[name]; ok {
			kind, v = prometheus.GaugeValue, v/per
		}
		ch <- prometheus.MustNewConstMetric(p.desc[name], kind, v, labels...)
	}
	gauge := func(name string, v float64, labels ...string) { put(prometheus.GaugeValue, name, v, labels...) }
	gauge("weir_build_info", 1, p.s.version)
	if p.s.certEnds != nil {
		gauge("weir_tls_certificate_end_timestamp_seconds", float64(p.s.certEnds().Unix()))
	}
	put(prometheus.CounterValue, "weir_logins_refused_total", float64(p.s.refused.Load()))
	p.collectServing(put)
	e := p.s.engine.Load()
	if e == nil {
		return
	}
	n := e.Metrics()
	p.collectEngine(&n, put)
	p.collectDisk(&n, gauge)
	if n.DiskFree >= 0 {
		gauge("weir_disk_used_bytes", float64(n.DiskUsed))
	}
	if at := p.s.backedUp.Load(); at > 0 {
		gauge("weir_last_backup_timestamp_seconds", float64(at)/1000)
	}
	p.collectReplica(&n.Replica, ch, put)
	p.collectTotals(e.Totals(), put)
	p.collectHooks(put)
	rows, more := e.Busiest(maxTopicRows, p.allowed)
	p.collectRows(rows, more, put)
	p.collectJobs(e, rows, put)
	if n.Push.Known {
		p.collectLoad(&n.Push, put)
	}
	p.collectPush(&n.Push, put)
	p.collectLog(&n.WAL, put)
	ch <- p.schedWait(&n.Push, p.per["weir_sched_wait_ms"])
	ch <- p.fsyncLatency(&n.WAL, p.per["weir_wal_fsync_latency_us"])
}

func (p *scrape) collectTotals(n engine.Totals, put putFunc) {
	for name, v := range map[string]int64{
		"weir_records_appended_total": n.Appended,
		"weir_jobs_claimed_total":     n.Jobs.Claimed,
		"weir_jobs_acked_total":       n.Jobs.Acked,
		"weir_jobs_nacked_total":      n.Jobs.Nacked,
		"weir_jobs_expired_total":     n.Jobs.Expired,
		"weir_jobs_dead_total":        n.Jobs.Dead,
	} {
		put(prometheus.CounterValue, name, float64(v))
	}
}

// collectJobs sends what only the page has of queues.
func (p *scrape) collectJobs(e *engine.Engine, rows []engine.TopicRow, put putFunc) {
	reads := 0
	for i := range rows {
		r := &rows[i]
		if !r.Queue {
			continue
		}
		count := func(name string, v int64) { put(prometheus.CounterValue, name, float64(v), r.Topic) }
		count("weir_topic_queue_claimed_total", r.Done.Claimed)
		count("weir_topic_queue_acked_total", r.Done.Acked)
		count("weir_topic_queue_nacked_total", r.Done.Nacked)
		count("weir_topic_queue_expired_total", r.Done.Expired)
		count("weir_topic_queue_dead_total", r.Done.Dead)
		put(prometheus.GaugeValue, "weir_topic_queue_attended", number(isAttended(r)), r.Topic)
		if slo := r.Config.WaitSLOMS; slo > 0 {
			put(prometheus.GaugeValue, "weir_topic_queue_wait_objective_seconds", float64(slo)/1000, r.Topic)
		}
		if dead := deadOf(r.Topic, &r.Config); p.allowed == nil || p.allowed(dead) {
			put(prometheus.GaugeValue, "weir_topic_queue_dead_letters", float64(e.Count(dead)), r.Topic)
		}
		if r.Jobs.Ready == 0 {
			continue
		}
		ts, read, err := e.OldestReady(context.Background(), r.Topic, reads < maxAgeReads)
		if read {
			reads++
		}
		if err == nil && ts > 0 {
			age := time.Since(time.UnixMilli(ts))
			put(prometheus.GaugeValue, "weir_topic_queue_oldest_ready_seconds", max(0, age.Seconds()), r.Topic)
		}
	}
}

// isAttended reports whether somebody works on a queue.
func isAttended(r *engine.TopicRow) bool {
	return r.Streams > 0 || r.Asked >= 0 && r.Asked < attendedFor || r.Jobs.InFlight > 0
}

// getScrape answers with Prometheus text or OpenMetrics, in base units.
func (q *request) getScrape() error {
	h := q.s.scrapes
	if q.key.limited() {
		h = newScrape(q.s, q.key.allows).handler(q.s.process...)
	}
	page := rendered(h, q.r.Header["Accept"])
	q.out = append(q.out[:0], page.Bytes()...)
	q.w.Header()["Content-Type"] = page.head["Content-Type"]
	return q.sendAs(http.StatusOK)
}
