// Command copied compares 64 fsync writers of a server whose copy is synchronous with those of
// one without a copy. The log is kept in PostgreSQL or in a topic of three brokers of Kafka,
// which it starts; the bases are in a directory. All share the cores.
//
//	-only REGEXP   rows to measure: postgres, kafka
//	-seconds N     measured time of one sample
//	-rounds N      samples of each side
package main

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/weirmq/weir/bench/scenario"
	"github.com/weirmq/weir/tests/kafkatest"
	"github.com/weirmq/weir/tests/postgrestest"
	"github.com/weirmq/weir/tests/redistest"
)

// row is a store of the log. start returns its URL, without base=.
type row struct {
	name, title string
	goal        float64
	start       func(s *redistest.Scope) string
}

var rows = []row{
	{"postgres", "a copy in PostgreSQL", 0.5, func(s *redistest.Scope) string {
		server := postgrestest.Start(s, postgrestest.Options{})
		return server.URL(server.Addr())
	}},
	{"kafka", "a copy in Kafka, three brokers", 0.4, func(s *redistest.Scope) string {
		return kafkatest.StartCluster(s, kafkatest.Options{}).URL() + "/log"
	}},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "copied:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	only := flag.String("only", ".", "rows to measure, a regular expression")
	seconds := flag.Float64("seconds", 4, "measured seconds per sample")
	rounds := flag.Int("rounds", 5, "samples of each side")
	flag.Parse()
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	config := scenario.Config{Rounds: *rounds, Sample: time.Duration(*seconds * float64(time.Second)), Table: os.Stdout}
	for _, r := range rows {
		if !wanted.MatchString(r.name) {
			continue
		}
		err := redistest.Program("bench-copied", func(s *redistest.Scope) (bool, error) {
			log, err := url.Parse(r.start(s))
			if err != nil {
				return false, err
			}
			query := log.Query()
			query.Set("base", "file://"+s.TempDir())
			log.RawQuery = query.Encode()
			return false, scenario.Copied(ctx, config, r.title, log.String(), r.goal)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return nil
}
