package redis

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
)

// Who leaves takes its own name along, and after a day those of weir's that crashed
// and hold nothing; never one that holds something, and no other program's.
func TestOnlyEmptyNamesOfWeirAreRemoved(t *testing.T) {
	for _, version := range redistest.Versions() {
		t.Run(version, func(t *testing.T) {
			s := redistest.Start(t, redistest.Options{Version: version})
			c := s.Client()
			claim := func(consumer string, ack bool) *Backend {
				t.Helper()
				u, _ := url.Parse(s.URL() + "?stream=jobs")
				b, err := Open(t.Context(), u)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { b.close(); _ = b.client.Close() })
				if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}}); err != nil {
					t.Fatal(err)
				}
				got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: consumer, Max: 1, ReclaimAfter: time.Hour})
				if err != nil || len(got.Deliveries) != 1 {
					t.Fatal(got, err)
				}
				if ack {
					if _, err := b.Ack(t.Context(), []backend.Lease{got.Deliveries[0].Lease}); err != nil {
						t.Fatal(err)
					}
				}
				return b
			}
			names := func(what, want string) {
				t.Helper()
				list, err := c.XInfoConsumers(t.Context(), "jobs", "weir").Result()
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, consumer := range list {
					got = append(got, consumer.Name)
				}
				slices.Sort(got)
				told, _ := c.HKeys(t.Context(), "{jobs}:workers:weir").Result()
				slices.Sort(told)
				ours := strings.TrimSpace(strings.ReplaceAll(" "+want, " by-hand", ""))
				if strings.Join(got, " ") != want || strings.Join(told, " ") != ours {
					t.Errorf("%s: %q, of these weir's %q; want %q", what, got, told, want)
				}
			}
			b := claim("crashed", true)
			claim("holding", false)
			leaving := claim("leaving", true)
			if err := b.forgetSilent(t.Context()); err != nil {
				t.Fatal(err)
			}
			read := goredis.XReadGroupArgs{Group: "weir", Consumer: "by-hand", Streams: []string{"jobs", ">"}}
			c.XAdd(t.Context(), &goredis.XAddArgs{Stream: "jobs", Values: []string{"k", "v"}})
			got, err := c.XReadGroup(t.Context(), &read).Result()
			if err != nil {
				t.Fatal(err)
			}
			c.XAck(t.Context(), "jobs", "weir", got[0].Messages[0].ID)
			names("nobody is silent", "by-hand crashed holding leaving")
			if err := leaving.Close(); err != nil {
				t.Fatal(err)
			}
			names("one has left", "by-hand crashed holding")
			b.silence = -time.Millisecond // everybody is
			b.roster.looked, b.roster.read = time.Now().Add(-2*forgetEvery), time.Time{}
			if _, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "holding", Max: 1, ReclaimAfter: time.Hour}); err != nil {
				t.Fatal(err)
			}
			names("silent for a day, and another one claims", "by-hand holding")
		})
	}
}

// Who leaves takes its name along also where no group is: a worker with create=never that a
// supervisor starts again and again would leave one each time.
func TestANameIsRemovedWhereTheGroupIsNot(t *testing.T) {
	for _, version := range redistest.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.Options{Version: version})
			c := s.Client()
			c.XAdd(t.Context(), &goredis.XAddArgs{Stream: "jobs", Values: []string{"data", "x"}})
			for what, query := range map[string]string{"no group": "?stream=jobs&group=misspelt&create=never", "no stream": "?stream=gone"} {
				u, _ := url.Parse(s.URL() + query)
				b, err := Open(t.Context(), u)
				if err != nil {
					t.Fatal(err)
				}
				_, err = b.Claim(t.Context(), backend.ClaimRequest{Consumer: "a", Max: 1, ReclaimAfter: time.Hour})
				if missing := what == "no group"; (err != nil) != missing {
					t.Errorf("%s: the claim ended with %v", what, err)
				}
				c.Del(t.Context(), "gone") // as somebody may while it works
				if err := b.Close(); err != nil {
					t.Error(err)
				}
				if left := c.Exists(t.Context(), b.keys.workers).Val(); left != 0 {
					t.Errorf("%s: left behind: %v", what, c.HGetAll(t.Context(), b.keys.workers).Val())
				}
			}
		})
	}
}

