package redis_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/tests/redistest"
)

// A server holds commands back while it hands over to another (FAILOVER, CLUSTER
// FAILOVER) or because it was told to. Claims that end during that, with their context
// or because the caller has enough, end in time, and take neither the server down with
// them, as CLIENT UNBLOCK of what is held back does before Redis 8.2 and Valkey 8.1.2,
// nor what comes afterwards.
func TestClaimsThatEndWhileTheServerHoldsThemBack(t *testing.T) {
	t.Parallel()
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		far := redistest.NewProxy(t, s.Addr())
		far.Set(redistest.Fault{Latency: 10 * time.Millisecond})
		own := open(t, far.Addr(), "stream=own")
		lent := lend(t, goredis.NewClient(&goredis.Options{Addr: far.Addr()}), redis.Options{Stream: "lent"})
		t.Cleanup(func() { _ = lent.Close() })
		pauses, last := []string{"CLIENT PAUSE 500 WRITE", "CLIENT PAUSE 500 ALL"}, `"client" "id"`
		switch {
		case isOldest(t):
			pauses, last = []string{"CLIENT PAUSE 500"}, `"xreadgroup"`
		case strings.HasSuffix(t.Name(), "/6.2.5"):
			pauses, last = pauses[:1], `"xreadgroup"` // a monitor is not shown CLIENT ID
		}
		for _, pause := range pauses {
			for _, b := range []*redis.Backend{own, lent} {
				for _, enough := range []bool{false, true} {
					if enough && isOldest(t) {
						continue // it holds back everything before that, too
					}
					endsHeldBack(t, s, b, pause, last, enough)
					if t.Failed() {
						t.Fatalf("%s of %s, enough %t", pause, b.Info().Stream, enough)
					}
				}
			}
		}
	})
}

// endsHeldBack pauses the server between the last that a claim asks before it waits, and
// its blocking read.
func endsHeldBack(t *testing.T, s *redistest.Server, b *redis.Backend, pause, last string, enough bool) {
	t.Helper()
	claim(t, b, backend.ClaimRequest{Max: 1}) // makes the group
	direct := s.Client()
	before := process(t, direct)
	asked := seen(t, s, last)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	full := make(chan struct{})
	ended := make(chan error, 1)
	var got backend.Claimed
	go func() {
		var err error
		got, err = b.Claim(ctx, backend.ClaimRequest{
			Consumer: "during", Max: 1, Block: 20 * time.Second, ReclaimAfter: 3 * time.Second, Enough: full,
		})
		ended <- err
	}()
	select {
	case <-asked:
	case err := <-ended:
		t.Fatalf("the claim did not wait: %+v, %v", got, err)
	}
	if err := (&stage{t: t, c: direct}).do(pause); err != nil {
		t.Fatal(err)
	}
	hold(100 * time.Millisecond) // the read has come, and is held back
	tooLong := outlasts()
	at := time.Now()
	if enough {
		close(full)
	} else {
		stop()
	}
	err := <-ended
	over := tooLong(at)
	if len(got.Deliveries) != 0 || !enough && !errors.Is(err, context.Canceled) || enough && err != nil {
		t.Errorf("%d deliveries, %v", len(got.Deliveries), err)
	}
	if over > 0 {
		t.Errorf("the claim took %s to end", over)
	}
	wait(t, "the server lets go", func() bool { return direct.Set(t.Context(), "x", "y", 0).Err() == nil })
	if after := process(t, direct); after != before {
		t.Errorf("the server is another process, %s after %s", after, before)
	}
	for range 3 {
		id := publish(t, b, 1)[0]
		next := claim(t, b, backend.ClaimRequest{Max: 1, Block: 8 * time.Second, ReclaimAfter: time.Second})
		if len(next.Deliveries) != 1 || next.Deliveries[0].ID != id {
			t.Fatalf("claimed afterwards instead of %s: %+v", id, next.Deliveries)
		}
		if _, err := b.Ack(t.Context(), []backend.Lease{next.Deliveries[0].Lease}); err != nil {
			t.Fatal(err)
		}
	}
}

// process names the server's process.
func process(t *testing.T, c *goredis.Client) string {
	t.Helper()
	info, err := c.InfoMap(t.Context(), "server").Result()
	if err != nil {
		t.Fatal(err)
	}
	return info["Server"]["run_id"]
}

// seen is closed when the server gets a command.
func seen(t *testing.T, s *redistest.Server, command string) <-chan struct{} {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(conn)
	lines.Scan() // +OK
	came := make(chan struct{})
	go func() {
		for lines.Scan() {
			if strings.Contains(strings.ToLower(lines.Text()), command) {
				close(came)
				return
			}
		}
	}()
	return came
}

// Whether a group is paused is not known while the server answers nothing but that it cannot say so now. That is no
// permission to go on, not even for the moment after it.
func TestAPauseOutlastsARefusalThatPasses(t *testing.T) {
	t.Parallel()
	addr, s := startServer(t)
	b := open(t, addr, "stream=jobs")
	publish(t, b, 1)
	if err := b.Pause(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	other := open(t, addr, "stream=jobs") // which has not asked yet
	end := passing["busy with somebody's script"](t, s)
	req := backend.ClaimRequest{Consumer: "c", Max: 1, ReclaimAfter: time.Minute}
	if got, err := other.Claim(t.Context(), req); err == nil {
		t.Errorf("a busy server has given %+v", got)
	}
	end()
	if got, err := other.Claim(t.Context(), req); err != nil || len(got.Deliveries) > 0 {
		t.Errorf("a paused group has given %d messages, %v", len(got.Deliveries), err)
	}
}
