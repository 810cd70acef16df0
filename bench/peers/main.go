// Command weirpeers runs the systems weir is measured against that bring
// libraries of their own: a NATS JetStream server, the publishers of both NATS
// and Redis, three ways to work on jobs in Redis, and one on Kafka. It is a module of its own
// so that weir's stays lean.
//
//	weirpeers nats-serve -dir DIR            serve until SIGTERM; first line of output is the URL
//	weirpeers nats-load  -url URL  [flags]   publish: a line when counting starts, then one of JSON
//	weirpeers redis-load -addr HOST:PORT [flags]
//	weirpeers redis-work | asynq-work | watermill-work -addr HOST:PORT [flags]
//	weirpeers watermill-kafka -addr HOST:PORT -topic TOPIC -group GROUP -jobs N
//
// Flags of the loads: -n publishers, -size bytes, -warmup and -for durations;
// -batch messages of a pipeline, -stamped entries with a field enqueue_ts. The works put -jobs jobs into the emptied database
// and time how long -n workers take for them; redis-work reads -batch at a time and
// acknowledges each batch with one command, or with -single each message with one.
// watermill-kafka takes the jobs that it finds in the topic.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "weirpeers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("give a command: nats-serve, nats-load, redis-load, redis-work, asynq-work, watermill-work or watermill-kafka")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	dir := flags.String("dir", "", "store directory of nats-serve")
	target := flags.String("url", "", "URL of the NATS server")
	addr := flags.String("addr", "", "host:port of the Redis server or the Kafka broker")
	topic := flags.String("topic", "", "topic of watermill-kafka")
	group := flags.String("group", "", "group of watermill-kafka")
	var plan plan
	flags.IntVar(&plan.publishers, "n", 64, "publishers, each with one message in flight")
	size := flags.Int("size", 256, "bytes per message")
	count := flags.Int("jobs", 10_000, "jobs of a work")
	batch := flags.Int("batch", 1, "messages of a pipeline or a read")
	single := flags.Bool("single", false, "acknowledge each message with a command of its own")
	stamped := flags.Bool("stamped", false, "redis-load: entries have a field enqueue_ts")
	flags.DurationVar(&plan.warmup, "warmup", 300*time.Millisecond, "time before counting starts")
	flags.DurationVar(&plan.length, "for", 4*time.Second, "time that is counted")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	payload := strings.Repeat("x", *size)
	jobs := jobs{addr: *addr, count: *count, workers: plan.publishers, batch: *batch, single: *single, payload: payload}
	switch args[0] {
	case "nats-serve":
		return serveNATS(ctx, *dir)
	case "nats-load":
		return printResult(loadNATS(ctx, *target, []byte(payload), plan))
	case "redis-load":
		return printResult(loadRedis(ctx, *addr, payload, *batch, *stamped, plan))
	case "redis-work":
		return printResult(jobs.redis(ctx))
	case "asynq-work":
		return printResult(jobs.asynq(ctx))
	case "watermill-work":
		return printResult(jobs.watermill(ctx))
	case "watermill-kafka":
		return printResult(consume(ctx, *addr, *topic, *group, *count))
	}
	return fmt.Errorf("unknown command %q: use nats-serve, nats-load, redis-load, redis-work, asynq-work, watermill-work or watermill-kafka", args[0])
}

// printResult writes what a load measured for the program that started it.
func printResult(r result, err error) error {
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}
