package redis_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/tests/redistest"
)

func TestFullServerRefusesAndStoresNothing(t *testing.T) {
	addr, s := startServer(t, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
	b := open(t, addr, "stream=jobs")
	claim(t, b, backend.ClaimRequest{Max: 1})
	var (
		stored int64
		full   *backend.FullError
		err    error
	)
	for err == nil && stored < 10_000 {
		if _, err = b.Append(t.Context(), []backend.Message{{Data: make([]byte, 10_000)}}); err == nil {
			stored++
		}
	}
	if !errors.As(err, &full) || full.Reason != backend.ReasonQueueFull || !backend.Retryable(err) {
		t.Fatalf("after %d: %v", stored, err)
	}
	// The server's own buffers shrink again: what is refused next must not hang on them.
	if err := s.Client().ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	keyed := []backend.Message{{Data: []byte("x"), IdempotencyKey: "k"}}
	if _, err = b.Append(t.Context(), keyed); !errors.As(err, &full) {
		t.Fatalf("with a key: %v", err)
	}
	if n := s.Client().XLen(t.Context(), "jobs").Val(); n != stored {
		t.Errorf("%d are stored, %d were acknowledged", n, stored)
	}
	if err := s.Client().ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if r, err := b.Append(t.Context(), keyed); err != nil || r[0].Deduped {
		t.Errorf("the repeat of a refused append: %+v %v", r, err)
	}
}

// Somebody else's list or string under the stream's name is told with what to do.
func TestAKeyOfAnotherTypeIsToldWithARemedy(t *testing.T) {
	t.Parallel()
	for _, version := range redistest.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.Options{Version: version})
			if err := s.Client().LPush(t.Context(), "jobs", "x").Err(); err != nil {
				t.Fatal(err)
			}
			b := open(t, s.Addr(), "stream=jobs")
			for what, call := range map[string]func() error{
				"append": func() error { _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}}); return err },
				"keyed": func() error {
					_, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x"), IdempotencyKey: "k"}})
					return err
				},
				"claim": func() error {
					_, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "a", Max: 1, ReclaimAfter: time.Hour})
					return err
				},
				"stats":  func() error { _, err := b.Stats(t.Context()); return err },
				"signal": func() error { _, err := b.Signal(t.Context(), 0); return err },
				"read": func() error {
					_, err := b.Read(t.Context(), backend.ReadRequest{After: backend.CursorStart, Max: 1})
					return err
				},
			} {
				if err := call(); err == nil || !strings.Contains(err.Error(), "use another name for the stream: WRONGTYPE") || !strings.Contains(err.Error(), ` "jobs"`) || backend.Retryable(err) {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

func TestReadOnlyReplicaIsNotAvailableAndStoresNothing(t *testing.T) {
	t.Parallel()
	addr, s := startServer(t)
	b := open(t, addr, "stream=jobs")
	publish(t, b, 1)
	admin := s.Client()
	if err := admin.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"", "k"} {
		_, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x"), IdempotencyKey: key}})
		if !errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrOutcomeUnknown) {
			t.Errorf("append with key %q to a replica: %v", key, err)
		}
	}
	if _, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 1, ReclaimAfter: time.Minute}); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("claim on a replica: %v", err)
	}
	if err := admin.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	if n := admin.XLen(t.Context(), "jobs").Val(); n != 1 {
		t.Errorf("%d entries, one was acknowledged", n)
	}
	publish(t, b, 1)
}

// A claim that waits when its server becomes a replica, or when its stream is
// deleted and made again, ends, with an error that can be retried if with one.
func TestWaitingClaimSurvivesWhatTheServerTurnsInto(t *testing.T) {
	addr, s := startServer(t)
	b := open(t, addr, "stream=jobs")
	admin := s.Client()
	for _, change := range [][]any{{"REPLICAOF", "127.0.0.1", "1"}, {"DEL", "jobs"}} {
		claim(t, b, backend.ClaimRequest{Max: 1})
		ended := make(chan error, 1)
		go func() {
			_, err := b.Claim(background, backend.ClaimRequest{Consumer: "c", Max: 1, Block: 2 * time.Minute, ReclaimAfter: time.Minute})
			ended <- err
		}()
		wait(t, "the claim waits", func() bool {
			return strings.Contains(admin.Info(t.Context(), "clients").Val(), "blocked_clients:1")
		})
		if err := admin.Do(t.Context(), change...).Err(); err != nil {
			t.Fatal(err)
		}
		if change[0] == "DEL" { // before 7.2 nobody is told until there is a stream again
			publish(t, b, 1)
		}
		select {
		case err := <-ended:
			if err != nil && !backend.Retryable(err) {
				t.Errorf("after %v: %v", change, err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("after %v the claim goes on to wait", change)
		}
		_ = admin.Do(t.Context(), "REPLICAOF", "NO", "ONE")
	}
	publish(t, b, 1)
	wait(t, "claims go on", func() bool {
		got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 1, ReclaimAfter: time.Minute})
		return err == nil && len(got.Deliveries) == 1
	})
}

