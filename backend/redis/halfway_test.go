package redis_test

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/tests/redistest"
)

// A script that is refused one of its commands halfway is not undone. Whichever right a role lacks, what
// ends with an error has stored nothing, and has counted no delivery that nobody got.
func TestWhatIsRefusedHalfwayHasDoneNothing(t *testing.T) {
	t.Parallel()
	const stream, dead, later = "jobs", "{jobs}:dlq", "{jobs}:later"
	first := func(t *testing.T, b *redis.Backend) *backend.Delivery {
		t.Helper()
		publish(t, b, 1)
		got := claim(t, b, backend.ClaimRequest{Consumer: "c", Max: 1, ReclaimAfter: time.Minute})
		if len(got.Deliveries) != 1 {
			t.Fatal(got)
		}
		return got.Deliveries[0]
	}
	count := func(t *testing.T, admin *goredis.Client) int64 {
		t.Helper()
		list, err := admin.XPendingExt(t.Context(), &goredis.XPendingExtArgs{Stream: stream, Group: "weir", Start: "-", End: "+", Count: 1}).Result()
		if err != nil || len(list) != 1 {
			return -1
		}
		return list[0].RetryCount
	}
	for name, c := range map[string]struct {
		role string
		// prepare is done with all rights; do with one less.
		prepare func(t *testing.T, b *redis.Backend, admin *goredis.Client)
		do      func(t *testing.T, b *redis.Backend, admin *goredis.Client) error
		// undone checks what is there after an error of do.
		undone func(t *testing.T, admin *goredis.Client) error
	}{
		"dead letter": {
			role: "worker",
			do: func(t *testing.T, b *redis.Backend, admin *goredis.Client) error {
				list, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 1, ReclaimAfter: time.Minute})
				if err != nil || len(list.Deliveries) == 0 {
					return err
				}
				return b.DeadLetter(t.Context(), list.Deliveries[0], "", backend.Cause{Reason: backend.ReasonPoison})
			},
			prepare: func(t *testing.T, b *redis.Backend, _ *goredis.Client) { publish(t, b, 1) },
			undone: func(t *testing.T, admin *goredis.Client) error {
				if n := admin.XLen(t.Context(), dead).Val(); n != 0 {
					return fmt.Errorf("%d letters", n)
				}
				return nil
			},
		},
		"orphan": {
			role: "worker",
			prepare: func(t *testing.T, b *redis.Backend, admin *goredis.Client) {
				d := first(t, b)
				if _, err := b.Nack(t.Context(), []backend.Return{{Lease: d.Lease, Error: "why"}}); err != nil {
					t.Fatal(err)
				}
			},
			do: func(t *testing.T, b *redis.Backend, _ *goredis.Client) error {
				for range 3 {
					got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "d", Max: 1, ReclaimAfter: time.Minute})
					if len(got.Deliveries) > 0 {
						return nil
					}
					if err = errors.Join(err, got.Failed); err != nil {
						return err
					}
				}
				return errors.New("nothing was claimed")
			},
			undone: func(t *testing.T, admin *goredis.Client) error {
				if n := count(t, admin); n != 1 {
					return fmt.Errorf("%d deliveries counted", n)
				}
				return nil
			},
		},
		"dead orphan": {
			role: "worker",
			prepare: func(t *testing.T, b *redis.Backend, admin *goredis.Client) {
				d := first(t, b)
				if err := admin.Do(t.Context(), "XCLAIM", stream, "weir", "gone", 0, d.ID, "IDLE", 3600_000, "RETRYCOUNT", 9, "JUSTID").Err(); err != nil {
					t.Fatal(err)
				}
			},
			do: func(t *testing.T, b *redis.Backend, _ *goredis.Client) error {
				got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "d", Max: 1, ReclaimAfter: time.Minute, MaxDeliveries: 3})
				if len(got.Dead) > 0 {
					return nil
				}
				return errors.Join(err, got.Failed)
			},
			undone: func(t *testing.T, admin *goredis.Client) error {
				if n := admin.XLen(t.Context(), dead).Val(); n != 0 {
					return fmt.Errorf("%d letters", n)
				}
				return nil
			},
		},
		"lines of a source": {
			role: "producer",
			do: func(t *testing.T, b *redis.Backend, _ *goredis.Client) error {
				_, err := b.AppendAt(t.Context(), "lines", 0, []backend.Message{{Data: []byte("1")}, {Data: []byte("2")}})
				return err
			},
			undone: nothingStored(stream, later),
		},
		"delayed lines of a source": {
			role: "producer",
			do: func(t *testing.T, b *redis.Backend, _ *goredis.Client) error {
				_, err := b.AppendAt(t.Context(), "lines", 0, []backend.Message{{Data: []byte("1"), Delay: time.Hour}, {Data: []byte("2"), Delay: time.Hour}})
				return err
			},
			undone: nothingStored(stream, later),
		},
		"delayed": {
			role: "producer",
			do: func(t *testing.T, b *redis.Backend, _ *goredis.Client) error {
				_, err := b.Append(t.Context(), []backend.Message{{Data: []byte("1"), Delay: time.Hour, IdempotencyKey: "k"}})
				return err
			},
			undone: nothingStored(stream, later),
		},
		"keyed": {
			role: "producer",
			do: func(t *testing.T, b *redis.Backend, _ *goredis.Client) error {
				_, err := b.Append(t.Context(), []backend.Message{{Data: []byte("1"), IdempotencyKey: "k"}})
				return err
			},
			undone: nothingStored(stream, later),
		},
		"redrive": {
			role: "operator",
			prepare: func(t *testing.T, b *redis.Backend, admin *goredis.Client) {
				d := first(t, b)
				if err := b.DeadLetter(t.Context(), d, "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
					t.Fatal(err)
				}
				admin.Del(t.Context(), stream) // it is made anew, which is to be noted
			},
			do: func(t *testing.T, b *redis.Backend, _ *goredis.Client) error {
				letters, err := b.List(t.Context(), "", "", 1)
				if err != nil || len(letters) != 1 {
					return errors.Join(err, errors.New("no letter"))
				}
				return b.Redrive(t.Context(), "", letters[0])
			},
			undone: func(t *testing.T, admin *goredis.Client) error {
				if n, sent := admin.XLen(t.Context(), dead).Val(), admin.XLen(t.Context(), stream).Val(); n != 1 || sent != 0 {
					return fmt.Errorf("%d letters, %d messages", n, sent)
				}
				return nil
			},
		},
	} {
		versions := redistest.Versions()
		for _, version := range []string{"6.2.5", redistest.System, versions[len(versions)-1]} {
			if !slices.Contains(versions, version) {
				continue
			}
			t.Run(name+" on "+version, func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t, redistest.Options{Version: version})
				admin := s.Client()
				rules := rulesOf(t, c.role)
				refused := 0
				for i, rule := range rules {
					if err := admin.FlushAll(t.Context()).Err(); err != nil {
						t.Fatal(err)
					}
					owner := open(t, s.Addr(), "stream=jobs")
					if c.prepare != nil {
						c.prepare(t, owner, admin)
					}
					user(t, s, append([]any{"reset", "on", ">sesame", "~jobs", "~{jobs}:*"}, slices.Delete(slices.Clone(rules), i, i+1)...)...)
					u, err := url.Parse("redis://u:sesame@" + s.Addr() + "/0?stream=jobs")
					if err != nil {
						t.Fatal(err)
					}
					b, err := redis.Open(t.Context(), u)
					if err == nil {
						err = c.do(t, b, admin)
						_ = b.Close()
					}
					if err == nil {
						continue
					}
					refused++
					if why := c.undone(t, admin); why != nil && !errors.Is(err, backend.ErrOutcomeUnknown) {
						t.Errorf("without %s: %v, after %v", rule, why, err)
					}
				}
				if refused < 2 {
					t.Errorf("%d of %d rights were missed", refused, len(rules))
				}
			})
		}
	}
}

// nothingStored checks that neither the stream nor what is kept back has a message.
func nothingStored(stream, later string) func(*testing.T, *goredis.Client) error {
	return func(t *testing.T, admin *goredis.Client) error {
		if n, kept := admin.XLen(t.Context(), stream).Val(), admin.ZCard(t.Context(), later).Val(); n+kept > 0 {
			return fmt.Errorf("%d messages in the stream, %d kept back", n, kept)
		}
		return nil
	}
}
