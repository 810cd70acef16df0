package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/stall"
)

// A claim whose answer does not come has cost its messages nothing: the next one
// gets them at once, as if for the first time.
func TestAClaimWithoutAnAnswerDoesNotCount(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		proxy := redistest.NewProxy(t, s.Addr())
		b := openOn(t, proxy.URL()+"?stream=jobs")
		defer func() { _ = b.Close() }()
		publish(t, b, 5)
		claim(t, b, backend.ClaimRequest{Consumer: "other", Max: 1}) // makes the group
		req := backend.ClaimRequest{Consumer: "c", Max: 10, ReclaimAfter: time.Minute, MaxDeliveries: 2}
		for round := range 4 {
			proxy.Set(redistest.Fault{HoldDown: true})
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			got, err := b.Claim(ctx, req)
			cancel()
			if err == nil || len(got.Deliveries) > 0 {
				t.Fatalf("round %d: a claim that hears nothing gave %d, %v", round, len(got.Deliveries), err)
			}
			proxy.Cut()
			proxy.Heal()
		}
		seen := map[string]int{}
		wait(t, "the four others are delivered", func() bool {
			got, err := b.Claim(t.Context(), req)
			if err != nil {
				t.Logf("%v", err)
			}
			for _, d := range got.Deliveries {
				seen[d.ID] = d.Attempt
			}
			if len(got.Dead) > 0 {
				t.Fatalf("dead letters of messages that nobody saw: %+v", got.Dead)
			}
			return len(seen) == 4
		})
		for id, attempt := range seen {
			if attempt != 1 {
				t.Errorf("%s is said to be delivered for time %d, it is the first", id, attempt)
			}
		}
		if stats, err := b.Stats(t.Context()); err != nil || stats.Pending != 5 {
			t.Errorf("%+v %v", stats, err)
		}
	})
}

// A claim that waits for its first message loses its connection with the answer.
func TestAConnectionLostInABlockingClaimDoesNotCount(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		proxy := redistest.NewProxy(t, s.Addr())
		b, direct := openOn(t, proxy.URL()+"?stream=jobs"), open(t, s.Addr(), "stream=jobs")
		defer func() { _ = b.Close() }()
		req := backend.ClaimRequest{Consumer: "c", Max: 10, ReclaimAfter: time.Minute, MaxDeliveries: 1}
		claim(t, b, backend.ClaimRequest{Consumer: "c", Max: 1})
		done := make(chan error, 1)
		go func() {
			long := req
			long.Block = 20 * time.Second
			_, err := b.Claim(context.Background(), long)
			done <- err
		}()
		wait(t, "a read waits", func() bool { return blocked(s) == 1 })
		proxy.Set(redistest.Fault{HoldDown: true})
		publish(t, direct, 1)
		wait(t, "the message is delivered", func() bool { return blocked(s) == 0 })
		proxy.Cut()
		proxy.Heal()
		if err := <-done; err == nil {
			t.Error("a claim whose connection was cut returned no error")
		}
		got := claim(t, b, req)
		if len(got.Deliveries) != 1 || got.Deliveries[0].Attempt != 1 || len(got.Dead) != 0 {
			t.Errorf("the next claim gave %d deliveries, %d dead", len(got.Deliveries), len(got.Dead))
		}
	})
}

// breaker forwards to a server, and cuts all its connections once it has forwarded a number of bytes in one
// direction.
type breaker struct {
	net.Listener
	mu    sync.Mutex
	left  map[bool]int // to the server, and back; not there: any number
	conns []net.Conn
	broke bool
}

func newBreaker(t *testing.T, target string) *breaker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &breaker{Listener: l}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, client, server)
			p.mu.Unlock()
			go p.forward(server, client, true)
			go p.forward(client, server, false)
		}
	}()
	return p
}

