package redis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/tests/redistest"
)

func isNotFound(err error) bool { return errors.Is(err, backend.ErrNotFound) }

func isGroupNotFound(err error) bool { return errors.Is(err, backend.ErrGroupNotFound) }

func withCancelIn(t *testing.T, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancel(t.Context())
	timer := time.AfterFunc(d, cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// find examines the stream and fails unless every code is among the findings.
func find(t *testing.T, b *redis.Backend, codes ...string) {
	t.Helper()
	found := examine(t, b)
	for _, code := range codes {
		if !slices.Contains(found, code) {
			t.Errorf("found %v, not %s", found, code)
		}
	}
}

func examine(t *testing.T, b *redis.Backend) (codes []string) {
	t.Helper()
	findings, err := b.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Problem == "" || f.Advice == "" || !slices.Contains([]string{"error", "warning", "info"}, f.Severity) {
			t.Errorf("incomplete: %+v", f)
		}
		codes = append(codes, f.Code)
	}
	return codes
}

func TestDoctorFindsNothingOnASoundStream(t *testing.T) {
	for _, version := range redistest.Versions() {
		t.Run(version, func(t *testing.T) {
			s := redistest.Start(t, redistest.Options{Version: version, Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
			b := open(t, s.Addr(), "stream=jobs")
			publish(t, b, 10)
			ack(t, b, take(t, b, 5)...)
			if err := b.PublishSignal(t.Context(), time.Minute); err != nil {
				t.Fatal(err)
			}
			found := examine(t, b)
			if len(found) > 0 && (fmt.Sprint(found) != "[lag_unsupported]" || !hasNoLag(version)) {
				t.Errorf("found %v", found)
			}
		})
	}
}

func TestDoctorFindsEachTrap(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	c := s.Client()
	ctx := t.Context()
	must := func(cmds ...goredis.Cmder) {
		t.Helper()
		for _, cmd := range cmds {
			if cmd.Err() != nil {
				t.Fatalf("%v: %v", cmd.Args(), cmd.Err())
			}
		}
	}
	for _, trap := range []struct {
		code string
		set  func(b *redis.Backend)
	}{
		{"stream_missing", func(*redis.Backend) {}},
		{"group_missing", func(b *redis.Backend) { publish(t, b, 1) }},
		{"no_workers", func(b *redis.Backend) { publish(t, b, 2); take(t, b, 1) }},
		{"trimmed_unacked", func(b *redis.Backend) {
			publish(t, b, 3)
			take(t, b, 3)
			must(c.XTrimMaxLen(ctx, "trimmed_unacked", 1))
		}},
		{"trimmed_unread", func(b *redis.Backend) {
			publish(t, b, 10)
			take(t, b, 1)
			must(c.XTrimMaxLen(ctx, "trimmed_unread", 2))
		}},
		{"removed_by_others", func(b *redis.Backend) {
			ids := publish(t, b, 3)
			ack(t, b, take(t, b, 3)...)
			must(c.XDel(ctx, "removed_by_others", ids[0]))
		}},
		{"cut_by_others", func(b *redis.Backend) {
			publish(t, b, 3)
			ack(t, b, take(t, b, 3)...)
			must(c.XTrimMaxLen(ctx, "cut_by_others", 1))
		}},
		{"dropped_unacked", func(b *redis.Backend) {
			publish(t, b, 3)
			take(t, b, 1)
			if _, err := b.Trim(ctx, backend.TrimRequest{MaxLen: 1}); err != nil {
				t.Fatal(err)
			}
		}},
		{"stuck_pending", func(b *redis.Backend) {
			id := publish(t, b, 1)[0]
			take(t, b, 1)
			must(c.Do(ctx, "XCLAIM", "stuck_pending", "weir", "gone", 0, id, "IDLE", 600_000, "RETRYCOUNT", 1, "JUSTID"))
		}},
		{"no_limit", func(b *redis.Backend) {
			id := publish(t, b, 1)[0]
			take(t, b, 1)
			must(c.Do(ctx, "XCLAIM", "no_limit", "weir", "c", 0, id, "RETRYCOUNT", 12, "JUSTID"))
		}},
		{"no_dead_letter", func(b *redis.Backend) {
			id := publish(t, b, 1)[0]
			take(t, b, 1)
			must(c.Do(ctx, "XCLAIM", "no_dead_letter", "weir", "c", 0, id, "RETRYCOUNT", 4, "JUSTID"))
		}},
		{"lag_unknown", func(b *redis.Backend) {
			ids := publish(t, b, 3)
			take(t, b, 1)
			must(c.XDel(ctx, "lag_unknown", ids[1]))
		}},
		{"dead_letter_type", func(b *redis.Backend) {
			publish(t, b, 1)
			must(c.Set(ctx, "{dead_letter_type}:dlq", "x", 0))
		}},
		{"stream_grows", func(b *redis.Backend) {
			take := c.XGroupCreateMkStream(ctx, "stream_grows", "weir", "0")
			fill := c.Eval(ctx, "for i = 1, 100001 do redis.call('XADD', KEYS[1], '*', 'data', 'x') end", []string{"stream_grows"})
			must(take, c.XGroupSetID(ctx, "stream_grows", "weir", "$"))
			if fill.Err() != nil && fill.Err() != goredis.Nil {
				t.Fatal(fill.Err())
			}
			must(c.Do(ctx, "XGROUP", "SETID", "stream_grows", "weir", "$", "ENTRIESREAD", 100001))
		}},
	} {
		t.Run(trap.code, func(t *testing.T) {
			b := open(t, s.Addr(), "stream="+trap.code)
			trap.set(b)
			find(t, b, trap.code, "durability")
		})
	}
}

func TestDoctorSeesTheServersSettings(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	b := open(t, s.Addr(), "stream=jobs")
	c := s.Client()
	set := func(name, value string) {
		if err := c.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("maxmemory", "1mb")
	set("maxmemory-policy", "allkeys-lru")
	find(t, b, "eviction", "memory_full")
	set("maxmemory-policy", "volatile-lru")
	find(t, b, "key_eviction", "memory_full")
	set("maxmemory-policy", "noeviction")
	if found := examine(t, b); slices.Contains(found, "eviction") || slices.Contains(found, "key_eviction") {
		t.Errorf("found %v where nothing is evicted", found)
	}
}
