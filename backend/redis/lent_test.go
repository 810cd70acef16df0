package redis_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/tests/redistest"
)

// lend makes a backend of a client of the test's own.
func lend(t testing.TB, c goredis.UniversalClient, o redis.Options) *redis.Backend {
	t.Helper()
	t.Cleanup(func() { _ = c.Close() })
	b, err := redis.New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The suite passes with a client as go-redis makes it: with version 3 of the protocol,
// its own retries, and deaf to contexts.
func TestConformanceOfALentClient(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	on := func(addr string) func(testing.TB, string, string) backend.Backend {
		return func(t testing.TB, stream, group string) backend.Backend {
			return lend(t, goredis.NewClient(&goredis.Options{Addr: addr}), redis.Options{Stream: stream, Group: group})
		}
	}
	h := lentHarness("a lent client of redis", on(s.Addr()))
	open := func(t testing.TB, addr, stream string) backend.Backend {
		return on(addr)(t, stream, "")
	}
	h.Faulty = backendtest.Through(s.Addr(), open, backendtest.HoldDown)
	h.Clogged = backendtest.Through(s.Addr(), open, backendtest.HoldUp)
	backendtest.Run(t, h)
}

func TestConformanceOfALentClusterClient(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0, redistest.Options{})
	addrs := []string{c.Masters[0].Addr()}
	_, err := redis.New(goredis.NewClient(&goredis.Options{Addr: addrs[0]}), redis.Options{Stream: "jobs"})
	if err == nil || !strings.Contains(err.Error(), "NewClusterClient") {
		t.Errorf("a plain client of a Cluster's node: %v", err)
	}
	backendtest.Run(t, lentHarness("a lent client of a redis cluster", func(t testing.TB, stream, group string) backend.Backend {
		return lend(t, goredis.NewClusterClient(&goredis.ClusterOptions{
			Addrs: addrs, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // whose goroutine ends with the client
		}), redis.Options{Stream: stream, Group: group})
	}))
}

func lentHarness(name string, open func(t testing.TB, stream, group string) backend.Backend) backendtest.Harness {
	return backendtest.Harness{
		Name:         name,
		Open:         func(t testing.TB, stream string) backend.Backend { return open(t, stream, "") },
		OpenGroup:    open,
		ReclaimAfter: 300 * time.Millisecond,
		KeepsErrors:  true,
	}
}

// watching counts the commands that pass through a client.
type watching struct{ commands atomic.Int64 }

func (w *watching) DialHook(next goredis.DialHook) goredis.DialHook { return next }
func (w *watching) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		w.commands.Add(1)
		return next(ctx, cmd)
	}
}
func (w *watching) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		w.commands.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

