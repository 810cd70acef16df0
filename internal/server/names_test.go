package server

import (
	"net/url"
	"strings"
	"testing"
)

// nameBodies are well-formed bodies of the calls on one topic or router, by the
// end of their path.
var nameBodies = map[string]string{
	"POST /v0/topics/:topic/offered": `{"bins":[],"add":[]}`,
	"POST /v0/topics/:topic":         `{"records":[{"data":1}],"create":false}`,
	"POST /v0/topics/:topic/writes":  `{"writes":[{"records":[{"data":1}]}],"create":false}`,
	"POST /v0/topics/:topic/delete":  `{"before_seq":1}`,
	"POST /v0/topics/:topic/claim":   `{"node":"n"}`,
	"POST /v0/topics/:topic/ack":     `{"node":"n","seqs":[1]}`,
	"POST /v0/topics/:topic/nack":    `{"node":"n","seqs":[1]}`,
	"POST /v0/topics/:topic/extend":  `{"node":"n","seqs":[1],"lease_ms":1000}`,
	"PUT /v0/routers/:router":        `{"source":"a","dest":"b"}`,
}

// No call can create a topic or router of an impossible name, so no answer
// advises that: each says what a name may be.
func TestTheAnswerToAnImpossibleNameSaysWhatANameMayBe(t *testing.T) {
	s := serveEngine(t, nil)
	said := func(what string, r *reply) {
		t.Helper()
		if strings.Contains(r.body, "create it") || !strings.Contains(r.body, "1 to 255") || !strings.Contains(r.body, "the first a letter or digit") {
			t.Errorf("%s: the answer does not say what a name may be: %s", what, r.body)
		}
		if len(r.body) > 1500 {
			t.Errorf("%s: the answer has %d bytes", what, len(r.body))
		}
	}
	names := []string{"a b", "-a", "a/b", "größe", "a*", strings.Repeat("n", 256), " ", "a\nb"}
	calls := 0
	for _, r := range routes {
		router := strings.Contains(r.path, ":router")
		if !router && !strings.Contains(r.path, ":topic") {
			continue
		}
		for _, name := range append(names, map[bool]string{true: ">a", false: "a->b"}[router]) {
			target := strings.NewReplacer(":topic", url.PathEscape(name), ":router", url.PathEscape(name)).Replace(r.path)
			if strings.HasSuffix(r.path, "/work") {
				target += "?node=n"
			}
			head := header{}
			if strings.HasSuffix(r.path, "/work") {
				head["Accept"] = "text/event-stream"
			}
			reply := s.ask(r.method, target, nameBodies[r.method+" "+r.path], head)
			what := r.method + " " + target
			switch r.method {
			case "DELETE":
				if reply.status != 200 || !strings.Contains(reply.body, `"deleted":false`) {
					t.Errorf("%s: got %d %s", what, reply.status, reply.body)
				}
				continue
			case "PUT":
				s.want(reply, 400, "invalid_request")
			default:
				code := "topic_not_found"
				if router {
					code = "router_not_found"
				}
				if reply.status != 404 || reply.code(t) != code {
					t.Errorf("%s: got %d %s", what, reply.status, reply.body)
				}
			}
			said(what, reply)
			calls++
		}
	}
	if calls < 80 {
		t.Errorf("only %d calls were made", calls)
	}
	for _, body := range []string{`{"topics":{"a b":{}}}`, `{"topics":{"":{}}}`} {
		r := s.ask("POST", "/v0/watch", body, nil)
		s.want(r, 404, "topic_not_found")
		said("watch", r)
	}
	for _, body := range []string{`{"source":"a b","dest":"c"}`, `{"source":"a","dest":"b c"}`, `{"source":"a","dest":"b c","create_dest":false}`} {
		r := s.ask("PUT", "/v0/routers/r", body, nil)
		s.want(r, 400, "invalid_request")
		said("router body "+body, r)
	}
	r := s.ask("PUT", "/v0/topics/q", `{"type":"queue","dead_letter":"a b"}`, nil)
	s.want(r, 400, "invalid_request")
	said("dead letter", r)
	for _, body := range []string{`{"records":[{"data":1}]}`, `{"records":[{"data":1}],"create":true,"config":{"type":"queue"}}`} {
		r := s.ask("POST", "/v0/topics/a%20b", body, nil)
		s.want(r, 400, "invalid_request")
		said("write "+body, r)
	}
	ws := s.socket(nil)
	for _, msg := range []string{`{"op":"subscribe","topic":"a b"}`, `{"op":"publish","topic":"a b","records":[{"data":1}],"create":false}`, `{"op":"publish","topic":"","records":[{"data":1}]}`} {
		ws.say(msg)
		ws.want(`"op":"error"`, "1 to 255")
	}
	for _, name := range names {
		r := s.ask("GET", "/v0/webhooks/"+url.PathEscape(name), "", nil)
		s.want(r, 404, "not_found")
		said("webhook "+name, r)
	}
	// A possible name is still told how to come into being.
	r = s.ask("GET", "/v0/topics/a", "", nil)
	s.want(r, 404, "topic_not_found")
	if !strings.Contains(r.body, `create it with PUT or a write: a log, unless its config has \"type\":\"queue\"`) {
		t.Error(r.body)
	}
}
