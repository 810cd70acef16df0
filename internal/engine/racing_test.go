package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
)

// within fails the test if f has not come back after twenty seconds.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal(what + " hangs")
	}
}

// race runs n calls of f at once and waits for them.
func race(t *testing.T, n int, f func(i int)) {
	t.Helper()
	within(t, "a race of calls", func() {
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range n {
			wg.Go(func() { <-start; f(i) })
		}
		close(start)
		wg.Wait()
	})
}

func TestOfRacingCreatorsOneCreates(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	for round := range 30 {
		var byPut, byWrite atomic.Int64
		topic := fmt.Sprint("t", round)
		race(t, 8, func(i int) {
			if i%2 == 0 {
				res, err := e.PutTopic(bg, topic, configOf(api.Fsync))
				if err != nil {
					t.Error(err)
				}
				if res.Created {
					byPut.Add(1)
				}
				return
			}
			res, err := tryWrite(e, topic, "1")
			if err != nil {
				t.Error(err)
			}
			if res.Created {
				byWrite.Add(1)
			}
		})
		if n := byPut.Load() + byWrite.Load(); n != 1 {
			t.Fatalf("%d calls say that they created the topic", n)
		}
		// Nothing was ordered between them, but every put was answered.
		if s := stateOf(t, e, topic); s.Config.Durability != api.Fsync || s.HeadSeq != 4 || s.Count != 4 {
			t.Fatalf("%+v", s)
		}
	}
}

// Count and bytes are what a reader finds, whoever wrote, capped or deleted.
func TestRacingWritersKeepTheCountersExact(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	configs := []api.Config{
		configOf(api.Disk, func(c *api.Config) { c.CapRecords = 17 }),
		configOf(api.Fsync, func(c *api.Config) { c.CapBytes = 2000 }),
		configOf(api.Memory, func(c *api.Config) { c.CapRecords, c.Discard = 40, api.DiscardReject }),
		configOf(api.Disk, queueConfig, func(c *api.Config) { c.CapBytes, c.Discard = 3000, api.DiscardReject }),
		configOf(api.Ephemeral, func(c *api.Config) { c.CapRecords, c.CapBytes = 30, 4000 }),
	}
	names := []string{"cap", "bytes", "full", "queue", "ephemeral"}
	for i, c := range configs {
		put(t, e, names[i], c)
	}
	race(t, 10, func(i int) {
		topic, cfg := names[i%5], configs[i%5]
		for k := range 60 {
			if _, err := tryWrite(e, topic, slices.Repeat([]string{`"` + strings.Repeat("x", 7*k) + `"`}, 1+k%4)...); err != nil && !api.IsCode(err, api.CodeTopicFull) {
				t.Error(err)
			}
			s, err := e.Topic(topic, false)
			if err != nil {
				t.Error(err)
			} else if cfg.CapRecords > 0 && s.Count > cfg.CapRecords || cfg.CapBytes > 0 && s.Bytes > cfg.CapBytes && s.Count > 1 {
				t.Errorf("topic %s holds %d records of %d bytes", topic, s.Count, s.Bytes)
			}
			if k%9 == 8 {
				if _, err := e.DeleteRecords(bg, topic, &api.DeleteRequest{HasBefore: true, BeforeSeq: s.EarliestSeq + 3}); err != nil {
					t.Error(err)
				}
			}
		}
	})
	total := int64(0)
	for _, topic := range names {
		a, err := ask(e, topic)
		if err != nil {
			t.Fatal(err)
		}
		if a.state.Count != uint64(len(a.records)) || a.state.Bytes != a.bytes {
			t.Errorf("topic %s counts %d records of %d bytes, a reader finds %d of %d", topic, a.state.Count, a.state.Bytes, len(a.records), a.bytes)
		}
		total += int64(a.bytes)
	}
	if n := e.bytes.Load(); n != total {
		t.Errorf("the engine counts %d bytes, all topics hold %d", n, total)
	}
}

func TestTheServersLimitsHoldAgainstARace(t *testing.T) {
	limits := api.DefaultLimits()
	limits.MaxTotalBytes, limits.MaxTopics = 20_000, 12
	e := openOn(t, vfs.NewMem(), "a", func(o *Options) { o.Limits = limits })
	data := `"` + strings.Repeat("x", 98) + `"`
	var stored atomic.Int64
	var created, throttled atomic.Int64
	race(t, 8, func(i int) {
		for k := range 60 {
			topic := fmt.Sprint("t", (i+k)%20)
			res, err := tryWrite(e, topic, data, data)
			switch {
			case api.IsCode(err, api.CodeThrottled):
				throttled.Add(1)
			case err != nil:
				t.Error(err)
			default:
				if stored.Add(200) > limits.MaxTotalBytes {
					t.Error("more than max_total_bytes was accepted")
				}
				if res.Created {
					created.Add(1)
				}
			}
			if n := len(e.Topics("", "", 1000, false, nil).Topics); int64(n) > limits.MaxTopics {
				t.Errorf("%d topics", n)
			}
		}
	})
	if created.Load() != limits.MaxTopics || throttled.Load() == 0 || stored.Load() != limits.MaxTotalBytes {
		t.Errorf("%d topics created, %d bytes stored, %d refused", created.Load(), stored.Load(), throttled.Load())
	}
	// A refused call has left nothing behind: what is freed can be used again.
	if _, err := e.DeleteTopic(bg, "t0", false); err != nil && !api.IsCode(err, api.CodeTopicNotFound) {
		t.Fatal(err)
	}
	for _, topic := range e.Topics("", "", 1000, false, nil).Topics {
		if _, err := e.DeleteTopic(bg, topic.Topic, false); err != nil {
			t.Fatal(err)
		}
	}
	for k := range 100 {
		if _, err := tryWrite(e, fmt.Sprint("u", k%12), data, data); err != nil {
			t.Fatal(k, err)
		}
	}
}

