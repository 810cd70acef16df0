package replica

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/link"
	"github.com/weirmq/weir/tests/s3test"
	"github.com/weirmq/weir/tests/stall"
	"github.com/weirmq/weir/tests/weirtest"
)

var away = flag.Duration("away", 8*time.Second, "how long a bucket is away")

// pace writes batches of ten records of 256 bytes, 25 in a second, and notes how long
// each write took.
func (c *client) pace(ctx context.Context, base, topic string, took *[]time.Duration) {
	var req struct {
		Records []record `json:"records"`
	}
	for range 10 {
		req.Records = append(req.Records, record{Data: strings.Repeat("x", 256)})
	}
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		begin := time.Now()
		var got struct {
			Last uint64 `json:"last_seq"`
		}
		if _, err := c.call(context.WithoutCancel(ctx), "POST", base+"/v0/topics/"+topic, req, &got); err != nil {
			c.t.Errorf("a write failed: %v", err)
			return
		}
		*took = append(*took, time.Since(begin))
		c.mu.Lock()
		for j := range uint64(len(req.Records)) {
			c.acked[topic][got.Last-j] = ack{data: req.Records[0].Data}
		}
		c.mu.Unlock()
		<-tick.C
	}
}

// TestABucketThatIsAwayIsNotNoticed takes the bucket of an asynchronous copy away: half of
// the time it refuses connections, half of it nothing is answered. Writers must not
// wait for it, nor memory grow more than that of a server without a copy that is written
// the same, and the copy has everything soon after the bucket is back.
func TestABucketThatIsAwayIsNotNoticed(t *testing.T) {
	t.Parallel()
	store := s3test.Start(t)
	way := link.NewProxy(t, store.Addr)
	s := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_REPLICA=" + s3test.URL(way.Addr(), "copy"), "WEIR_REPLICA_EVERY=200ms"}})
	alone := weirtest.Start(t, weirtest.Options{})
	topics := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	c, other := newClient(t, topics...), newClient(t, topics...)
	c.http.Timeout = 30 * time.Second
	for _, topic := range topics {
		for _, base := range []string{s.URL, alone.URL} {
			if _, err := c.call(t.Context(), "PUT", base+"/v0/topics/"+topic, map[string]any{"durability": "fsync"}, &struct{}{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	weirtest.Eventually(t, "the copy has a base", func() bool { return number(t, s.URL, "weir_replica_base_age_seconds") >= 0 })
	phase := func(what string, d time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		stalled := stall.Busy()
		took, all := make([][]time.Duration, len(topics)), []time.Duration{}
		var writers sync.WaitGroup
		for i, topic := range topics {
			writers.Go(func() { c.pace(ctx, s.URL, topic, &took[i]) })
			writers.Go(func() { other.pace(ctx, alone.URL, topic, new([]time.Duration)) })
		}
		writers.Wait()
		busy := stalled()
		for _, one := range took {
			all = append(all, one...)
		}
		slices.Sort(all)
		n := len(all)
		if n == 0 {
			t.Fatalf("%s: nothing was written", what)
		}
		t.Logf("%s: %d writes in %v, p50 %v, p99 %v, the slowest %v; RSS %d MiB, without a copy %d MiB, %.0f MiB behind",
			what, n, d, all[n/2], all[n*99/100], all[n-1], s.RSS()>>20, alone.RSS()>>20, number(t, s.URL, "weir_replica_lag_bytes")/(1<<20))
		if slowest := all[n-1]; slowest > 3*time.Second+busy {
			t.Errorf("%s: a write took %v; the machine stood still for %v", what, slowest, busy)
		}
	}
	phase("the bucket is there", 3*time.Second)
	more := func() int64 { return int64(s.RSS()) - int64(alone.RSS()) }
	before := more()
	way.Refuse()
	phase("it refuses", *away/2)
	way.Heal()
	way.Set(link.Blackhole)
	phase("it is silent", *away/2)
	if grown := more() - before; grown > 64<<20 {
		t.Errorf("memory grew by %d MiB more than that of a server without a copy while the bucket was away", grown>>20)
	}
	way.Heal()
	back := time.Now()
	phase("it is back", 2*time.Second)
	weirtest.Eventually(t, "the copy has everything", func() bool { return number(t, s.URL, "weir_replica_lag_bytes") == 0 })
	t.Logf("the copy had everything %v after the bucket was back; at most %d MiB of memory", time.Since(back), s.PeakRSS()>>20)
	s.Kill()

	next := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_REPLICA=" + s3test.URL(store.Addr, "copy")}})
	for _, topic := range topics {
		if missing, _ := c.judge(t.Context(), next.URL, topic, back); missing > 0 {
			t.Errorf("%d records of %s were not in the copy", missing, topic)
		}
	}
}

// number is a metric's, -1 if the server does not show it.
func number(t *testing.T, base, name string) float64 {
	t.Helper()
	res, err := http.Get(base + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(fmt.Sprintf(`(?m)^%s (\S+)$`, name)).FindSubmatch(text)
	if m == nil {
		return -1
	}
	n, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
