package config

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"syscall"
	"time"
)

// LookEvery is how often Watch looks whether the file has changed. A change is read
// at the first look that finds the file as the one before did, so that no
// half-written file is.
const LookEvery = time.Second

// Watch reads the settings again on SIGHUP and when the file changes, and calls
// apply with them if they are others than before. now is what Load returned. A file
// that cannot be read or has an error is logged and changes nothing. Watch returns
// when ctx has ended; without a file that is all it does.
//
// The file is looked at, not subscribed to: that also sees what is mounted from
// elsewhere or swapped behind a link.
func Watch(ctx context.Context, o Options, now Settings, log *slog.Logger, apply func(Settings)) {
	path := o.file()
	if path == "" {
		<-ctx.Done()
		return
	}
	o.File = path
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	look := time.NewTicker(LookEvery)
	defer look.Stop()
	w := watcher{options: o, settings: now, log: log, apply: apply}
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			w.read = stat(path)
			w.reload(slog.LevelInfo)
		case <-look.C:
			if w.settled(stat(path)) {
				w.reload(slog.LevelDebug)
			}
		}
	}
}

type watcher struct {
	options  Options
	settings Settings
	log      *slog.Logger
	apply    func(Settings)

	// read is the file as it was when it was read. It starts as nil, so that a
	// change between Load and Watch is not missed.
	read os.FileInfo
	seen os.FileInfo // as it was at the last look
}

// settled reports whether the file is another one than was read and has been so
// since the last look.
func (w *watcher) settled(found os.FileInfo) bool {
	still := same(found, w.seen)
	w.seen = found
	if !still || same(found, w.read) {
		return false
	}
	w.read = found
	return true
}

// reload reads the settings; unchanged is the level at which it says that they are
// the same.
func (w *watcher) reload(unchanged slog.Level) {
	next, err := Load(w.options)
	switch {
	case err != nil:
		w.log.Error("settings not reloaded; the old ones stay", "file", w.options.File, "error", err)
	case reflect.DeepEqual(next, w.settings):
		w.log.Log(context.Background(), unchanged, "settings reloaded; nothing changed", "file", w.options.File)
	default:
		w.settings = next
		w.apply(next)
		w.log.Info("settings reloaded", "file", w.options.File)
	}
}

// stat returns nil for a file that cannot be looked at.
func stat(path string) os.FileInfo {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
