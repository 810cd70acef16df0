package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/weirmq/weir/tests/bubble"
	"github.com/weirmq/weir/tests/capture"
)

// What is no folder is not called a backup.
func TestAFolderForBackupsThatIsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	res := runWeir(t, "", "backup", "--every", "1h", "http://127.0.0.1:1", file)
	if res.err == nil || exitCode(res.err) != exitFailed || !strings.Contains(res.err.Error(), "not a directory") {
		t.Errorf("%v, want exit code 1 and that it is not a directory", res.err)
	}
}

func TestRetentions(t *testing.T) {
	for text, want := range map[string]retention{
		"24h":    {all: 24 * time.Hour},
		"24h:7d": {all: 24 * time.Hour, daily: 7 * 24 * time.Hour},
		"30m:1d": {all: 30 * time.Minute, daily: 24 * time.Hour},
	} {
		if got, err := parseRetention(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", ":", "24", "24h:", "24h:x", "-1h", "0", "24h:24h", "7d:1h", "1000000d", "24h:7d:1y"} {
		var usage *usageError
		if got, err := parseRetention(text); !errors.As(err, &usage) {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
}

// Whatever the times are, the newest stays, and so does all that is young; of each day that is not
// too long ago exactly the last one stays; and what is removed once is never missed later.
func TestWhatARetentionKeeps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		r := retention{all: time.Duration(rapid.IntRange(1, 72).Draw(t, "all")) * time.Hour}
		if rapid.Bool().Draw(t, "days") {
			r.daily = r.all + time.Duration(rapid.IntRange(1, 400).Draw(t, "daily"))*time.Hour
		}
		var times []time.Time
		at := start
		for range rapid.IntRange(1, 60).Draw(t, "backups") {
			at = at.Add(time.Duration(rapid.IntRange(1, 100_000).Draw(t, "seconds")) * time.Second)
			times = append(times, at)
		}
		now := at.Add(time.Duration(rapid.IntRange(-3600, 100_000).Draw(t, "age")) * time.Second)
		old := r.outdated(times, now)
		left := slices.DeleteFunc(slices.Clone(times), func(t time.Time) bool { return slices.Contains(old, t) })
		if len(left) == 0 || left[len(left)-1] != times[len(times)-1] {
			t.Fatalf("the newest is not kept: %v", left)
		}
		for i, at := range times {
			day := func(t time.Time) string { return t.Format(time.DateOnly) }
			last := i == len(times)-1 || day(times[i+1]) != day(at)
			age := now.Sub(at)
			want := i == len(times)-1 || age <= r.all || last && age <= r.daily
			if slices.Contains(left, at) != want {
				t.Fatalf("%v, %v old, last of its day: %v: kept %v, want %v by %v", at, age, last, !want, want, r)
			}
		}
		if again := r.outdated(left, now); len(again) > 0 {
			t.Fatalf("the same retention removes more the second time: %v", again)
		}
	})
}

// A clock that is years ahead while one backup is made, or some, takes no other one with it.
func TestAClockThatIsAheadForAWhileRemovesNoBackups(t *testing.T) {
	for _, ahead := range []time.Duration{100 * time.Hour, 10 * 365 * 24 * time.Hour} {
		for _, r := range []retention{{all: 24 * time.Hour, every: time.Hour}, {all: 24 * time.Hour, daily: 7 * 24 * time.Hour, every: time.Hour}} {
			for _, backups := range []int{1, 5} { // that are made meanwhile
				var kept, want []time.Time // with them, and as if none had been made then
				make := func(to []time.Time, now time.Time) []time.Time {
					to = append(to, now)
					slices.SortFunc(to, time.Time.Compare)
					old := r.outdated(to, now)
					return slices.DeleteFunc(to, func(t time.Time) bool { return slices.Contains(old, t) })
				}
				now := time.Date(2026, 3, 1, 0, 30, 0, 0, time.UTC)
				for i := range 20 * 24 {
					now = now.Add(time.Hour)
					if wrong := i >= 300 && i < 300+backups; wrong {
						kept = make(kept, now.Add(ahead))
						continue
					}
					kept, want = make(kept, now), make(want, now)
					for _, at := range want {
						if !slices.Contains(kept, at) {
							t.Fatalf("%v: %v ahead for %d backups removed that of %v by %v", r, ahead, backups, at, now)
						}
					}
				}
				if n := len(kept) - len(want); n > backups {
					t.Errorf("%v: %d too many are kept in the end", r, n)
				}
			}
		}
	}
}

