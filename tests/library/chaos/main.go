// Command chaos runs worker processes on a real Redis while processes and Redis
// are killed and the link is slow, and judges from the workers' own journals what
// became of every message.
//
//	go run ./tests/library/chaos -d 4m -processes 10 -workers 20
//
// Producers publish numbered messages, some of which no handler can do. A random
// worker process is killed every -kill and started again, Redis (with every write
// synced) every -redis, and for the middle third of the time all of them talk to
// it over a slow link. At the end it prints what it reached and ends with 1 if
//
//   - a message was lost: neither handled nor a dead letter,
//   - a handler ran again without an explanation (see judge.go),
//   - a dead letter has not exactly as many deliveries as the limit, or one of
//     them was nobody's,
//   - a message was acknowledged and is a dead letter,
//   - a message was stored twice, or something stays pending.
//
// Then the journals and the server's data stay where it says.
package main

import (
	"context"
	"errors"
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
	duration     time.Duration
	processes    int
	workers      int // of each process
	rate         int // messages a second
	limit        int // deliveries before a message is dead
	reclaimAfter time.Duration
	killEvery    time.Duration
	redisEvery   time.Duration
	seed         uint64
	version      string // of Redis
	fault        string // planted: one of faults
	keep         bool   // the directory of a run that failed
}

func main() {
	if text := os.Getenv(workerEnv); text != "" {
		exit(workerMain(text))
	}
	var o options
	flag.DurationVar(&o.duration, "d", time.Minute, "how long to disturb")
	flag.IntVar(&o.processes, "processes", 10, "worker processes")
	flag.IntVar(&o.workers, "workers", 20, "workers in each")
	flag.IntVar(&o.rate, "rate", 300, "messages a second")
	flag.IntVar(&o.limit, "limit", 3, "delivery limit")
	flag.DurationVar(&o.reclaimAfter, "reclaim-after", 3*time.Second, "lease of a delivery")
	flag.DurationVar(&o.killEvery, "kill", 700*time.Millisecond, "time between two kills of a worker process")
	flag.DurationVar(&o.redisEvery, "redis", 5*time.Second, "time between two kills of Redis")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of the load and of whom the kills hit")
	flag.StringVar(&o.version, "version", redistest.System, "version of Redis or Valkey")
	flag.Parse()
	o.keep = true
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(report(ctx, o))
}

// report runs and prints.
func report(ctx context.Context, o options) error {
	sum, err := run(ctx, o)
	if err != nil {
		return err
	}
	fmt.Println(sum)
	for _, v := range sum.violations {
		fmt.Println("violation:", v)
	}
	return errors.Join(sum.broken(), sum.reached(o))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
