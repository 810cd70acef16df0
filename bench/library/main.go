// Command library runs loads of weir's library on a Redis server, for
// comparison with the same loads by hand-written programs in bench/peers:
//
//	library publish  a guarded Publish per message from -n goroutines
//	library half     the p99 of a guarded Publish at half of what -n goroutines can do, gathered ÷ not gathered
//	library batch    a guarded PublishBatch of -batch messages from -n goroutines
//	library work     a pool of -n workers that claims -batch at a time drains -jobs messages
//	library sample   one reading of a stream with -jobs entries and a tenth as many pending, and one XLEN
//	library backlog  a pool works on one message of each thousand in a backlog of -jobs
//
// Each prints a line when counting starts and then one line of JSON. Nothing
// is limited: the guard reads its signal and decides as always, but its limits
// are out of reach.
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

// config is what the flags say.
type config struct {
	addr           string
	url            string
	goroutines     int
	batch          int
	jobs           int
	payload        []byte
	apart, keyed   bool
	warmup, length time.Duration
}

// result is what a load prints. Latencies are in microseconds; 0 if there are none.
// Value is what a command measures that is not a rate.
type result struct {
	Ops     int64   `json:"ops"`
	Seconds float64 `json:"seconds"`
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
	Value   float64 `json:"value,omitempty"`
	Note    string  `json:"note,omitempty"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "library:", err)
		os.Exit(1)
	}
}

var commands = map[string]func(context.Context, config) (result, error){
	"publish": publish, "half": half, "batch": publishBatch, "work": work, "sample": sample, "backlog": backlog,
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || commands[args[0]] == nil {
		return fmt.Errorf("give a command: publish, half, batch, work, sample or backlog")
	}
	var c config
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.StringVar(&c.addr, "addr", "", "host:port of the Redis server; its database 0 is emptied")
	flags.StringVar(&c.url, "url", "", "publish and work: the stream, instead of one on the Redis server")
	flags.IntVar(&c.goroutines, "n", 1, "goroutines or workers")
	flags.IntVar(&c.batch, "batch", 100, "messages of a batch or a claim")
	flags.IntVar(&c.jobs, "jobs", 100_000, "messages in the stream")
	flags.BoolVar(&c.apart, "apart", false, "publishes are not gathered")
	flags.BoolVar(&c.keyed, "keyed", false, "publish: each message has an idempotency key")
	size := flags.Int("size", 256, "bytes per message")
	flags.DurationVar(&c.warmup, "warmup", 300*time.Millisecond, "time before counting starts")
	flags.DurationVar(&c.length, "for", 4*time.Second, "time that is counted")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	c.payload = []byte(strings.Repeat("x", *size))
	r, err := commands[args[0]](ctx, c)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}
