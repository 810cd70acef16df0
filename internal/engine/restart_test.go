package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
	"github.com/weirmq/weir/tests/crashfs"
)

// restarts are the ways from one life of a server to the next: its state comes
// from the log or from the store, and the stop was clean or a loss of power.
func restarts(t *testing.T, test func(t *testing.T, next func(*Engine) *Engine, w *wall)) {
	for _, sealed := range []bool{false, true} {
		for _, clean := range []bool{false, true} {
			t.Run(fmt.Sprintf("sealed %v clean %v", sealed, clean), func(t *testing.T) {
				bubble.Run(t, func(t *testing.T) {
					w := &wall{}
					fs := crashfs.New()
					test(t, func(e *Engine) *Engine {
						if e == nil {
							return openOn(t, fs, "boot", w.set)
						}
						if sealed {
							sealNow(t, e)
						}
						if !clean {
							fs = fs.CrashClone(vfs.CrashCloneCfg{})
						}
						if err := e.Close(); err != nil {
							t.Fatal(err)
						}
						w.jump(w.later)
						w.later = 0
						return openOn(t, fs, "boot", w.set)
					}, w)
				})
			})
		}
	}
}

func writeKeyed(t *testing.T, e *Engine, topic, key string, data ...string) api.WriteResult {
	t.Helper()
	req := &api.WriteRequest{HasIdempotencyKey: true, IdempotencyKey: []byte(key)}
	for _, d := range data {
		req.Records = append(req.Records, api.Record{Data: []byte(d)})
	}
	res, err := e.Write(bg, topic, req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// A client that does not know whether its write was stored tries again with the
// same key, after a restart too: it gets the numbers of the first time, until
// the window has passed.
func TestAnIdempotencyKeyHoldsOverRestarts(t *testing.T) {
	restarts(t, func(t *testing.T, next func(*Engine) *Engine, _ *wall) {
		e := next(nil)
		put(t, e, "t", configOf(api.Fsync, func(c *api.Config) { c.IdempotencyWindowMS = 60_000 }))
		put(t, e, "other", configOf(api.Fsync))
		write(t, e, "t", "0")
		first := writeKeyed(t, e, "t", "k", "1", "2")
		write(t, e, "t", "3")
		for range 3 {
			time.Sleep(15 * time.Second)
			e = next(e)
			again := writeKeyed(t, e, "t", "k", "1", "2")
			if !again.Deduped || again.FirstSeq != first.FirstSeq || again.LastSeq != first.LastSeq {
				t.Fatalf("the repeat was answered with %+v, the first time with %+v", again, first)
			}
			if res := writeKeyed(t, e, "other", "k", "1"); res.FirstSeq != 1 {
				t.Fatalf("the key of another topic: %+v", res)
			}
		}
		sameRecords(t, e, "t", []string{"0", "1", "2", "3"})
		time.Sleep(15*time.Second + time.Millisecond) // 60 s after the first
		e = next(e)
		if res := writeKeyed(t, e, "t", "k", "4"); res.Deduped || res.FirstSeq != 5 {
			t.Fatalf("after its window the key still holds: %+v", res)
		}
		e.Close()
	})
}

// A durable lease keeps its holder, its id, its deadline and its count over
// restarts, whatever became of it before.
func TestADurableLeaseHoldsOverRestarts(t *testing.T) {
	restarts(t, func(t *testing.T, next func(*Engine) *Engine, _ *wall) {
		e := next(nil)
		durable := func(c *api.Config) { c.LeasesDurable = true }
		put(t, e, "q", configOf(api.Fsync, queueConfig, durable))
		put(t, e, "plain", configOf(api.Fsync, queueConfig))
		write(t, e, "q", "acked", "held", "extended", "nacked", "delayed")
		write(t, e, "plain", "1")
		jobs := claimJobs(t, e, "q", "w", 5)
		claimJobs(t, e, "plain", "w", 1)
		ack(t, e, "q", "w", 1)
		settle := func(f func(*api.SettleRequest) (api.SettleResult, error), req *api.SettleRequest) {
			t.Helper()
			req.Node = "w"
			if res, err := f(req); err != nil || res.Done != 1 {
				t.Fatal(res, err)
			}
		}
		nack := func(r *api.SettleRequest) (api.SettleResult, error) { return e.Nack(bg, "q", r) }
		extend := func(r *api.SettleRequest) (api.SettleResult, error) { return e.Extend(bg, "q", r) }
		settle(extend, &api.SettleRequest{Seqs: []uint64{3}, LeaseMS: 90_000})
		settle(nack, &api.SettleRequest{Seqs: []uint64{4}})
		settle(nack, &api.SettleRequest{Seqs: []uint64{5}, DelayMS: 60_000})
		claims := func(want string, deliveries uint64) {
			t.Helper()
			jobs := claimJobs(t, e, "q", "v", 5)
			if got := seqsOf(jobs); got != want {
				t.Fatalf("%s can be claimed, want %s", got, want)
			}
			for _, j := range jobs {
				if j.Deliveries != deliveries {
					t.Errorf("job %d was delivered %d times, want %d", j.Seq, j.Deliveries, deliveries)
				}
			}
		}

		time.Sleep(10 * time.Second)
		e = next(e)
		if got := seqsOf(claimJobs(t, e, "plain", "v", 1)); got != "[1]" {
			t.Errorf("of a queue without durable leases %s can be claimed", got)
		}
		claims("[4]", 2) // the nacked one, counted
		ack(t, e, "q", "v", 4)
		// The holder may go on with the id it has, and nobody else may.
		if res, err := e.Ack(bg, "q", &api.SettleRequest{Node: "v", Seqs: []uint64{2}}); err != nil || res.Done != 0 {
			t.Errorf("another node acked a held job: %+v, %v", res, err)
		}
		if res, err := e.Ack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{2}, LeaseIDs: []uint64{jobs[1].LeaseID + 1}}); err != nil || res.Done != 0 {
			t.Errorf("a wrong lease id acked: %+v, %v", res, err)
		}
		time.Sleep(20*time.Second - time.Millisecond)
		claims("[]", 0)
		e = next(e)
		time.Sleep(3 * time.Millisecond) // 30 s after the claim
		claims("[2]", 2)
		if res, err := e.Ack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{2}, LeaseIDs: []uint64{jobs[1].LeaseID}}); err != nil || res.Done != 0 {
			t.Errorf("a superseded lease acked: %+v, %v", res, err)
		}
		ack(t, e, "q", "v", 2)
		e = next(e)
		time.Sleep(30 * time.Second) // 60 s
		claims("[5]", 2)
		ack(t, e, "q", "v", 5)
		e = next(e)
		if res := ack(t, e, "q", "w", 3); res.Done != 1 {
			t.Errorf("the extended lease is lost: %+v", res)
		}
		e = next(e)
		if s := stateOf(t, e, "q"); s.Count != 0 || s.Queue.Ready != 0 || s.Queue.InFlight != 0 {
			t.Errorf("in the end there is %+v", s.Queue)
		}
		e.Close()
	})
}

