package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/weirtest"
)

func TestWorkDrainsWithoutARepeat(t *testing.T) {
	t.Parallel()
	lines := accessLog(t)[:400]
	srv := weirtest.Start(t, weirtest.Options{})
	url := srv.URL + "/requests"
	must(t, "publish", url, writeLines(t, lines))
	record := filepath.Join(t.TempDir(), "record")
	w := weirtest.Go(t, recordTo(record), "work", url, "--", "sh", "-c", recordLine)
	eventually(t, "some are handled", func() bool { return handled(record) >= 50 })
	w.Signal(syscall.SIGTERM)
	w.Succeed()
	if st := topicState(t, srv, "requests"); st.Queue.InFlight != 0 || int(st.Count) != len(lines)-handled(record) {
		t.Errorf("after the drain %d handled and %+v left", handled(record), st)
	}
	weirtest.Go(t, recordTo(record), "work", url, "--until-empty", "100ms", "--", "sh", "-c", recordLine).Succeed()
	if repeats := checkRecord(t, record, lines); repeats > 0 {
		t.Errorf("%d repeats, want none", repeats)
	}
}

// timeout(1) signals the process and its group: one end, told twice.
func TestTwoSignalsAtOnceAreOne(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	url, dir := srv.URL+"/requests", t.TempDir()
	must(t, "publish", url, writeLines(t, []string{"a"}))
	w := run(t, "work", url, "--", "sh", "-c", `touch `+dir+`/begun; while [ ! -e `+dir+`/go ]; do sleep 0.01; done`)
	eventually(t, "the command runs", func() bool { _, err := os.Stat(filepath.Join(dir, "begun")); return err == nil })
	w.Signal(syscall.SIGTERM)
	w.Signal(syscall.SIGTERM)
	time.Sleep(100 * time.Millisecond) // the second one has come
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.Succeed()
	if st := topicState(t, srv, "requests"); st.Count != 0 {
		t.Errorf("the command was ended, %+v is left", st)
	}
}

func TestACommandWhoseWorkerIsKilledStillHasItsWholeMessage(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	url, dir := srv.URL+"/requests", t.TempDir()
	line := strings.Repeat("a long line ", 50_000)
	must(t, "publish", url, writeLines(t, []string{line}))
	w := run(t, "work", url, "--", "sh", "-c",
		`touch `+dir+`/begun; while [ ! -e `+dir+`/go ]; do sleep 0.01; done; cat > `+dir+`/part; mv `+dir+`/part `+dir+`/whole`)
	eventually(t, "the command runs", func() bool { return exists(dir + "/begun") })
	w.Signal(syscall.SIGKILL)
	eventually(t, "the worker is gone", func() bool { return !w.Running() })
	if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command has read its message", func() bool { return exists(dir + "/whole") })
	if got, err := os.ReadFile(dir + "/whole"); err != nil || string(got) != line {
		t.Errorf("the command read %d bytes of %d (%v)", len(got), len(line), err)
	}
}

func TestWorkMovesWhatAlwaysFailsToTheDeadLetters(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	url := srv.URL + "/requests"
	must(t, "publish", url, writeLines(t, []string{"good", "bad", "good"}))
	out, _, code := weirtest.Run(t, nil, "work", url, "--until-empty", "100ms", "--retry-base", "10ms", "--json", "--", "sh", "-c", `[ "$(cat)" = good ]`)
	if !strings.Contains(out, `"acked":2,"nacked":3,"reclaimed":2`) || code != 3 {
		t.Errorf("code %d, summary %s", code, out)
	}
	if got := must(t, "tail", url+".dlq", "--from", "0", "--no-follow"); got != "bad\n" {
		t.Errorf("dead letters %q", got)
	}
}

// A server may be set to take fewer jobs in one ack or extend than a worker holds.
func TestWorkSettlesAsManyAtOnceAsTheServerTakes(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_MAX_CLAIM=3"}})
	url := srv.URL + "/requests"
	must(t, "publish", url, writeLines(t, accessLog(t)[:8]))
	end := filepath.Join(t.TempDir(), "end")
	w := run(t, "work", url, "--until-empty", "100ms", "--workers", "8", "--reclaim-after", "6s", "--json", "--", "sh", "-c", "until [ -e "+end+" ]; do sleep 0.05; done")
	row := regexp.MustCompile(`weir_http_requests_total\{code="200",method="POST",route="/v0/topics/:topic/extend"\} ([3-9]|\d\d)`)
	eventually(t, "all are extended, three at once", func() bool { return row.MatchString(send(t, "GET", srv.URL+"/metrics", "")) })
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := w.Succeed(); !strings.Contains(out, `"acked":8,"nacked":0,"reclaimed":0,"lost":0`) {
		t.Errorf("summary %s", out)
	}
}

func TestTailFollowsOverAKillOfTheServer(t *testing.T) {
	t.Parallel()
	lines := accessLog(t)[:200]
	srv := weirtest.Start(t, weirtest.Options{Stays: true})
	url := srv.URL + "/log"
	put(t, srv, "log", `{"type":"log"}`)
	tail := run(t, "tail", url, "--from", "0", "--count", "200")
	must(t, "publish", url, writeLines(t, lines[:100]))
	eventually(t, "tail has printed the first half", func() bool { return strings.Count(tail.Stdout.String(), "\n") >= 100 })
	srv.Kill()
	srv.Restart()
	must(t, "publish", url, writeLines(t, lines[100:]))
	if got := tail.Succeed(); got != strings.Join(lines, "\n")+"\n" {
		t.Errorf("tail printed %d lines that differ from the 200 published", strings.Count(got, "\n"))
	}
}

