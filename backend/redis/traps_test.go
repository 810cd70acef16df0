package redis_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
)

// onEveryServer runs a test on each installed version, on several at once: most of them wait.
func onEveryServer(t *testing.T, do func(t *testing.T, s *redistest.Server)) {
	for _, version := range redistest.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			do(t, redistest.Start(t, redistest.Options{Version: version}))
		})
	}
}

// Before 7.0 a deleted entry that is pending comes back as nil, and stays pending
// for ever; the client's own XAutoClaim then drops the living ones beside it.
func TestDeletedPendingEntriesAreLostAndTheOthersReclaimed(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		ids := publish(t, b, 6)
		if got := claim(t, b, backend.ClaimRequest{Max: 6, ReclaimAfter: 10 * time.Millisecond}); len(got.Deliveries) != 6 {
			t.Fatalf("claimed %d of 6", len(got.Deliveries))
		}
		gone := []string{ids[0], ids[2], ids[5]}
		if n, err := s.Client().XDel(t.Context(), "jobs", gone...).Result(); err != nil || n != 3 {
			t.Fatal(n, err)
		}
		var lost, alive []string
		wait(t, "all six are accounted for", func() bool {
			got := claim(t, b, backend.ClaimRequest{Consumer: "d", Max: 10, ReclaimAfter: 10 * time.Millisecond, MaxDeliveries: 3})
			lost = append(lost, got.Lost...)
			var leases []backend.Lease
			for _, d := range got.Deliveries {
				if d.Attempt != 2 || d.Data == nil {
					t.Errorf("reclaimed %+v", d)
				}
				alive, leases = append(alive, d.ID), append(leases, d.Lease)
			}
			if _, err := b.Ack(t.Context(), leases); err != nil {
				t.Fatal(err)
			}
			return len(lost)+len(alive) == 6
		})
		slices.Sort(lost)
		slices.Sort(alive) // they may have come due a millisecond apart
		if !slices.Equal(lost, gone) || !slices.Equal(alive, []string{ids[1], ids[3], ids[4]}) {
			t.Errorf("lost %v, want %v; reclaimed %v", lost, gone, alive)
		}
		if stats, err := b.Stats(t.Context()); err != nil || stats.Pending != 0 {
			t.Errorf("after all that %d are pending, %v", stats.Pending, err)
		}
	})
}

// A deleted entry that nobody had read makes the lag null, old servers have none:
// neither is 0, and the backlog is seen all the same.
func TestUnknownLagIsNotZero(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		ids := publish(t, b, 3)
		claim(t, b, backend.ClaimRequest{Max: 1})
		if err := s.Client().XDel(t.Context(), "jobs", ids[1]).Err(); err != nil {
			t.Fatal(err)
		}
		stats, err := b.Stats(t.Context())
		if err != nil || stats.Lag != nil || stats.OldestSource != backend.AgePending {
			t.Errorf("%+v %v", stats, err)
		}
		signal, err := b.Signal(t.Context(), 100)
		if err != nil || signal.Lag != nil || signal.Pending != 1 || signal.XLen != 2 {
			t.Errorf("%+v %v", signal, err)
		}
		if err := s.Client().XAck(t.Context(), "jobs", "weir", ids[0]).Err(); err != nil {
			t.Fatal(err)
		}
		stats, err = b.Stats(t.Context())
		if err != nil || stats.Lag != nil || stats.OldestSource != backend.AgeBacklog || !stats.Approx {
			t.Errorf("%+v %v", stats, err)
		}
	})
}

// XPENDING with IDLE looks at everything that is pending while the server does
// nothing else. What a backend sends is taken from the slow log.
func TestNoCommandLooksAtAllThatIsPending(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		admin := s.Client()
		for name, value := range map[string]string{"slowlog-log-slower-than": "0", "slowlog-max-len": "1000"} {
			if err := admin.ConfigSet(t.Context(), name, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
		b := open(t, s.Addr(), "stream=jobs")
		publish(t, b, 5)
		got := claim(t, b, backend.ClaimRequest{Max: 3})
		if _, err := b.Nack(t.Context(), []backend.Return{{Lease: got.Deliveries[0].Lease}}); err != nil {
			t.Fatal(err)
		}
		claim(t, b, backend.ClaimRequest{Max: 3, Block: time.Millisecond})
		if _, err := b.Stats(t.Context()); err != nil {
			t.Fatal(err)
		}
		log, err := admin.SlowLogGet(t.Context(), 1000).Result()
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for _, entry := range log {
			seen[strings.ToUpper(entry.Args[0])]++
			if strings.EqualFold(entry.Args[0], "XPENDING") && slices.Contains(entry.Args, "IDLE") {
				t.Errorf("sent %q", entry.Args)
			}
		}
		if seen["XADD"] != 5 || seen["XREADGROUP"] == 0 {
			t.Errorf("the log holds %v: a plain append is a plain XADD", seen)
		}
	})
}

