package server

import (
	"strings"
	"testing"
)

// What is outside a key's prefixes is not named to it: not in lists, not in
// metrics, not in refusals. The one exception is the contract's: GET and DELETE of
// a router with an own name and a foreign topic name that topic in their 403.
func TestAPrefixLimitedKeyIsToldNoForeignName(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Keys, c.Webhooks.On = parseKeys(t, "all,mine::own."), true })
	as := func(key string) header { return header{"Authorization": "Bearer " + key} }
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v0/topics/own.a", `{"records":[{"data":1}]}`},
		{"PUT", "/v0/topics/own.q", `{"type":"queue"}`},
		{"POST", "/v0/topics/secret.b", `{"records":[{"data":1},{"data":2}]}`},
		{"PUT", "/v0/topics/secret.q", `{"type":"queue"}`},
		{"PUT", "/v0/routers/secret.fan", `{"source":"secret.b","dest":"own.fed"}`},
		{"PUT", "/v0/routers/own.out", `{"source":"own.a","dest":"secret.b"}`},
		{"PUT", "/v0/routers/own.far", `{"source":"secret.b","dest":"secret.c"}`},
		{"PUT", "/v0/routers/secret.loop", `{"source":"secret.c","dest":"own.z"}`},
		{"PUT", "/v0/routers/secret.drop", `{"source":"own.drop","dest":"secret.d"}`},
		{"PUT", "/v0/topics/own.buried", `{"type":"queue","dead_letter":"secret.b"}`},
		{"PUT", "/v0/webhooks/own.hook", `{"topic":"own.q","url":"https://example.com/a"}`},
		{"PUT", "/v0/webhooks/own.spy", `{"topic":"secret.q","url":"https://example.com/b"}`},
		{"PUT", "/v0/webhooks/secret.hook", `{"topic":"own.q","url":"https://example.com/c"}`},
	} {
		if r := s.ask(c.method, c.path, c.body, as("all")); r.status/100 != 2 {
			t.Fatalf("%+v: %d %s", c, r.status, r.body)
		}
	}
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", "/v0/topics", "", 200},
		{"GET", "/v0/topics?page_size=1", "", 200},
		{"GET", "/v0/topics?prefix=s", "", 200},
		{"GET", "/v0/routers", "", 200},
		{"GET", "/v0/routers?dest=secret.b", "", 200},
		{"PUT", "/v0/routers/own.far", `{"source":"own.a","dest":"own.new"}`, 403}, // not: where it points now
		{"PUT", "/v0/routers/own.two", `{"source":"own.a","dest":"own.fed"}`, 409}, // fed by another one
		{"PUT", "/v0/routers/own.back", `{"source":"own.z","dest":"own.a"}`, 409},  // closes a loop
		{"GET", "/v0/metrics", "", 200},
		{"GET", "/metrics", "", 200},
		{"GET", "/v0/webhooks", "", 200},
		{"GET", "/v0/webhooks/own.spy", "", 403},
		{"DELETE", "/v0/webhooks/own.spy", "", 403},
		{"GET", "/v0/ready", "", 200},
		{"POST", "/v0/topics/own.a/diff", `{}`, 200},
		{"GET", "/v0/topics/own.fed", "", 200},
		{"DELETE", "/v0/topics/own.drop", "", 200}, // takes a router with it
	} {
		for _, accept := range []string{"*/*", "application/json"} {
			head := as("mine")
			head["Accept"] = accept
			r := s.ask(c.method, c.path, c.body, head)
			if r.status != c.want {
				t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, r.status, r.body)
			}
			if strings.Contains(r.body, "secret.") {
				t.Errorf("%s %s %s tells a foreign name: %s", c.method, c.path, c.body, linesWith(r.body, "secret."))
			}
		}
	}
	page := s.ask("GET", "/v0/metrics", "", as("mine")).body
	for _, row := range []string{`weir_topic_head_seq{topic="own.a"} 1`, `weir_topic_queue_ready{topic="own.q"} 0`,
		`sse_queue_depth{queue_name="own.q"} 0`, `sse_queue_produce_attempts_total{queue_type="weir",stream="own.q"} 0`, "weir_topic_metrics_truncated 0"} {
		if !strings.Contains(page, row+"\n") {
			t.Errorf("the key does not see %s", row)
		}
	}
	page = s.ask("GET", "/metrics", "", as("mine")).body
	shows(t, page, `weir_topic_queue_dead_letters{topic="own.q"} 0`, `weir_webhook_in_flight{webhook="own.hook"} 0`)
	for _, row := range []string{`weir_topic_queue_dead_letters{topic="own.buried"}`, `webhook="own.spy"`} {
		if strings.Contains(page, row) {
			t.Errorf("the key sees what a foreign topic has: %s", linesWith(page, row))
		}
	}
	page = s.ask("GET", "/v0/metrics", "", as("all")).body
	if !strings.Contains(page, `weir_topic_head_seq{topic="own.a"} 1`) || !strings.Contains(page, `weir_topic_queue_ready{topic="secret.q"} 0`) {
		t.Error("a key without prefixes does not see every topic")
	}
}

// linesWith are the lines of a text that hold a piece.
func linesWith(text, piece string) string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, piece) {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}