func TestNoTwoStreamsShareAKey(t *testing.T) {
	seen := map[string]string{}
	for _, stream := range []string{"a", "{a}", "{a}b", "b{a}", "{a}{a}", "{a}:", "{a}{b}", "ab", "{ab}", "{{a}}"} {
		k, err := keysOf(stream, "g")
		if err != nil {
			continue
		}
		for _, key := range []string{k.lag, k.dead, k.retry, k.trimmed, k.about, k.workers, k.idem} {
			if other, twice := seen[key]; twice {
				t.Errorf("%q is a key of %q and %q", key, other, stream)
			}
			seen[key] = stream
		}
	}
	if k, _ := keysOf("a", "g"); k.dead != "{a}:dlq" {
		t.Errorf("letters of a stream without braces have moved to %q", k.dead)
	}
}

// What is published after it is stored was published by a fast clock.
func TestAnAgeByAFastClockIsNotExact(t *testing.T) {
	at := time.UnixMilli(1_800_000_000_000)
	for name, test := range map[string]struct {
		id, published time.Duration // before at
		explicit      string        // instead of id
		want          backend.AgeSource
		age           time.Duration
		approx        bool
	}{
		"in step":                        {id: 9 * time.Second, published: 10 * time.Second, want: backend.AgePending, age: 10 * time.Second},
		"a little fast":                  {id: 10 * time.Second, published: 10*time.Second - 200*time.Millisecond, want: backend.AgePending, age: 10*time.Second - 200*time.Millisecond},
		"ahead of now":                   {id: 10 * time.Second, published: -time.Minute, want: backend.AgePendingID, age: 10 * time.Second, approx: true},
		"ahead, and in the past":         {id: 90 * time.Second, published: 30 * time.Second, want: backend.AgePendingID, age: 90 * time.Second, approx: true},
		"an ID that is no time":          {explicit: "5-1", published: 30 * time.Second, want: backend.AgePending, age: 30 * time.Second, approx: true},
		"neither tells":                  {explicit: "5-1", published: -time.Minute, want: backend.AgeUnknown, approx: true},
		"published long before (a copy)": {id: time.Second, published: time.Hour, want: backend.AgePending, age: time.Hour},
	} {
		s := backend.Stats{At: at}
		entry := test.explicit
		if entry == "" {
			entry = id{ms: uint64(at.Add(-test.id).UnixMilli())}.String()
		}
		setAge(&s, entry, at.Add(-test.published), backend.AgePending, backend.AgePendingID)
		if s.OldestSource != test.want || s.OldestAge != test.age || s.Approx != test.approx {
			t.Errorf("%s: %s from %s, approx %t; want %s from %s, %t", name, s.OldestAge, s.OldestSource, s.Approx, test.age, test.want, test.approx)
		}
	}
}

func TestADeadLetterInAnotherSlotIsRefused(t *testing.T) {
	for key, want := range map[string]uint16{"foo": 12182, "bar": 5061, "hello": 866, "{foo}x": 12182, "x{foo}{bar}": 12182} {
		if got := slotOf(key); got != want {
			t.Errorf("slot of %q is %d, want %d", key, got, want)
		}
	}
	k, _ := keysOf("jobs", "g")
	alone := &Backend{keys: k}
	clustered := &Backend{keys: k, cluster: &goredis.ClusterClient{}}
	for _, test := range []struct {
		b    *Backend
		name string
		says string
	}{
		{alone, "", ""}, {alone, "elsewhere", ""}, {alone, "jobs", "the stream itself"},
		{clustered, "", ""}, {clustered, "{jobs}:dlq", ""}, {clustered, "dead-{jobs}", ""},
		{clustered, "elsewhere", "put {jobs} in the name"}, {clustered, "jobs-dead", "another slot"},
	} {
		err := test.b.CheckDeadLetter(test.name)
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%q: %v, want %q", test.name, err, test.says)
		}
	}
}
