package redis_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/stall"
)

// numbers returns the messages 0 to n-1, delayed by d.
func numbers(n int, d time.Duration) []backend.Message {
	msgs := make([]backend.Message, n)
	for i := range msgs {
		msgs[i] = backend.Message{Data: strconv.AppendInt(nil, int64(i), 10), Delay: d}
	}
	return msgs
}

func appendAll(t *testing.T, b backend.Backend, msgs []backend.Message) {
	t.Helper()
	for part := range slices.Chunk(msgs, 1000) {
		if _, err := b.Append(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
}

// However much is due at the same time, one script moves little of it: what was due first comes first,
// and what was due in the same millisecond in the order in which it was published. Nobody was there when it
// became due.
func TestWhatIsDueTogetherIsMovedInSteps(t *testing.T) {
	t.Parallel()
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		const n = 10_000
		b, c := open(t, s.Addr(), "stream=jobs"), s.Client()
		claim(t, b, backend.ClaimRequest{Max: 1})
		appendAll(t, b, numbers(n, time.Millisecond))
		time.Sleep(10 * time.Millisecond) // until all are due
		stats, err := b.Stats(t.Context())
		if err != nil || stats.Delayed != 0 || stats.XLen != n || stats.OldestSource != backend.AgeBacklog || stats.OldestAge <= 0 || stats.Lag != nil && *stats.Lag != n {
			t.Errorf("all is due and nothing is moved: %+v, %v", stats, err)
		}
		got := claim(t, b, backend.ClaimRequest{Max: 1}).Deliveries
		if moved := c.XLen(t.Context(), "jobs").Val(); moved < 1 || moved > 100 {
			t.Errorf("a claim of one moved %d at once", moved)
		}
		for len(got) < n {
			more := claim(t, b, backend.ClaimRequest{Max: 1000, Block: time.Second}).Deliveries
			if len(more) == 0 {
				t.Fatalf("%d of %d came", len(got), n)
			}
			got = append(got, more...)
		}
		seen := make([]bool, n)
		for i, d := range got {
			number, err := strconv.Atoi(string(d.Data))
			if err != nil || number < 0 || number >= n || seen[number] || d.Attempt != 1 {
				t.Fatalf("as the %d-th came %s, attempt %d, %v", i, d.Data, d.Attempt, err)
			}
			seen[number] = true
			if i == 0 {
				continue
			}
			before := got[i-1] // the server's clock may have been set back between two publishes
			if last, _ := strconv.Atoi(string(before.Data)); d.Enqueued.Before(before.Enqueued) || d.Enqueued.Equal(before.Enqueued) && number < last {
				t.Fatalf("%s, due %s, came as %s behind %s, due %s, %s", d.Data, d.Enqueued, d.ID, before.Data, before.Enqueued, before.ID)
			}
		}
		if left := c.Exists(t.Context(), "{jobs}:later").Val(); left != 0 {
			t.Error("something is left behind")
		}
	})
}

// A large message is a step of its own.
func TestLargeMessagesAreMovedOneByOne(t *testing.T) {
	t.Parallel()
	addr, s := startServer(t)
	b := open(t, addr, "stream=jobs")
	claim(t, b, backend.ClaimRequest{Max: 1})
	large := backend.Message{Data: make([]byte, 2<<20), Delay: time.Millisecond}
	appendAll(t, b, []backend.Message{large, large, large})
	time.Sleep(10 * time.Millisecond)
	claim(t, b, backend.ClaimRequest{Max: 1})
	if moved := s.Client().XLen(t.Context(), "jobs").Val(); moved != 1 {
		t.Errorf("%d messages of 2 MB were moved in one step", moved)
	}
}

// A full server refuses a delayed message and keeps nothing of it. What is due is moved all
// the same: if it were not, nobody could work off what fills the memory.
func TestAFullServerRefusesDelayedMessagesAndMovesWhatIsDue(t *testing.T) {
	t.Parallel()
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b, c := open(t, s.Addr(), "stream=jobs"), s.Client()
		claim(t, b, backend.ClaimRequest{Max: 1})
		appendAll(t, b, numbers(150, time.Millisecond))
		if err := c.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
			t.Fatal(err)
		}
		number := c.HGet(t.Context(), "{jobs}:weir", "later").Val()
		_, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x"), Delay: time.Hour, IdempotencyKey: "k"}})
		var full *backend.FullError
		if !errors.As(err, &full) {
			t.Errorf("a publish on a full server: %v", err)
		}
		if c.HGet(t.Context(), "{jobs}:weir", "later").Val() != number || c.ZCard(t.Context(), "{jobs}:later").Val() != 150 || c.Exists(t.Context(), "{jobs}:idem:k").Val() != 0 {
			t.Error("something of the refused message was kept")
		}
		_, err = b.AppendAt(t.Context(), "file", 0, []backend.Message{{Data: []byte("x"), Delay: time.Hour}})
		if err == nil || c.ZCard(t.Context(), "{jobs}:later").Val() != 150 {
			t.Errorf("a publish from a source on a full server: %v", err)
		}
		for got := 0; got < 150; {
			more := claim(t, b, backend.ClaimRequest{Max: 1000, Block: time.Second}).Deliveries
			if got += len(more); len(more) == 0 {
				t.Fatalf("%d of 150 came", got)
			}
		}
	})
}

