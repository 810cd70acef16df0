package library

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/stall"
	"github.com/weirmq/weir/tests/weirtest"
)

// stored are the payloads in the stream, in order.
func (s *site) stored() []string {
	s.t.Helper()
	entries, err := s.client.XRange(s.t.Context(), s.stream, "-", "+").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	var lines []string
	for _, e := range entries {
		lines = append(lines, e.Values["data"].(string))
	}
	return lines
}

// pressure is what workers with n messages in work would publish.
func (s *site) pressure(n int) {
	s.t.Helper()
	if err := s.client.Set(s.t.Context(), "{orders}:lag:billing", n, 0).Err(); err != nil {
		s.t.Fatal(err)
	}
}

func TestASIGTERMInAPauseEndsPublishAtOnceAndItsPlaceIsKept(t *testing.T) {
	const limit = 100 * time.Millisecond
	s := newSite(t, "orders", "billing")
	lines := numbered("order", 300)
	path, place := filepath.Join(t.TempDir(), "lines"), filepath.Join(t.TempDir(), "place")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.pressure(60) // above the soft limit: a sleep for each message
	args := []string{"publish", "--guard", "static", "--resume", place, "--batch", "100", s.url, path}
	// The machine may be busy with other things in one round, not in all.
	least := time.Hour
	for round := 0; round < 5 && least > limit; round++ {
		p := weirtest.Go(t, nil, args...)
		s.eventually("a part is stored", func() bool { return s.client.XLen(t.Context(), s.stream).Val() >= 1 })
		s.pressure(500)
		s.eventually("the guard says that it pauses", func() bool { return strings.Contains(p.Stderr.String(), "waiting: the workers of ") })
		stalled := stall.Watch()
		start := time.Now()
		p.Signal(syscall.SIGTERM)
		code := p.Wait()
		least = min(least, time.Since(start)-stalled())
		if code != 1 || !strings.Contains(p.Stderr.String(), "interrupted after") {
			t.Errorf("code %d: %s", code, p.Stderr.String())
		}
	}
	if least > limit {
		t.Errorf("ended %s after SIGTERM, want at most %s", least, limit)
	}
	n := len(s.stored())
	if n == len(lines) {
		t.Fatal("everything was stored before the signal")
	}
	if err := s.client.Del(t.Context(), "{orders}:lag:billing").Err(); err != nil {
		t.Fatal(err)
	}
	weirtest.Must(t, args...)
	if got := s.stored(); strings.Join(got, " ") != strings.Join(lines, " ") {
		t.Errorf("%d messages stored, want the %d once each and in order", len(got), len(lines))
	}
	t.Logf("a publish in a pause ended %s after SIGTERM, with %d of %d messages stored; run again it stored the rest once", least.Round(time.Millisecond), n, len(lines))
}

func TestAChangedSettingsFileTakesEffectWhilePublishWaits(t *testing.T) {
	s := newSite(t, "orders", "billing")
	s.pressure(500)
	file, lines := filepath.Join(t.TempDir(), "weir.yaml"), filepath.Join(t.TempDir(), "lines")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, "lag_pause: 200\n")
	write(lines, "one\n")
	p := weirtest.Go(t, nil, "publish", "--config", file, s.url, lines)
	s.eventually("the guard says that it pauses", func() bool { return strings.Contains(p.Stderr.String(), "waiting: the workers of ") })
	write(file, "guard: off\n") // and no signal
	start := time.Now()
	p.Succeed()
	if got := s.stored(); len(got) != 1 || got[0] != "one" {
		t.Errorf("stored %v", got)
	}
	t.Logf("published %s after the file was changed", time.Since(start).Round(time.Millisecond))
}

func TestPublishWeighsTheLimitsForEachLine(t *testing.T) {
	s := newSite(t, "orders", "billing")
	s.pressure(60)
	path := s.file(numbered("order", 40)...)
	out := weirtest.Must(t, "publish", "--json", "--lag-warn-sleep", "5ms", s.url, path)
	if !strings.Contains(out, `"waits":40}`) || len(s.stored()) != 40 {
		t.Errorf("40 lines above the soft limit gave %s and %d stored, want a sleep for each", out, len(s.stored()))
	}

	// A process that stands still with room in its hands uses it when others have it, too.
	stored := 0
	for range 5 {
		if stored = publishByFour(t); stored >= 180 && stored <= 220 {
			return
		}
	}
	t.Errorf("%d messages stored by four at once, want about 200 in one of five tries", stored)
}

// publishByFour lets four processes publish 1,000 lines each past a hard limit of 200, with
// nobody at work, and returns how many are stored.
func publishByFour(t *testing.T) int {
	t.Helper()
	s := newSite(t, "orders", "billing")
	if err := s.client.XGroupCreateMkStream(t.Context(), s.stream, s.group, "0").Err(); err != nil {
		t.Fatal(err)
	}
	path := s.file(numbered("order", 1000)...)
	var publishers []*weirtest.Process
	for range 4 {
		publishers = append(publishers, weirtest.Go(t, nil, "publish", "--lag-signal", "backlog", "--lag-warn", "-1",
			"--lag-pause", "200", "--give-up", "1s", s.url, path))
	}
	for _, p := range publishers {
		if p.Wait() == 0 {
			t.Error("1,000 lines were published past a hard limit of 200 with nobody at work")
		}
	}
	return len(s.stored())
}

// file writes lines to a new file.
func (s *site) file(lines ...string) string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "lines")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func TestAPublishKilledAtAnyMomentAndRepeatedStoresEveryLineOnce(t *testing.T) {
	s := newSite(t, "orders", "billing")
	s.SetArgs("--appendonly", "yes", "--appendfsync", "always")
	s.Restart()
	lines := numbered("order", 30_000)
	path, place := s.file(lines...), filepath.Join(t.TempDir(), "place")
	random := rand.New(rand.NewPCG(1, 2))
	kills := 0
	life := 20 // ms that a publish has at most; more where that is too short to get anywhere
	for done := false; !done; {
		was, _ := os.ReadFile(place)
		batch := []string{"1", "7", "100", "500", "2000"}[random.IntN(5)]
		p := weirtest.Go(t, nil, "publish", "--guard", "off", "--resume", place, "--batch", batch, s.url, path)
		select {
		case <-p.Exited():
			p.Succeed()
			done = true
		case <-time.After(time.Duration(random.IntN(life)) * time.Millisecond):
			server := random.IntN(4) == 0
			if server {
				s.Kill()
			}
			p.Signal(syscall.SIGKILL)
			<-p.Exited()
			kills++
			if server {
				s.Restart()
			}
			if is, _ := os.ReadFile(place); bytes.Equal(is, was) {
				life += 10
			}
		}
	}
	if got := s.stored(); strings.Join(got, " ") != strings.Join(lines, " ") {
		t.Errorf("%d messages stored, want the %d once each and in order", len(got), len(lines))
	}
	if kills < 5 {
		t.Errorf("only %d kills", kills)
	}
	keys, err := s.client.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) > 3 {
		t.Errorf("keys left behind: %v, %v; want the stream and one place", keys, err)
	}
	t.Logf("%d lines stored once each over %d kills of weir publish, some of Redis too; keys left: %v", len(lines), kills, keys)
}
