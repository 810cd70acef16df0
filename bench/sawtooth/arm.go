package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/open"
)

// options is the scenario, the same for every arm.
type options struct {
	length, warmup, service time.Duration
	workers, callers        int
	load                    float64
}

const (
	group       = "slow"
	readAtOnce  = 10
	sampleEvery = 100 * time.Millisecond
	lagTTL      = 10 * time.Second
)

// result is what one arm did.
type result struct {
	mu      sync.Mutex
	samples []sample
	waits   []time.Duration // of messages that were begun after the warm-up
	done    int             // messages after the warm-up
	paused  time.Duration   // what all callers were kept waiting by the guard, after the warm-up
	hard    time.Duration   // of it, in hard pauses
}

// sample is the lag at one time.
type sample struct {
	at               time.Duration
	pending, waiting int64
	published, acked int64
}

// measure runs one arm on a stream of its own.
func measure(ctx context.Context, o options, a arm, client *redis.Client, addr string) (*result, error) {
	key := "saw-" + a.name
	if err := client.XGroupCreateMkStream(ctx, key, group, "0").Err(); err != nil {
		return nil, err
	}
	s, err := open.URL(ctx, fmt.Sprintf("redis://%s/0?stream=%s&group=%s", addr, key, group))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	r := &result{}
	began := time.Now()
	warm := began.Add(o.warmup)
	p, err := weir.NewProducer(s, r.guard(a.config, warm))
	if err != nil {
		return nil, err
	}
	defer p.Close()

	ctx, cancel := context.WithTimeout(ctx, o.length)
	defer cancel()
	var published, acked atomic.Int64
	var all sync.WaitGroup
	for i := range o.workers {
		all.Go(func() { r.work(ctx, o, client, key, strconv.Itoa(i), warm, &acked) })
	}
	var hand *onOff
	if a.byHand {
		hand = &onOff{open: make(chan struct{})}
		all.Go(func() { hand.run(ctx, client, key) })
	}
	capacity := float64(o.workers) / o.service.Seconds()
	think := float64(o.callers) / (capacity * o.load)
	for range o.callers {
		all.Go(func() {
			for sleep(ctx, time.Duration(rand.ExpFloat64()*think*float64(time.Second))) {
				if hand != nil {
					r.held(hand.await(ctx), warm)
				}
				if err := p.Publish(ctx, weir.Message{Data: []byte("work")}); err == nil {
					published.Add(1)
				}
			}
		})
	}
	r.watch(ctx, client, key, began, &published, &acked)
	all.Wait()
	return r, nil
}

// held counts a pause of the guard by hand.
func (r *result) held(d time.Duration, warm time.Time) {
	if d = min(d, time.Since(warm)); d > 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.paused += d
		r.hard += d
	}
}

func (r *result) guard(c weir.ProducerConfig, warm time.Time) weir.ProducerConfig {
	c.MaxDepth, c.DisableLoadShedding = noDepth, true
	c.Logger = slog.New(slog.DiscardHandler)
	c.Hooks.Slowed = func(_ weir.StreamName, kind weir.SlowKind, d time.Duration) {
		d = min(d, time.Since(warm))
		if d <= 0 {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.paused += d
		if kind == weir.HardPause {
			r.hard += d
		}
	}
	return c
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// work is a worker as people write it: read, work, acknowledge, publish the lag.
func (r *result) work(ctx context.Context, o options, client *redis.Client, key, name string, warm time.Time, acked *atomic.Int64) {
	for ctx.Err() == nil {
		streams, err := client.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: group, Consumer: name, Streams: []string{key, ">"}, Count: readAtOnce, Block: 200 * time.Millisecond,
		}).Result()
		if err != nil {
			continue // nothing came, or it is over
		}
		for _, m := range streams[0].Messages {
			began := time.Now()
			// Between half and one and a half of the mean: a call to a model that takes 4 to 8 s, scaled down.
			if !sleep(ctx, time.Duration(float64(o.service)*(0.5+rand.Float64()))) {
				return
			}
			client.XAck(ctx, key, group, m.ID)
			acked.Add(1)
			r.finished(m, began, warm)
		}
		if p, err := client.XPending(ctx, key, group).Result(); err == nil {
			client.Set(ctx, "{"+key+"}:lag:"+group, p.Count, lagTTL)
		}
	}
}

func (r *result) finished(m redis.XMessage, began, warm time.Time) {
	if began.Before(warm) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	text, _ := m.Values["enqueue_ts"].(string)
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		r.waits = append(r.waits, began.Sub(time.UnixMilli(ms)))
	}
}

// watch takes samples until the arm is over.
func (r *result) watch(ctx context.Context, client *redis.Client, key string, began time.Time, published, acked *atomic.Int64) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		groups, err := client.XInfoGroups(ctx, key).Result()
		if err != nil || len(groups) != 1 {
			continue
		}
		r.samples = append(r.samples, sample{
			at: time.Since(began), pending: groups[0].Pending, waiting: groups[0].Lag,
			published: published.Load(), acked: acked.Load(),
		})
	}
}

// rows is what the pictures are drawn from.
func (r *result) rows() [][]string {
	rows := [][]string{{"seconds", "pending", "waiting", "published", "acked"}}
	for _, s := range r.samples {
		rows = append(rows, []string{
			strconv.FormatFloat(s.at.Seconds(), 'f', 2, 64), fmt.Sprint(s.pending), fmt.Sprint(s.waiting),
			fmt.Sprint(s.published), fmt.Sprint(s.acked),
		})
	}
	return rows
}

var heading = []string{
	"guard", "backlog min", "backlog mean", "backlog max", "standard deviation",
	"done per second", "of what the workers can do", "kept waiting", "of it in hard pauses", "wait p50", "wait p99",
}

// numbers is the arm's row of the table; the backlog is what waits and what is
// being worked on.
func (r *result) numbers(a arm, o options) []string {
	var backlog []float64
	for _, s := range r.samples {
		if s.at >= o.warmup {
			backlog = append(backlog, float64(s.pending+s.waiting))
		}
	}
	mean, square := 0.0, 0.0
	for _, b := range backlog {
		mean += b / float64(len(backlog))
	}
	for _, b := range backlog {
		square += (b - mean) * (b - mean) / float64(len(backlog))
	}
	measured := (o.length - o.warmup).Seconds()
	rate := float64(r.done) / measured
	all := measured * float64(o.callers)
	return []string{
		a.what, whole(slices.Min(backlog)), whole(mean), whole(slices.Max(backlog)), whole(math.Sqrt(square)),
		whole(rate), percent(rate / (float64(o.workers) / o.service.Seconds())),
		percent(r.paused.Seconds() / all), percent(r.hard.Seconds() / all),
		r.wait(0.5).String(), r.wait(0.99).String(),
	}
}

func (r *result) wait(share float64) time.Duration {
	if len(r.waits) == 0 {
		return 0
	}
	slices.Sort(r.waits)
	return r.waits[int(float64(len(r.waits)-1)*share)].Round(time.Millisecond)
}

func whole(f float64) string   { return strconv.FormatFloat(f, 'f', 0, 64) }
func percent(f float64) string { return whole(100*f) + " %" }