// What somebody else puts into the set comes as it is, and does not keep the others waiting.
func TestAForeignMemberDoesNotBlockWhatIsDue(t *testing.T) {
	t.Parallel()
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b, c := open(t, s.Addr(), "stream=jobs"), s.Client()
		claim(t, b, backend.ClaimRequest{Max: 1})
		foreign := []string{"x", "0000000000000001not packed", "0000000000000002\x81\xa1a\xa1b", "0000000000000003\x92\x01\x02", "0000000000000004\x93\xa1a\xa1b\xa1c"}
		for i, member := range foreign {
			if err := c.Do(t.Context(), "ZADD", "{jobs}:later", i, member).Err(); err != nil {
				t.Fatal(err)
			}
		}
		appendAll(t, b, numbers(1, time.Millisecond))
		time.Sleep(10 * time.Millisecond)
		var got []string
		for _, d := range claim(t, b, backend.ClaimRequest{Max: 10}).Deliveries {
			got = append(got, string(d.Data))
		}
		if want := append(foreign, "0"); !slices.Equal(got, want) {
			t.Errorf("came %q, want %q", got, want)
		}
	})
}

// The time is the server's: what a message says about when it was published is not looked at,
// and without that it is published when it is due.
func TestDelaysAreByTheServersClock(t *testing.T) {
	t.Parallel()
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		claim(t, b, backend.ClaimRequest{Max: 1})
		const delay = 300 * time.Millisecond
		ahead := time.Now().Add(24 * time.Hour).Truncate(time.Millisecond)
		start := time.Now()
		_, err := b.Append(t.Context(), []backend.Message{
			{Data: []byte("fast"), Delay: delay, Headers: map[string]string{backend.FieldEnqueued: strconv.FormatInt(ahead.UnixMilli(), 10)}},
			{Data: []byte("right"), Delay: delay},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"fast", "right"} {
			got := claim(t, b, backend.ClaimRequest{Max: 1, Block: 10 * time.Second}).Deliveries
			if len(got) != 1 || string(got[0].Data) != want || time.Since(start) < delay-5*time.Millisecond {
				t.Fatalf("after %s came %v", time.Since(start), got)
			}
			if want == "fast" && !got[0].Enqueued.Equal(ahead) {
				t.Errorf("the time that its sender gave is %s, want %s", got[0].Enqueued, ahead)
			}
			if age := time.Since(got[0].Enqueued); want == "right" && (age < 0 || age > time.Since(start)-delay+time.Second) {
				t.Errorf("it is %s old, and was published for %s after the start", age, delay)
			}
		}
	})
}

// A claim that waits where nobody has ever delayed a message hears of the first within two seconds.
func TestTheFirstDelayedMessageOfAStreamComesSoon(t *testing.T) {
	t.Parallel()
	addr, _ := startServer(t)
	a, b := open(t, addr, "stream=jobs"), open(t, addr, "stream=jobs")
	claim(t, b, backend.ClaimRequest{Max: 1})
	got := make(chan int, 1)
	go func() {
		claimed, _ := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 1, Block: time.Minute, ReclaimAfter: time.Hour})
		got <- len(claimed.Deliveries)
	}()
	time.Sleep(50 * time.Millisecond)
	start, stalled := time.Now(), stall.Watch()
	appendAll(t, a, numbers(1, 100*time.Millisecond))
	n, took := <-got, time.Since(start)
	if n != 1 || took > 3*time.Second+stalled() {
		t.Errorf("%d came after %s", n, took)
	}
}

