package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir"
)

func environment(pairs ...string) func(string) (string, bool) {
	m := map[string]string{}
	for _, p := range pairs {
		name, text, _ := strings.Cut(p, "=")
		m[name] = text
	}
	return func(name string) (string, bool) {
		text, ok := m[name]
		return text, ok
	}
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheEnvironmentBeatsTheFile(t *testing.T) {
	path := file(t, "lag_warn: 1\nlag_pause: 1\nqueue_max_depth: 1e3\nbatch: 1\nguard: off\nmax_topics: 5\n")
	got, err := Load(Options{Lookup: environment("WEIR_LAG_PAUSE=2", "WEIR_BATCH=3", "WEIR_CONFIG="+path)})
	if err != nil {
		t.Fatal(err)
	}
	p := got.Producer
	if p.LagWarn != 1 || p.LagPause != 2 || got.Pool.Batch != 3 || p.MaxDepth != 1000 || p.Guard != weir.GuardOff {
		t.Errorf("%+v, batch %d", p, got.Pool.Batch)
	}
	if p.WithDefaults().LagPoll != 100*time.Millisecond {
		t.Error("what nobody sets is not the default")
	}
	if _, err := Load(Options{Lookup: environment("WEIR_BATCH=0", "WEIR_CONFIG="+path)}); err == nil || err.Error() != `environment variable WEIR_BATCH: "0" is not a whole number from 1 to 1000` {
		t.Errorf("got %v", err)
	}
}
