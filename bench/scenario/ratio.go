package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirmq/weir/bench/load"
	"github.com/weirmq/weir/bench/report"
)

// sampleLimit ends a sample that hangs.
const sampleLimit = 5 * time.Minute

// measured is one sample of one side.
type measured struct {
	rate          float64
	cpuPerMillion float64
	p50, p99      time.Duration
	memory        float64 // MiB, where a row looks at it
	note          string
}

// measure takes one sample.
type measure func(ctx context.Context) (measured, error)

// ratio is one comparison. setup starts both sides; they run in turn.
type ratio struct {
	name, title, unit string
	weirName, peer    string
	goal              float64
	runs              int // samples of each side; 0: as many as the config says
	setup             func(ctx context.Context, s *session) (weir, peer measure, err error)
}

func (b *bench) runRatios(ctx context.Context, r *report.Report) {
	header := false
	for _, row := range ratios {
		if !b.Only.MatchString(row.name) || ctx.Err() != nil {
			continue
		}
		if !header {
			b.table().RatioHeader()
			header = true
		}
		result := b.runRatio(ctx, row)
		b.table().Ratio(&result)
		r.Ratios = append(r.Ratios, result)
	}
}

// runRatio takes the samples in the order weir, peer, weir, peer, …, weir, so
// that a drift of the machine meets both. A row with runs of its own ends with the peer.
func (b *bench) runRatio(ctx context.Context, row ratio) report.Ratio {
	out := report.Ratio{
		Name: row.name, Title: row.title, Unit: row.unit, Goal: row.goal,
		Weir: report.Side{Name: row.weirName}, Peer: report.Side{Name: row.peer},
	}
	err := b.session(func(s *session) error {
		weirSide, peerSide, err := row.setup(ctx, s)
		if err != nil {
			return err
		}
		var weirs, peers []measured
		rounds, even := b.Rounds, b.Rounds == 1
		if row.runs > 0 && !b.Quick {
			rounds, even = max(row.runs, b.Rounds), true
		}
		for i := range rounds {
			if weirs, err = appendSample(ctx, weirs, weirSide); err != nil {
				return fmt.Errorf("weir: %w", err)
			}
			if !even && i == rounds-1 {
				break
			}
			if peers, err = appendSample(ctx, peers, peerSide); err != nil {
				return fmt.Errorf("peer: %w", err)
			}
		}
		fillSide(&out.Weir, weirs)
		fillSide(&out.Peer, peers)
		out.Note = weirs[len(weirs)-1].note
		return nil
	})
	if err != nil {
		out.Error = err.Error()
	}
	out.Judge()
	return out
}

func appendSample(ctx context.Context, to []measured, take measure) ([]measured, error) {
	m, err := sample(ctx, take)
	return append(to, m), err
}

// emptySamples is how many samples in a row may have nothing done, as while the machine
// stands still.
const emptySamples = 10

// sample takes one in which something is done.
func sample(ctx context.Context, take measure) (m measured, err error) {
	for range emptySamples {
		m, err = takeSample(ctx, take)
		switch {
		case err == nil && m.rate <= 0:
			err = errors.New("nothing was done")
		case err == nil || !strings.Contains(err.Error(), nothingDone):
			return m, err
		}
	}
	return m, err
}

// nothingDone is what clients say that could do nothing in their time.
const nothingDone = "give -for more time"

func takeSample(ctx context.Context, take measure) (measured, error) {
	ctx, cancel := context.WithTimeout(ctx, sampleLimit)
	defer cancel()
	return take(ctx)
}

func fillSide(side *report.Side, samples []measured) {
	var cpu, p50, p99 []float64
	for _, m := range samples {
		side.Rates = append(side.Rates, m.rate)
		cpu = append(cpu, m.cpuPerMillion)
		p50 = append(p50, float64(m.p50)/float64(time.Microsecond))
		p99 = append(p99, float64(m.p99)/float64(time.Microsecond))
	}
	side.Rate = report.Median(side.Rates)
	side.CPUPerMillion = report.Median(cpu)
	side.P50us = report.Median(p50)
	side.P99us = report.Median(p99)
}

// timed is the plan of a load that lasts one sample.
func (s *session) timed(addr string, conns int, step func(int) load.Step) load.Plan {
	return load.Plan{Addr: addr, Conns: conns, Step: step, Warmup: s.size.warmup, Length: s.Sample}
}

// over makes a measure of a load and the server it goes to. The server's CPU
// is read again only once it has settled: work put off is still work.
func over(server *proc, plan load.Plan) measure {
	return func(ctx context.Context) (measured, error) {
		return runPlan(ctx, server, plan)
	}
}

func runPlan(ctx context.Context, server *proc, plan load.Plan) (measured, error) {
	server.settle(ctx)
	var before time.Duration
	plan.Begin = func() { before = server.cpu() }
	sample, err := load.Run(ctx, plan)
	if err != nil {
		if server.exited() {
			err = fmt.Errorf("%w; the server has ended: %s", err, server.errors.String())
		}
		return measured{}, err
	}
	server.settle(ctx)
	return fromSample(sample, server.cpu()-before), nil
}

func fromSample(sample load.Sample, cpu time.Duration) measured {
	return measured{
		rate:          sample.Rate(),
		cpuPerMillion: perMillion(cpu, sample.Units),
		p50:           sample.Latency.Quantile(0.50),
		p99:           sample.Latency.Quantile(0.99),
	}
}

func perMillion(cpu time.Duration, units int64) float64 {
	if units == 0 {
		return 0
	}
	return cpu.Seconds() * 1e6 / float64(units)
}