func (p *breaker) forward(to, from net.Conn, up bool) {
	defer to.Close()
	part := make([]byte, 4096)
	for {
		n, err := from.Read(part)
		p.mu.Lock()
		if left, ends := p.left[up]; ends && n > 0 {
			if p.left[up] = left - n; n > left {
				n, p.broke, p.left = left, true, nil
				_, _ = to.Write(part[:n])
				for _, c := range p.conns {
					_ = c.Close()
				}
				p.conns, n = nil, 0
			}
		}
		p.mu.Unlock()
		if _, wrong := to.Write(part[:n]); err != nil || wrong != nil {
			return
		}
	}
}

// after cuts once n more bytes have gone in a direction; broken reports whether they have.
func (p *breaker) after(n int, up bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.broke = map[bool]int{up: n}, false
}

func (p *breaker) broken() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = nil
	return p.broke
}

// Wherever a claim of orphans breaks off: what their holders had of them counts, what nobody got does not.
func TestAnOrphanCountsOnceWhereverItsClaimBreaksOff(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		p, admin := newBreaker(t, s.Addr()), s.Client()
		points := 0
		for _, up := range []bool{true, false} {
			for n, broken := 0, true; broken; n += 23 {
				stream := fmt.Sprintf("jobs%d%t", n, up)
				direct := open(t, s.Addr(), "stream="+stream)
				publish(t, direct, 2)
				orphans := claim(t, direct, backend.ClaimRequest{Consumer: "dead", Max: 2}).Deliveries
				b := openOn(t, "redis://"+p.Addr().String()+"/0?stream="+stream)
				for i, d := range orphans {
					if err := admin.Do(t.Context(), "XCLAIM", stream, "weir", "dead", 0, d.ID, "IDLE", 3600_000, "RETRYCOUNT", 1+i, "JUSTID").Err(); err != nil {
						t.Fatal(err)
					}
				}
				p.after(n, up)
				var got backend.Claimed
				attempts, dead := map[string]int{}, 0
				for try := 0; try < 50 && len(attempts)+dead < 2; try++ {
					got, _ = b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 2, ReclaimAfter: time.Minute, MaxDeliveries: 2})
					for _, d := range got.Deliveries {
						attempts[d.ID] = d.Attempt
					}
					dead += len(got.Dead)
				}
				letters := admin.XLen(t.Context(), "{"+stream+"}:dlq").Val()
				if attempts[orphans[0].ID] != 2 || len(attempts) != 1 || letters != 1 {
					t.Errorf("cut after %d bytes, to the server %t: deliveries %v, %d dead letters", n, up, attempts, letters)
				}
				if broken = p.broken(); broken {
					points++
				}
				_ = b.Close()
			}
		}
		if points < 20 {
			t.Errorf("the claim broke off at %d places", points)
		}
	})
}

// blocked is how many clients wait in a blocking read.
func blocked(s *redistest.Server) (n int) {
	info := s.Client().Info(context.Background(), "clients").Val()
	for line := range strings.Lines(info) {
		if _, err := fmt.Sscanf(line, "blocked_clients:%d", &n); err == nil {
			return n
		}
	}
	return 0
}

