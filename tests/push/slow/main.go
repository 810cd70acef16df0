// Command slow measures what a reader that stalls costs the others: 99 live
// readers of 100,000 records alone, then beside one that does not read, on a
// topic without a cap and on one with cap_records 1000. The stalled one reads
// again afterwards; what it gets is checked. It ends with 1 if a promise was
// broken.
//
//	go run ./tests/push/slow
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/weirmq/weir/tests/push/runs"
)

func main() {
	live := flag.Int("live", 99, "readers that keep up")
	records := flag.Int("records", 100_000, "records")
	limit := flag.Uint64("cap", 1000, "cap_records of the capped topic")
	binary := flag.String("weir", "", "binary to run (default: built from the tree)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := runs.WithServer(ctx, *binary, nil, func(t runs.Target) error {
		o := runs.SlowOptions{Live: *live, Records: *records, Topic: "uncapped", Out: os.Stdout}
		err := runs.SlowReader(ctx, t, o)
		o.Topic, o.Cap = "capped", *limit
		return errors.Join(err, runs.SlowReader(ctx, t, o))
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "slow:", err)
		os.Exit(1)
	}
}
