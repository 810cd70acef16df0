// Command weirbench measures weir beside its peers and prints one table of
// ratios and one of figures: `go run ./bench/cmd/weirbench`, which is what
// `make bench` runs. It builds the servers it needs, runs them on free
// loopback ports with data below bench/out, and writes what it found to
// bench/out/bench.json.
//
//	-run REGEXP     only the rows whose name matches
//	-seconds N      measured time of one sample (default 4)
//	-rounds N       samples of weir per row; the peer is measured between them (default 3)
//	-quick          tiny sizes: shows that every row works, not how fast
//	-weir PATH      measure this binary instead of building one
//	-json PATH      where the report goes
//	-list           print the names of the rows
//
// A missed goal is printed as MISS and is no error; a row that could not be
// measured makes the exit status 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
	"time"

	"github.com/weirmq/weir/bench/scenario"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "weirbench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("weirbench", flag.ContinueOnError)
	only := flags.String("run", "", "regular expression of row names")
	seconds := flags.Float64("seconds", 0, "measured seconds per sample (default 4)")
	rounds := flags.Int("rounds", 0, "samples of weir per row (default 3)")
	quick := flags.Bool("quick", false, "tiny sizes, to see that every row works")
	binary := flags.String("weir", "", "weir binary to measure (default: built from the tree)")
	jsonPath := flags.String("json", "", "report file (default bench/out/bench.json)")
	list := flags.Bool("list", false, "print the names of the rows and exit")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *list {
		for _, name := range scenario.Names() {
			fmt.Println(name)
		}
		return nil
	}
	if runtime.GOOS != "linux" {
		return errors.New("it reads what processes use from /proc, which only Linux has")
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	config, err := scenario.Config{
		Only: pattern, Rounds: *rounds, Quick: *quick, Weir: *binary, Table: os.Stdout,
		Sample: time.Duration(*seconds * float64(time.Second)),
	}.WithDefaults()
	if err != nil {
		return err
	}
	if *jsonPath == "" {
		*jsonPath = filepath.Join(config.Out, "bench.json")
	}
	return measure(ctx, config, *jsonPath)
}

func measure(ctx context.Context, config scenario.Config, jsonPath string) error {
	found, err := scenario.Run(ctx, config)
	if err != nil {
		return err
	}
	if err := found.WriteJSON(jsonPath); err != nil {
		return err
	}
	missed, failed := found.Misses()
	fmt.Printf("\n%d rows in %.0f s: %d goals missed, %d rows not measured; written to %s\n",
		len(found.Ratios)+len(found.Figures), found.Seconds, missed, failed, jsonPath)
	if failed > 0 {
		return fmt.Errorf("%d rows could not be measured", failed)
	}
	return nil
}