// Over a slow link an answer may take longer than a silent server is waited for:
// 12 messages of 1 MB at 1.5 MB a second, with a delivery limit of 3.
func TestLargeMessagesOverASlowLinkAreHandledNotBuried(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	proxy := redistest.NewProxy(t, s.Addr())
	direct, slow := open(t, s.Addr(), "stream=jobs"), openOn(t, proxy.URL()+"?stream=jobs")
	defer func() { _ = slow.Close() }()
	data := make([]byte, 1<<20)
	for range 12 {
		if _, err := direct.Append(t.Context(), []backend.Message{{Data: data}}); err != nil {
			t.Fatal(err)
		}
	}
	proxy.Set(redistest.Fault{Rate: 1_500_000})
	var mu sync.Mutex
	handled := map[string]int{}
	p, err := weir.NewPool(weir.New(slow), func(_ context.Context, d *weir.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		handled[d.ID]++
		return nil
	}, weir.PoolConfig{Workers: 2, Batch: 12, MaxDeliveries: 3, ReclaimAfter: 12 * time.Second, UntilEmpty: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	stalled := stall.Watch()
	if err := p.Run(ctx); err != nil {
		t.Error(err)
	}
	outlived := stalled() > time.Second // the leases may have run out while the answer came
	stats, err := direct.Stats(t.Context())
	if err != nil || len(handled) != 12 || stats.Pending != 0 || *stats.DeadLetters != 0 {
		t.Errorf("%d of 12 handled, %+v, %v", len(handled), stats, err)
	}
	for id, n := range handled {
		if n != 1 && !outlived {
			t.Errorf("%s was handled %d times", id, n)
		}
	}
}

// A server that stands still for less than a call may take fails no call, a claim that
// waits for messages as little as any other.
func TestAClaimBearsASilenceThatOtherCallsBear(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	proxy := redistest.NewProxy(t, s.Addr())
	b := openOn(t, proxy.URL()+"?stream=jobs")
	defer func() { _ = b.Close() }()
	req := backend.ClaimRequest{Consumer: "c", Max: 1, Block: time.Second, ReclaimAfter: time.Minute}
	for try := 1; ; try++ {
		done := make(chan error, 1)
		go func() {
			_, err := b.Claim(context.Background(), req)
			done <- err
		}()
		wait(t, "the claim waits", func() bool { return blocked(s) == 1 || len(done) > 0 })
		stalled := stall.Watch()
		proxy.Set(redistest.Fault{HoldDown: true})
		heal := time.AfterFunc(4*time.Second, proxy.Heal)
		err := <-done
		heal.Stop()
		proxy.Heal()
		if slow := stalled() > 300*time.Millisecond; err == nil || !slow || try == 5 { // else the silence was longer
			if err != nil {
				t.Errorf("a claim of a second, and four seconds of silence: %v", err)
			}
			return
		}
	}
}

// What a claim is given that has just been cancelled, over a link that is slower than
// that, is given back when it comes: others need not wait for ReclaimAfter.
func TestALateAnswerOfACancelledClaimIsGivenBack(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	proxy := redistest.NewProxy(t, s.Addr())
	inTime := false
	for round := 0; round < 50 && !inTime; round++ {
		stream := fmt.Sprintf("stream=jobs%d", round)
		b, direct := openOn(t, proxy.URL()+"?"+stream), open(t, s.Addr(), stream)
		t.Cleanup(func() { _ = b.Close() })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := b.Claim(ctx, backend.ClaimRequest{Consumer: "c", Max: 1, Block: 20 * time.Second, ReclaimAfter: time.Minute})
			done <- err
		}()
		wait(t, "a read waits", func() bool { return blocked(s) == 1 })
		proxy.Set(redistest.Fault{HoldDown: true})
		publish(t, direct, 1)
		wait(t, "the message is delivered", func() bool { return blocked(s) == 0 })
		start := time.Now()
		cancel()
		if err := <-done; err == nil {
			t.Fatal("a claim that hears nothing returned no error")
		}
		time.Sleep(100 * time.Millisecond) // the link is that slow
		proxy.Heal()
		inTime = time.Since(start) < 250*time.Millisecond // else this machine stood still
		if !inTime {
			continue
		}
		var got backend.Claimed
		wait(t, "another worker gets the message", func() bool {
			got = claim(t, direct, backend.ClaimRequest{Consumer: "other", Max: 1})
			return len(got.Deliveries) > 0
		})
		if got.Deliveries[0].Attempt != 1 {
			t.Errorf("a delivery that nobody saw has counted: it is number %d", got.Deliveries[0].Attempt)
		}
	}
	if !inTime {
		t.Error("in 50 tries this machine was never quick enough")
	}
}

// A scan takes over what was given back, and its answer never arrives: it is nobody's,
// and does not wait for its lease to run out.
func TestWhatAnUnansweredScanTookOverIsGivenBackAgain(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		publish(t, b, 1)
		d := claim(t, b, backend.ClaimRequest{Consumer: "c", Max: 1}).Deliveries[0]
		if _, err := b.Nack(t.Context(), []backend.Return{{Lease: d.Lease, NotStarted: true}}); err != nil {
			t.Fatal(err)
		}
		if err := s.Client().XClaimJustID(t.Context(), &goredis.XClaimArgs{Stream: "jobs", Group: "weir", Consumer: "c", MinIdle: time.Minute, Messages: []string{d.ID}}).Err(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		req := backend.ClaimRequest{Consumer: "c", Max: 1, ReclaimAfter: time.Minute}
		if _, err := b.Claim(ctx, req); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		got := claim(t, b, req).Deliveries
		if len(got) != 1 || got[0].ID != d.ID || got[0].Attempt != 1 {
			t.Errorf("claimed %+v, want the message at its first delivery", got)
		}
	})
}

