package relay

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

var errOld = errors.New("the upstream is of a version that knows no relays; update it first")

var errUnanswered = errors.New("the upstream does not answer a subscription; if that goes on, look at its log")

var errNotReady = errors.New("the upstream answers 503: it is not ready")

// counts are what the relay counts.
type counts struct {
	received, reads, failed, lost atomic.Int64
	lastError                     atomic.Pointer[string]
}

// connected notes that a link is up.
func (r *Relay) connected(l *link) {
	if l.first {
		r.asked.forget()
		r.open.again()
		r.counts.lastError.Store(nil)
		r.log.Info("connected to the upstream", "url", r.Upstream(), "keys", r.keyed.Load())
	}
}

// lost notes that a link is not, and says so once.
func (r *Relay) lost(l *link, err error) {
	r.counts.lost.Add(1)
	text := err.Error() + remedy(err)
	told := l.first || errors.Is(err, errUnanswered)
	if last := r.counts.lastError.Swap(&text); told && (last == nil || *last != text) {
		r.log.Warn("the upstream is away; trying again", "url", r.Upstream(), "error", text)
	}
}

// remedy is what the error of a link does not say about what mends it.
func remedy(err error) string {
	var authority x509.UnknownAuthorityError
	switch {
	case errors.As(err, &authority):
		return "; name its authority's PEM file with --ca, or with ca=FILE in the URL of --upstream"
	case strings.Contains(err.Error(), "gave HTTP response to HTTPS client"):
		return "; the upstream does not speak TLS: use http://"
	case strings.Contains(err.Error(), "remote error: tls:"):
		return "; the upstream asks for a certificate that it knows: name one with cert=FILE and key=FILE in the URL of --upstream"
	}
	return ""
}

// Connected reports whether the relay has its connection to the upstream.
func (r *Relay) Connected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.links) > 0 && r.links[0].up.Load()
}

// Topics are how many topics are subscribed.
func (r *Relay) Topics() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.topics)
}

// unanswered are how many topics wait for the upstream's answer to their subscription.
func (r *Relay) unanswered() (topics int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.links {
		n, _ := l.unanswered()
		topics += n
	}
	return topics
}

// buffered returns the bytes of all buffers.
func (r *Relay) buffered() (bytes int64, behind int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.topics {
		m.mu.Lock()
		bytes += m.bytes
		for _, st := range m.read {
			bytes += st.bytes
		}
		if m.more {
			behind++
		}
		m.mu.Unlock()
	}
	return bytes, behind
}

var descriptions = struct{ upstream, topics, unanswered, behind, buffered, received, reads, failed, lost, sessions, lagged, dropped *prometheus.Desc }{
	upstream:   describe("weir_relay_upstream_connected", "1 while the relay has its connection to the upstream."),
	topics:     describe("weir_relay_topics", "Topics that the relay has subscribed upstream."),
	unanswered: describe("weir_relay_topics_unanswered", "Topics whose subscription the upstream has not answered yet."),
	behind:     describe("weir_relay_topics_behind", "Topics of which the upstream has more than the relay was sent."),
	buffered:   describe("weir_relay_buffer_bytes", "Bytes of records that the relay keeps for its listeners."),
	received:   describe("weir_relay_received_bytes_total", "Bytes of the upstream's messages."),
	reads:      describe("weir_relay_reads_total", "Reads upstream of records that listeners had missed."),
	failed:     describe("weir_relay_failed_total", "Requests that could not be passed on."),
	lost:       describe("weir_relay_connections_lost_total", "Connections to the upstream that ended or could not be made."),
	sessions:   describe("weir_relay_sessions", "Watch sessions that the relay remembers."),
	dropped:    describe("weir_relay_dropped_slow_total", "Streams that were closed because their client took nothing."),
	lagged:     describe("weir_relay_listeners_lagged", "Listeners that are behind what is queued for them."),
}

func describe(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }

// Describe sends the descriptions of the relay's metrics.
func (r *Relay) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(r, ch) }

// Collect sends their values.
func (r *Relay) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	count := func(d *prometheus.Desc, v int64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	up := 0.0
	if r.Connected() {
		up = 1
	}
	bytes, behind := r.buffered()
	n := r.room.Counts()
	gauge(descriptions.upstream, up)
	gauge(descriptions.topics, float64(r.Topics()))
	gauge(descriptions.unanswered, float64(r.unanswered()))
	gauge(descriptions.behind, float64(behind))
	gauge(descriptions.buffered, float64(bytes))
	gauge(descriptions.sessions, float64(n.Sessions))
	gauge(descriptions.lagged, float64(n.Lagged))
	count(descriptions.received, r.counts.received.Load())
	count(descriptions.dropped, n.DroppedSlow)
	count(descriptions.reads, r.counts.reads.Load())
	count(descriptions.failed, r.counts.failed.Load())
	count(descriptions.lost, r.counts.lost.Load())
}

// Ready returns how many topics the upstream has, if the relay is connected to it and it is
// ready.
func (r *Relay) Ready(ctx context.Context) (topics int64, err error) {
	if !r.Connected() {
		return 0, r.errAway()
	}
	a, err := r.ask(ctx, http.MethodGet, "/v0/ready", r.own(), nil, maxAnswer)
	if err != nil {
		return 0, r.errAway()
	}
	if a.status != http.StatusOK {
		return 0, a.error()
	}
	var body struct {
		Topics int64 `json:"topics"`
	}
	err = json.Unmarshal(a.body, &body)
	return body.Topics, err
}
