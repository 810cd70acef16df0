package server

import (
	"sync/atomic"

	"github.com/weirmq/weir/internal/api"
)

// byPressure is the reason for a 429 not caused by a cap of contract 15.
const byPressure = "pressure"

// throttleReasons are the reasons for a 429.
var throttleReasons = []string{
	byPressure, api.ReasonLoadShedding, "max_topics", "max_routers", "max_watch_sessions", "max_sse_connections",
	"max_sse_connections_per_key", "max_inflight_per_key", "max_inflight_bytes", "max_total_bytes",
	"max_idempotency_keys", "max_waiting_claims_per_socket", "webhook_deliveries",
}

// throttles counts the 429 answers by reason. The map is never modified.
type throttles map[string]*atomic.Int64

func newThrottles() throttles {
	t := make(throttles, len(throttleReasons))
	for _, reason := range throttleReasons {
		t[reason] = new(atomic.Int64)
	}
	return t
}

// count counts e if it is a 429.
func (t throttles) count(e *api.Error) {
	if e.Code != api.CodeThrottled {
		return
	}
	reason, ok := e.Detail["limit"].(string)
	if !ok {
		reason, _ = e.Detail[api.DetailReason].(string)
	}
	n := t[reason]
	if n == nil {
		n = t[byPressure]
	}
	n.Add(1)
}
