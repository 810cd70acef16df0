package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gauges collects the readings at each scrape: what is not known, or not known
// any more, has no sample.
type gauges struct{ p *Prometheus }

func gauge(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, streamLabels, nil)
}

var (
	depthDesc = prometheus.NewDesc("sse_queue_depth",
		"Unfinished messages of the group that is furthest behind; if the server does not know, as far as they were counted.",
		[]string{"queue_name"}, nil)
	pendingDesc     = gauge("weir_stream_pending", "Messages delivered and not acknowledged.")
	lagDesc         = gauge("weir_stream_lag", "Messages not delivered yet; absent while the server does not know.")
	lagKnownDesc    = gauge("weir_stream_lag_known", "1 if the last reading had a lag, 0 if the server did not know it.")
	ageDesc         = gauge("weir_stream_oldest_age_seconds", "Age of the oldest unfinished message.")
	deadDesc        = gauge("weir_stream_dead_letters", "Dead letters of the stream.")
	entriesDesc     = gauge("weir_stream_entries", "Entries stored, including finished ones.")
	tripDesc        = gauge("weir_stream_round_trip_seconds", "Duration of a no-op call to the server in seconds.")
	attendedDesc    = gauge("weir_stream_attended", "1 if a worker has said within lag_ttl how loaded it is, as a guard has read, else 0.")
	upDesc          = gauge("weir_stream_up", "1 if the last reading of the stream succeeded, else 0.")
	signalDesc      = gauge("weir_stream_signal_known", "1 while what the guard goes by is known, else 0.")
	nearDesc        = gauge("weir_stream_near_capacity", "1 while the depth is at 80 % or more of the limit from which a publish waits, 0 below.")
	workersDesc     = gauge("weir_stream_workers", "Workers of this process's pools.")
	busyDesc        = gauge("weir_stream_workers_busy", "Busy workers of this process's pools.")
	truncatedDesc   = prometheus.NewDesc("weir_stream_metrics_truncated", "1 if there are more streams than have metrics of their own.", nil, nil)
	everyGaugesDesc = []*prometheus.Desc{
		depthDesc, pendingDesc, lagDesc, lagKnownDesc, ageDesc, deadDesc, entriesDesc, tripDesc, attendedDesc, upDesc, signalDesc, nearDesc, workersDesc, busyDesc, truncatedDesc,
	}
)

// Describe sends the descriptions of the gauges.
func (g gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range everyGaugesDesc {
		ch <- d
	}
}

// Collect sends the values that are known.
func (g gauges) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	all := *g.p.series.Load()
	depths := map[string]int64{}
	for _, s := range all {
		if s.name.Stream == other {
			continue
		}
		if r := s.last(); fresh(now, r.at) {
			depths[s.name.Stream] = max(depths[s.name.Stream], r.depth)
		}
		s.collect(now, func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, s.labels()...)
		})
	}
	for name, depth := range depths {
		ch <- prometheus.MustNewConstMetric(depthDesc, prometheus.GaugeValue, float64(depth), name)
	}
	ch <- prometheus.MustNewConstMetric(truncatedDesc, prometheus.GaugeValue, flag(len(all) >= MaxStreams))
}

func (s *series) collect(now time.Time, put func(*prometheus.Desc, float64)) {
	r := s.last()
	if fresh(now, r.at) {
		put(lagKnownDesc, flag(r.lag != nil))
		if r.lag != nil {
			put(lagDesc, float64(*r.lag))
		}
	}
	if near, known := s.anyNear(); known && s.isJudged(now) {
		put(nearDesc, flag(near))
	}
	if fresh(now, r.pendingAt) {
		put(pendingDesc, float64(r.pending))
	}
	if fresh(now, r.ageAt) {
		put(ageDesc, r.age.Seconds())
	}
	if fresh(now, r.deadAt) {
		put(deadDesc, float64(r.dead))
	}
	if fresh(now, r.entriesAt) {
		put(entriesDesc, float64(r.entries))
	}
	if fresh(now, r.tripAt) {
		put(tripDesc, r.trip.Seconds())
	}
	if fresh(now, r.attendedAt) {
		put(attendedDesc, flag(r.attended))
	}
	if up := s.up.Load(); up != 0 {
		put(upDesc, flag(up == yes))
	}
	if known := s.signalKnown.Load(); known != 0 && s.isJudged(now) {
		put(signalDesc, flag(known == yes))
	}
	if n, known := s.allWorkers(); known {
		put(workersDesc, float64(n.workers))
		put(busyDesc, float64(n.busy))
	}
}

func fresh(now, at time.Time) bool { return !at.IsZero() && now.Sub(at) < StaleAfter }

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
