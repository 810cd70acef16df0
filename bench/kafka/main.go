// Command kafka compares weir's library on a Kafka broker, which it starts, with the same
// work written by hand on franz-go. The two sides take turns, and a row's value is the
// median of the ratios of the turns:
//
//	publish-16, publish-64  guarded Publish of 1 KB ÷ ProduceSync of a client with the same settings
//	pool-share              a pool whose handler does nothing ÷ a loop of poll, accept all, flush in a share group
//	pool-classic            the same in a classic group ÷ a loop of poll, commit
//	pool-watermill          the same ÷ watermill-kafka, in a process of its own
//	sample                  readings whose oldest record has not moved ÷ one request for the ends and one for the group
//
// It prints a line for each row. Nothing is limited: the guard reads its signal and decides
// as always, but its limits are out of reach.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirmq/weir/tests/kafkatest"
	"github.com/weirmq/weir/tests/redistest"
)

// bench is the broker and what the flags say.
type bench struct {
	broker *kafkatest.Broker
	length time.Duration // of a turn
	rounds int
	jobs   int // of a turn in a share group; in a classic group ten times as many
	dir    string
	topics *atomic.Int64
}

// turn does the work once and returns how much was done in a second.
type turn func(ctx context.Context) (float64, error)

// row is one comparison. start prepares both sides and returns what ends them.
type row struct {
	name, title string
	goal        float64
	start       func(ctx context.Context, b *bench) (weir, peer turn, end func(), err error)
}

var rows = []row{
	{"publish-16", "guarded publish, 1 KB, 16 goroutines ÷ plain produce", 0.95, published(16)},
	{"publish-64", "guarded publish, 1 KB, 64 goroutines ÷ plain produce", 0.95, published(64)},
	{"pool-share", "pool in a share group, 64 workers ÷ loop of batches", 0.9, pooled("share", 1, shareLoop)},
	{"pool-classic", "pool in a classic group, 64 workers ÷ poll and commit", 0.9, pooled("classic", 10, classicLoop)},
	{"pool-watermill", "pool in a classic group, 64 workers ÷ watermill-kafka", 3, pooled("classic", 10, watermill)},
	{"sample", "reading of 4 partitions ÷ ListOffsets and the group's offsets", 1 / 1.2, sampled},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kafka:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	b := &bench{topics: new(atomic.Int64)}
	only := flag.String("only", ".", "rows to measure, a regular expression")
	flag.DurationVar(&b.length, "for", 200*time.Millisecond, "length of a turn of a producer or a reader")
	flag.IntVar(&b.rounds, "rounds", 15, "turns of each side")
	flag.IntVar(&b.jobs, "jobs", 30_000, "messages of a pool's turn in a share group, a tenth of those in a classic one")
	profile := flag.String("cpuprofile", "", "file for a CPU profile of this program, which holds both sides")
	flag.Parse()
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	return redistest.Program("bench-kafka", func(s *redistest.Scope) (bool, error) {
		b.dir = s.Dir()
		b.broker = kafkatest.Start(s, kafkatest.Options{})
		for _, r := range rows {
			if !wanted.MatchString(r.name) {
				continue
			}
			if err := b.compare(ctx, r); err != nil {
				return false, fmt.Errorf("%s: %w", r.name, err)
			}
		}
		return false, nil
	})
}

func (b *bench) compare(ctx context.Context, r row) error {
	weir, peer, end, err := r.start(ctx, b)
	if err != nil {
		return err
	}
	defer end()
	var ratios, weirs, peers []float64
	for round := range b.rounds + 1 {
		w, err := weir(ctx)
		if err != nil {
			return fmt.Errorf("weir: %w", err)
		}
		p, err := peer(ctx)
		if err != nil {
			return fmt.Errorf("peer: %w", err)
		}
		if round > 0 { // the first warms up
			ratios, weirs, peers = append(ratios, w/p), append(weirs, w), append(peers, p)
		}
	}
	ratio, verdict := median(ratios), "ok"
	if ratio < r.goal {
		verdict = "MISSED"
	}
	fmt.Printf("%-14s %-62s weir %8.0f/s  peer %8.0f/s  ratio %.2f (%.2f to %.2f), goal %.2f: %s\n",
		r.name, r.title, median(weirs), median(peers), ratio, slices.Min(ratios), slices.Max(ratios), r.goal, verdict)
	return nil
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}
