package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/settings"
)

// scheduledName is the name of a scheduled backup: when it began, in UTC.
const scheduledName = "weir-20060102T150405Z"

// backupLock is the file in a folder of scheduled backups that its command has locked.
const backupLock = ".weir-backups.lock"

// retryBackup is how long after a backup that failed the next is tried, at most.
const retryBackup = time.Minute

// retention says which of the scheduled backups are kept: all that are younger than all, and the last
// one of each day, in UTC, that is younger than daily.
type retention struct {
	all, daily time.Duration
	every      time.Duration // how often they are made
}

// parseRetention reads ALL or ALL:DAILY, such as 24h:7d.
func parseRetention(text string) (r retention, err error) {
	all, daily, days := strings.Cut(text, ":")
	if r.all, err = parseAge(all); err == nil && days {
		r.daily, err = parseAge(daily)
	}
	if err == nil && days && r.daily <= r.all {
		err = errors.New("the days are not longer than what is kept whole")
	}
	if err != nil {
		return r, &usageError{fmt.Errorf("flag --keep: %q is not ALL or ALL:DAILY, such as 24h:7d: %w", text, err)}
	}
	return r, nil
}

func parseAge(text string) (time.Duration, error) {
	d, err := settings.ParseDuration(text)
	if err == nil && d <= 0 {
		err = fmt.Errorf("%q is not more than 0", text)
	}
	return d, err
}

// longGap is a time without backups that a retention never leaves between those it keeps, and
// shortGap what it counts as: more likely than not the clock was wrong, or nobody made any.
const (
	longGap  = 48 * time.Hour
	shortGap = time.Hour
)

// outdated returns those of the times, which ascend, whose backups are not kept. The newest is. By
// a clock that is years ahead all others would be old at once, so a long gap counts little.
func (r retention) outdated(times []time.Time, now time.Time) (old []time.Time) {
	passed := make([]time.Duration, len(times)) // since each of them, but for long gaps
	next, sum := now, time.Duration(0)
	for i := len(times) - 1; i >= 0; i-- {
		gap := max(0, next.Sub(times[i]))
		if gap > max(longGap, 2*r.every) {
			gap = max(shortGap, r.every)
		}
		sum += gap
		passed[i], next = sum, times[i]
	}
	for i, t := range times {
		age := min(passed[i], now.Sub(t))
		if i == len(times)-1 || age <= r.all {
			continue
		}
		lastOfDay := times[i+1].UTC().Truncate(24*time.Hour) != t.UTC().Truncate(24*time.Hour)
		if !lastOfDay || age > r.daily {
			old = append(old, t)
		}
	}
	return old
}

// schedule keeps backups in a folder.
type schedule struct {
	dir   string
	every time.Duration
	keep  retention
	take  func(ctx context.Context, dir string) error
	log   *slog.Logger

	last     atomic.Int64 // when the newest backup began, Unix seconds; 0: there is none
	failures prometheus.Counter
}

func newSchedule(dir string, every time.Duration, keep retention, log *slog.Logger) *schedule {
	keep.every = every
	return &schedule{
		dir: dir, every: every, keep: keep, log: log,
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_backup_failures_total", Help: "Backups that failed since the start of weir backup --every."}),
	}
}

// Describe implements prometheus.Collector.
func (s *schedule) Describe(c chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, c) }

var lastBackupDesc = prometheus.NewDesc("weir_last_backup_timestamp_seconds", "When the newest backup of the folder began, in Unix seconds; absent if there is none.", nil, nil)

// Collect implements prometheus.Collector.
func (s *schedule) Collect(c chan<- prometheus.Metric) {
	if at := s.last.Load(); at > 0 {
		c <- prometheus.MustNewConstMetric(lastBackupDesc, prometheus.GaugeValue, float64(at))
	}
	s.failures.Collect(c)
}