// A range that leaves its start out, TRIM by ID and more are newer than 5.0;
// scripts that write after TIME need effects to be replicated there.
func TestScriptsAreSentAgainAfterTheServerForgotThem(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		for i := range 2 {
			msg := backend.Message{Data: []byte("x"), IdempotencyKey: fmt.Sprint("k", i)}
			if r, err := b.Append(t.Context(), []backend.Message{msg}); err != nil || r[0].Deduped {
				t.Fatal(r, err)
			}
			got := claim(t, b, backend.ClaimRequest{Max: 1})
			if err := b.DeadLetter(t.Context(), got.Deliveries[0], "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
				t.Fatal(err)
			}
			if err := b.PublishSignal(t.Context(), time.Minute); err != nil {
				t.Fatal(err)
			}
			if err := s.Client().ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// An entry of another program is the object of its fields, and its dead letter has the same fields.
func TestForeignEntriesAreDeliveredAsObjects(t *testing.T) {
	addr, s := startServer(t)
	b := open(t, addr, "stream=jobs")
	admin := s.Client()
	fields := []any{"job_id", "7", "note", "a \"b\"\n", "traceparent", "00-1", "tracestate", "a=1", "enqueue_ts", "1700000000000"}
	if err := admin.XAdd(t.Context(), &goredis.XAddArgs{Stream: "jobs", Values: fields}).Err(); err != nil {
		t.Fatal(err)
	}
	d := claim(t, b, backend.ClaimRequest{Max: 1}).Deliveries[0]
	const want = `{"job_id":"7","note":"a \"b\"\n","traceparent":"00-1","tracestate":"a=1","enqueue_ts":"1700000000000"}`
	if string(d.Data) != want || d.Headers["traceparent"] != "00-1" || d.Headers["tracestate"] != "a=1" || len(d.Headers) != 2 || d.Enqueued.UnixMilli() != 1700000000000 {
		t.Errorf("%s %q %s", d.Data, d.Headers, d.Enqueued)
	}
	if err := b.DeadLetter(t.Context(), d, "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
		t.Fatal(err)
	}
	letters, err := admin.XRange(t.Context(), b.Info().DeadLetter, "-", "+").Result()
	if err != nil || len(letters) != 1 || letters[0].Values["note"] != "a \"b\"\n" || letters[0].Values["weir-dead-reason"] != "poison" {
		t.Errorf("%v %v", letters, err)
	}
}

// A script cannot pass on more than some 4,000 fields: the letter of a wider entry
// holds what a handler would have been given.
func TestAVeryWideForeignEntryIsBuriedAndSentBack(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		for name, data := range map[string]string{"without data": "", "with data": "payload"} {
			stream := "jobs-" + strings.ReplaceAll(name, " ", "-")
			b := open(t, s.Addr(), "stream="+stream)
			values := make([]any, 0, 12_002)
			for i := range 6000 {
				values = append(values, fmt.Sprint("f", i), fmt.Sprint(i))
			}
			if data != "" {
				values = append(values, "data", data)
			}
			if err := s.Client().XAdd(t.Context(), &goredis.XAddArgs{Stream: stream, Values: values}).Err(); err != nil {
				t.Fatal(err)
			}
			publish(t, b, 1)
			first := claim(t, b, backend.ClaimRequest{Max: 1, MaxDeliveries: 1, ReclaimAfter: time.Millisecond}).Deliveries[0]
			var got backend.Claimed
			wait(t, name+": it is buried and the next is delivered", func() bool {
				more := claim(t, b, backend.ClaimRequest{Consumer: "d", Max: 5, MaxDeliveries: 1, ReclaimAfter: time.Minute})
				got.Dead, got.Deliveries = append(got.Dead, more.Dead...), append(got.Deliveries, more.Deliveries...)
				return len(got.Dead) > 0 && len(got.Deliveries) > 0
			})
			letters, err := b.List(t.Context(), "", "", 10)
			if err != nil || len(letters) == 0 || string(letters[0].Data) != string(first.Data) {
				t.Fatalf("%s: %d letters, %v", name, len(letters), err)
			}
			if data != "" && !strings.Contains(letters[0].Headers["fields"], `"f5999":"5999"`) {
				t.Errorf("%s: the other fields are gone: %.80q", name, letters[0].Headers["fields"])
			}
			ack(t, b, got.Deliveries...)
			if err := b.Redrive(t.Context(), "", letters[0]); err != nil {
				t.Fatal(err)
			}
			if again := claim(t, b, backend.ClaimRequest{Max: 1}).Deliveries; len(again) != 1 || string(again[0].Data) != string(first.Data) {
				t.Errorf("%s: sent back came %d", name, len(again))
			}
		}
	})
}

