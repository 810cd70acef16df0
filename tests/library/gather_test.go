package library

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/link"
	"github.com/weirmq/weir/tests/weirtest"
)

// lanes publish from many goroutines and remember what each was told.
type lanes struct {
	t *testing.T
	s *weir.Stream
	p *weir.Producer

	mu       sync.Mutex
	outcomes map[string]error
	ids      map[string]string
	told     map[string]int // outcomes by kind
}

func newLanes(t *testing.T, url string) *lanes {
	s := openStream(t, url)
	p, err := weir.NewProducer(s, weir.ProducerConfig{Guard: weir.GuardOff})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return &lanes{t: t, s: s, p: p, outcomes: map[string]error{}, ids: map[string]string{}, told: map[string]int{}}
}

// publish goes on until the attack is over. A third of the messages have keys; a context may
// end at any time.
func (c *lanes) publish(attack func()) {
	var over atomic.Bool
	var all sync.WaitGroup
	for lane := range 32 {
		random := rand.New(rand.NewPCG(uint64(lane), 5))
		all.Go(func() {
			for n := 0; !over.Load() || n < 20; n++ {
				c.one(fmt.Sprintf("%d.%d", lane, n), random)
			}
		})
	}
	attack()
	over.Store(true)
	all.Wait()
}

func (c *lanes) one(what string, random *rand.Rand) {
	m := weir.Message{Data: []byte(what)}
	if random.IntN(3) == 0 {
		m.IdempotencyKey = "k" + what
	}
	limit := 3 * time.Second
	if random.IntN(10) == 0 {
		limit = time.Duration(random.IntN(20)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	receipt, err := c.p.Send(ctx, m)
	cancel()
	copy(m.Data, "XXXXXXXX") // it is the caller's again
	kind := "refused"
	switch {
	case err == nil:
		kind = "stored"
	case errors.Is(err, weir.ErrOutcomeUnknown):
		kind = "unknown"
	}
	c.mu.Lock()
	c.outcomes[what], c.ids[what] = err, receipt.ID
	c.told[kind]++
	c.mu.Unlock()
	if err != nil {
		time.Sleep(5 * time.Millisecond) // a refusal is quick
	}
}

// judge compares what was told with what is stored.
func (c *lanes) judge() {
	c.t.Helper()
	copies, ids := map[string]int{}, map[string]string{}
	for after := backend.CursorStart; ; {
		got, err := c.s.Backend().(backend.Reader).Read(context.Background(), backend.ReadRequest{After: after, Max: 1000})
		if err != nil {
			c.t.Fatal(err)
		}
		if len(got.Records) == 0 {
			break
		}
		for _, r := range got.Records {
			copies[string(r.Data)]++
			ids[string(r.Data)] = r.ID
		}
		after = got.Next
	}
	c.t.Logf("%d messages: %v", len(c.outcomes), c.told)
	for what, err := range c.outcomes {
		known := !errors.Is(err, weir.ErrOutcomeUnknown)
		if n := copies[what]; n > 1 || known && (n == 1) != (err == nil) {
			c.t.Errorf("message %s is stored %d times, and its publish returned %v", what, n, err)
		}
		if err == nil && ids[what] != c.ids[what] {
			c.t.Errorf("message %s is stored as %s, and its publish returned %s", what, ids[what], c.ids[what])
		}
		delete(copies, what)
	}
	for what, n := range copies {
		c.t.Errorf("%q is stored %d times, and nobody published it", what, n)
	}
}

// breakLinks resets, cuts and silences connections in the middle of what they carry.
func breakLinks(proxy *link.Proxy) {
	for range 10 {
		proxy.Set(link.Fault{Slice: 700, Latency: time.Millisecond})
		time.Sleep(20 * time.Millisecond)
		proxy.Reset()
		proxy.Set(link.Fault{HoldDown: true})
		time.Sleep(20 * time.Millisecond)
		proxy.Cut()
		proxy.Heal()
		time.Sleep(20 * time.Millisecond)
	}
}

func TestEachOfManyPublishesIsToldTheTruthWhileItsPipelineBreaks(t *testing.T) {
	s := newSite(t, "orders", "billing")
	proxy := link.NewProxy(t, s.Addr())
	c := newLanes(t, "redis://"+proxy.Addr()+"/0?stream=orders&group=billing")
	c.publish(func() { breakLinks(proxy) })
	c.judge()
	if c.told["unknown"] == 0 {
		t.Error("no pipeline was broken")
	}
}

func TestEachOfManyPublishesIsToldTheTruthWhileRedisRefuses(t *testing.T) {
	s := newSite(t, "orders", "billing")
	c := newLanes(t, s.url)
	do := func(args ...any) {
		if err := s.client.Do(context.Background(), args...).Err(); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
	c.publish(func() {
		for range 3 {
			for _, refuses := range [][2][]any{
				{{"CONFIG", "SET", "maxmemory", "1"}, {"CONFIG", "SET", "maxmemory", "0"}},                         // OOM
				{{"CONFIG", "SET", "min-replicas-to-write", "1"}, {"CONFIG", "SET", "min-replicas-to-write", "0"}}, // NOREPLICAS
				{{"REPLICAOF", "127.0.0.1", "1"}, {"REPLICAOF", "NO", "ONE"}},                                      // READONLY
			} {
				do(refuses[0]...)
				time.Sleep(30 * time.Millisecond)
				do(refuses[1]...)
				time.Sleep(30 * time.Millisecond)
			}
			do("SCRIPT", "FLUSH") // NOSCRIPT
		}
	})
	c.judge()
	if c.told["refused"] == 0 {
		t.Error("nothing was refused")
	}
}

func TestEachOfManyPublishesIsToldTheTruthWhileItsRequestBreaks(t *testing.T) {
	srv := weirtest.Start(t, weirtest.Options{})
	proxy := link.NewProxy(t, srv.Addr)
	c := newLanes(t, "http://"+proxy.Addr()+"/orders")
	c.publish(func() { breakLinks(proxy) })
	c.judge()
	if c.told["unknown"] == 0 {
		t.Error("no request was broken")
	}
}

func TestEachOfManyPublishesIsToldTheTruthWhileItsServerIsKilled(t *testing.T) {
	srv := weirtest.Start(t, weirtest.Options{Stays: true})
	c := newLanes(t, "http://"+srv.Addr+"/orders?durability=fsync")
	c.publish(func() {
		for range 3 {
			time.Sleep(150 * time.Millisecond)
			srv.Kill()
			srv.Restart()
		}
	})
	c.judge()
	if c.told["unknown"] == 0 || c.told["stored"] == 0 {
		t.Errorf("outcomes: %v", c.told)
	}
}
