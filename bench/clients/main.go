// Command clients compares the Python and the TypeScript client with loops written by hand on
// what they are made of, httpx and fetch, against one server that it starts. The two sides are
// in one process and take turns, the first of them alternating, and a row's value is the median
// of the ratios of the turns:
//
//	publish-1   publish of one record of 220 bytes after another ÷ a POST of the same body, with a random idempotency key
//	publish-16  the same, 16 at once in one event loop
//	work-16     work with concurrency 16 and an asynchronous handler that does nothing, until all prepared jobs are
//	            acked ÷ a loop that claims up to 16, runs the same handler of all at once, and acks those that it did
//	work-thread the same with the synchronous client, whose handlers run in threads, ÷ that loop on httpx.Client and a
//	            pool of 16 threads
//
// The bare loops are what a careful program cannot leave out: they encode what they send and parse
// each answer, limit the time of each request (AbortSignal.timeout, httpx's timeout) to the client's
// 30 s and let a claim wait as long as the client's, raise what the server refuses and leases that have
// ended, and give jobs back whose handler fails. They have no retries, no stop, no leases to extend,
// and no numbers beyond 2^53 in JavaScript. Their answers come compressed, as fetch and httpx ask for
// by themselves; the clients ask for none of that. They claim and ack in turn, and so does a worker whose jobs
// are done before the next claim.
//
// The second ratio of a row is of the CPU time of the programs, the bare loop's ÷ the client's. It is
// steady on a busy machine, and leaves the server's part out.
//
//	-only REGEXP   rows to measure, such as python/work
//	-rounds N      turns of each side
//	-records N     records of a turn; of the publishers, a quarter
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// row is one comparison, of a client in a language.
type row struct {
	language, work string
	goal           float64
}

func (r row) name() string { return r.language + "/" + r.work }

var rows = []row{
	{"python", "publish-1", 0.9},
	{"python", "publish-16", 0.9},
	{"python", "work-16", 0.9},
	{"python", "work-thread", 0.9},
	{"node", "publish-1", 0.9},
	{"node", "publish-16", 0.9},
	{"node", "work-16", 0.9},
}

// config is what the flags say.
type config struct {
	only            *regexp.Regexp
	rounds, records int
	table           io.Writer
	judged          bool // false: too small for the goals
}

// result is a measured row.
type result struct {
	row
	client, bare, ratios []float64 // a second, of each turn
	cpu                  []float64 // ratios of CPU time
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	only := flag.String("only", ".", "rows to measure, a regular expression")
	c := config{table: os.Stdout, judged: true}
	flag.IntVar(&c.rounds, "rounds", 9, "turns of each side")
	flag.IntVar(&c.records, "records", 2000, "jobs of a worker's turn; a publisher's has a quarter of that")
	flag.Parse()
	var err error
	if c.only, err = regexp.Compile(*only); err == nil {
		_, err = run(ctx, c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c config) (results []result, err error) {
	dir, err := os.MkdirTemp("", "weir-bench-clients-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	p, err := newPlace(ctx, dir)
	if err != nil {
		return nil, err
	}
	url, end, err := p.serve(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	fmt.Fprintf(c.table, "load %s\n", load())
	programs := map[string]*program{}
	for _, r := range rows {
		if !c.only.MatchString(r.name()) {
			continue
		}
		if programs[r.language] == nil {
			if programs[r.language], err = p.start(ctx, r.language, url); err != nil {
				return nil, fmt.Errorf("%s: %w", r.language, err)
			}
			defer programs[r.language].end()
		}
		found, err := compare(programs[r.language], r, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.name(), err)
		}
		found.print(c)
		results = append(results, found)
	}
	fmt.Fprintf(c.table, "load %s\n", load())
	return results, nil
}

// compare lets both sides do the work in turn. The first round warms up.
func compare(p *program, r row, c config) (result, error) {
	found, count := result{row: r}, c.records
	if strings.HasPrefix(r.work, "publish") {
		count = max(count/4, 1)
	}
	for round := range c.rounds + 1 {
		rates, cpus, sides := map[string]float64{}, map[string]float64{}, []string{"client", "bare"}
		if round%2 == 1 {
			slices.Reverse(sides)
		}
		for _, side := range sides {
			topic := fmt.Sprintf("%s-%s-%s-%d", r.language, r.work, side, round)
			seconds, cpu, err := p.turn(r.work, side, topic, count)
			if err != nil {
				return found, fmt.Errorf("%s: %w", side, err)
			}
			rates[side], cpus[side] = float64(count)/seconds, cpu
		}
		if round > 0 {
			found.client, found.bare = append(found.client, rates["client"]), append(found.bare, rates["bare"])
			found.ratios = append(found.ratios, rates["client"]/rates["bare"])
			found.cpu = append(found.cpu, cpus["bare"]/cpus["client"])
		}
	}
	return found, nil
}

func (r result) print(c config) {
	verdict := "ok"
	if ratio := median(r.ratios); !c.judged {
		verdict = "-"
	} else if ratio < r.goal {
		verdict = "MISSED"
	}
	fmt.Fprintf(c.table, "%-20s client %6.0f/s  bare %6.0f/s  ratio %.2f (%.2f to %.2f), of CPU %.2f, goal %.2f: %s\n", r.name(),
		median(r.client), median(r.bare), median(r.ratios), slices.Min(r.ratios), slices.Max(r.ratios), median(r.cpu), r.goal, verdict)
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// load is the machine's load of the last minute.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}
