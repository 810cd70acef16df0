package redis_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/stall"
)

// take claims n new messages.
func take(t *testing.T, b *redis.Backend, n int) []*backend.Delivery {
	t.Helper()
	got := claim(t, b, backend.ClaimRequest{Max: n, MaxDeliveries: 3})
	if len(got.Deliveries) != n {
		t.Fatalf("claimed %d, want %d", len(got.Deliveries), n)
	}
	return got.Deliveries
}

func ack(t *testing.T, b *redis.Backend, deliveries ...*backend.Delivery) {
	t.Helper()
	for _, d := range deliveries {
		if lost, err := b.Ack(t.Context(), []backend.Lease{d.Lease}); err != nil || len(lost) > 0 {
			t.Fatalf("ack: lost %v, %v", lost, err)
		}
	}
}

func trim(t *testing.T, b *redis.Backend, maxLen int64) backend.Trimmed {
	t.Helper()
	got, err := b.Trim(t.Context(), backend.TrimRequest{MaxLen: maxLen})
	if err != nil {
		t.Fatal(err)
	}
	got.Owner = backend.OwnerUnknown
	return got
}

func TestTrimKeepsWhatSomeGroupHasNotAcknowledged(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b, other := open(t, s.Addr(), "stream=jobs"), open(t, s.Addr(), "stream=jobs&group=billing")
		publish(t, b, 500)
		if got := trim(t, b, 0); got != (backend.Trimmed{}) {
			t.Fatalf("a stream without a group: %+v", got)
		}
		first := take(t, b, 300)
		if got := trim(t, b, 0); got != (backend.Trimmed{}) {
			t.Fatalf("nothing is acknowledged: %+v", got)
		}
		ack(t, b, first[:201]...)
		ack(t, b, first[250])
		take(t, other, 150) // the other group has them, and none done
		if got := trim(t, b, 0); got != (backend.Trimmed{}) {
			t.Fatalf("the other group has done nothing: %+v", got)
		}
		for _, d := range first[:150] {
			if _, err := other.Ack(t.Context(), []backend.Lease{{ID: d.ID, Since: time.Now()}}); err != nil {
				t.Fatal(err)
			}
		}
		if got := trim(t, b, 0); got != (backend.Trimmed{Removed: 150}) {
			t.Fatalf("the other group is at 150: %+v", got)
		}
		rest := take(t, other, 350)
		ack(t, other, rest...)
		if got := trim(t, b, 0); got != (backend.Trimmed{Removed: 51}) {
			t.Fatalf("this group has done 201 of the first: %+v", got)
		}
		ack(t, b, append(append([]*backend.Delivery(nil), first[201:250]...), first[251:]...)...)
		ack(t, b, take(t, b, 200)...)
		if got := trim(t, b, 0); got != (backend.Trimmed{Removed: 299}) {
			t.Fatalf("everything is done: %+v", got)
		}
		publish(t, b, 1)
		stats, err := b.Stats(t.Context())
		if err != nil || stats.XLen != 1 || stats.Pending != 0 {
			t.Fatalf("%+v, %v", stats, err)
		}
		// The server's own count must have survived the trims.
		if stats.Lag != nil && *stats.Lag != 1 {
			t.Errorf("lag is %d", *stats.Lag)
		}
	})
}

func TestTrimToALengthCountsWhatItDrops(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		ids := publish(t, b, 400)
		held := take(t, b, 100)
		ack(t, b, held[10:20]...)
		if got := trim(t, b, 150); got != (backend.Trimmed{Removed: 250, Dropped: 240}) {
			t.Fatalf("%+v", got)
		}
		stats, err := b.Stats(t.Context())
		if err != nil || stats.XLen != 150 {
			t.Fatalf("%+v, %v", stats, err)
		}
		got, err := b.Read(t.Context(), backend.ReadRequest{After: ids[5], Max: 10})
		if err != nil || got.Gap == nil || got.Gap.Reason != "dropped" || got.Gap.From != ids[5] || got.Gap.To != ids[249] {
			t.Fatalf("reader inside of what was dropped: %+v, %v", got.Gap, err)
		}
		if len(got.Records) != 10 || got.Records[0].ID != ids[250] || string(got.Records[0].Data) != "m250" {
			t.Fatalf("records behind the gap: %+v", got.Records)
		}
		if got, err = b.Read(t.Context(), backend.ReadRequest{Max: 1}); err != nil || got.Gap == nil || got.Gap.From != "" {
			t.Fatalf("reader at the start: %+v, %v", got.Gap, err)
		}
		if got, err = b.Read(t.Context(), backend.ReadRequest{After: ids[249], Max: 1}); err != nil || got.Gap != nil {
			t.Fatalf("reader at the end of what was dropped: %+v, %v", got.Gap, err)
		}
		find(t, b, "dropped_unacked", "trimmed_unacked")
	})
}

