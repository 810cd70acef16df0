package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
)

// exportEvery is how often sample --metrics samples unless told otherwise.
const exportEvery = 5 * time.Second

// exporter samples streams and serves the readings.
type exporter struct {
	cmd   *cobra.Command
	keys  *keyOptions
	every time.Duration
	page  *metricsPage

	mu    sync.Mutex
	taken map[weir.StreamName]bool
}

// runExporter samples until a signal, or until a URL turns out to be wrong.
func runExporter(cmd *cobra.Command, opt *sampleOptions, urls []string) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	page, err := measure(cmd.Context(), "sample", opt.metrics, cmd.ErrOrStderr(), newLog(cmd.ErrOrStderr(), "text", slog.LevelInfo))
	if err != nil {
		return err
	}
	defer page.close()
	e := &exporter{cmd: cmd, keys: &opt.keys, every: opt.every, page: page, taken: map[weir.StreamName]bool{}}
	wrong := make(chan error, len(urls))
	var running sync.WaitGroup
	for i, from := range urls {
		running.Go(func() {
			if err := e.follow(ctx, i+1, from); err != nil {
				wrong <- err
				stop()
			}
		})
	}
	running.Wait()
	select {
	case err := <-wrong:
		return err
	default:
		return nil
	}
}

// follow samples one stream, the n-th, until ctx ends. Only a URL that can never be
// sampled is an error.
func (e *exporter) follow(ctx context.Context, n int, from string) error {
	var s *weir.Stream
	defer func() {
		if s != nil {
			_ = s.Close() // nothing to report: it has only read
		}
	}()
	say := outage{log: e.cmd.ErrOrStderr(), what: fmt.Sprintf("weir sample: URL %d", n)}
	tick := time.NewTicker(e.every)
	defer tick.Stop()
	for {
		var err error
		if s == nil {
			if s, err = e.open(ctx, from); isUsage(err) {
				return fmt.Errorf("URL %d: %w", n, err)
			}
			if unreached := (*backend.OpenError)(nil); errors.As(err, &unreached) {
				e.page.Reached(nameOf(unreached.Info), false)
			}
		}
		if s != nil {
			say.what = "weir sample: stream " + s.Info().Stream
			err = e.sample(ctx, s)
		}
		if ctx.Err() != nil {
			return nil
		}
		say.tell(err)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// open opens a stream and rejects one that another URL names too: they would share a row.
func (e *exporter) open(ctx context.Context, from string) (*weir.Stream, error) {
	s, err := openToSample(ctx, e.keys, from)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if name := nameOf(s.Info()); !e.taken[name] {
		e.taken[name] = true
		return s, nil
	}
	_ = s.Close() // nothing to report: it is unused
	return nil, &usageError{fmt.Errorf("stream %q with group %q is named twice; run one weir sample per server", s.Info().Stream, s.Info().Group)}
}

func nameOf(info backend.Info) weir.StreamName {
	return weir.StreamName{Kind: info.Kind, Stream: info.Stream, Group: info.Group}
}

// sample takes one reading and measures the round trip.
func (e *exporter) sample(ctx context.Context, s *weir.Stream) error {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	reading, err := s.Pressure(ctx)
	e.page.Reached(nameOf(s.Info()), err == nil)
	if err != nil {
		return err
	}
	m := reading.Measurement()
	if d, can := s.Backend().(backend.Doctor); can {
		if took, err := d.Ping(ctx); err == nil {
			m.RoundTrip = &took
		}
	}
	e.page.hooks().Measured(nameOf(s.Info()), m)
	return nil
}
