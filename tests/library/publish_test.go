package library

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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
	s.pressure(60) // above the soft limit: a sleep for each write
	args := []string{"publish", "--resume", place, "--batch", "100", s.url, path}
	p := weirtest.Go(t, nil, args...)
	s.eventually("a part is stored", func() bool { return s.client.XLen(t.Context(), s.stream).Val() >= 100 })
	s.pressure(500)
	s.eventually("the guard says that it pauses", func() bool { return strings.Contains(p.Stderr.String(), "QUEUE.BACKPRESSURE") })
	n := len(s.stored())
	var stall time.Duration
	var probe sync.WaitGroup
	probe.Go(func() { stall = stalls(p.Exited()) })
	start := time.Now()
	p.Signal(syscall.SIGTERM)
	code := p.Wait()
	took := time.Since(start)
	probe.Wait()
	if code != 1 || !strings.Contains(p.Stderr.String(), "interrupted after") {
		t.Errorf("code %d: %s", code, p.Stderr.String())
	}
	if took > limit+stall {
		t.Errorf("ended %s after SIGTERM, want at most %s", took, limit)
	}
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
	t.Logf("a publish in a pause ended %s after SIGTERM, with %d of %d messages stored; run again it stored the rest once", took.Round(time.Millisecond), n, len(lines))
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
	s.eventually("the guard says that it pauses", func() bool { return strings.Contains(p.Stderr.String(), "QUEUE.BACKPRESSURE") })
	write(file, "guard: off\n") // and no signal
	start := time.Now()
	p.Succeed()
	if got := s.stored(); len(got) != 1 || got[0] != "one" {
		t.Errorf("stored %v", got)
	}
	t.Logf("published %s after the file was changed", time.Since(start).Round(time.Millisecond))
}
