package library

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/stall"
	"github.com/weirmq/weir/tests/weirtest"
)

// lagKey is where workers of the stream "jobs" publish how many messages they hold.
const lagKey = "{jobs}:lag:weir"

// paused starts a publish that the hard limit holds, with more settings in env.
func paused(t *testing.T, server *redistest.Server, env ...string) (*weirtest.Process, func() int64) {
	t.Helper()
	client := server.Client()
	if err := client.Set(t.Context(), lagKey, 500, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(file, []byte("order\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := weirtest.Go(t, env, "publish", "--guard", "static", server.URL()+"?stream=jobs", file)
	weirtest.Eventually(t, "the publish is paused", func() bool {
		return strings.Contains(p.Stderr.String(), "weir publish: waiting: the workers of jobs are behind: 500 messages are pending, more than lag_pause 200")
	})
	return p, func() int64 { return client.XLen(t.Context(), "jobs").Val() }
}

func TestSIGTERMEndsAPausedPublishAtOnce(t *testing.T) {
	p, stored := paused(t, redistest.Start(t, redistest.Options{}))
	stalled := stall.Busy()
	began := time.Now()
	p.Signal(syscall.SIGTERM)
	code := p.Wait()
	took := time.Since(began)
	t.Logf("ended %s after SIGTERM with exit code %d: %s", took, code, p.Stderr.String())
	// 100 ms are promised for the pause; the rest is a process that ends.
	if took > time.Second+stalled() || code == 0 || stored() != 0 {
		t.Errorf("took %s, exit code %d, %d stored: want an end at once, not 0 and nothing stored", took, code, stored())
	}
}

func TestPausedPublishGoesOnWhenTheWorkersHaveCaughtUp(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	p, stored := paused(t, server)
	if err := server.Client().Set(t.Context(), lagKey, 10, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if code := p.Wait(); code != 0 || stored() != 1 {
		t.Errorf("exit code %d, %d stored", code, stored())
	}
}

func TestPausedPublishObeysANewSettingsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("lag_pause: 200\n")
	p, stored := paused(t, redistest.Start(t, redistest.Options{}), "WEIR_CONFIG="+file)
	write("lag_pause: 500\n")
	p.Signal(syscall.SIGHUP)
	if code := p.Wait(); code != 0 || stored() != 1 {
		t.Errorf("exit code %d, %d stored: %s", code, stored(), p.Stderr.String())
	}
}
