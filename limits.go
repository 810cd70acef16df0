package weir

import (
	"maps"
	"strconv"
	"time"

	"github.com/weirmq/weir/backend"
)

// withLimits returns m with its own limits in headers, through which they reach the pool
// on every backend.
func withLimits(m Message) Message {
	if m.MaxDeliveries == 0 && m.Timeout == 0 {
		return m
	}
	headers := make(map[string]string, len(m.Headers)+2)
	maps.Copy(headers, m.Headers)
	if m.MaxDeliveries > 0 {
		headers[backend.HeaderLimit] = strconv.Itoa(m.MaxDeliveries)
	}
	if m.Timeout > 0 {
		headers[backend.HeaderTimeout] = strconv.FormatInt(m.Timeout.Milliseconds(), 10)
	}
	m.Headers = headers
	return m
}

// allWithLimits is withLimits for a batch, which stays as it is if none has any.
func allWithLimits(msgs []Message) []Message {
	for i := range msgs {
		if msgs[i].MaxDeliveries == 0 && msgs[i].Timeout == 0 {
			continue
		}
		all := make([]Message, len(msgs))
		for i := range msgs {
			all[i] = withLimits(msgs[i])
		}
		return all
	}
	return msgs
}

// limitOf returns how often d may be delivered: its own limit if that is lower than the
// pool's; 0 is none. What is not a positive number was not written by weir.
func limitOf(d *Delivery, pool int) int {
	pool = max(pool, 0)
	text, limited := d.Headers[backend.HeaderLimit]
	if !limited { // most have none
		return pool
	}
	own, _ := strconv.Atoi(text)
	if own > 0 && (pool == 0 || own < pool) {
		return own
	}
	return pool
}

// longestTimeout is what a longer timeout of a message counts for: its end can be told as a time.
const longestTimeout = 100 * 365 * 24 * time.Hour

// timeoutOf returns how long the handler of d may run: its own timeout if that is shorter
// than the pool's; 0 is without end.
func timeoutOf(d *Delivery, pool time.Duration) time.Duration {
	pool = max(pool, 0)
	text, limited := d.Headers[backend.HeaderTimeout]
	if !limited {
		return pool
	}
	ms, _ := strconv.ParseInt(text, 10, 64)
	if own := time.Duration(min(max(ms, 0), longestTimeout.Milliseconds())) * time.Millisecond; own > 0 && (pool == 0 || own < pool) {
		return own
	}
	return pool
}