// begin runs a schedule in a folder until the test ends; fail says which attempts fail.
func begin(t *testing.T, dir string, keep retention, fail func(attempt int) bool) *schedule {
	t.Helper()
	s := newSchedule(dir, time.Hour, keep, slog.New(slog.DiscardHandler))
	attempt := 0
	s.take = func(_ context.Context, dir string) error {
		attempt++
		if fail(attempt) {
			return errors.New("no")
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, manifestName), nil, 0o600)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return s
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// In a bubble, time begins at 2000-01-01 00:00:00 UTC.
func TestScheduledBackups(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		dir := t.TempDir()
		for _, other := range []string{"mine", "weir-20000101T000000Z.txt", "weir-19990101T000000Z"} { // the last has no manifest
			if err := os.Mkdir(filepath.Join(dir, other), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		begin(t, dir, retention{all: 3 * time.Hour, daily: 48 * time.Hour}, func(int) bool { return false })
		time.Sleep(49*time.Hour + time.Minute)
		synctest.Wait()
		want := []string{"mine", "weir-19990101T000000Z", "weir-20000101T000000Z.txt",
			"weir-20000101T230000Z", "weir-20000102T230000Z", "weir-20000102T220000Z", "weir-20000103T000000Z", "weir-20000103T010000Z"}
		slices.Sort(want)
		if got := names(t, dir); !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	})
}

func TestAScheduleGoesOnWhereItStopped(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		dir := t.TempDir()
		newest := filepath.Join(dir, time.Now().Add(-20*time.Minute).UTC().Format(scheduledName))
		if err := os.Mkdir(newest, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(newest, manifestName), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s := begin(t, dir, retention{all: time.Hour * 24}, func(int) bool { return false })
		synctest.Wait()
		if at := s.last.Load(); at != time.Now().Add(-20*time.Minute).Unix() {
			t.Errorf("the newest backup is said to be of %v", time.Unix(at, 0).UTC())
		}
		time.Sleep(39 * time.Minute)
		synctest.Wait()
		if got := names(t, dir); len(got) != 1 {
			t.Errorf("a backup came early: %v", got)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := names(t, dir); len(got) != 2 || got[1] != "weir-20000101T004000Z" {
			t.Errorf("got %v", got)
		}
	})
}

// What has no manifest is no backup, whatever it is called.
func TestAnIncompleteBackupIsNotTheNewest(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, time.Now().Add(-20*time.Minute).UTC().Format(scheduledName)), 0o700); err != nil {
			t.Fatal(err)
		}
		begin(t, dir, retention{all: time.Hour * 24}, func(int) bool { return false })
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := names(t, dir); len(got) != 2 || got[1] != "weir-20000101T000000Z" {
			t.Errorf("got %v", got)
		}
	})
}

func TestBackupsThatFailAreTriedAgainAndNoneGoesMeanwhile(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		dir := t.TempDir()
		s := begin(t, dir, retention{all: 90 * time.Minute}, func(attempt int) bool { return attempt > 3 && attempt < 304 })
		time.Sleep(2*time.Hour + 299*time.Minute)
		synctest.Wait()
		if got := names(t, dir); len(got) != 2 {
			t.Errorf("while backups fail: %v, want those of 01:00 and 02:00", got)
		}
		if n := testutil.ToFloat64(s.failures); n < 230 {
			t.Errorf("%v failures were counted", n)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		got := names(t, dir)
		if len(got) != 1 || got[0] != "weir-20000101T080000Z" {
			t.Errorf("once they do not: %v", got)
		}
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(s)
		all, err := reg.Gather()
		if err != nil || len(all) != 2 {
			t.Errorf("%v, %v", all, err)
		}
	})
}

// A disk that is away for a while, as one of the network is, ends no schedule.
func TestAFolderThatIsAwayIsTriedAgain(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "backups")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		s := begin(t, dir, retention{all: 24 * time.Hour}, func(int) bool { return false })
		time.Sleep(30 * time.Minute)
		if err := os.Rename(dir, dir+".away"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if n := testutil.ToFloat64(s.failures); n < 80 {
			t.Errorf("%v failures were counted", n)
		}
		if err := os.Rename(dir+".away", dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if got := names(t, dir); len(got) != 2 {
			t.Errorf("once it is back: %v", got)
		}
	})
}

// Whoever is told of the newest backup must hear of it when no more are made, also where a clock
// that was wrong has left one of the future.
func TestABackupOfTheFutureIsNotTheNewest(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		dir := t.TempDir()
		future := filepath.Join(dir, time.Now().AddDate(10, 0, 0).UTC().Format(scheduledName))
		if err := os.Mkdir(future, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(future, manifestName), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s := begin(t, dir, retention{all: 24 * time.Hour}, func(attempt int) bool { return attempt > 1 })
		time.Sleep(90 * time.Minute)
		synctest.Wait()
		if at, want := s.last.Load(), time.Now().Add(-30*time.Minute).Unix(); at != want {
			t.Errorf("the newest backup is said to be of %v, want %v", time.Unix(at, 0).UTC(), time.Unix(want, 0).UTC())
		}
	})
}

// Two commands would remove each other's backups.
func TestAFolderHasOneScheduleOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backups")
	lock, err := lockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := lockFolder(dir); err == nil {
		other.Close()
		t.Error("a second command got the folder")
	} else if fmt.Sprint(err) == "" {
		t.Error(err)
	}
	lock.Close()
	again, err := lockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// broken is an output that takes nothing, such as a log on a disk that is full.
type broken struct{ io.Writer }

func (broken) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// What cannot be printed has been done: to make it again each minute, and to keep all, would
// only fill another disk.
func TestABackupThatCannotBePrintedHasNotFailed(t *testing.T) {
	files, lsn := sound(t)
	stream, asked := tarOf(t, files, lsn), make(chan struct{}, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(stream)
		select {
		case asked <- struct{}{}:
		default:
		}
	}))
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var said capture.Buffer
	root := newRoot()
	root.SetArgs([]string{"backup", "--every", "1s", "--keep", "1h", srv.URL, t.TempDir()})
	root.SetOut(broken{})
	root.SetErr(&said)
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	<-asked
	<-asked // the first one has been told of
	cancel()
	if err := <-ended; err != nil || strings.Contains(said.String(), "the backup failed") || !strings.Contains(said.String(), "no space left") {
		t.Errorf("%v, %s", err, said.String())
	}
}

// A wrong URL or setting is not tried again: nothing but somebody mends it.
func TestAMistakeEndsScheduledBackups(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newSchedule(t.TempDir(), time.Hour, retention{}, slog.New(slog.DiscardHandler))
		takes := 0
		s.take = func(context.Context, string) error {
			if takes++; takes > 1 {
				cancel()
			}
			return &usageError{errors.New("no server")}
		}
		if err := s.run(ctx); !isUsage(err) || takes != 1 {
			t.Errorf("%v after %d tries", err, takes)
		}
	})
}
