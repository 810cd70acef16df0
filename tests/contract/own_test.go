package contract

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// own is a target that the test started itself, maybe with a relay in front of it.
type own struct {
	server *weirtest.Server
	relay  *weirtest.Server // nil: none
}

// relayKey is the relay's key to servers that have keys.
const relayKey = "the-relays-own-key"

func newOwn(t testing.TB, env []string, relayed bool) *own {
	if !relayed {
		return &own{server: weirtest.Start(t, weirtest.Options{Env: env})}
	}
	env = slices.Clone(env)
	for i, kv := range env {
		if strings.HasPrefix(kv, "WEIR_API_KEYS=") {
			env[i] += "," + relayKey + ":r"
		}
	}
	s := weirtest.Start(t, weirtest.Options{Env: env})
	s.SetEnv(append(env, "WEIR_PORT="+s.Addr[strings.LastIndexByte(s.Addr, ':')+1:])) // where the relay looks for it
	settings := []string{"WEIR_UPSTREAM_KEY=" + relayKey}
	for _, kv := range env {
		if !strings.HasPrefix(kv, "WEIR_API_KEYS=") {
			settings = append(settings, kv)
		}
	}
	return &own{s, weirtest.Start(t, weirtest.Options{Env: settings, Args: []string{"--upstream", s.URL}})}
}

func (o *own) URL() string {
	if o.relay != nil {
		return o.relay.URL
	}
	return o.server.URL
}

func (o *own) Restart(t testing.TB, kill bool) {
	t.Helper()
	if kill {
		o.server.Kill()
	} else if code := o.server.Stop(); code != 0 {
		t.Errorf("SIGTERM: exit code %d, want 0", code)
	}
	o.server.Restart()
	if o.relay != nil {
		if err := o.relay.AwaitReady(); err != nil {
			t.Error(err)
		}
	}
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
	t       *testing.T // the whole test: servers outlive the cases
	relayed bool
	copied  func() []string // settings of the next server's copy; nil: it keeps none
	all     map[string]*own
}

func (s *servers) get(env []string) *own {
	key := environment(env)
	if s.all[key] == nil {
		if s.copied != nil {
			env = append(slices.Clone(env), s.copied()...)
		}
		s.all[key] = newOwn(s.t, env, s.relayed)
	}
	return s.all[key]
}
