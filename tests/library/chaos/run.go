package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/open"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/stall"
)

const (
	stream = "chaos"
	group  = "weir"
	dead   = "{chaos}:dlq"
)

// slowLink is the fault of the middle third.
var slowLink = redistest.Fault{Latency: 20 * time.Millisecond, Rate: 200_000}

// arena is a server, the link to it, and what is noted about both.
type arena struct {
	options
	*redistest.Scope
	server *redistest.Server
	proxy  *redistest.Proxy
	client *redis.Client // past the proxy
	random *rand.Rand

	outages []span
	slow    []span
	stalls  []span // the server's, seen by the prober
}

// run disturbs for as long as o says, lets the crew finish and judges.
func run(ctx context.Context, o options) (sum *summary, err error) {
	err = redistest.Program("chaos", func(s *redistest.Scope) (keep bool, err error) {
		a := &arena{options: o, Scope: s, random: rand.New(rand.NewPCG(o.seed, 1))}
		a.server = redistest.Start(s, redistest.Options{Version: o.version, Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
		a.proxy, a.client = redistest.NewProxy(s, a.server.Addr()), a.server.Client()
		sum, err = a.run(ctx)
		return o.keep && (err != nil || sum.violated > 0), err
	})
	return sum, err
}

func (a *arena) url() string {
	return a.proxy.URL() + "?stream=" + stream + "&group=" + group + "&durability=fsync"
}

func (a *arena) run(ctx context.Context) (*summary, error) {
	s, err := open.URL(ctx, a.url())
	if err != nil {
		return nil, err
	}
	a.Cleanup(func() { _ = s.Close() })
	// A guard's refusals would only slow the run.
	producer, err := weir.NewProducer(s, weir.ProducerConfig{Guard: weir.GuardOff, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	journals := a.TempDir()
	crew, err := startCrew(journals, a.processes, workerConfig{
		URL: a.url(), Addr: a.server.Addr(), Workers: a.workers, Limit: a.limit, ReclaimAfter: a.reclaimAfter, Fault: a.fault,
	})
	if err != nil {
		return nil, err
	}
	a.Cleanup(func() { crew.stop(0) })
	p := &producers{producer: producer, options: a.options, outcomes: map[int]outcome{}}
	sum := &summary{options: a.options, server: s.Info().Server, repeats: map[string]int{}}

	began, stalled := time.Now(), stall.Watch()
	a.disturb(ctx, crew, p)
	sum.disturbed, sum.stalled = time.Since(began), stalled()
	if ctx.Err() != nil {
		return nil, errors.New("interrupted")
	}
	left, err := a.drain(ctx)
	if err != nil {
		return nil, err
	}
	crew.stop(30 * time.Second)
	sum.took = time.Since(began)
	return sum, a.judge(sum, journals, crew, p, left)
}

// disturb kills and slows while the producers publish.
func (a *arena) disturb(ctx context.Context, crew *crew, p *producers) {
	ctx, cancel := context.WithTimeout(ctx, a.duration)
	defer cancel()
	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() { p.run(ctx) })
	others.Go(func() { crew.killLoop(ctx, a.killEvery, rand.New(rand.NewPCG(a.seed, 2))) })
	others.Go(func() { a.stalls = probe(ctx, a.client, a.reclaimAfter/6) })
	slow, heal := time.After(a.duration/3), time.After(2*a.duration/3)
	tick := time.NewTicker(a.redisEvery)
	defer tick.Stop()
	for {
		select {
		case <-slow:
			if heal == nil {
				continue // a machine that stood still until both were due
			}
			a.slow = append(a.slow, span{time.Now().UnixNano(), time.Now().Add(a.duration).UnixNano()})
			a.proxy.Set(slowLink)
		case <-heal:
			heal = nil
			a.proxy.Heal()
			for i := range a.slow {
				a.slow[i].to = time.Now().UnixNano()
			}
		case <-tick.C:
			a.killServer()
		case <-ctx.Done():
			return
		}
	}
}

// killServer kills Redis and starts it again a moment later.
func (a *arena) killServer() {
	from := time.Now().UnixNano()
	a.server.Kill()
	time.Sleep(time.Duration(a.random.IntN(300)) * time.Millisecond)
	a.server.Restart()
	a.outages = append(a.outages, span{from, time.Now().UnixNano()})
}

// prober is whose stalls are the server's.
const prober = "prober"

// probe asks the server again and again, and returns when it took longer than most
// to answer though nobody had killed it, or the machine gave no time to ask.
func probe(ctx context.Context, client *redis.Client, most time.Duration) (stalls []span) {
	const every = 50 * time.Millisecond
	for last := time.Now(); ctx.Err() == nil; {
		time.Sleep(every)
		_ = client.Ping(ctx).Err()
		now := time.Now()
		if now.Sub(last) > every+most {
			stalls = append(stalls, span{last.UnixNano(), now.UnixNano()})
		}
		last = now
	}
	return stalls
}

// drain waits until the group has nothing left to do and returns what is left
// if it stays.
func (a *arena) drain(ctx context.Context) (left string, err error) {
	const patience = 90 * time.Second
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if left, err = a.left(ctx); err != nil || left == "" || time.Since(begin) > patience {
			return left, err
		}
	}
}

// left says what the group has not finished.
func (a *arena) left(ctx context.Context) (string, error) {
	info, err := a.client.XInfoStream(ctx, stream).Result()
	if err != nil {
		return "", err
	}
	groups, err := a.client.XInfoGroups(ctx, stream).Result()
	if err != nil {
		return "", err
	}
	for _, g := range groups {
		switch {
		case g.Name != group:
		case g.Pending > 0:
			return fmt.Sprintf("%d messages are pending", g.Pending), nil
		case g.LastDeliveredID != info.LastGeneratedID:
			return fmt.Sprintf("messages behind %s, up to %s, are not delivered", g.LastDeliveredID, info.LastGeneratedID), nil
		default:
			return "", nil
		}
	}
	return "", fmt.Errorf("the group %q is gone", group)
}

// judge reads what is left behind.
func (a *arena) judge(sum *summary, journals string, crew *crew, p *producers, left string) error {
	h, err := readJournals(journals)
	if err != nil {
		return err
	}
	if err := a.readLetters(h); err != nil {
		return err
	}
	h.stalls[prober] = append(h.stalls[prober], a.stalls...)
	j := &judge{
		options: a.options, history: h, kills: crew.kills, outages: a.outages, slow: a.slow, kind: kindOf, outcomes: p.outcomes, sum: sum,
	}
	sum.published, sum.unknown, sum.refused = int(p.next.Load()), p.unknown.Load(), p.refused.Load()
	sum.kills, sum.outages, sum.slow = len(crew.kills), len(a.outages), a.duration/3
	for _, broken := range append(p.broken, crew.deaths...) {
		j.violation("%s", broken)
	}
	if left != "" {
		j.violation("%s", left)
	}
	j.all(sum.published)
	if sum.violated > 0 && a.keep {
		_ = os.WriteFile(filepath.Join(a.Dir(), "summary"), []byte(sum.String()), 0o600) // for who looks later
	}
	return nil
}

// readLetters adds the dead letters to the messages.
func (a *arena) readLetters(h *history) error {
	const page = 1000
	for after := "-"; ; {
		entries, err := a.client.XRangeN(context.Background(), dead, after, "+", page).Result()
		if err != nil {
			return err
		}
		for _, e := range entries {
			text := func(name string) string { s, _ := e.Values[name].(string); return s }
			t, err := parseTask([]byte(text("data")))
			if err != nil {
				h.foreign = append(h.foreign, "the dead letter "+e.ID)
				continue
			}
			l := letter{reason: text("weir-dead-reason"), at: idTime(e.ID)}
			l.attempts, _ = strconv.Atoi(text("weir-dead-attempts"))
			m := h.messages[t.seq]
			if m == nil {
				m = &message{}
				h.messages[t.seq] = m
			}
			m.addID(text("weir-dead-id"))
			m.letters = append(m.letters, l)
			after = "(" + e.ID
		}
		if len(entries) < page {
			return nil
		}
	}
}