func TestMissingStreamAndGroupAreSaidAndNotMade(t *testing.T) {
	addr, s := startServer(t)
	b := open(t, addr, "stream=jobs")
	if s, err := b.Stats(t.Context()); err != nil || !errors.Is(s.Missing, backend.ErrStreamNotFound) {
		t.Errorf("stats of nothing: %+v, %v", s, err)
	}
	if signal, err := b.Signal(t.Context(), 100); err != nil || signal.XLen != 0 || signal.Lag == nil || *signal.Lag != 0 {
		t.Errorf("signal of nothing: %+v %v", signal, err)
	}
	if n := s.Client().Exists(t.Context(), "jobs").Val(); n != 0 {
		t.Error("reading made the stream")
	}
	publish(t, b, 1)
	if s, err := b.Stats(t.Context()); err != nil || !errors.Is(s.Missing, backend.ErrGroupNotFound) || *s.Lag != 1 {
		t.Errorf("stats without a group: %+v, %v", s, err)
	}
	if s, err := open(t, addr, "stream=jobs&start=$").Stats(t.Context()); err != nil || *s.Lag != 0 || s.XLen != 1 || s.OldestSource != backend.AgeNone {
		t.Errorf("stats of a group that will begin at the end: %+v, %v", s, err)
	}
	if _, err := open(t, addr, "stream=jobs&create=never").Stats(t.Context()); !errors.Is(err, backend.ErrGroupNotFound) {
		t.Errorf("stats of a group that nobody will make: %v", err)
	}
	if n := len(s.Client().XInfoGroups(t.Context(), "jobs").Val()); n != 0 {
		t.Errorf("reading made %d groups", n)
	}
}

func TestOpenRefusesWhatItCannotKeep(t *testing.T) {
	for _, c := range []struct {
		name  string
		args  []string
		query string
		want  string // in the error; empty: it opens
		class string
	}{
		{"nothing persisted", nil, "", "", "ephemeral"},
		{"snapshots", []string{"--save", "3600 1"}, "", "", "memory"},
		{"a log, synced each second", []string{"--appendonly", "yes"}, "&durability=disk", "", "disk"},
		{"a log, always synced", []string{"--appendonly", "yes", "--appendfsync", "always"}, "&durability=fsync", "", "fsync"},
		{"fsync of a log that is not", []string{"--appendonly", "yes"}, "&durability=fsync", "appendfsync", ""},
		{"fsync of a log that is not synced during snapshots", []string{"--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "yes"}, "&durability=fsync", "no-appendfsync-on-rewrite", ""},
		{"a log that is not synced during snapshots", []string{"--appendonly", "yes", "--no-appendfsync-on-rewrite", "yes"}, "", "", "memory"},
		{"disk without a log", nil, "&durability=disk", "appendonly", ""},
		{"eviction of everything", []string{"--maxmemory", "20mb", "--maxmemory-policy", "allkeys-lru"}, "", "allkeys-lru", ""},
		{"eviction without a limit", []string{"--maxmemory-policy", "allkeys-lru"}, "", "", "ephemeral"},
		{"eviction of what expires", []string{"--maxmemory", "20mb", "--maxmemory-policy", "volatile-lru"}, "", "", "ephemeral"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.Options{Args: c.args})
			u, _ := url.Parse(s.URL() + "?stream=jobs" + c.query)
			b, err := redis.Open(t.Context(), u)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("got %v, want an error that names %s", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = b.Close() }()
			if got := b.Info().Durability; got != c.class {
				t.Errorf("durability is %s, want %s", got, c.class)
			}
		})
	}
}

