package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/replica/audit"
	"github.com/weirmq/weir/internal/replica/stores"
	"github.com/weirmq/weir/internal/server"
	"github.com/weirmq/weir/tests/capture"
)

// shows fails unless each step is told, in this order, on a terminal and elsewhere.
func shows(t *testing.T, what string, run func(*copyProgress) error, steps ...string) {
	t.Helper()
	for _, terminal := range []bool{true, false} {
		var told capture.Buffer
		p := &copyProgress{out: &told, what: "weir " + what, terminal: terminal}
		if err := run(p); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		p.finish()
		rest, lines := told.String(), strings.Count(told.String(), "\n")
		for _, step := range steps {
			_, after, found := strings.Cut(rest, step)
			if !found {
				t.Fatalf("%s, terminal %v: %q is not told, or too early\n%q", what, terminal, step, told.String())
			}
			rest = after
		}
		if terminal && (lines > 0 || !strings.HasSuffix(told.String(), "\r\x1b[K")) || !terminal && lines != strings.Count(told.String(), "weir "+what+": ") {
			t.Errorf("%s, terminal %v: %q", what, terminal, told.String())
		}
	}
}

func TestCommandsThatCopyShowHowFarTheyAre(t *testing.T) {
	files, lsn := sound(t)
	backup := filepath.Join(t.TempDir(), "backup")
	putBackup(t, backup, files, lsn)
	fresh := func() string { return filepath.Join(t.TempDir(), "new") }
	shows(t, "restore", func(p *copyProgress) error {
		done := copyResult{Dir: fresh(), progress: p}
		return done.restore(t.Context(), backup, done.readRestored)
	}, "copied 0 of 1 MiB (", "(100 %)", "of the log", "read 100 records")
	shows(t, "backup", func(p *copyProgress) error {
		_, err := takeBackup(t.Context(), "file://"+dataOf(t, backup), fresh(), &copyOptions{}, p)
		return err
	}, "copied 0 MiB", "read 100 records")
	shows(t, "backup verify", func(p *copyProgress) error {
		root, err := os.OpenRoot(backup)
		if err != nil {
			return err
		}
		defer root.Close()
		m, err := checkFiles(t.Context(), root, 0, p)
		if err == nil {
			_, err = readRecords(t.Context(), backup, m, 0, p)
		}
		return err
	}, "checked 0 of 1 MiB (", "(100 %)", "of the log", "read 100 records")
	data := dataOf(t, backup)
	for _, mark := range []bool{false, true} {
		shows(t, "repair", func(p *copyProgress) error {
			_, err := engine.Repair(t.Context(), p.verifying(data), mark, io.Discard)
			return err
		}, "read 0 of 1 MiB (", "(100 %)")
	}
}

// Lines of a report come above the line of a terminal.
func TestAReportIsPrintedAboveTheProgress(t *testing.T) {
	var screen capture.Buffer
	p := &copyProgress{out: &screen, terminal: true}
	p.bytes("read", 1<<20, 2<<20)
	if _, err := io.WriteString(p.above(&screen), "a.sst: damaged\n"); err != nil {
		t.Fatal(err)
	}
	if want := "\r\x1b[Kread 1 of 2 MiB (50 %)\r\x1b[Ka.sst: damaged\n"; screen.String() != want {
		t.Errorf("%q, want %q", screen.String(), want)
	}
}

func TestARepairThatIsInterruptedSaysWhatItLeaves(t *testing.T) {
	files, lsn := sound(t)
	backup := filepath.Join(t.TempDir(), "backup")
	putBackup(t, backup, files, lsn)
	data := dataOf(t, backup)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	for flag, want := range map[string]string{"--mark=false": "interrupted; nothing was changed", "--mark": "interrupted; what was marked stays marked, and the same command marks the rest"} {
		root := newRoot()
		root.SetArgs([]string{"repair", flag, data})
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		if err := root.ExecuteContext(ctx); err == nil || err.Error() != want || exitCode(err) != exitFailed {
			t.Errorf("repair %s: %v, want %s", flag, err, want)
		}
	}
	if res := runWeir(t, "", "repair", data); res.err != nil || res.stdout != "nothing is damaged\n" {
		t.Errorf("then: %v, %s", res.err, res.stdout)
	}
}

