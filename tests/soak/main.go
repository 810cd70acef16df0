// Command soak offers a stream ten times what its workers can do for a long time, while a
// million messages wait beside it, and watches what it costs.
//
//	go run ./tests/soak -on redis -d 10m
//	go run ./tests/soak -on embedded -d 10m
//
// Callers come at random times (Poisson), in four tiers and with a thousand keys, give up
// after a second and try again at most three times; the guard is adaptive. The workers
// take 40 ms on average. The million waits where it is most in the way:
//
//   - on Redis in a second group of the same stream, so that every reading, claim and trim
//     has a stream of a million entries before it,
//   - on the embedded engine in a second queue of the same engine, so that its indexes,
//     its log and its store hold it.
//
// It is kept moving: for each message that is stored, the second group or queue hands out
// its oldest one, so it stays as long as it is, and everything has to be trimmed.
//
// At the end it prints what was done, and the memory of this process and of Redis: after
// the first tenth of the time, at the end, and the most. It ends with 1 if a message
// that was stored, there or here, is lost.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weirmq/weir/tests/redistest"
)

// options of a run.
type options struct {
	on       string
	length   time.Duration
	behind   int // messages that wait
	load     float64
	workers  int
	service  time.Duration
	deadline time.Duration
	seed     uint64
}

func main() {
	var o options
	flag.StringVar(&o.on, "on", onRedis, onRedis+" or "+onEmbedded)
	flag.DurationVar(&o.length, "d", 10*time.Minute, "how long to offer too much")
	flag.IntVar(&o.behind, "behind", 1_000_000, "messages that wait beside it")
	flag.Float64Var(&o.load, "load", 10, "offers, as a multiple of what the workers can do")
	flag.IntVar(&o.workers, "workers", 20, "workers")
	flag.DurationVar(&o.service, "service", 40*time.Millisecond, "mean time of a handler")
	flag.DurationVar(&o.deadline, "deadline", time.Second, "when callers give up")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of the load")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := redistest.Program("soak", func(s *redistest.Scope) (bool, error) { return false, run(ctx, s, o) }); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// run floods a place and prints what came of it.
func run(ctx context.Context, s *redistest.Scope, o options) error {
	p, err := newPlace(ctx, s, o)
	if err != nil {
		return err
	}
	defer p.close()
	began := time.Now()
	if err := p.fill(ctx, o.behind); err != nil {
		return err
	}
	fmt.Printf("%s (%s), seed %d: %d messages wait, stored in %s; %v times the load for %s\n",
		o.on, p.stream.Info().Server, o.seed, o.behind, time.Since(began).Round(time.Second), o.load, o.length)
	f := newFlood(o, p)
	memory := watch(ctx, p, o.length)
	err = f.run(ctx)
	rows := memory()
	if err != nil {
		return err
	}
	fmt.Println(f)
	for _, row := range rows {
		fmt.Println(row)
	}
	return f.verdict(ctx)
}
