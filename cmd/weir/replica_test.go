package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/stores"
	"github.com/weirmq/weir/internal/server"
	"github.com/weirmq/weir/tests/capture"
)

// replicaRun runs weir replica.
func replicaRun(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{"replica"}, args...))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestReplicaCommandsLookAtACopy(t *testing.T) {
	dir := t.TempDir()
	address := "file://" + dir
	if out, err := replicaRun(t, "ls", address); err == nil || !strings.Contains(err.Error(), "there is no copy of weir") {
		t.Errorf("ls of an empty directory: %v\n%s", err, out)
	}
	log, files, err := stores.Open(t.Context(), address, stores.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	defer files.Close()
	lead, err := log.Lead(t.Context(), "machine-7")
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(3) {
		done := make(chan error, 1)
		g := replica.Group{Term: lead.Term, Last: 100 + i, TimeMS: 1_780_000_000_000}
		if err := log.Append(t.Context(), g.Encode(nil), func(_ uint64, err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	out, err := replicaRun(t, "ls", address)
	for _, want := range []string{"term 1: machine-7 leads since 2", "log: 4 entries, positions 1 to 7, ", "up to LSN 102 of 2026-05-28T"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("ls: %v, %q lacks %q", err, out, want)
		}
	}
	if out, err := replicaRun(t, "verify", "--json", address); err != nil || !strings.Contains(out, `"broken":[]`) {
		t.Errorf("verify: %v, %q", err, out)
	}
	for _, damage := range []struct {
		name   string
		size   int64
		listed string // all the same
	}{
		{"log/00000000000000000006", 20, "term 1: machine-7 leads since 2"},
		{"term/0000000001", 3, "log, up to what cannot be read: 2 entries, positions 1 to 5, "},
	} {
		name := damage.name
		if err := os.Truncate(filepath.Join(dir, name), damage.size); err != nil {
			t.Fatal(err)
		}
		out, err = replicaRun(t, "ls", address)
		if err == nil || exitCode(err) != exitFailed || !strings.Contains(out, damage.listed) || !strings.Contains(err.Error(), name) {
			t.Errorf("ls of a broken copy: %v, %q lacks %q", err, out, damage.listed)
		}
		out, err = replicaRun(t, "verify", address)
		if err == nil || exitCode(err) != exitFailed || !strings.Contains(out, "broken: ") || !strings.Contains(out, name) {
			t.Errorf("verify of a broken copy: %v, %q", err, out)
		}
	}
}

func TestRestoreOfAStateThatTheCopyLacks(t *testing.T) {
	address := "file://" + t.TempDir()
	lacks := func(want string, args ...string) {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "data")
		res := runWeir(t, "", append([]string{"restore", address, dir}, args...)...)
		if res.err == nil || exitCode(res.err) != exitFailed || !strings.Contains(res.err.Error(), want) || res.stdout != "" || readable(dir) {
			t.Errorf("restore %v: %v, %q; want %q and nothing made", args, res.err, res.stdout, want)
		}
	}
	lacks("there is no copy of weir")
	lacks("there is no copy of weir", "--dry-run", "--json")
	cfg := server.Config{DataDir: t.TempDir(), Replica: server.Replica{URL: address, Every: time.Second, Base: time.Hour, Keep: time.Hour, LagMax: 1 << 30}}
	c := newCopy(cfg, func(bool) {}, slog.New(slog.DiscardHandler))
	e, err := engine.Open(t.Context(), engine.Options{Dir: cfg.DataDir, Replica: &c.Replica, Open: c.lead})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the copy has a base", func() bool { return runWeir(t, "", "restore", "--dry-run", address, "x").err == nil })
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	c.close()
	for _, more := range [][]string{nil, {"--dry-run"}, {"--json"}, {"--dry-run", "--json"}} {
		lacks("--at must not be in front of it", append(more, "--at", "2020-01-01T00:00:00Z")...)
	}
	lacks("--at must not be behind it", "--at", "999999999")
}

// TestAStandbyIsOneWhileItsStoreIsAway: nothing has changed about who leads.
func TestAStandbyIsOneWhileItsStoreIsAway(t *testing.T) {
	dir := t.TempDir()
	cfg := server.Config{Replica: server.Replica{
		URL: "file://" + dir, Every: time.Second, Base: time.Hour, Keep: time.Hour, LagMax: 1 << 30, Failover: true, FailoverAfter: time.Hour,
	}}
	leads, stands := cfg, cfg
	leads.DataDir, stands.DataDir, stands.Replica.Standby = t.TempDir(), t.TempDir(), true
	leader := newCopy(leads, func(bool) {}, slog.New(slog.DiscardHandler))
	e, err := engine.Open(t.Context(), engine.Options{Dir: leads.DataDir, Replica: &leader.Replica, Open: leader.lead})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the copy has a base", func() bool { return runWeir(t, "", "restore", "--dry-run", cfg.Replica.URL, "x").err == nil })
	var log capture.Buffer
	said := make(chan bool, 100)
	standby := newCopy(stands, func(on bool) { said <- on }, slog.New(slog.NewTextHandler(&log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- standby.lead(ctx) }()
	if !<-said {
		t.Fatal("it does not stand by")
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it says that the store is away", func() bool {
		return strings.Contains(log.String(), "trying again") || strings.Contains(log.String(), "cannot be followed")
	})
	if len(said) > 0 {
		t.Errorf("while its store is away it says that it stands by: %v\n%s", <-said, log.String())
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("it leads")
	}
	standby.close()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	leader.close()
}

// TestARestoreSaysWhatItTriesAgain has an entry of the copy that cannot be read for now.
func TestARestoreSaysWhatItTriesAgain(t *testing.T) {
	dir := t.TempDir()
	log, files, err := stores.Open(t.Context(), "file://"+dir, stores.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	defer files.Close()
	if _, err := log.Lead(t.Context(), "machine-7"); err != nil {
		t.Fatal(err)
	}
	base, err := json.Marshal(replica.Base{After: 1, Term: 1, Taken: time.Now()})
	if err == nil {
		err = files.Put(t.Context(), replica.BaseName(1), int64(len(base)), bytes.NewReader(base))
	}
	if err = errors.Join(err, os.Mkdir(filepath.Join(dir, "log/00000000000000000005"), 0o700)); err != nil { // which cannot be read
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var told capture.Buffer
	root := newRoot()
	root.SetArgs([]string{"restore", "file://" + dir, "--dry-run"})
	root.SetErr(&told)
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	eventually(t, "it says what it tries again", func() bool { return strings.Contains(told.String(), "trying again") })
	cancel()
	if err := <-ended; err == nil {
		t.Error("it succeeds")
	}
}

// The copy's files would lie among the server's, whose next start knows neither.
func TestACopyIsNotKeptInItsOwnDataDirectory(t *testing.T) {
	for _, fresh := range []bool{true, false} {
		dir := t.TempDir()
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		if !fresh {
			e, err := engine.Open(t.Context(), engine.Options{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
		}
		before, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		absent := filepath.Join(dir, "absent")
		if res := runWeir(t, "", "serve", "--port", "0", "--data-dir", absent, "--replica", "file://"+absent); exitCode(res.err) != exitUsage {
			t.Errorf("a directory that is not there: %v", res.err)
		}
		res := runWeir(t, "", "serve", "--port", "0", "--data-dir", link, "--replica", "file://"+dir)
		after, err := os.ReadDir(dir)
		if exitCode(res.err) != exitUsage || !strings.Contains(res.err.Error(), "data directory") || err != nil || len(after) != len(before) {
			t.Errorf("fresh %v: %v; the directory holds %v, held %v", fresh, res.err, after, before)
		}
	}
}
