package config

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/capture"
)

// watch runs Watch over a file until the test ends.
func watch(t *testing.T, text string) (path string, applied chan Settings, log *capture.Buffer) {
	t.Helper()
	path = file(t, text)
	o := Options{File: path, Lookup: environment("WEIR_LAG_PAUSE=77")}
	now, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	applied, log = make(chan Settings, 10), &capture.Buffer{}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Watch(ctx, o, now, slog.New(slog.NewTextHandler(log, nil)), func(s Settings) { applied <- s })
	}()
	t.Cleanup(func() { stop(); <-done })
	return path, applied, log
}

// replace puts a new file in the place of path, as editors and mounts do.
func replace(t *testing.T, path, text string) {
	t.Helper()
	next := filepath.Join(filepath.Dir(path), "next")
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, applied chan Settings) Settings {
	t.Helper()
	select {
	case s := <-applied:
		return s
	case <-time.After(20 * time.Second):
		t.Fatal("the new settings were not applied")
		return Settings{}
	}
}

// eventually waits until the log holds text, calling each again and again.
func eventually(t *testing.T, log *capture.Buffer, text string, each ...func()) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !strings.Contains(log.String(), text) {
		if time.Now().After(deadline) {
			t.Fatalf("the log never said %q:\n%s", text, log)
		}
		for _, f := range each {
			f()
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestAChangedFileIsAppliedAndABadOneIsNot(t *testing.T) {
	path, applied, log := watch(t, "lag_warn: 50\nlag_pause: 1\n")
	replace(t, path, "lag_warn: [\n")
	eventually(t, log, "the old ones stay")
	if len(applied) > 0 {
		t.Fatalf("a bad file was applied: %+v", <-applied)
	}
	replace(t, path, "lag_warn: 10\nlag_pause: 1\n")
	if s := receive(t, applied); s.Producer.LagWarn != 10 || s.Producer.LagPause != 77 {
		t.Errorf("applied %+v; want lag_warn 10 of the file and lag_pause 77 of the environment", s.Producer)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	eventually(t, log, "no such file")
	replace(t, path, "lag_warn: 11\n")
	if s := receive(t, applied); s.Producer.LagWarn != 11 {
		t.Errorf("applied %+v after the file came back", s.Producer)
	}
}

func TestSIGHUPReloads(t *testing.T) {
	alive := make(chan os.Signal, 1) // a signal before Watch listens must not end the process
	signal.Notify(alive, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(alive) })
	path, applied, log := watch(t, "lag_warn: 50\n")
	hangUp := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, log, "nothing changed", hangUp)
	replace(t, path, "lag_warn: 12\n")
	hangUp()
	if s := receive(t, applied); s.Producer.LagWarn != 12 {
		t.Errorf("applied %+v", s.Producer)
	}
}
