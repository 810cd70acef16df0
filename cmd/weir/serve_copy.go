package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/restore"
	"github.com/weirmq/weir/internal/replica/stores"
	"github.com/weirmq/weir/internal/server"
)

// exitFenced is the exit code of a server that another one has replaced as leader.
const exitFenced = 3

// copyOf is the copy that a server keeps of its data directory.
type copyOf struct {
	engine.Replica
	url, dir string
	after    time.Duration // without a sign of life the leader has failed; 0: nobody takes over
	standby  bool
	waiting  func(standby bool) // this server is not recovering yet
	log      *slog.Logger
}

// silentStart is for how long nothing is served while a server takes the lead: what refuses
// it is told before that, as other wrong settings are.
const silentStart = 3 * time.Second

// troubleTold is how often the log is told that the store is asked again.
const troubleTold = 10 * time.Second

// signPoll is how often a standby looks for a sign of the leader.
const signPoll = 250 * time.Millisecond

func newCopy(cfg server.Config, waiting func(standby bool), log *slog.Logger) *copyOf {
	r := cfg.Replica
	c := &copyOf{url: r.URL, dir: cfg.DataDir, standby: r.Standby, waiting: waiting, log: log, Replica: engine.Replica{
		Sync: r.Sync, Every: r.Every, BaseEvery: r.Base, Keep: r.Keep, LagMax: r.LagMax, Fenced: endFenced,
	}}
	if r.Failover || r.Standby {
		c.after, c.Alive = r.FailoverAfter, r.FailoverAfter/3
	}
	return c
}

// lead opens the store, takes the next term, at once or when its leader has failed, and
// makes the data directory one to go on with. The directory is locked by then: a second
// server on it must not end the first one's term.
func (c *copyOf) lead(ctx context.Context) (err error) {
	var awaits atomic.Bool // the store has to say who leads
	awaits.Store(true)
	if c.Log, c.Files, err = stores.Open(ctx, c.url, stores.Options{Trouble: c.trouble(&awaits)}); err != nil {
		return fmt.Errorf("--replica: %w", err)
	}
	if store, ok := c.Log.(interface{ Warnings() []string }); ok {
		for _, w := range store.Warnings() {
			c.log.Warn("the copy: " + w)
		}
	}
	host, _ := os.Hostname()
	d := restore.Directory{Path: c.dir, Node: cmp.Or(host, "weir"), Copy: restore.Copy{Log: c.Log, Files: c.Files, Progress: c.progressAt(time.Now), Format: engine.FormatVersion}, Logger: c.log}
	var led restore.Led
	if c.standby {
		c.log.Info("standing by: another server leads, or nobody does yet", "takes_over_after", c.after.String())
		awaits.Store(false) // it has: another one
		c.waiting(true)
		led, err = d.Stand(ctx, restore.Standby{Silence: c.after, Poll: min(signPoll, c.after/10)})
		awaits.Store(true)
		c.waiting(false)
	} else {
		// A base may take long to be fetched: supervisors and probes have to hear of this server.
		late := time.AfterFunc(silentStart, func() { c.waiting(false) })
		led, err = d.Lead(ctx)
		late.Stop()
	}
	if err != nil {
		return fmt.Errorf("--replica: %w", err)
	}
	awaits.Store(false)
	c.Term, c.End, c.Since, c.LSN = led.Term, led.End, led.Since, led.LSN
	return nil
}

// trouble returns what is told the errors after which the store is asked again, of each call to
// it: the log hears of one now and then.
func (c *copyOf) trouble(awaits *atomic.Bool) func(error) {
	begun := time.Now()
	var told atomic.Int64 // ns since begun
	told.Store(-int64(troubleTold))
	return func(err error) {
		begins := awaits.Load()
		if begins {
			c.waiting(false)
		}
		last, now := told.Load(), int64(time.Since(begun))
		switch {
		case now-last < int64(troubleTold) || !told.CompareAndSwap(last, now):
		case !begins:
			c.log.Warn("the copy: trying again", "error", err)
		default:
			c.log.Warn("the store of --replica has to say who leads before this server begins; trying again", "error", err)
		}
	}
}

// progressAt returns what is told how much of the copy has been read: the log hears of it when that
// takes long, as of a recovery.
func (c *copyOf) progressAt(now func() time.Time) func(done, total int64) {
	var mu sync.Mutex
	var last int64
	var told time.Time
	return func(done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		if done < last || told.IsZero() { // something else is read now
			told = now()
		}
		if last = done; now().Sub(told) < recoveryTold {
			return
		}
		told = now()
		if total > 0 {
			c.log.Info("the copy is still being read", "bytes", done, "of", total)
		} else {
			c.log.Info("the copy is still being read", "bytes", done)
		}
	}
}

// close lets go of the store.
func (c *copyOf) close() {
	if c != nil && c.Log != nil {
		c.Log.Close()
		c.Files.Close()
	}
}

// endFenced ends a server that another one has replaced as leader, or whose copy is gone: it
// must not answer any more.
func endFenced(err error) {
	if errors.Is(err, replica.ErrLost) {
		fmt.Fprintf(os.Stderr, "Error: the copy of --replica is broken, so this server has stopped; started again, it goes on with its data directory and makes a new base: %v\n", err)
		os.Exit(exitFailed)
	}
	fmt.Fprintf(os.Stderr, "Error: another server leads this copy now, so this one has stopped; clients have to go there: %v\n", err)
	os.Exit(exitFenced)
}