func TestReaderFollowsAndSeesWhatIsGone(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		if got, err := b.Read(t.Context(), backend.ReadRequest{After: backend.CursorEnd, Max: 1}); err != nil || len(got.Records) != 0 || got.Gap != nil {
			t.Fatalf("no stream: %+v, %v", got, err)
		}
		ids := publish(t, b, 10)
		end, err := b.Read(t.Context(), backend.ReadRequest{After: backend.CursorEnd, Max: 1})
		if err != nil || end.Next != ids[9] || len(end.Records) != 0 {
			t.Fatalf("the end: %+v, %v", end, err)
		}
		ack(t, b, take(t, b, 10)...)
		trim(t, b, 0)
		type answer struct {
			backend.Records
			err error
		}
		answers := make(chan answer, 1)
		go func() {
			got, err := b.Read(t.Context(), backend.ReadRequest{After: end.Next, Max: 5, Block: 10 * time.Second})
			answers <- answer{got, err}
		}()
		next := publish(t, b, 1)
		if got := <-answers; got.err != nil || got.Gap != nil || len(got.Records.Records) != 1 || got.Records.Records[0].ID != next[0] {
			t.Fatalf("a follower at the end, behind a trim: %+v", got)
		}
		if got, err := b.Read(t.Context(), backend.ReadRequest{After: ids[4], Max: 5}); err != nil || got.Gap == nil || got.Gap.Reason != "trimmed" || got.Gap.To != ids[9] {
			t.Fatalf("a reader that a trim overtook: %+v, %v", got.Gap, err)
		}
		publish(t, b, 20)
		if err := s.Client().XTrimMaxLen(t.Context(), "jobs", 5).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := b.Read(t.Context(), backend.ReadRequest{After: next[0], Max: 5}); err != nil || got.Gap == nil || got.Gap.Reason != "removed" || len(got.Records) != 5 {
			t.Fatalf("a reader that another program's MAXLEN overtook: %+v, %v", got.Gap, err)
		}
	})
}

// A stream that was deleted and is there again, or was restored from an earlier state, on a server whose clock
// is behind, has lower IDs than a reader has seen.
func TestAReaderGoesOnWithAStreamThatEndsBeforeItsPlace(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		ids := publish(t, b, 3)
		read := func(after string) backend.Records {
			t.Helper()
			got, err := b.Read(t.Context(), backend.ReadRequest{After: after, Max: 10, Block: 20 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		if got := read(ids[2]); got.Gap != nil || len(got.Records) > 0 || got.Next != ids[2] {
			t.Errorf("at the end: %+v", got)
		}
		admin := s.Client()
		if err := admin.Del(t.Context(), "jobs").Err(); err != nil {
			t.Fatal(err)
		}
		if got := read(ids[2]); got.Gap != nil || len(got.Records) > 0 || got.Next != ids[2] {
			t.Errorf("there is no stream: %+v", got)
		}
		if err := admin.XAdd(t.Context(), &goredis.XAddArgs{Stream: "jobs", ID: "7-1", Values: []string{"data", "new"}}).Err(); err != nil {
			t.Fatal(err)
		}
		got := read(ids[2])
		if got.Gap == nil || got.Gap.Reason != "recreated" || got.Gap.From != ids[2] || got.Gap.To != "7-1" {
			t.Fatalf("the stream ends before the cursor: %+v, %+v", got, got.Gap)
		}
		if got = read(got.Next); got.Gap != nil || len(got.Records) != 1 || string(got.Records[0].Data) != "new" {
			t.Errorf("what is in it: %+v, %+v", got, got.Gap)
		}
	})
}

func TestReadEndsWithItsContext(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	b := open(t, s.Addr(), "stream=jobs")
	ctx, stop := withCancelIn(t, 50*time.Millisecond)
	defer stop()
	begin, stalled := time.Now(), stall.Watch()
	_, err := b.Read(ctx, backend.ReadRequest{Max: 1, Block: 10 * time.Second})
	if took := time.Since(begin); err == nil || took > 150*time.Millisecond+stalled() {
		t.Errorf("ended after %v with %v", took, err)
	}
}

func TestDeadLettersAreListedSentBackAndPurged(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		msg := backend.Message{Data: []byte("poison"), Headers: map[string]string{"k": "v"}, Priority: backend.High}
		if _, err := b.Append(t.Context(), []backend.Message{msg, msg, msg}); err != nil {
			t.Fatal(err)
		}
		for _, d := range take(t, b, 3) {
			cause := backend.Cause{Reason: backend.ReasonPoison, Error: "no such account"}
			if err := b.DeadLetter(t.Context(), d, "", cause); err != nil {
				t.Fatal(err)
			}
		}
		list, err := b.List(t.Context(), "", "", 2)
		if err != nil || len(list) != 2 {
			t.Fatalf("%+v, %v", list, err)
		}
		l := list[0]
		if string(l.Data) != "poison" || fmt.Sprint(l.Headers) != "map[k:v weir-priority:high]" || l.Stream != "jobs" || l.Group != "weir" ||
			l.Attempts != 1 || l.Reason != backend.ReasonPoison || l.Error != "no such account" || l.Consumer != "c" ||
			l.Redrives != 0 || l.Enqueued.IsZero() || time.Since(l.DeadAt) > time.Minute {
			t.Fatalf("%+v", l)
		}
		if list, err = b.List(t.Context(), "", list[1].ID, 10); err != nil || len(list) != 1 {
			t.Fatalf("behind the second: %+v, %v", list, err)
		}
		find(t, b, "dead_letters")
		if err := b.Redrive(t.Context(), "", l); err != nil {
			t.Fatal(err)
		}
		if err := b.Redrive(t.Context(), "", l); !isNotFound(err) {
			t.Fatalf("a letter that has gone: %v", err)
		}
		again := take(t, b, 1)[0]
		if string(again.Data) != "poison" || again.Attempt != 1 || fmt.Sprint(again.Headers) != "map[k:v weir-priority:high weir-redrives:1]" || again.Enqueued.Before(l.Enqueued) {
			t.Fatalf("sent back: %+v", again)
		}
		if err := b.DeadLetter(t.Context(), again, "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
			t.Fatal(err)
		}
		if list, err = b.List(t.Context(), "", "", 10); err != nil || len(list) != 3 || list[2].Redrives != 1 || fmt.Sprint(list[2].Headers) != "map[k:v weir-priority:high]" {
			t.Fatalf("dead again: %+v, %v", list, err)
		}
		if n, err := b.Purge(t.Context(), "", []string{list[0].ID, list[1].ID, "1-1"}); err != nil || n != 2 {
			t.Fatalf("purged %d, %v", n, err)
		}
		if list, err = b.List(t.Context(), "", "", 10); err != nil || len(list) != 1 {
			t.Fatalf("left: %+v, %v", list, err)
		}
	})
}