// What is in the signal's key and is no count is not a count.
func TestSignalOfOthersIsReadOrUnknown(t *testing.T) {
	addr, s := startServer(t)
	b := open(t, addr, "stream=jobs&signal=pressure")
	for value, want := range map[string]int64{"17": 17, "": -1, "many": -1, "-3": -1} {
		if err := s.Client().Set(t.Context(), "pressure", value, 0).Err(); err != nil {
			t.Fatal(err)
		}
		got, err := b.Signal(t.Context(), 100)
		if err != nil || (got.Workers == nil) != (want < 0) || got.Workers != nil && *got.Workers != want {
			t.Errorf("%q is read as %v, %v", value, got.Workers, err)
		}
	}
}

// What waits for its next delivery is pending, and no worker has it in hand.
func TestSignalTellsWhatWasGivenBackFromWhatIsInHand(t *testing.T) {
	addr, _ := startServer(t)
	b := open(t, addr, "stream=jobs")
	publish(t, b, 5)
	got := claim(t, b, backend.ClaimRequest{Max: 3}).Deliveries
	for back := range int64(3) {
		signal, err := b.Signal(t.Context(), 100)
		shared, _, shareErr := b.Share(t.Context(), backend.RoomRequest{Limit: 100, Pause: -1, Need: 1, Lifetime: time.Second})
		for _, s := range []backend.Signal{signal, shared} {
			if err != nil || shareErr != nil || s.Pending != 3 || s.GivenBack != back {
				t.Errorf("%d of 3 were given back: %+v; %v, %v", back, s, err, shareErr)
			}
		}
		lost, err := b.Nack(t.Context(), []backend.Return{{Lease: got[back].Lease, Delay: time.Minute}})
		if err != nil || len(lost) > 0 {
			t.Fatal(lost, err)
		}
	}
}

// A group that somebody destroyed is made again behind what this process has
// acknowledged, and that it was gone is told once.
func TestDestroyedGroupGoesOnWhereItWas(t *testing.T) {
	addr, s := startServer(t)
	b := open(t, addr, "stream=jobs")
	ids := publish(t, b, 10)
	got := claim(t, b, backend.ClaimRequest{Max: 7})
	var done []backend.Lease
	for i, d := range got.Deliveries {
		if i != 2 && i != 6 { // two are still held
			done = append(done, d.Lease)
		}
	}
	if _, err := b.Ack(t.Context(), done); err != nil {
		t.Fatal(err)
	}
	if err := s.Client().XGroupDestroy(t.Context(), "jobs", "weir").Err(); err != nil {
		t.Fatal(err)
	}
	_, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 10, ReclaimAfter: time.Minute})
	if !errors.Is(err, backend.ErrGroupNotFound) || !backend.Retryable(err) {
		t.Fatalf("the claim that finds it gone: %v", err)
	}
	got = claim(t, b, backend.ClaimRequest{Max: 10})
	var again []string
	for _, d := range got.Deliveries {
		again = append(again, d.ID)
	}
	if held := []string{ids[2], ids[6]}; got.Reclaimed != 2 || !slices.Equal(again[:2], held) {
		t.Errorf("%v come first, %d as taken over; this process has %v", again, got.Reclaimed, held)
	}
	if slices.Sort(again); !slices.Equal(again, ids[2:]) {
		t.Errorf("delivered again: %v, the first that is not done is %s", again, ids[2])
	}
}