// Of two messages with one key the first counts, whichever of their scripts the server knows.
func TestOfADelayedMessageAndAnotherWithItsKeyTheFirstIsStored(t *testing.T) {
	addr, s := startServer(t)
	b := open(t, addr, "stream=jobs")
	delayed := func(key string) backend.Message { return backend.Message{IdempotencyKey: key, Delay: time.Hour} }
	now := func(key string) backend.Message { return backend.Message{IdempotencyKey: key} }
	for name, known := range map[string]backend.Message{"later": delayed("x"), "append": now("y")} {
		if err := s.Client().ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		appendAll(t, b, []backend.Message{known})
		got, err := b.Append(t.Context(), []backend.Message{delayed("a" + name), now("a" + name), now("b" + name), delayed("b" + name)})
		if err != nil {
			t.Fatal(err)
		}
		for i, again := range []bool{false, true, false, true} {
			if got[i].Deduped != again {
				t.Errorf("the server knows %s: message %d: %+v", name, i, got[i])
			}
		}
	}
}

// A message that could never become an entry is refused when it is published.
func TestADelayedMessageWithTooManyHeadersIsRefused(t *testing.T) {
	t.Parallel()
	addr, s := startServer(t)
	b := open(t, addr, "stream=jobs")
	headers := map[string]string{}
	for i := range 3948 { // with data and time the most that there can be
		headers[fmt.Sprint("h", i)] = "v"
	}
	claim(t, b, backend.ClaimRequest{Max: 1})
	if _, err := b.Append(t.Context(), []backend.Message{{Headers: headers, Data: []byte("x"), Delay: time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	if got := claim(t, b, backend.ClaimRequest{Max: 1, Block: 10 * time.Second}).Deliveries; len(got) != 1 || len(got[0].Headers) != len(headers) {
		t.Errorf("came %d", len(got))
	}
	headers["one"] = "more"
	for _, try := range []func(m backend.Message) error{
		func(m backend.Message) error { _, err := b.Append(t.Context(), []backend.Message{m}); return err },
		func(m backend.Message) error {
			_, err := b.AppendAt(t.Context(), "file", 0, []backend.Message{m})
			return err
		},
	} {
		if err := try(backend.Message{Headers: headers, Data: []byte("x"), Delay: time.Millisecond}); !errors.Is(err, backend.ErrTooLarge) {
			t.Errorf("too many headers: %v", err)
		}
	}
	if s.Client().Exists(t.Context(), "{jobs}:later").Val() != 0 {
		t.Error("it was kept")
	}
}

// Room and signal count what is not due, before there is a group or a stream as well.
func TestDelayedMessagesTakeRoom(t *testing.T) {
	t.Parallel()
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		appendAll(t, b, numbers(90, time.Hour))
		check := func(when string) {
			t.Helper()
			signal, room, err := b.Share(t.Context(), backend.RoomRequest{Limit: 100, Pause: -1, Need: 11, Want: 11, Lifetime: time.Second})
			if err != nil || room.Err != nil || room.Given != 0 || signal.Delayed != 90 || signal.Pending+signal.Behind != 0 || signal.XLen != 90 {
				t.Errorf("%s: %+v, %+v, %v", when, signal, room, err)
			}
		}
		check("without a stream")
		claim(t, b, backend.ClaimRequest{Max: 1})
		check("with a group")
		_, room, err := b.Share(t.Context(), backend.RoomRequest{Limit: 100, Pause: -1, Need: 10, Want: 10, Lifetime: time.Second})
		if err != nil || room.Given != 10 {
			t.Errorf("there is room for 10: %+v, %v", room, err)
		}
	})
}

// Users with the lines of a version without delays work on. They hear what they lack once
// there is a delayed message.
func TestUsersOfBeforeDelaysWorkOn(t *testing.T) {
	t.Parallel()
	addr, s := startServer(t)
	admin := s.Client()
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "old", "on", ">sesame", "~jobs", "~{jobs}:*", "+@all",
		"-zadd", "-zcard", "-zcount", "-zrange", "-zrangebyscore", "-zrank", "-zrem", "-xread").Err(); err != nil {
		t.Fatal(err)
	}
	old, b := openOn(t, "redis://old:sesame@"+addr+"/0?stream=jobs"), open(t, addr, "stream=jobs")
	t.Cleanup(func() { _ = old.Close() })
	claim(t, old, backend.ClaimRequest{Max: 1})
	_, err := old.Append(t.Context(), numbers(1, time.Hour))
	if !errors.Is(err, backend.ErrForbidden) {
		t.Errorf("a delayed message: %v", err)
	}
	appendAll(t, b, numbers(1, time.Millisecond))
	publish(t, old, 1)
	time.Sleep(20 * time.Millisecond)
	if got := claim(t, old, backend.ClaimRequest{Max: 5, Block: 50 * time.Millisecond}).Deliveries; len(got) != 1 || string(got[0].Data) != "m0" {
		t.Errorf("came %v", got)
	}
	if _, err := old.Stats(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := old.Signal(t.Context(), 10); err != nil {
		t.Error(err)
	}
	if got := claim(t, b, backend.ClaimRequest{Max: 5}).Deliveries; len(got) != 1 || string(got[0].Data) != "0" {
		t.Errorf("the other one got %v", got)
	}
	other := openOn(t, "redis://old:sesame@"+addr+"/0?stream=jobs")
	t.Cleanup(func() { _ = other.Close() })
	appendAll(t, b, numbers(1, time.Millisecond))
	_, err = other.Claim(t.Context(), backend.ClaimRequest{Consumer: "o", Max: 1, ReclaimAfter: time.Minute, Block: time.Second})
	if !errors.Is(err, backend.ErrForbidden) {
		t.Errorf("a claim that cannot move what is due: %v", err)
	}
}

// A server that is killed while it moves has each message in one place: the set or the stream.
func TestAServerKilledWhileItMovesLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	const n = 3000
	addr, s := startServer(t, durable...)
	b := open(t, addr, "stream=jobs")
	claim(t, b, backend.ClaimRequest{Max: 1})
	appendAll(t, b, numbers(n, time.Millisecond))
	time.Sleep(10 * time.Millisecond)
	for range 2 {
		begun := make(chan struct{})
		failed := make(chan struct{})
		go func() {
			defer close(failed)
			for answered := 0; ; {
				_, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 1, ReclaimAfter: time.Minute})
				if err != nil && answered >= 3 {
					return
				}
				if err == nil {
					answered++
				}
				if answered == 3 && err == nil {
					close(begun)
				}
			}
		}()
		<-begun
		s.Kill()
		<-failed
		s.Restart()
		moved := s.Client().XLen(t.Context(), "jobs").Val()
		if left := s.Client().ZCard(t.Context(), "{jobs}:later").Val(); moved+left != n || moved == 0 {
			t.Fatalf("%d are moved and %d are not, of %d", moved, left, n)
		}
	}
	wait(t, "the rest is moved", func() bool {
		_, _ = b.Claim(t.Context(), backend.ClaimRequest{Consumer: "d", Max: 1, ReclaimAfter: time.Minute})
		return s.Client().Exists(t.Context(), "{jobs}:later").Val() == 0
	})
	seen := map[any]bool{}
	for _, entry := range s.Client().XRange(t.Context(), "jobs", "-", "+").Val() {
		seen[entry.Values["data"]] = true
	}
	if total := s.Client().XLen(t.Context(), "jobs").Val(); len(seen) != n || total != n {
		t.Errorf("in the end the stream has %d entries of %d messages, want %d", total, len(seen), n)
	}
}

