package contract

import (
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// own is a target that the test started itself.
type own struct{ server *weirtest.Server }

func (o *own) URL() string { return o.server.URL }

func (o *own) Restart(t testing.TB, kill bool) {
	t.Helper()
	if kill {
		o.server.Kill()
	} else if code := o.server.Stop(); code != 0 {
		t.Errorf("SIGTERM: exit code %d, want 0", code)
	}
	o.server.Restart()
}

// Starts replaces $DIR in the settings by the data directory of this server.
func (o *own) Starts(t testing.TB, env []string) (bool, string) {
	t.Helper()
	settings := make([]string, len(env))
	for i, kv := range env {
		settings[i] = strings.ReplaceAll(kv, "$DIR", o.server.Dir)
	}
	s, err := weirtest.TryStart(t, weirtest.Options{Env: settings})
	if err != nil {
		return false, s.Stderr()
	}
	s.Stop()
	return true, s.Stderr()
}

// foreign is a server somebody else runs; no case with commands reaches it.
type foreign string

func (f foreign) URL() string                                { return strings.TrimSuffix(string(f), "/") }
func (f foreign) Restart(testing.TB, bool)                   { panic("a foreign server is not restarted") }
func (f foreign) Starts(testing.TB, []string) (bool, string) { panic("not with a foreign server") }

// servers hands out one running server per environment.
type servers struct {
	t   *testing.T // the whole test: servers outlive the cases
	all map[string]*own
}

func (s *servers) get(env []string) *own {
	key := environment(env)
	if s.all[key] == nil {
		s.all[key] = &own{weirtest.Start(s.t, weirtest.Options{Env: env})}
	}
	return s.all[key]
}