// What was asked for at Open is asked for as long as the stream is open: of a
// server that takes the place of the first, and of the same one with other settings.
func TestAServerThatKeepsLessThanAskedForIsRefusedLater(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		refused := func(b *redis.Backend, what, names string) {
			t.Helper()
			wait(t, what, func() bool {
				_, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}})
				if err != nil && (!errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrOutcomeUnknown)) {
					t.Fatalf("%s: %v", what, err)
				}
				return err != nil && strings.Contains(err.Error(), names)
			})
		}
		accepted := func(b *redis.Backend, what string) {
			t.Helper()
			wait(t, what, func() bool {
				_, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}})
				return err == nil
			})
		}
		admin := s.Client()
		s.SetArgs("--appendonly", "yes", "--appendfsync", "always")
		s.Restart()
		u, _ := url.Parse(s.URL() + "?stream=jobs&durability=fsync")
		b, err := redis.Open(t.Context(), u)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = b.Close() }()
		accepted(b, "the first server takes it")
		s.SetArgs()
		s.Restart()
		if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}}); err == nil {
			t.Error("one without a log in its place: the first publish was accepted")
		}
		refused(b, "one without a log in its place", "durability fsync is asked for")
		if n := admin.XLen(t.Context(), "jobs").Val(); n != 0 {
			t.Errorf("%d messages are stored on it", n)
		}
		if got := b.Info().Durability; got == "fsync" {
			t.Errorf("its class is said to be %s", got)
		}
		s.SetArgs("--appendonly", "yes", "--appendfsync", "always")
		s.Restart()
		accepted(b, "one like the first again")
		if err := admin.ConfigSet(t.Context(), "appendfsync", "no").Err(); err != nil {
			t.Fatal(err)
		}
		refused(b, "the same with another setting", "durability fsync is asked for")
		if err := admin.ConfigSet(t.Context(), "appendfsync", "always").Err(); err != nil {
			t.Fatal(err)
		}
		accepted(b, "the setting is back")
		if err := admin.ConfigSet(t.Context(), "no-appendfsync-on-rewrite", "yes").Err(); err != nil {
			t.Fatal(err)
		}
		refused(b, "no syncs during snapshots", "durability fsync is asked for")
		if err := admin.ConfigSet(t.Context(), "no-appendfsync-on-rewrite", "no").Err(); err != nil {
			t.Fatal(err)
		}
		accepted(b, "that setting is back")
		s.SetArgs("--appendonly", "yes", "--appendfsync", "always", "--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru")
		s.Restart()
		refused(b, "one that evicts", "may evict the stream")
	})
}

func TestNobodyListening(t *testing.T) {
	t.Parallel()
	u, _ := url.Parse("redis://user:secret@127.0.0.1:1/0?stream=jobs")
	_, err := redis.Open(t.Context(), u)
	if !errors.Is(err, backend.ErrUnavailable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("open: %v", err)
	}
	addr, s := startServer(t)
	b := open(t, addr, "stream=jobs")
	s.Kill()
	if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}}); !errors.Is(err, backend.ErrUnavailable) && !errors.Is(err, backend.ErrOutcomeUnknown) {
		t.Errorf("the first append after the kill: %v", err)
	}
	if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}}); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("the next: %v", err)
	}
	s.Restart()
	// go-redis fails at once after as many failed dials as its pool may have connections,
	// and looks once a second whether that is over.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		_, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}})
		if err == nil {
			break
		}
		if !errors.Is(err, backend.ErrUnavailable) || time.Now().After(deadline) {
			t.Fatalf("after the restart: %v", err)
		}
	}
}

func TestWrongPasswordIsSaid(t *testing.T) {
	addr, _ := startServer(t, "--requirepass", "right")
	u, _ := url.Parse("redis://:wrong@" + addr + "?stream=jobs")
	if _, err := redis.Open(t.Context(), u); err == nil || strings.Contains(err.Error(), "wrong@") || errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("open with a wrong password: %v", err)
	}
	u, _ = url.Parse("redis://:right@" + addr + "?stream=jobs")
	b, err := redis.Open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, b, 1)
	_ = b.Close()
}
