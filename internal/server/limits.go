package server

import (
	"sync"
	"sync/atomic"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/relay"
)

// gauge counts what is in use under a cap, exactly: it never exceeds the cap and never
// refuses what would fit.
type gauge struct {
	n atomic.Int64
}

// take adds n unless that would exceed limit; 0 means no limit.
func (g *gauge) take(n, limit int64) bool {
	for {
		used := g.n.Load()
		if limit > 0 && used+n > limit {
			return false
		}
		if g.n.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

func (g *gauge) give(n int64) { g.n.Add(-n) }

// upTo adds most, or what limit leaves of it; there is always room for a little.
func (g *gauge) upTo(most, limit int64) int64 {
	for most > slowAnswer && !g.take(most, limit) {
		most /= 2
	}
	if most <= slowAnswer {
		g.n.Add(most)
	}
	return most
}

// share returns a share of the room for what clients have not taken, with nothing in it: when
// slow clients hold much, answers and frames get small.
func (s *Server) share() share { return share{of: &s.answers, limit: s.limits.MaxInflightBytes} }

// share is what one answer or stream has of that room. The zero share has none and cannot ask.
type share struct {
	of    *gauge
	limit int64
	n     int64
}

// ask takes room for up to so many bytes more and returns how many there are.
func (h *share) ask(most int64) int64 {
	n := h.of.upTo(most, h.limit)
	h.n += n
	return n
}

// askOnce is ask unless it has something; it lowers *most to what there is.
func (h *share) askOnce(most *int64) {
	if h.n == 0 {
		*most = h.ask(*most)
	}
}

// holds makes it n bytes. Inlined, it would have an idle stream take more than 8 KiB of stack
// under the race detector.
//
//go:noinline
func (h *share) holds(n int) {
	if more := int64(n) - h.n; more != 0 {
		h.of.n.Add(more)
		h.n = int64(n)
	}
}

// streams counts long-lived connections: watch streams, work streams and WebSockets.
type streams struct {
	mu    sync.Mutex // also guards apiKey.streams
	open  int64
	owned map[*ownConn]struct{} // what net/http does not close
}

// take counts one more stream of key, which is nil for a server without keys. It checks
// both caps in one step, so that neither is exceeded or refuses what would fit.
func (t *streams) take(key *apiKey, l *api.Limits) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.room(key, l); err != nil {
		return err
	}
	t.open++
	if key != nil {
		key.streams++
	}
	return nil
}

func (t *streams) give(key *apiKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open--
	if key != nil {
		key.streams--
	}
}

// room says which cap one more stream would exceed; the caller holds mu.
func (t *streams) room(key *apiKey, l *api.Limits) error {
	if l.MaxSSEConnections > 0 && t.open >= l.MaxSSEConnections {
		return api.OverLimit("max_sse_connections", l.MaxSSEConnections)
	}
	if key != nil && l.MaxSSEConnectionsPerKey > 0 && key.streams >= l.MaxSSEConnectionsPerKey {
		return api.OverLimit("max_sse_connections_per_key", l.MaxSSEConnectionsPerKey)
	}
	return nil
}

// count is how many streams are open.
func (t *streams) count() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open
}

// openStream takes a place for a stream that counts for key. Unless it returns an
// error, the caller calls release once, however the stream ends. From then on the
// request's context ends with the key.
func (q *request) openStream(key *apiKey) (release func(), err error) {
	t := &q.s.streams
	if err := t.take(key.counted(), &q.s.limits); err != nil {
		return nil, err
	}
	forget := q.whileStands(key)
	return func() { forget(); t.give(key.counted()) }, nil
}

// callers are the keys that streams of a relay are counted for; the relay itself has none.
type callers struct {
	mu   sync.Mutex
	keys map[string]*apiKey // by digest: an unknown key may be long
}

// key returns what the streams of a caller are counted by, nil for nobody.
func (c *callers) key(caller relay.Caller) *apiKey {
	if caller.Anonymous() {
		return nil
	}
	digest := caller.Digest()
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.keys[digest]
	if k == nil {
		if c.keys == nil || len(c.keys) >= maxCallers {
			c.keys = make(map[string]*apiKey)
		}
		k = &apiKey{scopes: scopeAll}
		c.keys[digest] = k
	}
	return k
}

// maxCallers bounds how many keys are remembered; beyond it their streams are counted anew.
const maxCallers = 10_000
