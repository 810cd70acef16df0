package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/server"
	"github.com/weirmq/weir/internal/settings"
)

// surviveSignals keeps the process from ending by SIGHUP, which is a request to
// reload here (also when a terminal closes), and by SIGPIPE when nobody reads its
// output any more.
func surviveSignals() (hangup chan os.Signal, stop func()) {
	hangup = make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	signal.Ignore(syscall.SIGPIPE)
	return hangup, func() { signal.Reset(syscall.SIGHUP, syscall.SIGPIPE) }
}

// reloader applies changes of the file of settings while a server runs.
type reloader struct {
	cmd    *cobra.Command
	values *settings.Values // as last read
	level  *slog.LevelVar
	log    *slog.Logger
	server atomic.Pointer[server.Server] // nil: there is none yet, or it is a relay
}

// run reloads until ctx ends.
func (r *reloader) run(ctx context.Context, hangup <-chan os.Signal) {
	if path := source(r.cmd, settings.Serve).Path(); path != "" {
		settings.Watch(ctx, path, r.log, r.reload)
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			r.log.Info("SIGHUP: there is no --config file to read again; keys and certificates are read when their files change")
		}
	}
}

func (r *reloader) reload() (changed bool, err error) {
	var opt serveOptions
	values, err := opt.load(r.cmd)
	if err != nil {
		return false, err
	}
	changed = !values.Equal(r.values)
	warnRestart(r.log, r.values, values)
	r.values = values
	r.level.Set(levelOf(opt.logLevel))
	if s := r.server.Load(); s != nil {
		s.SetLagLimits(opt.LagWarn, opt.LagPause)
	}
	return changed, nil
}

// warnRestart names the changed settings that a running command cannot apply.
func warnRestart(log *slog.Logger, before, now *settings.Values) {
	if keys := before.NeedRestart(now); len(keys) > 0 {
		log.Warn("these settings have changed and need a restart", "keys", keys)
	}
}
