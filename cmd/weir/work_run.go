package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/internal/settings"
)

func runWork(cmd *cobra.Command, args []string) error {
	var opt workOptions
	configs, values, err := loadConfigs(cmd, settings.Work, opt.fields())
	if err != nil {
		return err
	}
	path, err := exec.LookPath(args[1])
	if err != nil {
		return &usageError{fmt.Errorf("cannot find the command to run: %w", err)}
	}
	log := newLog(cmd.ErrOrStderr(), opt.logFormat, slog.LevelInfo)
	logUnknown(log)
	page, err := measure(cmd.Context(), "work", opt.metrics, cmd.ErrOrStderr(), log)
	if err != nil {
		return err
	}
	defer page.close()
	log = page.logger(log)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	opens, opened := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	s, err := reacher{cmd.ErrOrStderr(), "weir work", reachFor}.open(opens, &opt.keys, withDurability(opt.durability, args[0]), openStream)
	interrupted := opens.Err() != nil
	opened()
	switch {
	case err != nil && interrupted:
		fmt.Fprintln(cmd.ErrOrStderr(), "weir work: interrupted before the server was reached")
		return nil
	case err != nil:
		return err
	}
	defer s.Close()
	w := &worker{
		stream: s, log: cmd.ErrOrStderr(), json: opt.json,
		handler: &handler{
			path: path, args: args[1:], info: s.Info(),
			stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr(),
		},
	}
	cfg := configs.Pool
	w.drops = cfg.Expired == weir.ExpiredDrop
	cfg.Logger, cfg.UntilEmpty, cfg.Hooks, cfg.Tracing = log, opt.untilEmpty, page.hooks(), page.tracing()
	if w.pool, err = weir.NewPool(s, w.handle, cfg); err != nil {
		return &usageError{values.Explain(errors.New(strings.TrimPrefix(err.Error(), "weir: PoolConfig: ")))}
	}
	err = w.run(cmd.Context(), signals)
	unsaid := w.report(cmd.OutOrStdout())
	if n := w.deadLetters(); err == nil && n > 0 {
		return fmt.Errorf("%w: %d; weir dlq ls URL shows them, weir dlq redrive URL sends them back", errDead, n)
	}
	return cmp.Or(err, unsaid)
}

// worker is one run of weir work: a pool whose handler is a command.
type worker struct {
	stream  *weir.Stream
	handler *handler
	log     io.Writer
	json    bool // print the summary as JSON
	drops   bool // what has expired is no dead letter
	pool    *weir.Pool
	drain   context.CancelCauseFunc // ends the claiming
}

// run works until a signal, the end of ctx, an empty stream (--until-empty) or an
// error that waiting does not mend.
func (w *worker) run(ctx context.Context, signals <-chan os.Signal) error {
	ctx, w.drain = context.WithCancelCause(ctx)
	defer w.drain(nil)
	done := make(chan struct{})
	var helpers sync.WaitGroup
	helpers.Go(func() { w.watchSignals(signals, done) })
	err := w.pool.Run(ctx)
	close(done)
	w.drain(nil)
	helpers.Wait()
	if cause := context.Cause(ctx); failsAll(cause) {
		return cause
	}
	return err
}

// handle is the pool's handler.
func (w *worker) handle(ctx context.Context, d *weir.Delivery) error {
	err := w.handler.run(ctx, d)
	if failsAll(err) {
		w.drain(err)
	}
	return err
}

// failsAll reports whether what a command failed of would fail every message.
func failsAll(err error) bool {
	return errors.Is(err, errCannotStart) || errors.Is(err, errUnread)
}

// sameSignal is how long after the first signal another one is the same: timeout(1)
// and some shells send one to the process and one to its group.
const sameSignal = 500 * time.Millisecond

// watchSignals turns the first signal into a drain and the second into a kill.
func (w *worker) watchSignals(signals <-chan os.Signal, done <-chan struct{}) {
	select {
	case <-signals:
	case <-done:
		return
	}
	first := time.Now()
	fmt.Fprintln(w.log, "weir work: draining; a second signal ends the running commands")
	w.drain(nil)
	for {
		select {
		case <-signals:
			if time.Since(first) < sameSignal {
				continue
			}
			w.pool.Cancel()
			return
		case <-done:
			return
		}
	}
}

// deadLetters is how many messages became dead letters.
func (w *worker) deadLetters() uint64 {
	n := w.pool.Stats()
	if w.drops {
		return n.Dead
	}
	return n.Dead + n.Expired
}

// report prints the summary: JSON to out, text to the log, where it does not mix
// with what the commands print.
func (w *worker) report(out io.Writer) error {
	n, info := w.pool.Stats(), w.stream.Info()
	if w.json {
		name := func(text string) []byte {
			quoted, _ := quote(text) // a string cannot fail
			return quoted
		}
		_, err := fmt.Fprintf(out, `{"topic":%s,"group":%s,"node":%s,"acked":%d,"nacked":%d,"reclaimed":%d,"lost":%d,"returned":%d,"dead":%d,"expired":%d,"dead_letters":%d}`+"\n",
			name(info.Stream), name(info.Group), name(w.pool.Consumer()), n.Acked, n.Retried+n.Dead, n.Redelivered, n.Lost, n.Returned, n.Dead, n.Expired, w.deadLetters())
		return err
	}
	fmt.Fprintf(w.log, "weir work: %d acked, %d failed (%d of them dead letters now), %d reclaimed (had been delivered before), %d lost to others, %d returned unstarted, %d expired\n",
		n.Acked, n.Retried+n.Dead, n.Dead, n.Redelivered, n.Lost, n.Returned, n.Expired)
	return nil
}