// A message that cannot become an entry stays where it is.
func TestAMessageThatCannotBeMovedStays(t *testing.T) {
	t.Parallel()
	addr, s := startServer(t)
	b, c := open(t, addr, "stream=jobs"), s.Client()
	appendAll(t, b, numbers(1, time.Millisecond))
	if err := c.Do(t.Context(), "XADD", "jobs", lastID, "a", "b").Err(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Millisecond)
	if got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 5, ReclaimAfter: time.Minute}); err != nil || len(got.Deliveries) != 1 {
		t.Errorf("what is in the stream: %+v, %v", got, err)
	}
	if c.ZCard(t.Context(), "{jobs}:later").Val() != 1 {
		t.Error("the message is gone")
	}
}

// passing are states in which a server refuses for a moment what it can do otherwise.
var passing = map[string]func(t *testing.T, s *redistest.Server) (end func()){
	"a replica, as in a failover": func(t *testing.T, s *redistest.Server) func() {
		c := s.Client()
		if err := c.ReplicaOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := c.ReplicaOf(t.Context(), "no", "one").Err(); err != nil {
				t.Error(err)
			}
		}
	},
	"busy with somebody's script": func(t *testing.T, s *redistest.Server) func() {
		c := s.Client()
		if err := c.ConfigSet(t.Context(), "lua-time-limit", "1").Err(); err != nil {
			t.Fatal(err)
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			_ = c.Eval(t.Context(), "while true do end", nil).Err()
		}()
		return func() {
			if err := s.Client().ScriptKill(t.Context()).Err(); err != nil {
				t.Error(err)
			}
			<-over
		}
	},
	"without memory": func(t *testing.T, s *redistest.Server) func() {
		c := s.Client()
		if err := c.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := c.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
				t.Error(err)
			}
		}
	},
}

