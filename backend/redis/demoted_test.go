package redis_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/stall"
)

// endpoint is an address that leads to one server at a time, as a name or a balancer in front of a
// primary and its replica does. A connection stays with the server that it was made to.
type endpoint struct {
	net.Listener
	target atomic.Pointer[string]
}

func startEndpoint(t *testing.T, first *redistest.Server) *endpoint {
	t.Helper()
	e := &endpoint{}
	e.lead(first)
	e.Listener = listen(t, e.serve)
	return e
}

// listen has serve called for each client of a new listener. Both end with the test.
func listen(t *testing.T, serve func(net.Conn)) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return listener
}

func (e *endpoint) lead(to *redistest.Server) {
	addr := to.Addr()
	e.target.Store(&addr)
}

func (e *endpoint) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", *e.target.Load())
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}

// After a failover the connections that there were may go on to the old primary, which is a
// replica then. Nobody stays with it.
func TestNobodyStaysWithAPrimaryThatIsAReplicaNow(t *testing.T) {
	t.Parallel()
	for _, client := range []string{"of a URL", "lent"} {
		for what, does := range map[string]func(t *testing.T, b *redis.Backend, try int) error{
			"a worker that waits for messages": func(t *testing.T, b *redis.Backend, _ int) error {
				_, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 1, Block: 20 * time.Millisecond, ReclaimAfter: time.Minute})
				return err
			},
			"a producer with keys": func(t *testing.T, b *redis.Backend, try int) error {
				_, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x"), IdempotencyKey: fmt.Sprint(try)}})
				return err
			},
		} {
			t.Run(what+", with a client "+client, func(t *testing.T) {
				t.Parallel()
				old := redistest.Start(t, redistest.Options{Args: []string{"--repl-diskless-sync-delay", "0"}})
				e := startEndpoint(t, old)
				var b *redis.Backend
				if client == "lent" {
					lent := goredis.NewClient(&goredis.Options{Addr: e.Addr().String()})
					t.Cleanup(func() { _ = lent.Close() })
					var err error
					if b, err = redis.New(lent, redis.Options{Stream: "jobs"}); err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = b.Close() })
				} else {
					b = open(t, e.Addr().String(), "stream=jobs")
				}
				if err := does(t, b, 0); err != nil {
					t.Fatal(err)
				}
				next := redistest.Start(t, redistest.Options{})
				follows(t, next, old)
				if err := next.Client().Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
					t.Fatal(err)
				}
				follows(t, old, next)
				e.lead(next)
				try := 0
				wait(t, what+" goes on at the new primary", func() bool {
					try++
					return does(t, b, try) == nil
				})
			})
		}
	}
}

