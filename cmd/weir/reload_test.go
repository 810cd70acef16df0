package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What can change while a server runs does, and what cannot is named.
func TestAReloadAppliesTheLevelAndNamesWhatNeedsARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.yml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("log_level: info\n")
	cmd := newServeCmd()
	if err := cmd.ParseFlags([]string{"--config", file}); err != nil {
		t.Fatal(err)
	}
	values, err := new(serveOptions).load(cmd)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	r := &reloader{cmd: cmd, values: values, level: new(slog.LevelVar), log: newLog(&log, "text", slog.LevelInfo)}
	write("log_level: debug\nmax_topics: 5\n")
	for _, want := range []bool{true, false} {
		log.Reset()
		changed, err := r.reload()
		if err != nil || changed != want || r.level.Level() != slog.LevelDebug {
			t.Errorf("changed %v, level %v, %v", changed, r.level.Level(), err)
		}
		if strings.Contains(log.String(), "need a restart") != want || strings.Contains(log.String(), "max_topics") != want {
			t.Errorf("log %q", log.String())
		}
	}
}