// A clock that was set back while the server was down takes nothing back: time
// stamps go on from where they were, what has expired stays expired, and a
// lease lasts as long as it was given for.
func TestAClockSetBackOverARestartTakesNothingBack(t *testing.T) {
	restarts(t, func(t *testing.T, next func(*Engine) *Engine, w *wall) {
		e := next(nil)
		put(t, e, "t", configOf(api.Fsync))
		put(t, e, "short", configOf(api.Fsync, func(c *api.Config) { c.TTLMS = 5_000 }))
		put(t, e, "q", configOf(api.Fsync, queueConfig, func(c *api.Config) { c.LeasesDurable = true }))
		write(t, e, "short", "expires")
		write(t, e, "q", "job")
		claimJobs(t, e, "q", "w", 1)
		time.Sleep(10 * time.Second)
		write(t, e, "t", "1")
		before := stampsOf(t, e, "t")[0]
		w.jump(-time.Hour)
		e = next(e)
		write(t, e, "t", "2")
		if got := stampsOf(t, e, "t"); got[1] < before {
			t.Errorf("the second record is stamped %d ms before the first", before-got[1])
		}
		if records, _ := mustFull(t, e, "short"); len(records) > 0 {
			t.Errorf("an expired record came back: %v", records)
		}
		if got := seqsOf(claimJobs(t, e, "q", "v", 1)); got != "[]" {
			t.Errorf("a lease ended early: %s", got)
		}
		time.Sleep(21 * time.Second)
		if got := seqsOf(claimJobs(t, e, "q", "v", 1)); got != "[1]" {
			t.Errorf("31 s into a lease of 30 s %s can be claimed", got)
		}
		e.Close()
	})
}

func stampsOf(t *testing.T, e *Engine, topic string) (ts []int64) {
	t.Helper()
	_, err := e.Diff(bg, topic, &api.DiffRequest{Limit: 100, MaxBatchBytes: 8 << 20}, func(r *api.Record) { ts = append(ts, r.TS) })
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

// What a `disk` topic has acknowledged survives a loss of power once the flush
// interval has passed, and what is younger is announced.
func TestADiskRecordIsSafeAfterTheFlushInterval(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		mem := crashfs.New()
		e := openOn(t, mem, "a", func(o *Options) { o.DiskFlush = 200 * time.Millisecond })
		put(t, e, "t", configOf(api.Disk))
		write(t, e, "t", "1", "2")
		time.Sleep(250 * time.Millisecond)
		write(t, e, "t", "3")
		crashed := openOn(t, mem.CrashClone(vfs.CrashCloneCfg{}), "b")
		records, gaps := mustFull(t, crashed, "t")
		if len(records) < 2 || records[0] != "1=1" || records[1] != "2=2" {
			t.Errorf("after a power cut the topic holds %v", records)
		}
		if len(records) == 2 && len(gaps) != 1 {
			t.Errorf("the lost record is not announced: %v", gaps)
		}
		e.Close()
		crashed.Close()
	})
}

