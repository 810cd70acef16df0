package engine

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// later is a record that may be claimed after so many milliseconds.
func later(data string, ms uint64) api.Record { return api.Record{Data: []byte(data), Delay: ms} }

func writeRecords(t *testing.T, e *Engine, topic string, records ...api.Record) {
	t.Helper()
	if _, err := e.Write(bg, topic, &api.WriteRequest{Records: records}); err != nil {
		t.Fatal(err)
	}
}

func countersOf(t *testing.T, e *Engine, queue string) api.QueueCounters {
	t.Helper()
	return stateOf(t, e, queue).Queue
}

// A record with a delay is there at once for readers and caps, and for workers when its time
// has come: after a restart and a crash as well, from the log as from what was sealed,
// whether leases are durable or not.
func TestADelayedRecordIsClaimedAtItsTimeOverRestarts(t *testing.T) {
	restarts(t, func(t *testing.T, next func(*Engine) *Engine, _ *wall) {
		e := next(nil)
		queues := []string{"plain", "durable"}
		put(t, e, "plain", configOf(api.Fsync, queueConfig))
		put(t, e, "durable", configOf(api.Fsync, queueConfig, func(c *api.Config) { c.LeasesDurable = true }))
		for _, q := range queues {
			high, fair := later(`"high"`, 30_000), later(`"fair"`, 60_000)
			high.Tier, fair.FairKey = api.Tier(1), []byte("a")
			writeRecords(t, e, q, later("1", 60_000), later("2", 0), high, fair, later("5", 600_000))
		}
		claims := func(want string) {
			t.Helper()
			for _, q := range queues {
				jobs := claimJobs(t, e, q, "w", 10)
				if got := seqsOf(jobs); got != want {
					t.Errorf("%s: %s can be claimed, want %s", q, got, want)
				}
				for _, j := range jobs {
					if j.Deliveries != 1 {
						t.Errorf("%s: job %d was delivered %d times", q, j.Seq, j.Deliveries)
					}
					ack(t, e, q, "w", j.Seq)
				}
			}
		}
		counts := func(ready, delayed uint64) {
			t.Helper()
			for _, q := range queues {
				if c := countersOf(t, e, q); c.Ready != ready || c.Delayed != delayed {
					t.Errorf("%s: %+v, want %d ready and %d delayed", q, c, ready, delayed)
				}
			}
		}
		counts(1, 4)
		claims("[2]")
		time.Sleep(29 * time.Second)
		e = next(e)
		claims("[]")
		counts(0, 4)
		time.Sleep(2 * time.Second)
		claims("[3]")
		e = next(e)
		time.Sleep(28 * time.Second)
		claims("[]")
		time.Sleep(2 * time.Second)
		claims("[1 4]")
		e = next(e)
		claims("[]")
		time.Sleep(540 * time.Second)
		e = next(e) // its time came while nobody ran, as far as it knows
		claims("[5]")
		counts(0, 0)
	})
}

// Whoever waits for a job gets it the moment its delay is over.
func TestAClaimThatWaitsGetsADelayedRecordAtItsTime(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, vfs.NewMem(), "a")
		put(t, e, "q", configOf(api.Disk, queueConfig))
		begin, got := time.Now(), make(chan time.Duration)
		go func() {
			res, err := e.Claim(bg, "q", &api.ClaimRequest{Node: "w", Max: 1, WaitMS: 30_000}, func(*api.Job) {})
			if err != nil || res.Count != 1 {
				t.Error(res, err)
			}
			got <- time.Since(begin)
		}()
		synctest.Wait()
		writeRecords(t, e, "q", later("1", 5_000))
		if took := <-got; took < 5*time.Second || took > 5*time.Second+50*time.Millisecond {
			t.Errorf("it came after %v", took)
		}
	})
}

// What is deleted, evicted or purged waits for nothing; a queue that is deleted and made again knows nothing of it.
func TestADelayedRecordThatGoesIsForgotten(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, vfs.NewMem(), "a")
		put(t, e, "q", configOf(api.Disk, queueConfig, func(c *api.Config) { c.CapRecords = 3 }))
		writeRecords(t, e, "q", later("1", 1000), later("2", 1000), later("3", 1000), later("4", 1000), later("5", 1000))
		if c := countersOf(t, e, "q"); c.Ready != 0 || c.Delayed != 3 {
			t.Errorf("%+v in a queue that holds 3", c)
		}
		if _, err := e.DeleteRecords(bg, "q", &api.DeleteRequest{HasBefore: true, BeforeSeq: 5}); err != nil {
			t.Fatal(err)
		}
		if c := countersOf(t, e, "q"); c.Ready != 0 || c.Delayed != 1 {
			t.Errorf("%+v after a delete", c)
		}
		if _, err := e.DeleteTopic(bg, "q", false); err != nil {
			t.Fatal(err)
		}
		put(t, e, "q", configOf(api.Disk, queueConfig))
		writeRecords(t, e, "q", later("1", 0))
		if got := seqsOf(claimJobs(t, e, "q", "w", 9)); got != "[1]" {
			t.Errorf("%q can be claimed of a new queue", got)
		}
	})
}

// Nor does it leave memory until its time would have come.
func TestADelayedRecordThatGoesTakesNoMemory(t *testing.T) {
	e := open(t, t.TempDir())
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	put(t, e, "much", configOf(api.Disk, queueConfig, func(c *api.Config) { c.CapRecords = 10 }))
	for range 200 {
		records := make([]api.Record, 100)
		for i := range records {
			records[i] = later("1", api.MaxDelayMS)
		}
		writeRecords(t, e, "much", records...)
	}
	if grown := heap() - before; grown > 2<<20 {
		t.Errorf("20,000 records that went before their time still take %d bytes", grown)
	}
}

// A log has no workers who would wait.
func TestADelayIsRefusedByALog(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	put(t, e, "log", configOf(api.Disk))
	for name, why := range map[string]string{"log": "is a log", "new": "does not exist"} {
		_, err := e.Write(bg, name, &api.WriteRequest{Records: []api.Record{later("1", 5)}})
		if !api.IsCode(err, api.CodeNotAQueue) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := e.Topic("new", false); !api.IsCode(err, api.CodeTopicNotFound) {
		t.Errorf("a refused write has made a topic: %v", err)
	}
}

// The age of a queue counts from when a job could be claimed, by the wall clock, wherever that was stepped to before.
func TestADelayedRecordIsOfNoAgeBeforeItsTime(t *testing.T) {
	for _, step := range []time.Duration{0, time.Hour, -time.Hour} {
		bubble.Run(t, func(t *testing.T) {
			w := &wall{}
			e := openOn(t, vfs.NewMem(), "a", w.set)
			put(t, e, "q", configOf(api.Disk, queueConfig))
			w.jump(step)
			writeRecords(t, e, "q", later("1", 600_000))
			if ts, _, err := e.OldestReady(bg, "q", true); err != nil || ts != 0 {
				t.Errorf("%v: %d %v while none is ready", step, ts, err)
			}
			time.Sleep(601 * time.Second)
			for _, sealed := range []bool{false, true} {
				if sealed {
					sealNow(t, e)
				}
				ts, _, err := e.OldestReady(bg, "q", true)
				if age := w.now().UnixMilli() - ts; err != nil || age < 0 || age > 2000 {
					t.Errorf("%v, sealed %t: %d ms old a second after its time, %v", step, sealed, age, err)
				}
			}
		})
	}
}
