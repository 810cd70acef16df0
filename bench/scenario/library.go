package scenario

import (
	"context"
	"slices"
	"strconv"

	"github.com/weirmq/weir/bench/report"
)

// The library's rows: both sides are clients of one Redis server, weir's from
// bench/library and the hand-written one from bench/peers.

// Samples of each side where the two are close.
const closeRuns = 5

var libraryRatios = []ratio{
	{name: "library-publish-1", title: "guarded publish, 1 goroutine", unit: "messages", weirName: "weir",
		peer: "bare XADD", goal: 0.97, runs: closeRuns, setup: published("publish", 1, 1)},
	{name: "library-publish-16", title: "guarded publish, 16 goroutines", unit: "messages", weirName: "weir",
		peer: "bare XADD", goal: 1.7, runs: closeRuns, setup: published("publish", 16, 1)},
	{name: "library-publish-64", title: "guarded publish, 64 goroutines", unit: "messages", weirName: "weir",
		peer: "bare XADD", goal: 3, runs: closeRuns, setup: published("publish", 64, 1)},
	{name: "library-publish-http", title: "guarded publish over http, 64 goroutines, fsync", unit: "messages", weirName: "weir",
		peer: "bare XADD, always", goal: 1.5, runs: closeRuns, setup: publishedHTTP},
	{name: "library-publish-keyed", title: "publishes with keys over http, 64 goroutines, fsync", unit: "messages", weirName: "weir",
		peer: "without keys", goal: 0.7, runs: closeRuns, setup: publishedKeyed},
	{name: "library-batch", title: "guarded batch publish, 100 messages", unit: "messages", weirName: "weir",
		peer: "pipelined XADD × 100", goal: 0.97, runs: closeRuns, setup: published("batch", 1, 100)},
	{name: "library-batch-same", title: "guarded batch publish, 100 messages", unit: "messages", weirName: "weir",
		peer: "pipelined XADD × 100 with enqueue_ts", goal: 0.97, runs: closeRuns, setup: published("batch", 1, 100, "-stamped")},
	{name: "pool-10", title: "pool, batch 10, 10 workers", unit: "jobs", weirName: "weir",
		peer: "COUNT 10, XACK each", goal: 2, setup: pooled(10, 10, 1, "redis-work", "-batch", "10", "-single")},
	{name: "pool-100", title: "pool, batch 10, 100 workers", unit: "jobs", weirName: "weir",
		peer: "COUNT 10, XACK each", goal: 2, setup: pooled(100, 10, 1, "redis-work", "-batch", "10", "-single")},
	{name: "pool-batch", title: "pool, batch 100, 100 workers", unit: "jobs", weirName: "weir",
		peer: "COUNT 100, one XACK", goal: 0.6, setup: pooled(100, 100, 1, "redis-work", "-batch", "100")},
	{name: "pool-http", title: "pool over http, disk, 100 workers", unit: "jobs", weirName: "weir",
		peer: "on Redis", goal: 0.7, runs: closeRuns, setup: pooledHTTP},
	{name: "pool-asynq", title: "pool, batch 100, 100 workers", unit: "jobs", weirName: "weir",
		peer: "asynq", goal: 20, setup: pooled(100, 100, 20, "asynq-work")},
	{name: "pool-watermill", title: "pool, batch 100, 100 workers", unit: "jobs", weirName: "weir",
		peer: "watermill-redisstream", goal: 5, setup: pooled(100, 100, 8, "watermill-work")},
}

var libraryFigures = []figure{
	{rows: []report.Figure{
		{Name: "guard-idle", Title: "a publish past a guard that limits nothing, without its append", Unit: "µs", Goal: 1},
	}, measure: goBenchmark(".", "BenchmarkGuardNothingLimited/static/goroutines=1", 1e-3)},
	{rows: []report.Figure{
		{Name: "guard-idle-adaptive", Title: "the same with the adaptive guard", Unit: "µs", Goal: 1},
	}, measure: goBenchmark(".", "BenchmarkGuardNothingLimited/adaptive/goroutines=1", 1e-3)},
	{rows: []report.Figure{
		{Name: "guard-refusal", Title: "a refusal by the adaptive guard", Unit: "µs", Goal: 1},
	}, measure: goBenchmark(".", "BenchmarkGuardRefusal", 1e-3)},
	{rows: []report.Figure{
		{Name: "library-half", Title: "p99 of a publish at half load, 16 goroutines: gathered ÷ not gathered", Unit: "×", Goal: 1.1},
	}, measure: onRedis("half", "-n", "16")},
	{rows: []report.Figure{
		{Name: "library-sample", Title: "a sample of 1,000,000 entries with 100,000 pending, in XLENs", Unit: "×", Goal: 5},
	}, measure: onRedis("sample")},
	{rows: []report.Figure{
		{Name: "library-memory", Title: "1,000,000 messages wait on Redis, memory of producer and pool", Unit: "MiB", Goal: 64},
	}, measure: onRedis("backlog")},
}