// A job that was seen to be gone to the dead letters stays there over a loss of
// power, whichever of the two topics is the safer one.
func TestADeadLetterIsAsSafeAsTheSaferTopic(t *testing.T) {
	for _, c := range [][2]api.Durability{{api.Fsync, api.Memory}, {api.Fsync, api.Disk}, {api.Disk, api.Fsync}, {api.Memory, api.Fsync}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			mem := crashfs.New()
			e := openOn(t, mem, "a")
			put(t, e, "q", configOf(c[0], queueConfig, func(c *api.Config) { c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter = 1, true, "dead" }))
			put(t, e, "dead", configOf(c[1]))
			write(t, e, "q", "poison")
			claimJobs(t, e, "q", "w", 1)
			if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{1}}); err != nil {
				t.Fatal(err)
			}
			claimJobs(t, e, "q", "w", 1)
			if s := stateOf(t, e, "q"); s.Queue.DeadLettered != 1 {
				t.Fatalf("the job was not moved: %+v", s.Queue)
			}
			crashed := openOn(t, mem.CrashClone(vfs.CrashCloneCfg{}), "b")
			jobs, _ := mustFull(t, crashed, "q")
			letters, _ := mustFull(t, crashed, "dead")
			if len(jobs) != 0 || fmt.Sprint(letters) != "[1=poison]" {
				t.Errorf("after a power cut the queue holds %v and the dead letters %v", jobs, letters)
			}
		})
	}
}

// What a dropped topic left in a segment that others keep is nobody's: a topic
// that is made after a restart is not taken for it.
func TestATopicMadeAfterARestartInheritsNothing(t *testing.T) {
	fs := vfs.NewMem()
	e := openOn(t, fs, "a")
	again := func() {
		t.Helper()
		sealNow(t, e)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = openOn(t, fs, "a")
	}
	put(t, e, "stays", configOf(api.Fsync))
	write(t, e, "stays", "0")
	put(t, e, "old", configOf(api.Fsync))
	writeKeyed(t, e, "old", "k", "of the old topic")
	sealNow(t, e)
	if _, err := e.DeleteTopic(bg, "old", false); err != nil {
		t.Fatal(err)
	}
	again()
	put(t, e, "new", configOf(api.Fsync))
	again()
	if res := writeKeyed(t, e, "new", "k", "of the new topic"); res.Deduped || res.FirstSeq != 1 {
		t.Errorf("the first write of a new topic is taken for a repeat: %+v", res)
	}
	sameRecords(t, e, "new", []string{"of the new topic"})
	sameRecords(t, e, "stays", []string{"0"})
}

// Every class but fsync reserves numbers ahead. A write beyond what is surely
// reserved waits until more is, else a loss of power would give its numbers out again.
func TestNoNumberBeyondTheReservationIsGivenOutTwice(t *testing.T) {
	for _, class := range []api.Durability{api.Disk, api.Memory, api.Ephemeral} {
		t.Run(fmt.Sprint(class), func(t *testing.T) {
			mem := crashfs.New()
			e := openOn(t, mem, "a")
			put(t, e, "t", configOf(class))
			batch := slices.Repeat([]string{"1"}, 700)
			for range 12 {
				write(t, e, "t", batch...)
				told := stateOf(t, e, "t").HeadSeq
				crashed := openOn(t, mem.CrashClone(vfs.CrashCloneCfg{}), "b")
				if head := stateOf(t, crashed, "t").HeadSeq; head < told {
					t.Errorf("%d numbers were acknowledged, after a loss of power the head is %d", told, head)
				}
				crashed.Close()
			}
		})
	}
}

// What a lowered cap takes is told by its reason, as what a write takes is.
func TestALoweredCapIsToldAsACap(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	put(t, e, "t", configOf(api.Disk))
	write(t, e, "t", "1", "2", "3", "4")
	put(t, e, "t", configOf(api.Disk, func(c *api.Config) { c.CapRecords = 1 }))
	records, gaps := mustFull(t, e, "t")
	if fmt.Sprint(records) != "[4=4]" || len(gaps) != 1 || !strings.Contains(fmt.Sprint(gaps), "cap") {
		t.Errorf("records %v, gaps %v", records, gaps)
	}
}
