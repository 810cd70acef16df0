package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/stall"
)

// With durability=fsync an append is stored if a replica has it. A replica may
// come and go while the connection stays, a script may have to be sent again, and
// the repeat of a stored key writes nothing: none of that may make up a yes.
func TestAppendIsNotReplicatedBeforeAReplicaHasIt(t *testing.T) {
	t.Parallel()
	for _, version := range redistest.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			isNotReplicatedBeforeAReplicaHasIt(t, version)
		})
	}
}

func isNotReplicatedBeforeAReplicaHasIt(t *testing.T, version string) {
	primary := redistest.Start(t, redistest.Options{Version: version, Args: append([]string{"--repl-diskless-sync-delay", "0"}, durable...)})
	b := open(t, primary.Addr(), "stream=jobs&durability=fsync")
	publish(t, b, 1)
	host, port, _ := net.SplitHostPort(primary.Addr())
	replica := redistest.Start(t, redistest.Options{Version: version, Args: []string{"--replicaof", host, port}})
	wait(t, "the replica has everything", func() bool {
		info := primary.Client().Info(t.Context(), "replication").Val()
		_, offset, _ := strings.Cut(info, "master_repl_offset:")
		offset, _, _ = strings.Cut(offset, "\r")
		return strings.Contains(info, "state=online,offset="+offset+",")
	})
	replica.Pause()
	keyed := []backend.Message{{Data: []byte("x"), IdempotencyKey: "k"}}
	later := []backend.Message{{Data: []byte("x"), IdempotencyKey: "l", Delay: time.Hour}}
	for _, what := range []string{"the script has to be sent again", "the key is known"} {
		fresh := open(t, primary.Addr(), "stream=jobs&durability=fsync")
		if r, err := fresh.Append(t.Context(), keyed); !errors.Is(err, backend.ErrOutcomeUnknown) {
			t.Errorf("%s, no replica answers: %+v %v", what, r, err)
		}
		fresh = open(t, primary.Addr(), "stream=jobs&durability=fsync")
		if r, err := fresh.Append(t.Context(), later); !errors.Is(err, backend.ErrOutcomeUnknown) {
			t.Errorf("%s, no replica answers, with a delay: %+v %v", what, r, err)
		}
		fresh = open(t, primary.Addr(), "stream=jobs&durability=fsync")
		if r, err := fresh.AppendAt(t.Context(), "source", 0, []backend.Message{{Data: []byte("x")}}); !errors.Is(err, backend.ErrOutcomeUnknown) {
			t.Errorf("%s, no replica answers, of a source: %+v %v", what, r, err)
		}
	}
	if left := primary.Client().TTL(t.Context(), "{jobs}:idem:k").Val(); left > 24*time.Hour || left < 23*time.Hour {
		t.Errorf("the key is kept for %s", left)
	}
	wait(t, "the new replica is waited for", func() bool {
		_, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}})
		return errors.Is(err, backend.ErrOutcomeUnknown)
	})
	replica.Resume()
	replica.Kill()
	wait(t, "appends no longer wait for the replica that is gone", func() bool {
		start := time.Now()
		r, err := b.Append(t.Context(), keyed)
		return err == nil && r[0].Deduped && time.Since(start) < time.Second
	})
}

// aloneFor is how long an append waits for a replica of a server that has lost them all.
const aloneFor = 5 * time.Second

// What happens in a failover that somebody asks Sentinel for: the replica is made a primary, and
// the old one takes writes for a while that it will throw away.
func TestAPrimaryThatIsBeingReplacedConfirmsNothingAlone(t *testing.T) {
	t.Parallel()
	for _, idle := range []time.Duration{0, 2 * time.Second} {
		t.Run(fmt.Sprintf("idle for %s", idle), func(t *testing.T) {
			t.Parallel()
			primary := redistest.Start(t, redistest.Options{Args: append([]string{"--repl-diskless-sync-delay", "0"}, durable...)})
			replica := redistest.Start(t, redistest.Options{})
			follows(t, replica, primary)
			b := open(t, primary.Addr(), "stream=jobs&durability=fsync")
			publish(t, b, 1)
			if err := replica.Client().Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
				t.Fatal(err)
			}
			wait(t, "the primary is alone", func() bool {
				return strings.Contains(primary.Client().Info(t.Context(), "replication").Val(), "connected_slaves:0")
			})
			hold(idle)
			unknown := 0
			for start := time.Now(); time.Since(start) < 3*time.Second; {
				ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
				_, err := b.Append(ctx, []backend.Message{{Data: []byte("x")}})
				stop()
				switch {
				case errors.Is(err, backend.ErrOutcomeUnknown):
					unknown++
				case errors.Is(err, context.DeadlineExceeded): // a busy machine has not sent it by then
				case time.Since(start) < aloneFor:
					t.Fatalf("after %s: %v", time.Since(start), err)
				}
			}
			if unknown == 0 {
				t.Error("nothing was sent")
			}
		})
	}
}

