package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// reloadable is something that a running server reads again at SIGHUP.
type reloadable struct {
	name string
	// read reads it again; after an error what was read before stays in force.
	read func() error
}

// reloads is what serve reads again at SIGHUP: nothing yet. A file of settings or
// keys adds itself here.
func reloads() []reloadable { return nil }

// surviveSignals makes the process outlive the signals that would end it for no
// reason of its own: SIGHUP of a closed terminal, which is now a request to
// reload, and SIGPIPE when nobody reads its output any more.
func surviveSignals() (hangup chan os.Signal, stop func()) {
	hangup = make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	signal.Ignore(syscall.SIGPIPE)
	return hangup, func() { signal.Reset(syscall.SIGHUP, syscall.SIGPIPE) }
}

// reloadLoop reads the list again at each hangup, until ctx ends, and says in one
// line what it has read.
func reloadLoop(ctx context.Context, hangup <-chan os.Signal, list []reloadable, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
		}
		read := []string{}
		for _, r := range list {
			if err := r.read(); err != nil {
				log.Error("SIGHUP: could not be reloaded; what was read before stays in force", "what", r.name, "error", err)
				continue
			}
			read = append(read, r.name)
		}
		if len(list) == 0 {
			log.Info("SIGHUP: reloaded nothing, since nothing can be reloaded; restart to change settings")
			continue
		}
		log.Info("SIGHUP: reloaded", "what", read)
	}
}