// A refusal that passes holds up what is due, and the room that producers share, for no
// longer than it lasts.
func TestAPassingRefusalIsForgottenWhenItHasPassed(t *testing.T) {
	for name, begin := range passing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, s := startServer(t)
			b := open(t, addr, "stream=jobs")
			for early := 1; early > 0; { // on a slow machine
				appendAll(t, b, numbers(1, 700*time.Millisecond))
				early = len(claim(t, b, backend.ClaimRequest{Max: 1}).Deliveries) // the stream is one with delays
			}
			room := backend.RoomRequest{Limit: 100, Pause: -1, Need: 1, Want: 10, Lifetime: time.Minute}
			req := backend.ClaimRequest{Consumer: "c", Max: 1, Block: 100 * time.Millisecond, ReclaimAfter: time.Minute}
			end, got := begin(t, s), 0
			for until := time.Now().Add(1500 * time.Millisecond); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
				claimed, _ := b.Claim(t.Context(), req)
				got += len(claimed.Deliveries)
				_, _, _ = b.Share(t.Context(), room)
			}
			end()
			passed, stalled := time.Now(), stall.Watch()
			for got == 0 {
				claimed, err := b.Claim(t.Context(), req)
				if got = len(claimed.Deliveries); got == 0 && time.Since(passed) > 20*time.Second {
					t.Fatalf("the message that was due has not come: %v", err)
				}
			}
			if late := time.Since(passed); late > 5*time.Second+stalled() {
				t.Errorf("the message came %s after the server worked again", late)
			}
			if _, got, err := b.Share(t.Context(), room); err != nil || got.Err != nil || got.Given == 0 {
				t.Errorf("room %+v, %v", got, err)
			}
		})
	}
}

func TestDoctorFindsDelayedMessagesThatNobodyMoves(t *testing.T) {
	t.Parallel()
	addr, s := startServer(t)
	b := open(t, addr, "stream=jobs")
	appendAll(t, b, numbers(1, time.Hour))
	if found := examine(t, b); slices.Contains(found, "due_unmoved") {
		t.Errorf("one is due in an hour: %v", found)
	}
	ago := time.Now().Add(-10 * time.Minute).UnixMilli()
	if err := s.Client().Do(t.Context(), "ZADD", "{jobs}:later", ago, "x").Err(); err != nil {
		t.Fatal(err)
	}
	find(t, b, "due_unmoved")
	claim(t, b, backend.ClaimRequest{Max: 1})
	if found := examine(t, b); slices.Contains(found, "due_unmoved") {
		t.Errorf("it is moved: %v", found)
	}
}

// What is not due yet is part of the stream: a stream that is removed does not come back with it.
func TestARemovedStreamTakesWhatIsNotDueAlong(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		appendAll(t, b, numbers(3, 200*time.Millisecond))
		publish(t, b, 1)
		if err := b.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
		if got := claim(t, b, backend.ClaimRequest{Max: 10}); len(got.Deliveries) > 0 {
			t.Errorf("a removed stream has given %d messages", len(got.Deliveries))
		}
		if left := s.Client().Keys(t.Context(), "*later*").Val(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// Workers that wait for a message which is due later hear of one that is due earlier.
func TestAnEarlierMessageDoesNotWaitForALaterOne(t *testing.T) {
	addr, s := startServer(t)
	b, producer := open(t, addr, "stream=jobs"), open(t, addr, "stream=jobs")
	later := func(data string, delay time.Duration) {
		t.Helper()
		if _, err := producer.Append(t.Context(), []backend.Message{{Data: []byte(data), Delay: delay}}); err != nil {
			t.Fatal(err)
		}
	}
	later("later", time.Hour)
	got := make(chan backend.Claimed, 1)
	go func() {
		c, _ := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 1, Block: time.Minute, ReclaimAfter: time.Hour})
		got <- c
	}()
	wait(t, "the claim waits, and the watch for what is due", func() bool { return blocked(s) == 2 })
	later("earlier", 10*time.Millisecond)
	stalled := stall.Watch()
	for began := time.Now(); ; {
		select {
		case c := <-got:
			if len(c.Deliveries) != 1 || string(c.Deliveries[0].Data) != "earlier" {
				t.Errorf("claimed %+v", c)
			}
			return
		case <-time.After(100 * time.Millisecond):
			if time.Since(began) > 10*time.Second+stalled() {
				t.Fatal("the earlier message does not come")
			}
		}
	}
}
