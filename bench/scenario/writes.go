package scenario

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/weirmq/weir/bench/load"
)

const (
	manyConns  = 64
	bulkConns  = 16
	bulkBatch  = 100
	writeTopic = "writes"
)

// ratios is the table of comparisons, in the order they are printed. Reading
// of the terse ones: in one-topic and many-topics each of 64 connections
// writes batches of 100 records.
var ratios = slices.Concat(serverRatios, tlsRatios, payloadRatios, copiedRatios, libraryRatios)

var serverRatios = []ratio{
	{name: "write-disk", title: "1 record, 64 conns, disk", unit: "records", weirName: "weir disk",
		peer: "empty handler", goal: 0.65, setup: singleWrites("disk")},
	{name: "write-fsync", title: "1 record, 64 conns, fsync", unit: "records", weirName: "weir fsync",
		peer: "empty handler", goal: 0.65, setup: singleWrites("fsync")},
	{name: "write-slo", title: "1 record, 64 conns, fsync, queue", unit: "records", weirName: "with wait_slo_ms",
		peer: "without", goal: 0.97, setup: sheddingWrites},
	{name: "write-redis", title: "1 record, 64 conns, fsync", unit: "records", weirName: "weir fsync",
		peer: "Redis XADD always", goal: 0.7, setup: againstRedis},
	{name: "write-nats", title: "1 record, 64 conns, fsync", unit: "records", weirName: "weir fsync",
		peer: "JetStream sync always", goal: 5, setup: againstNATS},
	{name: "bulk-disk", title: "100 records, 16 conns, disk", unit: "records", weirName: "weir disk",
		peer: "validating handler", goal: 0.3, setup: bulkWrites("disk")},
	{name: "bulk-fsync", title: "100 records, 16 conns, fsync", unit: "records", weirName: "weir fsync",
		peer: "validating handler", goal: 0.23, setup: bulkWrites("fsync")},
	{name: "diff-hot", title: "diff limit 1000, hot, 16 conns", unit: "records", weirName: "weir",
		peer: "same bytes, memory", goal: 0.7, setup: hotDiffs},
	{name: "claim-ack", title: "claim 100 + ack 100, 10 workers", unit: "jobs", weirName: "weir disk",
		peer: "empty handler", goal: 0.5, setup: claims},
	{name: "claim-depth", title: "claim + ack, 10,000,000 waiting", unit: "jobs", weirName: "10,000,000 waiting",
		peer: "10,000 waiting", goal: 0.95, setup: claimDepth},
	{name: "one-topic", title: "100 records, 64 conns, one topic", unit: "records", weirName: "one topic",
		peer: "64 topics", goal: 0.8, setup: oneOrManyTopics},
	{name: "sync-one", title: "1 record, 1 conn, fsync", unit: "records", weirName: "weir fsync",
		peer: "pwrite + fdatasync", goal: 0.8, setup: oneSyncedWriter},
	{name: "sync-scale", title: "1 record, fsync, 64 conns", unit: "records", weirName: "64 writers",
		peer: "1 writer", goal: 6, setup: manySyncedWriters},
	{name: "fan-flat", title: "1,000 watchers, writes flat out", unit: "records", weirName: "weir",
		peer: "bare hub", goal: 0.8, setup: flatOut(1)},
	{name: "fan-flat-100", title: "100 watchers, writes flat out", unit: "records", weirName: "weir",
		peer: "bare hub", goal: 0.9, setup: flatOut(10)},
}

// freshTopic starts a server that has one topic.
func (s *session) freshTopic(ctx context.Context, topic, kind, class string, settings ...string) (*weir, error) {
	w, err := s.weir(ctx, "weir", settings...)
	if err != nil {
		return nil, err
	}
	return w, w.createTopic(ctx, topic, kind, class)
}

