package library

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/tests/stall"
	"github.com/weirmq/weir/tests/weirtest"
)

// byHand is a consumer as a program without weir has it: XREADGROUP, work, XACK.
type byHand struct {
	site *site
	name string
	mu   sync.Mutex
	done map[string]bool // payloads
}

// run reads until ctx ends. It finishes what it has read.
func (c *byHand) run(ctx context.Context) {
	for ctx.Err() == nil {
		for _, m := range c.read(ctx, 5) {
			c.finish(m)
		}
	}
}

func (c *byHand) read(ctx context.Context, n int64) []redis.XMessage {
	streams, err := c.site.client.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: c.site.group, Consumer: c.name, Streams: []string{c.site.stream, ">"}, Count: n, Block: 100 * time.Millisecond,
	}).Result()
	if err != nil {
		return nil // nothing there, or ctx has ended
	}
	return streams[0].Messages
}

func (c *byHand) finish(m redis.XMessage) {
	time.Sleep(2 * time.Millisecond) // the work
	c.mu.Lock()
	c.done[fmt.Sprint(m.Values["data"])] = true
	c.mu.Unlock()
	c.site.client.XAck(context.Background(), c.site.stream, c.site.group, m.ID)
}

// keep holds messages and shows a sign of life for them, as a slow consumer does.
func (c *byHand) keep(ctx context.Context, held []redis.XMessage) {
	ids := make([]string, len(held))
	for i, m := range held {
		ids[i] = m.ID
	}
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		c.site.client.XClaimJustID(ctx, &redis.XClaimArgs{
			Stream: c.site.stream, Group: c.site.group, Consumer: c.name, MinIdle: 0, Messages: ids,
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// producer adds messages with plain XADD until it is stopped.
func (s *site) producer(ctx context.Context, name string, sent *atomic.Int64, lines *sync.Map) {
	for i := 0; ctx.Err() == nil; i++ {
		line := fmt.Sprintf("%s-%d", name, i)
		if s.client.XAdd(context.Background(), &redis.XAddArgs{Stream: s.stream, Values: []string{"data", line, "kind", "order"}}).Err() == nil {
			lines.Store(line, true)
			sent.Add(1)
		}
		time.Sleep(3 * time.Millisecond)
	}
}

func TestWeirJoinsAGroupOfHandWrittenConsumersAndLeavesItAgain(t *testing.T) {
	const (
		reclaimAfter = 1500 * time.Millisecond
		block        = 200 * time.Millisecond
		slack        = 1500 * time.Millisecond // processes have to start
	)
	s := newSite(t, "orders", "billing")
	ctx := t.Context()
	if err := s.client.XGroupCreateMkStream(ctx, s.stream, s.group, "0").Err(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var sent atomic.Int64
	var lines sync.Map
	start := func(f func(context.Context)) context.CancelFunc {
		ctx, cancel := context.WithCancel(ctx)
		wg.Go(func() { f(ctx) })
		return cancel
	}
	stop1 := start(func(ctx context.Context) { s.producer(ctx, "p1", &sent, &lines) })
	stop2 := start(func(ctx context.Context) { s.producer(ctx, "p2", &sent, &lines) })

	// Before anybody else reads: one consumer dies with messages, one is slow.
	s.eventually("there are messages", func() bool { return sent.Load() > 20 })
	crashed := (&byHand{site: s, name: "hand-crashed"}).read(ctx, 5)
	slow := &byHand{site: s, name: "hand-slow", done: map[string]bool{}}
	kept := slow.read(ctx, 3)
	if len(crashed) != 5 || len(kept) != 3 {
		t.Fatalf("read %d and %d messages", len(crashed), len(kept))
	}
	keeping := stall.Watch()
	stopKeeping := start(func(ctx context.Context) { slow.keep(ctx, kept) })
	hand := &byHand{site: s, name: "hand-1", done: map[string]bool{}}
	stopHand := start(hand.run)

	// Weir joins.
	joined, stalled := time.Now(), stall.Busy()
	flags := []string{"--workers", "4", "--reclaim-after", reclaimAfter.String(), "--block", block.String()}
	weirs := []*weirtest.Process{s.work("weir-1", recordLine, flags...), s.work("weir-2", recordLine, flags...)}
	orphans := s.since(joined, "weir has the orphans", func() bool { return s.pendingOf()["hand-crashed"] == 0 })
	if orphans > reclaimAfter+block+slack+stalled() {
		t.Errorf("weir had the orphans %s after it joined, want %s + one loop of %s", orphans, reclaimAfter, block)
	}

	// One producer after the other is switched.
	stop1()
	s.publish(numbered("weir-p1", 100)...)
	stop2()
	s.publish(numbered("weir-p2", 100)...)
	for _, name := range []string{"weir-p1", "weir-p2"} {
		for _, line := range numbered(name, 100) {
			lines.Store(line, true)
		}
	}
	s.eventually("only the slow consumer's messages are left", func() bool {
		pending, lag := s.left()
		return pending == s.pendingOf()["hand-slow"] && lag == 0
	})
	// It holds them for several times reclaimAfter.
	time.Sleep(time.Until(joined.Add(3 * reclaimAfter)))
	held := s.pendingOf()["hand-slow"]
	// A machine that stands still takes its signs of life from it.
	alive := keeping() < reclaimAfter/2
	if alive && held != int64(len(kept)) {
		t.Errorf("the slow consumer still shows signs of life and holds %d of its %d messages", held, len(kept))
	}
	stopKeeping()
	for _, m := range kept {
		slow.finish(m)
	}

	// Weir is removed, producers go back to plain XADD.
	for _, w := range weirs {
		w.Signal(syscall.SIGTERM)
		w.Succeed()
	}
	byWeir := count(s.handled())
	for _, line := range numbered("after", 50) {
		if err := s.client.XAdd(ctx, &redis.XAddArgs{Stream: s.stream, Values: []string{"data", line}}).Err(); err != nil {
			t.Fatal(err)
		}
		lines.Store(line, true)
	}
	s.eventually("the hand-written consumers drain the rest", s.drained)
	stopHand()
	wg.Wait()

	total := 0
	lines.Range(func(line, _ any) bool {
		total++
		if byWeir[line.(string)] == 0 && !hand.done[line.(string)] && !slow.done[line.(string)] {
			t.Errorf("%v was never handled", line)
		}
		return true
	})
	for _, m := range kept {
		if alive && byWeir[fmt.Sprint(m.Values["data"])] > 0 {
			t.Errorf("weir handled %v, whose consumer showed signs of life", m.Values["data"])
		}
	}
	if len(byWeir) == 0 || len(hand.done) == 0 {
		t.Errorf("weir handled %d messages and the hand-written consumer %d; both have to have some", len(byWeir), len(hand.done))
	}
	t.Logf("%d messages: %d by weir (5 orphans of a crashed consumer after %s), %d by the hand-written consumer, %d by the slow one that weir left alone for %s",
		total, len(byWeir), orphans.Round(time.Millisecond), len(hand.done), len(slow.done), 3*reclaimAfter)
	s.checkKeysLeft("after weir was removed")
}

// checkKeysLeft compares the keys on the server with those that docs/REDIS.md lists.
func (s *site) checkKeysLeft(when string) {
	s.t.Helper()
	known := documentedKeys(s.t, s.stream, s.group)
	keys, err := s.client.Keys(s.t.Context(), "*").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, key := range keys {
		if key == s.stream {
			continue
		}
		name := documentedAs(known, key)
		if name == "" {
			s.t.Errorf("%s there is the key %q, which docs/REDIS.md does not list", when, key)
			continue
		}
		ttl, err := s.client.PTTL(s.t.Context(), key).Result()
		if err != nil || ttl < 0 && strings.Contains(known[name], "expires") {
			s.t.Errorf("%s %q does not expire (%v, %v), docs/REDIS.md says it does", when, key, ttl, err)
		}
		kinds[name]++
	}
	s.t.Logf("keys left %s besides the stream: %v", when, kinds)
}

var keyRow = regexp.MustCompile("^\\| `([^`]+)` \\|(.*)$")

// documentedKeys are the rows of the table of keys in docs/REDIS.md: the name
// with this stream and group in it, and what the row says about it.
func documentedKeys(t *testing.T, stream, group string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/REDIS.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(text)) {
		m := keyRow.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || !strings.HasPrefix(m[1], "{STREAM}") {
			continue
		}
		rows[strings.NewReplacer("STREAM", stream, "GROUP", group).Replace(m[1])] = m[2]
	}
	if len(rows) < 4 {
		t.Fatalf("docs/REDIS.md lists %d keys", len(rows))
	}
	return rows
}

// documentedAs is the row of a key, empty if there is none.
func documentedAs(rows map[string]string, key string) string {
	for name := range rows {
		prefix, _, open := strings.Cut(name, "KEY")
		if name == key || open && strings.HasPrefix(key, prefix) {
			return name
		}
	}
	return ""
}