// published compares a guarded producer with bare commands; the arguments are the peer's own.
func published(command string, goroutines, batch int, peer ...string) func(context.Context, *session) (measure, measure, error) {
	return func(ctx context.Context, s *session) (measure, measure, error) {
		server, addr, err := s.memoryRedis(ctx)
		if err != nil {
			return nil, nil, err
		}
		args := []string{"-addr", addr, "-n", strconv.Itoa(goroutines), "-batch", strconv.Itoa(batch)}
		return s.client(libraryProgram, server, append([]string{command}, args...)...),
			s.client(peersProgram, server, append(append([]string{"redis-load"}, args...), peer...)...), nil
	}
}

// publishedHTTP compares a guarded producer on a weir server with bare commands on a Redis
// server, where both sync before they answer.
func publishedHTTP(ctx context.Context, s *session) (measure, measure, error) {
	w, err := s.freshTopic(ctx, writeTopic, "queue", "fsync")
	if err != nil {
		return nil, nil, err
	}
	server, addr, err := s.redis(ctx)
	if err != nil {
		return nil, nil, err
	}
	url := "http://" + w.addr + "/" + writeTopic
	return s.client(libraryProgram, w.proc, "publish", "-url", url, "-n", strconv.Itoa(manyConns)),
		s.foreign(server, "redis-load", "-addr", addr), nil
}

// publishedKeyed compares messages with keys of their own with such as have none.
func publishedKeyed(ctx context.Context, s *session) (measure, measure, error) {
	w, err := s.freshTopic(ctx, writeTopic, "queue", "fsync")
	if err != nil {
		return nil, nil, err
	}
	args := []string{"publish", "-url", "http://" + w.addr + "/" + writeTopic, "-n", strconv.Itoa(manyConns)}
	return s.client(libraryProgram, w.proc, append(slices.Clone(args), "-keyed")...), s.client(libraryProgram, w.proc, args...), nil
}

// pooled compares a pool with another way to work on the jobs of a stream. The
// peer gets 1/slower of the jobs.
func pooled(workers, batch, slower int, peer string, args ...string) func(context.Context, *session) (measure, measure, error) {
	return func(ctx context.Context, s *session) (measure, measure, error) {
		server, addr, err := s.memoryRedis(ctx)
		if err != nil {
			return nil, nil, err
		}
		work := func(jobs int, args ...string) []string {
			return append(args, "-addr", addr, "-n", strconv.Itoa(workers), "-jobs", strconv.Itoa(jobs))
		}
		return s.client(libraryProgram, server, work(s.size.pooled, "work", "-batch", strconv.Itoa(batch))...),
			s.client(peersProgram, server, work(s.size.pooled/slower, append([]string{peer}, args...)...)...), nil
	}
}

// pooledHTTP compares a pool on a weir server with one on a Redis server.
func pooledHTTP(ctx context.Context, s *session) (measure, measure, error) {
	w, err := s.freshTopic(ctx, writeTopic, "queue", "disk")
	if err != nil {
		return nil, nil, err
	}
	server, addr, err := s.memoryRedis(ctx)
	if err != nil {
		return nil, nil, err
	}
	work := func(proc *proc, where ...string) measure {
		return s.client(libraryProgram, proc, append([]string{"work", "-n", "100", "-batch", "100", "-jobs", strconv.Itoa(s.size.pooled)}, where...)...)
	}
	return work(w.proc, "-url", "http://"+w.addr+"/"+writeTopic), work(server, "-addr", addr), nil
}

// onRedis measures a figure of a stream with a backlog.
func onRedis(command string, args ...string) func(context.Context, *session) ([]value, error) {
	return func(ctx context.Context, s *session) ([]value, error) {
		server, addr, err := s.memoryRedis(ctx)
		if err != nil {
			return nil, err
		}
		args := append([]string{command, "-addr", addr, "-jobs", strconv.Itoa(s.size.backlog)}, args...)
		r, _, err := s.runClient(ctx, libraryProgram, server, args...)
		return []value{{r.Value, r.Note}}, err
	}
}
