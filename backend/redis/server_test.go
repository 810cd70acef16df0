package redis_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/redis"
)

// startServer runs a redis-server until the test ends and returns its address.
func startServer(t *testing.T, args ...string) (addr string, process *os.Process) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = listener.Addr().String()
	_ = listener.Close()
	_, port, _ := net.SplitHostPort(addr)
	args = append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir()}, args...)
	cmd := exec.Command("redis-server", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	c := goredis.NewClient(&goredis.Options{Addr: addr, Protocol: 2})
	defer func() { _ = c.Close() }()
	wait(t, "the server answers", func() bool { return c.Ping(t.Context()).Err() == nil })
	return addr, cmd.Process
}

func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
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
