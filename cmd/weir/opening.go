package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/server"
)

// opening is an engine that is being opened.
type opening struct {
	recovering chan struct{} // closed once recovery has begun
	done       chan struct{} // closed when engine or err is set
	engine     *engine.Engine
	err        error
	cancel     context.CancelFunc
	copy       *copyOf // nil: none
}

func openEngine(ctx context.Context, cfg server.Config, srv *server.Server, log *slog.Logger, stalled func(what string)) *opening {
	o := &opening{recovering: make(chan struct{}), done: make(chan struct{})}
	ctx, o.cancel = context.WithCancel(ctx)
	var once sync.Once
	go func() {
		defer close(o.done)
		options := engine.Options{
			Dir:         cfg.DataDir,
			Limits:      cfg.Limits,
			Logger:      log,
			DiskFlush:   cfg.DiskFlush,
			IngestSlots: cfg.IngestSlots,
			StallAfter:  cfg.StallAfter,
			Stalled:     stalled,
			DiskReserve: cfg.DiskReserve,
			Memory:      cfg.Memory,
			Progress: func(share float64) {
				srv.SetProgress(share)
				once.Do(func() { close(o.recovering) })
			},
		}
		if cfg.Replica.URL != "" {
			o.copy = newCopy(cfg, func(standby bool) {
				srv.SetStandby(standby)
				once.Do(func() { close(o.recovering) })
			}, log)
			options.Replica, options.Open = &o.copy.Replica, o.copy.lead
		}
		o.engine, o.err = engine.Open(ctx, options)
	}()
	return o
}

// started waits until recovery has begun or has ended.
func (o *opening) started() error {
	select {
	case <-o.recovering:
		return nil
	case <-o.done:
		return o.err
	}
}

// close waits until opening has ended and closes what was opened.
func (o *opening) close() error {
	o.cancel()
	<-o.done
	defer o.copy.close()
	if o.engine == nil {
		return nil
	}
	start := time.Now()
	if err := o.engine.Close(); err != nil {
		return fmt.Errorf("closing the data directory after %s: %w", time.Since(start).Round(time.Millisecond), err)
	}
	return nil
}
