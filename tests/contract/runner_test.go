package contract

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// failures records what a run would have reported.
type failures struct {
	testing.TB
	text []string
}

func (f *failures) Helper() {}
func (f *failures) Errorf(format string, args ...any) {
	f.text = append(f.text, strings.TrimSpace(format))
	for _, a := range args {
		if e, ok := a.(error); ok {
			f.text = append(f.text, e.Error())
		}
	}
}

// fake answers a few paths the way a conforming or a careless server would.
func fake(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	answer := func(status int, text string) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
	switch r.URL.Path {
	case "/v0/health":
		answer(200, `{"status":"ok","n":1.50,"list":[1,2,3],"none":null,"id":"lease_1f"}`)
	case "/v0/len":
		answer(200, `{"len":`+show(len(body))+`,"type":`+show(r.Header.Get("Content-Type"))+`}`)
	case "/v0/topics/bare":
		answer(200, `{}`)
	case "/v0/busy":
		answer(429, `{"error":{"code":"throttled","message":"m"}}`)
	case "/v0/moved":
		w.Header().Set("Location", "/v0/health")
		answer(301, ``)
	default:
		answer(404, `{"error":{"code":"not_found","message":"no such path"}}`)
	}
}

func runText(t *testing.T, text string) string {
	t.Helper()
	cases, err := Parse("text", text)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(fake))
	defer server.Close()
	r := NewRunner("r")
	defer r.Close()
	f := &failures{TB: t}
	r.Run(f, cases[0], foreign(server.URL))
	return strings.Join(f.text, "\n")
}

func TestRunnerAcceptsWhatMatches(t *testing.T) {
	for _, text := range []string{
		"GET /v0/health\n> 200\n> body {\"status\":\"ok\",\"n\":1.5,\"list\":[1,*int,...],\"none\":null,\"x\":absent}",
		"GET /v0/health\n> 200\n> body {\"n\":1..2,\"id\":*lease,\"status\":~\"^o\"}\n> header Retry-After absent",
		"GET /v0/health\n> 200\n> save first list[0]\nGET /v0/health\n> 200\n> body {\"list\":[$first,2,3]}",
		"GET /v0/nothing\n> 404 not_found",
		"POST /v0/len {\"a\":[@list(3, {\"n\":#@fill(2, x)})]}\n> 200\n> body {\"len\":37,\"type\":\"application/json\"}",
		"POST /v0/len @empty\nContent-Type: text/x\n> 200\n> body {\"len\":0,\"type\":\"text/x\"}",
		"POST /v0/len {}\n-Content-Type\n> 200\n> body {\"type\":\"\"}",
		"POST /v0/len @hex(efbbbf)@nest(2)\n> 200\n> body {\"len\":7}",
		"RAW\n| GET /v0/health HTTP/1.1\n| Host: x\n| Connection: close\n|\n> 200\n> closed",
	} {
		if got := runText(t, "=== c [§1]\n"+text); got != "" {
			t.Errorf("%s\nreported: %s", text, got)
		}
	}
}

func TestRunnerReportsDifferences(t *testing.T) {
	for text, want := range map[string]string{
		"GET /v0/health\n> 201":                                                             "status is 200",
		"GET /v0/health\n> 200\n> body {\"list\":[1,2]}":                                    "3 elements",
		"GET /v0/health\n> 200\n> body {\"status\":absent}":                                 "want it absent",
		"GET /v0/health\n> 200\n> body {\"status\":\"ok\",!}":                               "unexpected member",
		"GET /v0/health\n> 200\n> body {\"missing\":*}":                                     "missing is absent",
		"GET /v0/health\n> 200\n> body {\"status\":*int}":                                   "want an integer",
		"GET /v0/nothing\n> 404 topic_not_found":                                            "code is not_found",
		"GET /v0/busy\n> 429 throttled":                                                     "Retry-After",
		"GET /v0/topics/bare\n> 200":                                                        "performance",
		"GET /v0/moved\n> 200":                                                              "status is 301",
		"HEAD /v0/health\n> 200\n> header X-None: *":                                        "is absent",
		"GET /v0/health\n> 200\n> text lacks ok":                                            "lacks",
		"sleep 1ms\nGET /v0/health\n> 500":                                                  "status is 200",
		"RAW\n| GET /v0/health HTTP/1.1\n| Host: x\n|\n> 200\n> text contains absent words": "contains",
	} {
		if got := runText(t, "=== c [§1]\n"+text); !strings.Contains(got, want) {
			t.Errorf("%s\nreported %q, want %q in it", text, got, want)
		}
	}
}

func TestUnknownLinesAreRefused(t *testing.T) {
	for _, text := range []string{
		"GET /x\n> 200", "=== no section\nGET /x\n> 200", "=== c [§1]\nGET /x", "=== c [§1]", "=== c [§1]\nget /x\n> 200",
		"=== c [§1]\nGET /x\n> 200\n> bodi {}", "=== c [§1]\nGET /x\n> body {}", "=== c [§1]\nGET /x\n> 200\n> body {\"a\":nil}",
		"=== c [§1]\n!explode", "=== c [§1]\nGET /x\n> 200\nenv A=B", "=== c [§1]\nRAW\n> 200",
		"=== c [§1]\nGET /x\n> 200\n> save seq a", "=== c [§1]\nsleep long", "=== c [§1]\nGET /x\n> 200\n> within soon",
	} {
		if _, err := Parse("text", text); err == nil {
			t.Errorf("accepted:\n%s", text)
		}
	}
}

func TestPatternsCompareNumbersByValueOnlyIfFractional(t *testing.T) {
	for want, got := range map[string]string{"1.0": "1", "100": "1e2", "18446744073709551615": "18446744073709551615"} {
		p, err := parsePattern(want)
		if err != nil {
			t.Fatal(err)
		}
		if diff := p.match("v", json.Number(got)); diff != "" {
			t.Error(diff)
		}
	}
	p, _ := parsePattern("18446744073709551615")
	if p.match("v", json.Number("18446744073709551614")) == "" {
		t.Error("neighbouring 64-bit integers are taken as equal")
	}
}