// run makes backups until ctx ends: the first at once unless one is young enough.
func (s *schedule) run(ctx context.Context) error {
	failed := false
	for {
		times, err := s.times()
		wait := min(s.every, retryBackup)
		if err == nil && !failed {
			wait = s.untilNext(times)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		began := time.Now()
		if err == nil { // else the folder is away
			err = s.take(ctx, filepath.Join(s.dir, began.UTC().Format(scheduledName)))
		}
		if ctx.Err() != nil {
			return nil
		}
		if failed = err != nil; failed {
			s.failures.Inc()
			s.log.Error("the backup failed; it is tried again", "in", min(s.every, retryBackup), "error", err)
			var wrong *usageError
			if errors.As(err, &wrong) {
				return err
			}
			continue
		}
		if err := s.prune(began); err != nil {
			s.log.Error("backups that are kept no longer cannot be removed", "error", err)
		}
	}
}

// untilNext is how long it takes until the next backup is due. A newest one of the future, from
// a clock that was wrong, counts as of now.
func (s *schedule) untilNext(times []time.Time) time.Duration {
	if len(times) == 0 {
		return 0
	}
	return max(0, min(s.every, time.Until(times[len(times)-1].Add(s.every))))
}

// times returns when the complete backups of the folder began, the oldest first.
func (s *schedule) times() ([]time.Time, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var times []time.Time
	for _, e := range entries {
		t, err := time.Parse(scheduledName, e.Name())
		if err != nil || !e.IsDir() {
			continue // somebody else's
		}
		if _, err := os.Stat(filepath.Join(s.dir, e.Name(), manifestName)); err == nil {
			times = append(times, t)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	var last int64
	for _, t := range times {
		if !t.After(time.Now()) { // one of the future is from a clock that was wrong
			last = t.Unix()
		}
	}
	s.last.Store(last)
	return times, nil
}

// prune removes the backups that are not kept any more.
func (s *schedule) prune(now time.Time) error {
	times, err := s.times()
	if err != nil {
		return err
	}
	for _, t := range s.keep.outdated(times, now) {
		name := t.Format(scheduledName)
		// Under this name a part of it is never taken for a backup, and the next one removes it
		// if this is interrupted.
		going := filepath.Join(s.dir, partialPrefix+name)
		if err := os.Rename(filepath.Join(s.dir, name), going); err != nil {
			return err
		}
		if err := os.RemoveAll(going); err != nil {
			return err
		}
		s.log.Info("a backup was removed", "name", name)
	}
	return nil
}

// lockFolder makes the folder and keeps other commands out of it.
func lockFolder(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, backupLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(fmt.Errorf("another weir backup --every keeps its backups in %s; name another folder", dir), f.Close())
	}
	return f, nil // some file systems have no locks
}

// runScheduledBackups makes a backup every so often until SIGTERM or SIGINT.
func runScheduledBackups(cmd *cobra.Command, from, dir string, opt *backupOptions) error {
	keep, err := parseRetention(opt.keep)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, manifestName)); err == nil {
		return &usageError{fmt.Errorf("%s is a backup itself; with --every name the folder that backups are put into", dir)}
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	lock, err := lockFolder(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	s := newSchedule(dir, opt.every, keep, newLog(cmd.ErrOrStderr(), "text", slog.LevelInfo))
	s.take = func(ctx context.Context, dir string) error {
		done, err := takeBackup(ctx, from, dir, &opt.copyOptions, nil)
		if err != nil {
			return err
		}
		if err := opt.json.print(cmd.OutOrStdout(), done); err != nil { // it is made all the same
			s.log.Warn("the backup is complete; that cannot be printed", "dir", dir, "error", err)
		}
		return nil
	}
	if _, err := s.times(); err != nil {
		return err
	}
	if opt.metrics != "" {
		registry := prometheus.NewRegistry()
		registry.MustRegister(s)
		page := &metricsPage{}
		if err := page.serve(opt.metrics, registry, cmd.ErrOrStderr()); err != nil {
			return err
		}
		defer page.close()
	}
	return s.run(ctx)
}