// A stream that was deleted, or restored on a server whose clock is behind, gives
// its messages lower IDs than the old one's: a group behind those would deliver nothing.
func TestAGroupOfANewStreamBeginsAtItsFirstEntry(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		for _, when := range []string{"before the next message", "behind the next messages"} {
			stream := strings.ReplaceAll("jobs "+when, " ", "-")
			b := open(t, s.Addr(), "stream="+stream)
			ahead := fmt.Sprintf("%d-0", time.Now().Add(time.Hour).UnixMilli())
			if err := s.Client().XAdd(t.Context(), &goredis.XAddArgs{Stream: stream, ID: ahead, Values: []any{"data", "x"}}).Err(); err != nil {
				t.Fatal(err)
			}
			old := claim(t, b, backend.ClaimRequest{Max: 10})
			if _, err := b.Ack(t.Context(), []backend.Lease{old.Deliveries[0].Lease}); err != nil {
				t.Fatal(err)
			}
			if err := s.Client().Del(t.Context(), stream).Err(); err != nil {
				t.Fatal(err)
			}
			req := backend.ClaimRequest{Consumer: "c", Max: 10, ReclaimAfter: time.Minute}
			if when == "before the next message" {
				_, _ = b.Claim(t.Context(), req)
			}
			publish(t, b, 10)
			delivered := 0
			for range 2 { // one claim tells that the group was gone
				got, _ := b.Claim(t.Context(), req)
				delivered += len(got.Deliveries)
			}
			if delivered != 10 {
				t.Errorf("the group made %s: %d of 10 messages of the new stream are delivered", when, delivered)
			}
		}
	})
}

// Each process has other consumers. Those that hold nothing leave with it; with
// one that holds something its messages would go too.
func TestConsumersThatHoldNothingLeave(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b, other := openOn(t, s.URL()+"?stream=jobs"), open(t, s.Addr(), "stream=jobs")
		publish(t, b, 2)
		done := claim(t, b, backend.ClaimRequest{Consumer: "done", Max: 1}).Deliveries[0]
		claim(t, b, backend.ClaimRequest{Consumer: "holds", Max: 1})
		claim(t, other, backend.ClaimRequest{Consumer: "stays", Max: 1})
		if _, err := b.Ack(t.Context(), []backend.Lease{done.Lease}); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		left, err := s.Client().XInfoConsumers(t.Context(), "jobs", "weir").Result()
		var names []string
		for _, c := range left {
			names = append(names, c.Name)
		}
		slices.Sort(names)
		// Before 7.2 a consumer is not there until it has been given something.
		names = slices.DeleteFunc(names, func(name string) bool { return name == "stays" })
		if err != nil || !slices.Equal(names, []string{"holds"}) {
			t.Errorf("left are %v, %v", names, err)
		}
		if stats, err := other.Stats(t.Context()); err != nil || stats.Pending != 1 {
			t.Errorf("%+v %v", stats, err)
		}
	})
}

// A worker that is far from its server leaves, too: one command gets there in the time that it has, and a
// server that was just started knows no scripts.
func TestAWorkerFarFromItsServerLeavesNoName(t *testing.T) {
	t.Parallel()
	_, s := startServer(t)
	far := redistest.NewProxy(t, s.Addr())
	b := openOn(t, "redis://"+far.Addr()+"/0?stream=jobs")
	publish(t, b, 1)
	d := claim(t, b, backend.ClaimRequest{Max: 1}).Deliveries[0]
	if _, err := b.Ack(t.Context(), []backend.Lease{d.Lease}); err != nil {
		t.Fatal(err)
	}
	far.Set(redistest.Fault{Latency: 170 * time.Millisecond})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	wait(t, "no name is left", func() bool { return len(s.Client().XInfoConsumers(t.Context(), "jobs", "weir").Val()) == 0 })
}

// A group that was to get only what is new, and that is destroyed before it got anything, does
// not get what was there before it began.
func TestAGroupThatBeganAtTheEndIsMadeAgainThere(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs&start=$")
		publish(t, b, 5) // the history
		if got := claim(t, b, backend.ClaimRequest{Max: 10}); len(got.Deliveries) > 0 {
			t.Fatalf("%d", len(got.Deliveries))
		}
		publish(t, b, 2)
		if err := s.Client().XGroupDestroy(t.Context(), "jobs", "weir").Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 10, ReclaimAfter: time.Minute}); !errors.Is(err, backend.ErrGroupNotFound) {
			t.Errorf("%v", err)
		}
		got := claim(t, b, backend.ClaimRequest{Max: 10})
		if len(got.Deliveries) != 2 {
			t.Errorf("%d were delivered, want the 2 that were published after the group began", len(got.Deliveries))
		}
	})
}
