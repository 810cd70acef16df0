package settings

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// lookEvery is how often Watch looks whether the file has changed. A change is read
// at the first look that finds the file as the one before did, so that no
// half-written file is.
const lookEvery = time.Second

// Watch calls reload on SIGHUP and when the file at path changes, until ctx ends. reload
// reports whether the settings are others than before; its error is logged.
//
// The file is polled, not subscribed to: that also sees what is mounted from
// elsewhere or swapped behind a link.
func Watch(ctx context.Context, path string, log *slog.Logger, reload func() (changed bool, err error)) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	w := watcher{path: path, log: log, reload: reload}
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			w.read = stat(path)
			w.again(slog.LevelInfo)
		case <-look.C:
			if w.settled(stat(path)) {
				w.again(slog.LevelDebug)
			}
		}
	}
}

type watcher struct {
	path   string
	log    *slog.Logger
	reload func() (bool, error)

	// read is the file as it was when it was read. It starts as nil, so that a
	// change between the first Load and Watch is not missed.
	read os.FileInfo
	seen os.FileInfo // as it was at the last look
}

// settled reports whether the file differs from the one that was read and has not changed
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

// again reads the settings; unchanged is the level at which it says that they are
// the same.
func (w *watcher) again(unchanged slog.Level) {
	changed, err := w.reload()
	switch {
	case err != nil:
		w.log.Error("settings not reloaded; the old ones stay", "file", w.path, "error", err)
	case changed:
		w.log.Info("settings reloaded", "file", w.path)
	default:
		w.log.Log(context.Background(), unchanged, "settings reloaded; nothing changed", "file", w.path)
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
