package redis_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/stall"
)

// startServer runs the system's redis-server until the test ends.
func startServer(t *testing.T, args ...string) (addr string, s *redistest.Server) {
	t.Helper()
	s = redistest.Start(t, redistest.Options{Args: args})
	return s.Addr(), s
}

func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	if !stall.Until(30*time.Second, done) {
		t.Fatalf("not within 30 s: %s", what)
	}
}

func open(t *testing.T, addr, query string) *redis.Backend {
	t.Helper()
	u, err := url.Parse("redis://" + addr + "/0?" + query)
	if err != nil {
		t.Fatal(err)
	}
	b, err := redis.Open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func claim(t *testing.T, b backend.Backend, req backend.ClaimRequest) backend.Claimed {
	t.Helper()
	if req.Consumer == "" {
		req.Consumer = "c"
	}
	if req.ReclaimAfter == 0 {
		req.ReclaimAfter = time.Minute
	}
	got, err := b.Claim(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func publish(t *testing.T, b backend.Backend, n int) []string {
	t.Helper()
	msgs := make([]backend.Message, n)
	for i := range msgs {
		msgs[i].Data = fmt.Append(nil, "m", i)
	}
	results, err := b.Append(t.Context(), msgs)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, n)
	for i, r := range results {
		ids[i] = r.ID
	}
	return ids
}

var background = context.Background()