// dataOf is a data directory of a backup.
func dataOf(t *testing.T, backup string) string {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	if res := runWeir(t, "", "restore", backup, "--data-dir", data); res.err != nil {
		t.Fatal(res.err)
	}
	return data
}

func TestCommandsThatReadACopyShowHowFarTheyAre(t *testing.T) {
	cfg := server.Config{DataDir: t.TempDir(), Replica: server.Replica{
		URL: "file://" + t.TempDir(), Every: time.Second, Base: time.Hour, Keep: time.Hour, LagMax: 1 << 30,
	}}
	c := newCopy(cfg, func(bool) {}, slog.New(slog.DiscardHandler))
	e, err := engine.Open(t.Context(), engine.Options{Dir: cfg.DataDir, Replica: &c.Replica, Open: c.lead, IngestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the copy has a base", func() bool { return runWeir(t, "", "restore", "--dry-run", cfg.Replica.URL, "x").err == nil })
	req := api.WriteRequest{Records: []api.Record{{Data: []byte(`"` + strings.Repeat("x", 5000) + `"`)}}}
	if _, err := e.Write(t.Context(), "topic", &req); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	c.close()
	shows(t, "restore", func(p *copyProgress) error {
		opt := restoreOptions{from: cfg.Replica.URL, dataDir: filepath.Join(t.TempDir(), "new")}
		_, err := restoreCopy(t.Context(), p, &opt)
		return err
	}, "looking through the log: 0 MiB", "copied 0 of 1 MiB (", "(100 %)", "of the log", "read 1 record")
	shows(t, "replica verify", func(p *copyProgress) error {
		log, files, err := stores.Open(t.Context(), cfg.Replica.URL, stores.Options{ReadOnly: true})
		if err != nil {
			return err
		}
		defer log.Close()
		defer files.Close()
		_, err = verifyCopy(t.Context(), audit.Copy{Log: log, Files: files, Read: p.counted("read", 0)})
		return err
	}, "read 0 MiB")
}

// A command that is over soon says nothing, and one whose output is a log a line now and then.
func TestProgressIsToldNowAndThen(t *testing.T) {
	var told capture.Buffer
	p := newCopyProgress(&told, "weir restore")
	p.bytes("copied", 1, 2)
	if told.String() != "" {
		t.Errorf("at once: %q", told.String())
	}
	p.told = time.Now().Add(-copyTold)
	p.bytes("copied", 3<<20, 6<<20)
	p.bytes("copied", 4<<20, 6<<20)
	if want := "weir restore: copied 3 of 6 MiB (50 %)\n"; told.String() != want {
		t.Errorf("%q, want %q", told.String(), want)
	}
	none := (*copyProgress)(nil)
	if _, err := io.WriteString(none.counted("copied", 0), "x"); err != nil || none.verifying("d").Verified != nil {
		t.Error("a nil one shows something")
	}
}

func TestTheLogHearsOfACopyThatIsReadForLong(t *testing.T) {
	var log capture.Buffer
	c := newCopy(server.Config{}, func(bool) {}, slog.New(slog.NewTextHandler(&log, nil)))
	told := time.Now()
	tell := c.progressAt(func() time.Time { return told })
	for _, s := range []struct {
		after       time.Duration
		done, total int64
	}{{0, 1, 10}, {time.Second, 2, 10}, {recoveryTold, 3, 10}, {time.Second, 4, 10}, {time.Hour, 1, 7}, {recoveryTold, 9, 0}} {
		told = told.Add(s.after)
		tell(s.done, s.total)
	}
	lines := log.Lines("the copy is still being read")
	if len(lines) != 2 || !strings.HasSuffix(lines[0], "bytes=3 of=10\n") || !strings.HasSuffix(lines[1], "bytes=9\n") {
		t.Errorf("%q", lines)
	}
}
