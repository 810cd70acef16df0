package redis_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/tests/redistest"
)

// letter makes a dead letter of one new message that b's group failed at, after
// every other group has done it.
func letter(t *testing.T, b *redis.Backend, others ...*redis.Backend) backend.DeadLetter {
	t.Helper()
	publish(t, b, 1)
	for _, other := range others {
		ack(t, other, take(t, other, 1)...)
	}
	d := take(t, b, 1)[0]
	if err := b.DeadLetter(t.Context(), d, "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
		t.Fatal(err)
	}
	list, err := b.List(t.Context(), "", "", 10)
	if err != nil || len(list) == 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	return list[len(list)-1]
}

// settled fails unless a group of the stream has neither anything pending nor anything to read.
func settled(t *testing.T, b *redis.Backend) {
	t.Helper()
	stats, err := b.Stats(t.Context())
	if err != nil || stats.Pending != 0 || stats.Behind != 0 || stats.Lag != nil && *stats.Lag != 0 {
		t.Errorf("group %s is left with %+v, %v", b.Info().Group, stats, err)
	}
}

func TestALetterSentBackGoesToTheGroupThatFailedAlone(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		failing, other := open(t, s.Addr(), "stream=jobs&group=billing"), open(t, s.Addr(), "stream=jobs&group=mail")
		l := letter(t, failing, other)
		if others, err := failing.Others(t.Context(), l.Stream, l.Group); err != nil || len(others) > 0 {
			t.Fatalf("others %v, %v", others, err)
		}
		if err := failing.Redrive(t.Context(), "", l); err != nil {
			t.Fatal(err)
		}
		publish(t, other, 1)
		if d := take(t, other, 1); string(d[0].Data) != "m0" || len(d[0].Headers) > 0 {
			t.Errorf("the other group got %+v", d[0])
		} else {
			ack(t, other, d...)
		}
		settled(t, other)
		again := take(t, failing, 2)
		if fmt.Sprint(again[0].Headers) != "map[weir-redrives:1]" || again[0].Attempt != 1 {
			t.Errorf("sent back: %+v", again[0])
		}
		ack(t, failing, again...)
		settled(t, failing)
	})
}

// What a worker of another group has read and not acknowledged, since it was killed,
// is acknowledged by who takes it over: never handed out, counted or buried.
func TestALetterSentBackIsNotReclaimedByAnotherGroup(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		failing, other := open(t, s.Addr(), "stream=jobs&group=billing"), open(t, s.Addr(), "stream=jobs&group=mail")
		l := letter(t, failing, other)
		if err := failing.Redrive(t.Context(), "", l); err != nil {
			t.Fatal(err)
		}
		read := goredis.XReadGroupArgs{Group: "mail", Consumer: "killed", Streams: []string{"jobs", ">"}}
		if err := s.Client().XReadGroup(t.Context(), &read).Err(); err != nil {
			t.Fatal(err)
		}
		wait(t, "the message is acknowledged unseen", func() bool {
			got := claim(t, other, backend.ClaimRequest{Max: 5, ReclaimAfter: time.Millisecond, MaxDeliveries: 1})
			if len(got.Deliveries)+len(got.Dead)+len(got.Lost)+got.Reclaimed > 0 {
				t.Fatalf("%+v", got)
			}
			stats, err := other.Stats(t.Context())
			return err == nil && stats.Pending == 0
		})
		settled(t, other)
		ack(t, failing, take(t, failing, 1)...)
	})
}

func TestWhoElseGetsALetterIsNamed(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		failing, other := open(t, s.Addr(), "stream=jobs&group=billing"), open(t, s.Addr(), "stream=jobs&group=mail")
		l := letter(t, failing, other)
		names := func(group string) string {
			t.Helper()
			others, err := failing.Others(t.Context(), "", group)
			if err != nil {
				t.Fatal(err)
			}
			return strings.Join(others, ", ")
		}
		read := func(group, consumer string) {
			t.Helper()
			if err := s.Client().XGroupCreate(t.Context(), "jobs", group, "$").Err(); err != nil && !strings.Contains(err.Error(), "BUSYGROUP") {
				t.Fatal(err)
			}
			args := goredis.XReadGroupArgs{Group: group, Consumer: consumer, Streams: []string{"jobs", ">"}, Block: -1}
			if err := s.Client().XReadGroup(t.Context(), &args).Err(); err != nil && err != goredis.Nil {
				t.Fatal(err)
			}
		}
		read("billing", "by-hand") // of the group itself: it is to have them
		if got := names("billing"); got != "" {
			t.Errorf("weir's groups alone: %q", got)
		}
		read("audit", "by-hand")
		publish(t, failing, 1)
		read("mail", "by-hand") // old servers note a consumer once it gets something
		if got := names("billing"); got != `audit, mail (consumer "by-hand")` {
			t.Errorf("a foreign group, and a foreign consumer in weir's: %q", got)
		}
		if err := s.Client().XGroupDestroy(t.Context(), "jobs", "billing").Err(); err != nil {
			t.Fatal(err)
		}
		if got := names("billing"); got != "audit, mail" {
			t.Errorf("the group is gone: %q", got)
		}
		err := failing.Redrive(t.Context(), "", l)
		if !isGroupNotFound(err) || !strings.Contains(err.Error(), "billing") {
			t.Errorf("sent back to a group that is gone: %v", err)
		}
		if list, err := failing.List(t.Context(), "", "", 10); err != nil || len(list) != 1 {
			t.Fatalf("the letter must be kept: %v, %v", list, err)
		}
		if err := s.Client().Del(t.Context(), "jobs").Err(); err != nil {
			t.Fatal(err)
		}
		if got := names("billing"); got != "" {
			t.Errorf("the stream is gone: %q", got)
		}
		if err := failing.Redrive(t.Context(), "", l); err != nil {
			t.Fatal(err)
		}
		groups, err := s.Client().XInfoGroups(t.Context(), "jobs").Result()
		if err != nil || !slices.ContainsFunc(groups, func(g goredis.XInfoGroup) bool { return g.Name == "billing" }) {
			t.Errorf("a letter sent back to a stream that was gone: groups %+v, %v", groups, err)
		}
	})
}
