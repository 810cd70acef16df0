package redistest

import (
	"context"
	"errors"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Join starts a master without slots, which ends with the test. It returns once every node knows it.
func (c *Cluster) Join() *Server {
	c.t.Helper()
	ctx := context.Background()
	opt := c.opt
	opt.Dir = ""
	s := prepare(c.t, opt)
	s.args = s.serverArgs
	if err := s.launch(freePort); err != nil {
		c.t.Fatalf("redistest: node: %v", err)
	}
	c.Masters = append(c.Masters, s)
	c.must(s, s.Client().ClusterMeet(ctx, "127.0.0.1", strconv.Itoa(c.Masters[0].port)).Err())
	c.awaitMet()
	return s
}

// Move is a slot on its way from one master to another.
type Move struct {
	c                *Cluster
	from, to         *Server
	source, target   *redis.Client
	key              string
	slot             int64
	sourceID, takeID string
}

// BeginMove begins to give the slot of key to a master. Its keys stay until Keys or Rest moves them.
func (c *Cluster) BeginMove(key string, to *Server) *Move {
	c.t.Helper()
	ctx := context.Background()
	from := c.Owner(key, nil)
	m := &Move{c: c, from: from, to: to, source: from.Client(), target: to.Client(), key: key, sourceID: c.id(from), takeID: c.id(to)}
	var err error
	m.slot, err = m.source.ClusterKeySlot(ctx, key).Result()
	c.must(from, err)
	c.must(to, m.target.Do(ctx, "CLUSTER", "SETSLOT", m.slot, "IMPORTING", m.sourceID).Err())
	c.must(from, m.source.Do(ctx, "CLUSTER", "SETSLOT", m.slot, "MIGRATING", m.takeID).Err())
	return m
}

// Keys moves keys.
func (m *Move) Keys(names ...string) {
	m.c.t.Helper()
	args := []any{"MIGRATE", "127.0.0.1", m.to.port, "", 0, 5000, "KEYS"}
	for _, name := range names {
		args = append(args, name)
	}
	m.c.must(m.from, m.source.Do(context.Background(), args...).Err())
}

// Rest moves the keys that are left.
func (m *Move) Rest() {
	m.c.t.Helper()
	for {
		names, err := m.source.ClusterGetKeysInSlot(context.Background(), int(m.slot), 100).Result()
		m.c.must(m.from, err)
		if len(names) == 0 {
			return
		}
		m.Keys(names...)
	}
}

// Finish makes the other master the owner of the slot, in which no key may be left behind, and waits until
// every node that runs knows it.
func (m *Move) Finish() {
	m.c.t.Helper()
	ctx := context.Background()
	m.c.must(m.to, m.target.Do(ctx, "CLUSTER", "SETSLOT", m.slot, "NODE", m.takeID).Err())
	m.c.must(m.from, m.source.Do(ctx, "CLUSTER", "SETSLOT", m.slot, "NODE", m.takeID).Err())
	m.c.awaitAll("agreement on the slot's owner", func(s *Server, _ string) error {
		if now := m.c.ownerBy(s, m.key); now != m.to {
			return errors.New("not known to " + s.Addr())
		}
		return nil
	})
}