// handler starts one of the bare handlers and measures a load over it.
func (s *session) handler(ctx context.Context, plan load.Plan, args ...string) (measure, error) {
	server, addr, err := s.peer(ctx, handlersProgram, args...)
	if err != nil {
		return nil, err
	}
	plan.Addr = addr
	return over(server, plan), nil
}

// writers is the plan of conns connections that write batches of n records.
func (s *session) writers(addr, topic string, conns, n int) load.Plan {
	return s.timed(addr, conns, everywhere(repeatRequest(writeRequest(topic, n), n)))
}

func singleWrites(class string) func(context.Context, *session) (measure, measure, error) {
	return func(ctx context.Context, s *session) (measure, measure, error) {
		w, err := s.freshTopic(ctx, writeTopic, "log", class)
		if err != nil {
			return nil, nil, err
		}
		plan := s.writers(w.addr, writeTopic, manyConns, 1)
		peer, err := s.handler(ctx, plan, "empty")
		return over(w.proc, plan), peer, err
	}
}

// bulkWrites writes until so many segments have been sealed that sealing runs
// beside the writers as it does in a long life.
func bulkWrites(class string) func(context.Context, *session) (measure, measure, error) {
	return func(ctx context.Context, s *session) (measure, measure, error) {
		w, err := s.freshTopic(ctx, writeTopic, "log", class)
		if err != nil {
			return nil, nil, err
		}
		plan := s.writers(w.addr, writeTopic, bulkConns, bulkBatch)
		peer, err := s.handler(ctx, plan, "validate")
		plan.Length, plan.Units = 0, s.size.bulk
		weirSide := func(ctx context.Context) (measured, error) {
			return s.countSealed(ctx, w, over(w.proc, plan))
		}
		return weirSide, peer, err
	}
}

// countSealed takes a sample and refuses it if too few segments were sealed.
func (s *session) countSealed(ctx context.Context, w *weir, take measure) (measured, error) {
	before, err := w.rotations(ctx)
	if err != nil {
		return measured{}, err
	}
	m, err := take(ctx)
	if err != nil {
		return m, err
	}
	after, err := w.rotations(ctx)
	if err != nil {
		return m, err
	}
	if after-before < s.size.sealed {
		return m, fmt.Errorf("%d segments were sealed during the sample, the row needs %d", after-before, s.size.sealed)
	}
	m.note = fmt.Sprintf("%d segments sealed", after-before)
	return m, nil
}

func oneOrManyTopics(ctx context.Context, s *session) (measure, measure, error) {
	w, err := s.freshTopic(ctx, writeTopic, "log", "disk")
	if err != nil {
		return nil, nil, err
	}
	own := func(i int) string { return fmt.Sprintf("%s-%d", writeTopic, i) }
	for i := range manyConns {
		if err := w.createTopic(ctx, own(i), "log", "disk"); err != nil {
			return nil, nil, err
		}
	}
	many := s.timed(w.addr, manyConns, func(i int) load.Step {
		return repeatRequest(writeRequest(own(i), bulkBatch), bulkBatch)
	})
	return over(w.proc, s.writers(w.addr, writeTopic, manyConns, bulkBatch)), over(w.proc, many), nil
}

func oneSyncedWriter(ctx context.Context, s *session) (measure, measure, error) {
	w, err := s.freshTopic(ctx, writeTopic, "log", "fsync")
	if err != nil {
		return nil, nil, err
	}
	plan := s.writers(w.addr, writeTopic, 1, 1)
	peer, err := s.handler(ctx, plan, "syncfile", "-file", filepath.Join(s.dir, "synced"))
	return over(w.proc, plan), peer, err
}

func manySyncedWriters(ctx context.Context, s *session) (measure, measure, error) {
	w, err := s.freshTopic(ctx, writeTopic, "log", "fsync")
	if err != nil {
		return nil, nil, err
	}
	many := s.writers(w.addr, writeTopic, manyConns, 1)
	one := s.writers(w.addr, writeTopic, 1, 1)
	return over(w.proc, many), over(w.proc, one), nil
}