func TestTailTellsWhatACapHasTaken(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	put(t, srv, "log", `{"cap_records":3}`)
	must(t, "publish", srv.URL+"/log", writeLines(t, []string{"1", "2", "3", "4", "5"}))
	stdout, stderr, code := weirtest.Run(t, nil, "tail", srv.URL+"/log", "--from", "0", "--no-follow")
	if code != 0 || stdout != "3\n4\n5\n" || stderr != "gap 1–2 (cap)\n" {
		t.Errorf("code %d, printed %q and %q", code, stdout, stderr)
	}
}

func TestABackupMadeUnderLoadHoldsAllThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	lines := accessLog(t)
	srv := weirtest.Start(t, weirtest.Options{})
	base := t.TempDir()
	must(t, "publish", "--guard", "off", srv.URL+"/before", "testdata/access.log")
	load := run(t, "publish", "--guard", "off", "--batch", "1", srv.URL+"/load", "testdata/access.log")
	eventually(t, "the load runs", func() bool { return topicState(t, srv, "load").HeadSeq > 200 })

	backup, data := filepath.Join(base, "backup"), filepath.Join(base, "data")
	mark := topicState(t, srv, "load").HeadSeq // acknowledged before the backup began
	start := time.Now()
	out := must(t, "backup", srv.URL, backup)
	t.Logf("%s (whole command: %v)", strings.TrimSpace(out), time.Since(start).Round(time.Millisecond))
	srv.Kill()
	load.Signal(syscall.SIGKILL)

	must(t, "restore", backup, "--data-dir", data)
	restored := weirtest.Start(t, weirtest.Options{Dir: data})
	checkTopic(t, restored.URL+"/before", lines)
	head := topicState(t, restored, "load").HeadSeq
	if head < mark {
		t.Fatalf("the restored topic ends at %d, %d were acknowledged before the backup", head, mark)
	}
	checkTopic(t, restored.URL+"/load", lines[:topicState(t, restored, "load").Count])
	if st, err := os.Stat(data); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the data directory has mode %v (%v), want 700", st.Mode(), err)
	}
}

func TestAStoppedServersDirectoryIsBackedUpByItsFileURL(t *testing.T) {
	t.Parallel()
	lines := accessLog(t)[:500]
	srv := weirtest.Start(t, weirtest.Options{})
	must(t, "publish", srv.URL+"/in", writeLines(t, lines))
	base := t.TempDir()
	backup, data := filepath.Join(base, "backup"), filepath.Join(base, "data")
	if _, stderr, code := weirtest.Run(t, nil, "backup", "file://"+srv.Dir, backup); code == 0 || !strings.Contains(stderr, "in use") {
		t.Errorf("the directory of a running server: code %d, %q", code, stderr)
	}
	srv.Stop()
	must(t, "backup", "file://"+srv.Dir, backup)
	must(t, "restore", backup, "--data-dir", data)
	err := filepath.WalkDir(backup, func(path string, d os.DirEntry, err error) error {
		if st, statErr := os.Stat(path); statErr == nil && st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v, want nothing for others", path, st.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	checkTopic(t, weirtest.Start(t, weirtest.Options{Dir: data}).URL+"/in", lines)
}

// A schedule goes on over a restart of its server, and each of its backups can be restored.
func TestScheduledBackupsOfAServerThatIsKilled(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{Stays: true})
	folder := filepath.Join(t.TempDir(), "backups")
	must(t, "publish", "--guard", "off", srv.URL+"/in", writeLines(t, []string{"one", "two"}))
	schedule := run(t, "backup", "--every", "1s", "--keep", "1h", "--metrics", "127.0.0.1:0", srv.URL, folder)
	complete := func() (all []string) {
		names, err := filepath.Glob(filepath.Join(folder, "weir-*", "MANIFEST.json"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	eventually(t, "there are two backups", func() bool { return len(complete()) >= 2 })
	if _, stderr, code := weirtest.Run(t, nil, "backup", "--every", "1s", srv.URL, folder); code == 0 || !strings.Contains(stderr, "another") {
		t.Errorf("a second command in the same folder: code %d, %q", code, stderr)
	}
	before := len(complete())
	srv.Kill()
	eventually(t, "a backup has failed", func() bool { return strings.Contains(schedule.Stderr.String(), "the backup failed") })
	srv.Restart()
	eventually(t, "there is one of the restarted server", func() bool { return len(complete()) > before+1 })
	schedule.Signal(syscall.SIGTERM)
	if code := schedule.Wait(); code != 0 {
		t.Errorf("it ended with %d:\n%s", code, schedule.Stderr.String())
	}
	all := complete()
	data := filepath.Join(t.TempDir(), "data")
	must(t, "restore", filepath.Dir(all[len(all)-1]), "--data-dir", data)
	restored := weirtest.Start(t, weirtest.Options{Dir: data})
	checkTopic(t, restored.URL+"/in", []string{"one", "two"})
	if left, _ := filepath.Glob(filepath.Join(folder, ".weir-partial-*")); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}