// Jobs that are given back, run out of time or are settled by the wrong
// worker: each is acked once in the end.
func TestEveryJobIsAckedOnceInAStorm(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	put(t, e, "q", configOf(api.Disk, queueConfig))
	const jobs = 600
	for range jobs / 50 {
		write(t, e, "q", slices.Repeat([]string{"1"}, 50)...)
	}
	var mu sync.Mutex
	acked := map[uint64]int{}
	holder := map[uint64]string{}
	var left atomic.Int64
	left.Store(jobs)
	race(t, 8, func(w int) {
		node := fmt.Sprint("w", w)
		for round := 0; left.Load() > 0; round++ {
			var claimed []uint64
			_, err := e.Claim(bg, "q", &api.ClaimRequest{Node: node, Max: 1 + round%9}, func(j *api.Job) { claimed = append(claimed, j.Seq) })
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			for _, seq := range claimed {
				if holder[seq] != "" {
					t.Errorf("job %d was handed to %s while %s holds it", seq, node, holder[seq])
				}
				holder[seq] = node
			}
			mu.Unlock()
			for i, seq := range claimed {
				req := &api.SettleRequest{Node: node, Seqs: []uint64{seq}}
				mu.Lock()
				holder[seq] = "" // from the next call on another may hold it
				mu.Unlock()
				if (i+round)%3 == 0 {
					res, err := e.Nack(bg, "q", req)
					if err != nil || res.Done != 1 {
						t.Errorf("nack of %d: %+v %v", seq, res, err)
					}
					continue
				}
				res, err := e.Ack(bg, "q", req)
				if err != nil || res.Done != 1 {
					t.Errorf("ack of %d: %+v %v", seq, res, err)
				}
				mu.Lock()
				acked[seq]++
				mu.Unlock()
				left.Add(-1)
			}
		}
	})
	for seq, n := range acked {
		if n != 1 {
			t.Errorf("job %d was acked %d times", seq, n)
		}
	}
	if s := stateOf(t, e, "q"); len(acked) != jobs || s.Count != 0 || s.Queue.InFlight != 0 || s.Queue.Ready != 0 {
		t.Errorf("%d jobs were acked; %+v", len(acked), s)
	}
}

// A topic that goes and comes back under its users: a call finds it or finds
// it missing, and no wait is forgotten.
func TestATopicThatGoesAndComesBackUnderItsUsers(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	ctx, cancel := context.WithTimeout(bg, time.Minute) // on a busy machine it takes a quarter of that
	defer cancel()
	cfg := configOf(api.Disk, queueConfig, func(c *api.Config) { c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter = 2, true, "dead" })
	fine := func(what string, err error) {
		if err != nil && !api.IsCode(err, api.CodeTopicNotFound) && !api.IsCode(err, api.CodeNotAQueue) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var over atomic.Bool
	no := false
	users := []func(){
		func() {
			_, err := e.Write(ctx, "q", &api.WriteRequest{Create: &no, Records: []api.Record{{Data: []byte("1")}, {Data: []byte("2")}}})
			fine("write", err)
		},
		func() {
			_, err := e.Diff(ctx, "q", &api.DiffRequest{Limit: 100, MaxBatchBytes: 1 << 20, WaitMS: 50}, func(*api.Record) {})
			fine("diff", err)
		},
		func() {
			var seqs []uint64
			_, err := e.Claim(ctx, "q", &api.ClaimRequest{Node: "w", Max: 5}, func(j *api.Job) { seqs = append(seqs, j.Seq) })
			fine("claim", err)
			if len(seqs) == 0 {
				return
			}
			_, err = e.Extend(ctx, "q", &api.SettleRequest{Node: "w", Seqs: seqs, LeaseMS: 1000})
			fine("extend", err)
			_, err = e.Nack(ctx, "q", &api.SettleRequest{Node: "w", Seqs: seqs[:1]})
			fine("nack", err)
			_, err = e.Ack(ctx, "q", &api.SettleRequest{Node: "w", Seqs: seqs[1:]})
			fine("ack", err)
		},
		func() {
			_, err := e.DeleteRecords(ctx, "q", &api.DeleteRequest{HasBefore: true, BeforeSeq: 4})
			fine("delete", err)
			_, err = e.Topic("q", true)
			fine("state", err)
		},
	}
	within(t, "a topic that comes and goes", func() {
		var wg sync.WaitGroup
		for _, user := range slices.Concat(users, users) {
			wg.Go(func() {
				for !over.Load() {
					user()
				}
			})
		}
		for range 120 {
			_, err := e.PutTopic(ctx, "q", cfg)
			fine("put", err)
			for range 3 {
				users[0]()
			}
			_, err = e.DeleteTopic(ctx, "q", false)
			fine("drop", err)
		}
		over.Store(true)
		wg.Wait()
	})
	if e.TopicExists("q") {
		t.Error("the topic is there after its last end")
	}
	a, err := ask(e, "dead")
	if err == nil && (a.state.Count != uint64(len(a.records)) || a.state.Bytes != a.bytes) {
		t.Errorf("%d dead letters of %d bytes, counted %d of %d", len(a.records), a.bytes, a.state.Count, a.state.Bytes)
	}
}
