package contract

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// notAtARelay are the cases that a relay cannot pass, by the beginnings of their names, and why.
var notAtARelay = map[string]string{
	"watch: a session is answered with where it starts": "a wid holds its session, so it is longer",
	"stream: Last-Event-ID never moves the position":    "another relay may have sent what the id says",
	"caps: watch sessions":                              "a session takes no memory, so there is no cap on making one",
	"stream: a shutdown is announced, the session is":   "streams outlive a restart of the server",
	"session: ": "a relay's sessions are in their wids",
	"ws: a shutdown is announced, then the socket is":    "so do sockets",
	"stream: a deleted topic is announced again at each": "it does not wait for a first caught-up, which a relay asks its server for",
	"ws: what waits goes with its connection":            "its server hears of that a moment later",
	"metrics: a JSON snapshot when asked for":            "the server has one connection more, the relay's",
}

func canPassAtARelay(c *Case) bool {
	for name := range notAtARelay {
		if strings.HasPrefix(c.Name, name) {
			return false
		}
	}
	return true
}

// aRelayServes are the files about what a relay serves itself; the rest is passed on.
var aRelayServes = []string{"25-watch.txt", "26-websocket.txt", "35-websocket-queues.txt"}

// TestContractAtARelay runs the cases of streams against a relay. WEIR_CONTRACT_RELAYED=1
// runs all that there are, with every server's settings.
func TestContractAtARelay(t *testing.T) {
	cases, _ := readCases(t)
	all := os.Getenv("WEIR_CONTRACT_RELAYED") == "1"
	started := &servers{t: t, all: map[string]*own{}, relayed: true}
	runner := NewRunner(stamp())
	runner.Record(t)
	t.Cleanup(runner.Close)
	ran := 0
	for _, c := range cases {
		if !canPassAtARelay(c) || !all && (c.NeedsOwn() || !slices.Contains(aRelayServes, c.File)) {
			continue
		}
		ran++
		t.Run(strings.TrimSuffix(c.File, ".txt")+"/"+c.Name, func(t *testing.T) { runner.Run(t, c, started.get(c.Env)) })
	}
	if ran < 150 {
		t.Errorf("%d cases, want at least 150", ran)
	}
}
