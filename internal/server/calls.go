package server

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// calls counts the requests that were answered, by route and code.
type calls struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	byRoute  map[*route]*callCount
	strays   callCount // of requests without a route
}

// callCount is one route's; its series exist from the first request on.
type callCount struct {
	method, route string
	counts        atomic.Pointer[callSeries]
}

type callSeries struct {
	ok      prometheus.Counter // of code 200
	seconds prometheus.ExemplarObserver
}

// callBounds are in seconds. Long polls and streams that wait for news may take
// longer than the last.
var callBounds = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}

func newCalls(routes []route) *calls {
	c := &calls{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_http_requests_total", Help: "Requests that were answered, by route and status code.",
		}, []string{"method", "route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_http_request_duration_seconds", Buckets: callBounds,
			Help: "Time from the head of a request to its answer, waits included; of a stream, to its beginning.",
		}, []string{"method", "route"}),
		byRoute: make(map[*route]*callCount, len(routes)),
		strays:  callCount{method: "other", route: "other"},
	}
	for i := range routes {
		c.byRoute[&routes[i]] = &callCount{method: routes[i].method, route: routes[i].path}
	}
	return c
}

// count counts a request that was answered.
func (c *calls) count(q *request) {
	n := c.byRoute[q.route]
	if n == nil {
		n = &c.strays
	}
	series := n.counts.Load()
	if series == nil {
		series = &callSeries{
			ok:      c.requests.WithLabelValues(n.method, n.route, "200"),
			seconds: c.seconds.WithLabelValues(n.method, n.route).(prometheus.ExemplarObserver),
		}
		n.counts.Store(series) // whoever was faster stored the same
	}
	if q.status == http.StatusOK {
		series.ok.Inc()
	} else {
		c.requests.WithLabelValues(n.method, n.route, strconv.Itoa(q.status)).Inc()
	}
	var exemplar prometheus.Labels
	if trace := traceOf(q.r); trace != "" {
		exemplar = prometheus.Labels{"trace_id": trace}
	}
	series.seconds.ObserveWithExemplar(time.Since(q.start).Seconds(), exemplar)
}

// traceOf returns the trace that a request belongs to by its traceparent header (W3C
// Trace Context), or an empty string.
func traceOf(r *http.Request) string {
	h := r.Header["Traceparent"]
	if len(h) != 1 || len(h[0]) < 55 || h[0][2] != '-' || h[0][35] != '-' {
		return ""
	}
	trace, zero := h[0][3:35], true
	for i := range len(trace) {
		c := trace[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ""
		}
		zero = zero && c == '0'
	}
	if zero {
		return ""
	}
	return trace
}
