package engine

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
	"github.com/weirmq/weir/tests/crashfs"
)

// A topic that was ephemeral for a while has a hole in the log: no number of
// the hole may be given out again.
func TestNumbersOfAnEphemeralTimeAreNotReused(t *testing.T) {
	for _, class := range []api.Durability{api.Memory, api.Disk, api.Fsync} {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprint(class, " clean ", clean), func(t *testing.T) {
				mem := crashfs.New()
				e := openOn(t, mem, "a")
				put(t, e, "t", configOf(api.Ephemeral))
				write(t, e, "t", "1", "2", "3")
				put(t, e, "t", configOf(class))
				fs := vfs.FS(mem.CrashClone(vfs.CrashCloneCfg{}))
				if clean {
					if err := e.Close(); err != nil {
						t.Fatal(err)
					}
					fs = mem
				}
				e = openOn(t, fs, "a")
				if _, gaps := mustFull(t, e, "t"); fmt.Sprint(gaps) == "[]" {
					t.Error("the lost records are not announced")
				}
				if res := write(t, e, "t", "4"); res.FirstSeq < 4 {
					t.Fatalf("number %d was given out twice", res.FirstSeq)
				}
			})
		}
	}
}

// Records in memory may lie between records of one sealed segment.
func TestRecordsOfAnEphemeralTimeAreReadBetweenSealedOnes(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	write(t, e, "t", "1", "2")
	put(t, e, "t", configOf(api.Ephemeral))
	write(t, e, "t", "3", "4")
	put(t, e, "t", configOf(api.Disk))
	write(t, e, "t", "5", "6")
	sealNow(t, e)
	if got, gaps := mustFull(t, e, "t"); fmt.Sprint(got, gaps) != "[1=1 2=2 3=3 4=4 5=5 6=6] []" {
		t.Fatal(got, gaps)
	}
	res, err := e.DeleteRecords(bg, "t", &api.DeleteRequest{HasBefore: true, BeforeSeq: 6})
	if err != nil || res.Deleted != 5 || res.Count != 1 || res.Bytes != 1 {
		t.Fatal(res, err)
	}
	if got, gaps := mustFull(t, e, "t"); fmt.Sprint(got, gaps) != "[6=6] []" {
		t.Fatal(got, gaps)
	}
}

// What a delete takes of a topic that lives in memory alone is gone with the
// answer, though nothing of it goes into the log.
func TestADeleteFromAnEphemeralTopicIsVisibleWithItsAnswer(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	put(t, e, "t", configOf(api.Ephemeral))
	write(t, e, "t", "1", "2", "3")
	res, err := e.DeleteRecords(bg, "t", &api.DeleteRequest{HasBefore: true, BeforeSeq: 3})
	if err != nil || res.Deleted != 2 || res.Count != 1 || res.EarliestSeq != 3 {
		t.Fatalf("%+v %v", res, err)
	}
	wantFull(t, e, "t", "[3=3]", "[]")
}

// putUnsynced changes a topic on a slow disk and returns while the change is staged and
// its sync under way. synced waits for that.
func putUnsynced(t *testing.T, e *Engine, topic string, cfg api.Config) (synced func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := e.PutTopic(bg, topic, cfg)
		done <- err
	}()
	synctest.Wait() // everyone waits for the disk
	if len(done) > 0 {
		t.Fatalf("the change was synced at once: %v", <-done)
	}
	return func() {
		t.Helper()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// A write answers when its record can be read: behind a change that is still
// being synced it waits for that, whatever its own class.
func TestAWriteBehindAnUnsyncedChangeIsVisibleWithItsAnswer(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		disk := newSlowDisk(time.Second)
		e := openOn(t, disk, "a")
		put(t, e, "t", configOf(api.Disk))
		synced := putUnsynced(t, e, "t", configOf(api.Disk, func(c *api.Config) { c.CapRecords = 10 }))
		write(t, e, "t", "1")
		if records, _ := mustFull(t, e, "t"); fmt.Sprint(records) != "[1=1]" {
			t.Errorf("a write has answered, a reader finds %v", records)
		}
		synced()
	})
}

// A router whose destination stops being ephemeral waits for that: what it
// copies meanwhile is a record of the new class, and a restart finds it.
func TestARouterWaitsWhileItsDestinationLeavesMemory(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		disk := newSlowDisk(time.Second)
		e := openOn(t, disk, "a")
		put(t, e, "in", configOf(api.Disk))
		put(t, e, "out", configOf(api.Ephemeral))
		putRouter(t, e, "r", "in", "out")
		write(t, e, "in", "1")
		wantFull(t, e, "out", "[1=1]", "[]")
		synced := putUnsynced(t, e, "out", configOf(api.Disk))
		write(t, e, "in", "2", "3")
		if n := stateOf(t, e, "out").HeadSeq; n != 3 {
			t.Errorf("a reader finds the destination at %d, want 3", n)
		}
		synced()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = openOn(t, disk, "a")
		wantFull(t, e, "out", "[2=2 3=3]", "[1-1 crash]")
		if res := write(t, e, "out", "4"); res.FirstSeq != 4 {
			t.Errorf("a number is given out twice: %d", res.FirstSeq)
		}
	})
}

// The same holds for dead letters.
func TestADeadLetterWaitsWhileItsTopicLeavesMemory(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		disk := newSlowDisk(time.Second)
		e := openOn(t, disk, "a")
		put(t, e, "q", configOf(api.Disk, queueConfig, func(c *api.Config) { c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter = 1, true, "dead" }))
		put(t, e, "dead", configOf(api.Ephemeral))
		write(t, e, "q", "1")
		jobs := claimJobs(t, e, "q", "w", 1)
		if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{jobs[0].Seq}}); err != nil {
			t.Fatal(err)
		}
		synced := putUnsynced(t, e, "dead", configOf(api.Disk))
		if jobs := claimJobs(t, e, "q", "w", 1); len(jobs) > 0 {
			t.Fatalf("a dead job is handed out: %v", jobs)
		}
		synced()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = openOn(t, disk, "a")
		if s := stateOf(t, e, "dead"); s.Count != 1 {
			t.Errorf("the dead letter is gone after a restart: %+v", s.TopicCounters)
		}
	})
}

// What is gone of a topic that lives in memory gives its memory back, though something older
// lives on: a job that is to be tried again in an hour, say.
func TestAnOldJobHoldsNoMemoryOfThoseBehindIt(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	put(t, e, "q", configOf(api.Ephemeral, queueConfig))
	write(t, e, "q", `"old"`)
	claimJobs(t, e, "q", "slow", 1)
	data := `"` + strings.Repeat("x", 10<<10) + `"`
	before := heap()
	for range 2000 {
		res := write(t, e, "q", data)
		claimJobs(t, e, "q", "w", 1)
		ack(t, e, "q", "w", res.FirstSeq)
	}
	if grown := heap() - before; grown > 2<<20 {
		t.Errorf("%d KiB are held for 2000 jobs of 10 KiB that are done", grown>>10)
	}
	write(t, e, "q", `"new"`)
	wantFull(t, e, "q", `[1="old" 2002="new"]`, "[]")
}