func TestALentClientKeepsItsHooksAndStaysOpen(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	client := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	hook := &watching{}
	client.AddHook(hook)
	b := lend(t, client, redis.Options{Stream: "jobs"})
	before := hook.commands.Load()
	publish(t, b, 3)
	if hook.commands.Load() == before {
		t.Error("the client's hook saw nothing of an append")
	}
	ended := make(chan error, 1)
	go func() {
		claim := backend.ClaimRequest{Consumer: "c", Max: 10, Block: time.Minute, ReclaimAfter: time.Minute}
		_, err := b.Claim(t.Context(), claim)
		if err == nil {
			_, err = b.Claim(t.Context(), claim) // waits
		}
		ended <- err
	}()
	wait(t, "a claim waits", func() bool {
		list, err := client.ClientList(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(list, "cmd=xreadgroup") && strings.Contains(list, "flags=b")
	})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, backend.ErrClosed) {
			t.Errorf("a claim that waited when the backend was closed: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("a claim outlives its backend")
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("closing the backend closed the client: %v", err)
	}
}

// What a URL is refused for, a client is refused for too, and a server that changes is
// noticed though its connections are not weir's.
func TestALentClientsServerHasToBeAcceptable(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	client := s.Client()
	for want, o := range map[string]redis.Options{
		"no stream is named":          {},
		`trim "never" is unknown`:     {Stream: "s", Trim: "never"},
		`durability "x" is unknown`:   {Stream: "s", Durability: "x"},
		"durability fsync is asked":   {Stream: "s", Durability: "fsync"},
		"stream and group may have":   {Stream: strings.Repeat("x", 600)},
		"an unpaired or empty pair o": {Stream: "a{b"},
	} {
		if _, err := redis.New(client, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", o, err, want)
		}
	}
	if _, err := redis.New(goredis.NewRing(&goredis.RingOptions{}), redis.Options{Stream: "s"}); err == nil || !strings.Contains(err.Error(), "*redis.Ring") {
		t.Errorf("a ring: %v", err)
	}
}

// go-redis would send an append again whose answer was lost.
func TestALentClientRepeatsNothingByItself(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	link := redistest.NewProxy(t, s.Addr())
	b := lend(t, goredis.NewClient(&goredis.Options{Addr: link.Addr()}), redis.Options{Stream: "jobs"})
	publish(t, b, 1)
	link.Set(redistest.Fault{HoldDown: true})
	said := make(chan error, 1)
	go func() {
		_, err := b.Append(context.Background(), []backend.Message{{Data: []byte("x")}})
		said <- err
	}()
	count := s.Client()
	wait(t, "the append reaches the server", func() bool { return count.XLen(t.Context(), "jobs").Val() == 2 })
	link.Cut()
	link.Heal()
	if err := <-said; !errors.Is(err, backend.ErrOutcomeUnknown) {
		t.Errorf("the answer was lost: %v", err)
	}
	if n := count.XLen(t.Context(), "jobs").Val(); n != 2 {
		t.Errorf("%d entries, want 2: the append was repeated", n)
	}
}

// A program may open one part of its streams by URL and lend its client to another: its
// producers of one stream share what they know of it.
func TestALentClientsStreamIsTheOneThatAURLOpens(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	of := func(stream string, db int) *redis.Backend {
		return lend(t, goredis.NewClient(&goredis.Options{Addr: s.Addr(), DB: db}), redis.Options{Stream: stream})
	}
	opened := open(t, s.Addr(), "stream=jobs")
	for _, c := range []struct {
		lent *redis.Backend
		same bool
	}{{of("jobs", 0), true}, {of("others", 0), false}, {of("jobs", 1), false}} {
		defer c.lent.Close()
		if got := c.lent.Place(); (got == opened.Place()) != c.same {
			t.Errorf("opened is %q, lent is %q", opened.Place(), got)
		}
	}
}

func TestNewRefusesWhatIsNoClient(t *testing.T) {
	for name, c := range map[string]goredis.UniversalClient{
		"nothing": nil, "a nil client": (*goredis.Client)(nil), "a nil client of a cluster": (*goredis.ClusterClient)(nil), "a ring": (*goredis.Ring)(nil),
	} {
		if _, err := redis.New(c, redis.Options{Stream: "jobs"}); err == nil || !strings.Contains(err.Error(), "client is nil") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A client of a Cluster need not have an address: go-redis asks Sentinels for the nodes, or the
// program says where they are.
func TestALentClientOfSentinelsMayBeAClusterClient(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, redistest.Options{Steady: true})
	client := goredis.NewFailoverClusterClient(&goredis.FailoverOptions{
		MasterName: redistest.MasterName, SentinelAddrs: sentinelAddrs(t, s), Protocol: 2,
	})
	b := lend(t, client, redis.Options{Stream: "jobs"})
	publish(t, b, 3)
	ack(t, b, take(t, b, 3)...)
}

func sentinelAddrs(t *testing.T, s *redistest.Sentinel) []string {
	t.Helper()
	rest := strings.TrimPrefix(s.URL(), "redis://")
	hosts, _, _ := strings.Cut(rest, "/")
	return strings.Split(hosts, ",")
}

func TestALentClusterClientMayFindItsSlotsItself(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0, redistest.Options{})
	slots := func(ctx context.Context) ([]goredis.ClusterSlot, error) {
		cmd := goredis.NewClusterSlotsCmd(ctx, "CLUSTER", "SLOTS")
		_ = c.Masters[0].Client().Process(ctx, cmd)
		return cmd.Result()
	}
	b := lend(t, goredis.NewClusterClient(&goredis.ClusterOptions{ClusterSlots: slots, Protocol: 2}), redis.Options{Stream: "jobs"})
	publish(t, b, 3)
	ack(t, b, take(t, b, 3)...)
}