// What one consumer never received does not count though another one of the process claims next.
func TestWhatAConsumerMissedIsGivenBackThoughAnotherClaimsFirst(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	proxy := redistest.NewProxy(t, s.Addr())
	b := openOn(t, proxy.URL()+"?stream=jobs")
	defer func() { _ = b.Close() }()
	for _, consumer := range []string{"a", "b"} {
		claim(t, b, backend.ClaimRequest{Consumer: consumer, Max: 1})
	}
	direct := open(t, s.Addr(), "stream=jobs")
	publish(t, direct, 3)
	proxy.Set(redistest.Fault{HoldDown: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := b.Claim(ctx, backend.ClaimRequest{Consumer: "a", Max: 10, ReclaimAfter: time.Minute, MaxDeliveries: 1})
		ended <- err
	}()
	wait(t, "the server has handed them out", func() bool {
		st, err := direct.Stats(t.Context())
		return err == nil && st.Pending == 3
	})
	cancel()
	if err := <-ended; err == nil {
		t.Fatal("no error")
	}
	proxy.Cut()
	proxy.Heal()
	seen := 0
	for _, consumer := range []string{"b", "a", "b", "a"} {
		got := claim(t, b, backend.ClaimRequest{Consumer: consumer, Max: 10, MaxDeliveries: 1})
		seen += len(got.Deliveries)
	}
	if seen != 3 {
		t.Errorf("%d of 3 were delivered", seen)
	}
}

// What this process works on is not given back with what it missed: it would have two handlers.
func TestWhatIsHeldIsNotGivenBackWithWhatWasMissed(t *testing.T) {
	addr, s := startServer(t)
	proxy := redistest.NewProxy(t, addr)
	b := openOn(t, proxy.URL()+"?stream=jobs")
	defer func() { _ = b.Close() }()
	publish(t, b, 2)
	req := backend.ClaimRequest{Consumer: "c", Max: 1, ReclaimAfter: time.Minute}
	held := claim(t, b, req).Deliveries[0]
	proxy.Set(redistest.Fault{HoldDown: true})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	_, err := b.Claim(ctx, req)
	cancel()
	if err == nil {
		t.Fatal("a claim that hears nothing has succeeded")
	}
	proxy.Cut()
	proxy.Heal()
	var got backend.Claimed
	wait(t, "the other message comes", func() bool {
		got, _ = b.Claim(t.Context(), req) // the connections that were cut are errors
		return len(got.Deliveries) > 0
	})
	if d := got.Deliveries[0]; d.ID == held.ID {
		t.Errorf("what is held comes again: %+v", d.Lease)
	}
	if n := s.Client().XPending(t.Context(), "jobs", "weir").Val().Count; n != 2 {
		t.Errorf("%d are pending, want 2", n)
	}
	if lost, err := b.Extend(t.Context(), []backend.Lease{held.Lease}, time.Minute); err != nil || len(lost) != 0 {
		t.Errorf("what is held: lost %v, %v", lost, err)
	}
}