// One that was killed may be started again before Sentinel has said who takes over, and takes writes until then.
func TestAPrimaryThatHasRestartedConfirmsNothingAlone(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t, redistest.Options{Args: append([]string{"--repl-diskless-sync-delay", "0"}, durable...)})
	replica := redistest.Start(t, redistest.Options{})
	follows(t, replica, primary)
	b := open(t, primary.Addr(), "stream=jobs&durability=fsync")
	publish(t, b, 1)
	primary.Kill()
	if err := replica.Client().Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	primary.Restart()
	for start := time.Now(); time.Since(start) < 3*time.Second; {
		ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err := b.Append(ctx, []backend.Message{{Data: []byte("x")}})
		stop()
		if err == nil && time.Since(start) < aloneFor {
			t.Fatalf("confirmed after %s", time.Since(start))
		}
	}
	wait(t, "it stays, and goes on alone", func() bool {
		_, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}})
		return err == nil
	})
}

// A replica that has taken over has no other to wait for, and does not wait.
func TestAReplicaThatHasTakenOverConfirmsAlone(t *testing.T) {
	t.Parallel()
	old := redistest.Start(t, redistest.Options{Args: append([]string{"--repl-diskless-sync-delay", "0"}, durable...)})
	next := redistest.Start(t, redistest.Options{Args: durable})
	follows(t, next, old)
	e := startEndpoint(t, old)
	b := open(t, e.Addr().String(), "stream=jobs&durability=fsync")
	publish(t, b, 1)
	if err := next.Client().Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	e.lead(next)
	old.Kill()
	killed, stalled := time.Now(), stall.Watch()
	wait(t, "it confirms", func() bool {
		ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer stop()
		_, err := b.Append(ctx, []backend.Message{{Data: []byte("x")}})
		return err == nil
	})
	if took := time.Since(killed); took > 4500*time.Millisecond+stalled() { // one that has restarted is waited for for 5 s
		t.Errorf("that took %v", took)
	}
}

// Before 7.0 a script's error is wrapped. What it means is the same.
func TestErrorsWithinScriptsMeanTheSame(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		admin := s.Client()
		publish(t, b, 1)
		d := claim(t, b, backend.ClaimRequest{Max: 1}).Deliveries[0]
		set := func(args ...any) {
			t.Helper()
			if err := admin.Do(t.Context(), args...).Err(); err != nil {
				t.Fatal(err)
			}
		}
		set("CONFIG", "SET", "maxmemory", "1")
		var full *backend.FullError
		if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x"), IdempotencyKey: "k"}}); !errors.As(err, &full) {
			t.Errorf("out of memory: %v", err)
		}
		set("CONFIG", "SET", "maxmemory", "0")
		set("REPLICAOF", "127.0.0.1", "1")
		if _, err := b.Nack(t.Context(), []backend.Return{{Lease: d.Lease}}); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("a replica: %v", err)
		}
		set("REPLICAOF", "NO", "ONE")
		set("XGROUP", "DESTROY", "jobs", "weir")
		if _, err := b.Extend(t.Context(), []backend.Lease{d.Lease}, time.Second); !errors.Is(err, backend.ErrGroupNotFound) {
			t.Errorf("no group: %v", err)
		}
	})
}

// Messages with and without a key stay in order though the server has forgotten the script.
func TestMixedBatchStaysInOrder(t *testing.T) {
	addr, _ := startServer(t)
	b := open(t, addr, "stream=jobs")
	msgs := make([]backend.Message, 4)
	for i := range msgs {
		if msgs[i].Data = fmt.Append(nil, i); i%2 == 0 {
			msgs[i].IdempotencyKey = fmt.Sprint(i)
		}
	}
	if _, err := b.Append(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
	for i, d := range claim(t, b, backend.ClaimRequest{Max: 4}).Deliveries {
		if string(d.Data) != fmt.Sprint(i) {
			t.Errorf("at %d is %s", i, d.Data)
		}
	}
}

// Whoever closes under an append is told that it may be stored.
func TestAppendThatCloseCutsOffIsUnknown(t *testing.T) {
	addr, s := startServer(t)
	for try := 1; ; try++ {
		b := openOn(t, "redis://"+addr+"?stream=jobs")
		publish(t, b, 1)
		s.Pause()
		stalled := stall.Watch()
		ended := make(chan error, 1)
		go func() {
			_, err := b.Append(background, []backend.Message{{Data: []byte("x")}})
			ended <- err
		}()
		hold(100 * time.Millisecond)
		unsent := stalled() > 20*time.Millisecond // it may be
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		err := <-ended
		s.Resume()
		if !errors.Is(err, backend.ErrClosed) || !errors.Is(err, backend.ErrOutcomeUnknown) {
			if errors.Is(err, backend.ErrClosed) && unsent && try < 20 {
				continue
			}
			t.Errorf("the append: %v", err)
		}
		return
	}
}
