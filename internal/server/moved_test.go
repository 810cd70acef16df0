package server

import (
	"os"
	"testing"
)

// TestAnotherDirectoryInThePlaceOfTheServersIsLeftAlone: it may be another server's.
func TestAnotherDirectoryInThePlaceOfTheServersIsLeftAlone(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Webhooks.On = true })
	s.expect(201, "PUT", "/v0/topics/q", `{"type":"queue"}`, nil)
	status := func(want int, method, target, body string) {
		t.Helper()
		if r := s.ask(method, target, body, nil); r.status != want {
			t.Errorf("%s %s: %d %.200s", method, target, r.status, r.body)
		}
	}
	status(201, "PUT", "/v0/webhooks/first", `{"topic":"q","url":"https://example.com/a"}`)
	aside := s.dataDir + ".aside"
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	move(s.dataDir, aside)
	if err := os.Mkdir(s.dataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	status(500, "PUT", "/v0/webhooks/second", `{"topic":"q","url":"https://example.com/b"}`)
	status(500, "DELETE", "/v0/webhooks/first", "")
	status(500, "POST", "/v0/tokens", `{"topics":["q"]}`)
	if names, err := os.ReadDir(s.dataDir); err != nil || len(names) > 0 {
		t.Errorf("in its place there are %v, %v", names, err)
	}
	if err := os.Remove(s.dataDir); err != nil {
		t.Fatal(err)
	}
	move(aside, s.dataDir)
	status(200, "GET", "/v0/webhooks/first", "")
	status(201, "PUT", "/v0/webhooks/second", `{"topic":"q","url":"https://example.com/b"}`)
	status(200, "POST", "/v0/tokens", `{"topics":["q"]}`)
}