// XGROUP SETID sends a group back: what it is to get again stays, though it holds a later message.
func TestATrimKeepsWhatAGroupWasSentBackTo(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		ids := publish(t, b, 10)
		got := take(t, b, 10)
		ack(t, b, got[:9]...) // the last is being worked on
		if err := s.Client().XGroupSetID(t.Context(), "jobs", "weir", ids[2]).Err(); err != nil {
			t.Fatal(err)
		}
		trimmed, err := b.Trim(t.Context(), backend.TrimRequest{})
		if err != nil {
			t.Fatal(err)
		}
		again := claim(t, b, backend.ClaimRequest{Max: 20})
		if trimmed.Removed != 3 || len(again.Deliveries) != 7 {
			t.Errorf("trimmed %+v, delivered again %d; want 3 and 7", trimmed, len(again.Deliveries))
		}
	})
}

// roleRules are the rules of a user of the page.

// A trim removes exactly what is done, however the entries lie in the server's blocks: IDs
// with weeks between them, which Redis 6.2.0 to 6.2.6 takes for older than they are, several
// in a millisecond, and with others removed among them.
func TestATrimRemovesExactlyWhatIsDone(t *testing.T) {
	t.Parallel()
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		c := s.Client()
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 1))
		for round := range 30 {
			stream := fmt.Sprint("jobs", round)
			b := open(t, s.Addr(), "stream="+stream)
			var ids []string
			for ms, seq := int64(1_600_000_000_000), int64(0); len(ids) < 1+random.IntN(300); {
				switch random.IntN(4) {
				case 0:
					ms, seq = ms+random.Int64N(60*24*time.Hour.Milliseconds()), random.Int64N(5)
				case 1:
					ms, seq = ms+1, 0
				default:
					seq += 1 + random.Int64N(3)
				}
				id := fmt.Sprintf("%d-%d", ms, seq+1)
				if err := c.XAdd(t.Context(), &goredis.XAddArgs{Stream: stream, ID: id, Values: []any{"data", "x"}}).Err(); err != nil {
					t.Fatal(err)
				}
				ids = append(ids, id)
			}
			for step := range 4 {
				if some := random.IntN(max(1, len(ids)/10)); some > 0 { // by others
					at := random.IntN(len(ids) - some + 1)
					if err := c.XDel(t.Context(), stream, ids[at:at+some]...).Err(); err != nil {
						t.Fatal(err)
					}
					ids = slices.Delete(ids, at, at+some)
				}
				if len(ids) == 0 {
					break
				}
				n := random.IntN(len(ids) + 1)
				if n > 0 {
					got := claim(t, b, backend.ClaimRequest{Max: n})
					if len(got.Deliveries) != n || got.Deliveries[n-1].ID != ids[n-1] {
						t.Fatalf("round %d, step %d: claimed %d instead of %d", round, step, len(got.Deliveries), n)
					}
					ack(t, b, got.Deliveries...)
				}
				if got := trim(t, b, 0); got.Removed != int64(n) {
					t.Errorf("round %d, step %d: removed %d instead of %d", round, step, got.Removed, n)
				}
				ids = ids[n:]
				left, err := c.XRange(t.Context(), stream, "-", "+").Result()
				if err != nil {
					t.Fatal(err)
				}
				var have []string
				for _, entry := range left {
					have = append(have, entry.ID)
				}
				if !slices.Equal(have, ids) {
					t.Fatalf("round %d, step %d: %d entries are left instead of %d", round, step, len(have), len(ids))
				}
			}
		}
	})
}