// follows makes a server the replica of another one and waits until it is.
func follows(t *testing.T, replica, primary *redistest.Server) {
	t.Helper()
	host, port, err := net.SplitHostPort(primary.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if err := replica.Client().Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	wait(t, "the replica follows", func() bool {
		n, err := primary.Client().Wait(t.Context(), 1, 100*time.Millisecond).Result()
		return err == nil && n == 1
	})
}

// A guard that keeps its producer waiting only reads, which a replica lets it: one that follows nobody
// any more answers for ever what was true when the producer began to wait.
func TestAGuardLeavesAPrimaryThatIsAReplicaNow(t *testing.T) {
	t.Parallel()
	old := redistest.Start(t, redistest.Options{Args: []string{"--repl-diskless-sync-delay", "0"}})
	next := redistest.Start(t, redistest.Options{})
	e := startEndpoint(t, old)
	b := open(t, e.Addr().String(), "stream=jobs")
	claim(t, b, backend.ClaimRequest{Max: 1})
	publish(t, b, 100)
	producer, err := weir.NewProducer(weir.New(b), weir.ProducerConfig{LagSignal: weir.SignalBacklog, LagPause: 10, LagPoll: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	published := make(chan error, 1)
	go func() { published <- producer.Publish(ctx, weir.Message{Data: []byte("x")}) }()
	wait(t, "the guard has read that too much waits", func() bool {
		return old.Client().Exists(t.Context(), "{jobs}:room:weir").Val() == 1
	})
	follows(t, next, old)
	if err := next.Client().Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	if err := next.Client().XGroupSetID(t.Context(), "jobs", "weir", "$").Err(); err != nil { // all is done there
		t.Fatal(err)
	}
	if err := old.Client().Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil { // where nobody is
		t.Fatal(err)
	}
	e.lead(next)
	if err := <-published; err != nil {
		t.Error(err)
	}
	if err := producer.Close(); err != nil {
		t.Error(err)
	}
}

// Who only reads is told by nothing that the server that answers is a replica now. If that follows nobody, it
// answers for ever what was true.
func TestReadersLeaveAPrimaryThatIsAReplicaNow(t *testing.T) {
	t.Parallel()
	for client, open := range map[string]func(t *testing.T, addr string) *redis.Backend{
		"of a URL": func(t *testing.T, addr string) *redis.Backend { return open(t, addr, "stream=jobs") },
		"lent": func(t *testing.T, addr string) *redis.Backend {
			b := lend(t, goredis.NewClient(&goredis.Options{Addr: addr}), redis.Options{Stream: "jobs"})
			t.Cleanup(func() { _ = b.Close() })
			return b
		},
	} {
		for what, reads := range map[string]func(t *testing.T, b *redis.Backend) (messages int, err error){
			"stats": func(t *testing.T, b *redis.Backend) (int, error) {
				s, err := b.Stats(t.Context())
				return int(s.XLen), err
			},
			"a guard in shadow": func(t *testing.T, b *redis.Backend) (int, error) {
				s, err := b.Signal(t.Context(), 100)
				return int(s.XLen), err
			},
			"tail": func(t *testing.T, b *redis.Backend) (int, error) {
				got, err := b.Read(t.Context(), backend.ReadRequest{After: backend.CursorStart, Max: 100})
				return len(got.Records), err
			},
		} {
			t.Run(what+" with a client "+client, func(t *testing.T) {
				t.Parallel()
				old := redistest.Start(t, redistest.Options{Args: []string{"--repl-diskless-sync-delay", "0"}})
				next := redistest.Start(t, redistest.Options{})
				e := startEndpoint(t, old)
				b := open(t, e.Addr().String())
				publish(t, b, 3)
				if n, err := reads(t, b); n != 3 || err != nil {
					t.Fatalf("%d, %v", n, err)
				}
				follows(t, next, old)
				if err := next.Client().Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
					t.Fatal(err)
				}
				if err := old.Client().Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil { // where nobody is
					t.Fatal(err)
				}
				e.lead(next)
				publish(t, openOnce(t, next.Addr()), 1)
				wait(t, "the new primary is read", func() bool {
					n, err := reads(t, b)
					if err != nil {
						t.Error(err)
					}
					return n == 4
				})
			})
		}
	}
}

func openOnce(t *testing.T, addr string) *redis.Backend { return open(t, addr, "stream=jobs") }

// A replica that somebody has named is read as it is, and not searched for a primary all the time.
func TestAReplicaIsReadWhereNoPrimaryIs(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t, redistest.Options{Args: []string{"--repl-diskless-sync-delay", "0"}})
	replica := redistest.Start(t, redistest.Options{})
	publish(t, open(t, primary.Addr(), "stream=jobs"), 3)
	follows(t, replica, primary)
	b := open(t, replica.Addr(), "stream=jobs")
	began, busy := time.Now(), stall.Busy()
	for range 1000 {
		if s, err := b.Stats(t.Context()); err != nil || s.XLen != 3 {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	if took := time.Since(began); took > 30*time.Second+busy() {
		t.Errorf("1000 readings took %s", took)
	}
}
