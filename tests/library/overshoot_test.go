package library

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

// allOvershoots takes the entire table of docs/BACKPRESSURE.md:
//
//	go test ./tests/library -run LimitsHold -v -overshoot
var allOvershoots = flag.Bool("overshoot", false, "every number of producers, with and without workers")

// crowd is many producers of one stream, each of a Stream of its own, as processes have them.
type crowd struct {
	streams, goroutines int
	limit               string // "depth" or "backlog"
	workers             bool
}

func (c crowd) String() string {
	work := "nobody works"
	if c.workers {
		work = "4 workers"
	}
	return fmt.Sprintf("%s %d×%d, %s", c.limit, c.streams, c.goroutines, work)
}

// crowds are the rows of a run: in every run the hardest and the plainest.
func crowds() (all []crowd) {
	for _, limit := range []string{"depth", "backlog"} {
		for _, streams := range []int{1, 16, 64} {
			for _, goroutines := range []int{1, 16} {
				for _, workers := range []bool{false, true} {
					c := crowd{streams, goroutines, limit, workers}
					if *allOvershoots || c.streams*c.goroutines == 1024 && !workers || c.streams == 16 && goroutines == 1 {
						all = append(all, c)
					}
				}
			}
		}
	}
	return all
}

// The limits of the crowds, and by how much they may be passed.
const (
	depthLimit   = 800
	backlogLimit = 200
	crowdTime    = 2 * time.Second
)

func (c crowd) config() (settings weir.ProducerConfig, limit int64) {
	settings = weir.ProducerConfig{DisableLoadShedding: true, LagWarn: -1, LagPause: -1, Logger: quiet()}
	if c.limit == "depth" {
		settings.MaxDepth = 1000
		return settings, depthLimit
	}
	settings.LagSignal, settings.LagPause = weir.SignalBacklog, backlogLimit
	return settings, backlogLimit
}

func TestLimitsHoldForAllProducersOfAStream(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	var table strings.Builder
	for i, c := range crowds() {
		t.Run(c.String(), func(t *testing.T) {
			name := fmt.Sprintf("jobs-%d", i)
			if err := server.Client().XGroupCreateMkStream(t.Context(), name, "weir", "0").Err(); err != nil {
				t.Fatal(err)
			}
			_, limit := c.config()
			stored, highest := c.run(t, server.URL()+"?stream="+name)
			fmt.Fprintf(&table, "| %s | %d | %d | %d |\n", c, limit, highest, stored)
			if highest > limit+limit/10 {
				t.Errorf("the backlog was %d, want at most %d", highest, limit+limit/10)
			}
			if highest < limit*9/10 && !c.workers {
				t.Errorf("the backlog came to %d, want it near %d", highest, limit)
			}
		})
	}
	t.Logf("limit, producers | limit | highest backlog | stored\n%s", table.String())
}

// run lets everybody publish as fast as can be and returns how much was stored and
// how much work there was at most.
func (c crowd) run(t *testing.T, url string) (stored, highest int64) {
	watch := openStream(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	var rest sync.WaitGroup
	defer rest.Wait()
	defer cancel()
	if c.workers {
		pool, err := weir.NewPool(watch, slow, weir.PoolConfig{Workers: 4, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		rest.Go(func() { _ = pool.Run(ctx) })
	}
	producers := make([]*weir.Producer, c.streams)
	for i := range producers {
		settings, _ := c.config()
		p, err := weir.NewProducer(openStream(t, url), settings)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		producers[i] = p
	}
	_, limit := c.config()
	until, end := context.WithTimeout(ctx, 15*time.Second)
	defer end()
	begun := time.Now()
	var all sync.WaitGroup
	var count atomic.Int64
	for _, p := range producers {
		for range c.goroutines {
			all.Go(func() { count.Add(hurry(t, until, p)) })
		}
	}
	for until.Err() == nil && (time.Since(begun) < crowdTime || !c.workers && highest < limit*9/10) {
		highest = max(highest, depthOf(t, watch))
	}
	end()
	all.Wait()
	return count.Load(), max(highest, depthOf(t, watch))
}

func slow(context.Context, *weir.Delivery) error {
	time.Sleep(2 * time.Millisecond)
	return nil
}

// hurry publishes until ctx ends, and comes back when a refusal says so.
func hurry(t *testing.T, ctx context.Context, p *weir.Producer) (stored int64) {
	for {
		began := time.Now()
		err := p.Publish(ctx, weir.Message{Data: []byte("order")})
		var full *weir.QueueFullError
		switch {
		case err == nil:
			stored++
		case ctx.Err() != nil:
			return stored
		case errors.As(err, &full):
			time.Sleep(full.RetryAfter)
		case backend.Retryable(err) && time.Since(began) > time.Second: // the machine stood still
		default:
			t.Errorf("publish: %v", err)
			return stored
		}
	}
}

func depthOf(t *testing.T, s *weir.Stream) int64 {
	pressure, err := s.Pressure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	depth, _ := pressure.Backlog()
	return depth
}

// A burst of single publishes and a batch, both larger than what there is room for, on a
// producer that has read nothing yet.
func TestABurstOnANewProducerStaysBelowTheLimit(t *testing.T) {
	server, queues := redistest.Start(t, redistest.Options{}), weirtest.Start(t, weirtest.Options{})
	for _, place := range []string{"mem://", "file://" + t.TempDir() + "?topic=", queues.URL + "/", server.URL() + "?stream="} {
		for _, mode := range []weir.GuardMode{weir.GuardStatic, weir.GuardAdaptive} {
			kind, _, _ := strings.Cut(place, "://")
			t.Run(kind+" "+string(mode), func(t *testing.T) {
				settings := weir.ProducerConfig{
					Guard: mode, MaxDepth: 1000, LagWarn: -1, LagPause: -1, DisableLoadShedding: true, BackpressureRetries: -1, Logger: quiet(),
				}
				for what, publish := range map[string]func(*weir.Producer){
					"burst": func(p *weir.Producer) {
						var all sync.WaitGroup
						for range 5000 {
							all.Go(func() { _ = p.Publish(t.Context(), weir.Message{Data: []byte("order")}) })
						}
						all.Wait()
					},
					"batch": func(p *weir.Producer) { _ = p.PublishBatch(t.Context(), make([]weir.Message, 5000)) },
				} {
					s := openStream(t, place+what+"-"+string(mode))
					p, err := weir.NewProducer(s, settings)
					if err != nil {
						t.Fatal(err)
					}
					defer p.Close()
					publish(p)
					if depth := depthOf(t, s); depth > depthLimit || depth < depthLimit/4 {
						t.Errorf("a %s of 5000 came to a depth of %d, the limit is %d", what, depth, depthLimit)
					}
				}
			})
		}
	}
}
