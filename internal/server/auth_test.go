package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// verdicts says for every route which scopes it needs and whether a prefix
// limit bears on its name. A route that is missing here fails the test.
var verdicts = map[string]struct {
	need   string
	open   bool
	prefix bool
}{
	"GET /v0/health":                 {open: true},
	"GET /healthz":                   {open: true},
	"GET /v0/ready":                  {open: true},
	"GET /readyz":                    {open: true},
	"GET /v0/metrics":                {need: "r"},
	"GET /v0/topics":                 {need: "r"},
	"PUT /v0/topics/:topic":          {need: "a", prefix: true},
	"GET /v0/topics/:topic":          {need: "r", prefix: true},
	"DELETE /v0/topics/:topic":       {need: "d", prefix: true},
	"POST /v0/topics/:topic":         {need: "w", prefix: true},
	"POST /v0/topics/:topic/diff":    {need: "r", prefix: true},
	"POST /v0/topics/:topic/delete":  {need: "d", prefix: true},
	"POST /v0/topics/:topic/claim":   {need: "rw", prefix: true},
	"POST /v0/topics/:topic/ack":     {need: "w", prefix: true},
	"POST /v0/topics/:topic/nack":    {need: "w", prefix: true},
	"POST /v0/topics/:topic/extend":  {need: "w", prefix: true},
	"POST /admin/backup":             {need: "a"},
	"PATCH /v0/topics":               {need: "w"},
	"PATCH /v0/topics/:topic":        {need: "w", prefix: true},
	"GET /v0/topics/:topic/work":     {need: "rw", prefix: true},
	"GET /v0/topics/:topic/diff":     {need: "w", prefix: true},
	"POST /v0/topics/:topic/x/y/z":   {need: "w", prefix: true},
	"GET /v0/topics/:topic/":         {need: "w", prefix: true},
	"GET /v0/routers":                {need: "r"},
	"PUT /v0/routers/:router":        {need: "a", prefix: true},
	"GET /v0/routers/:router":        {need: "r", prefix: true},
	"DELETE /v0/routers/:router":     {need: "d", prefix: true},
	"POST /v0/routers/:router":       {need: "a", prefix: true},
	"PATCH /v0/routers":              {need: "a"},
	"POST /v0/watch":                 {need: "r"},
	"GET /v0/watch/:wid":             {open: true},
	"POST /v0/watch/:wid":            {},
	"GET /v0/ws":                     {},
	"GET /v0/nothing":                {},
	"POST /":                         {},
	"GET /v0//topics":                {},
	"POST /ui/":                      {},
	"GET /":                          {open: true},
	"GET /ui/app.js":                 {open: true},
	"GET /v0/%74opics/:topic":        {need: "r", prefix: true},
	"POST /v0/topics/:topic%2Fdiff":  {need: "w", prefix: true},
	"DELETE /v0/topics/:topic%2F..":  {need: "d", prefix: true},
	"OPTIONS /v0/topics/:topic":      {need: "w", prefix: true},
	"OPTIONS /v0/topics/:topic/diff": {need: "w", prefix: true},
}

func TestEveryRouteIsOpenToTheRightKeysOnly(t *testing.T) {
	keys := []string{"r", "w", "d", "a", "rw", "r+w+d+a"}
	var list []string
	for i, k := range keys {
		list = append(list, fmt.Sprintf("key%d:%s", i, k), fmt.Sprintf("lim%d:%s:in|other.", i, k))
	}
	s := serveTest(t, func(c *Config) { c.Keys = parseKeys(t, strings.Join(list, ",")) })

	calls := make(map[string]bool)
	for name := range verdicts {
		calls[name] = true
	}
	for _, r := range routes {
		calls[r.method+" "+r.path] = true
		if r.method == http.MethodGet {
			calls["HEAD "+r.path] = true
		}
	}
	for call := range calls {
		v, ok := verdicts[strings.Replace(call, "HEAD ", "GET ", 1)]
		if !ok {
			t.Errorf("%s has no row in verdicts; add what it needs", call)
			continue
		}
		method, path, _ := strings.Cut(call, " ")
		try := func(key, topic string, want int) {
			head := header{}
			if key != "" {
				head["Authorization"] = "Bearer " + key
			}
			r := s.ask(method, strings.NewReplacer(":topic", topic, ":router", topic).Replace(path), "", head)
			got := r.status
			if got != http.StatusUnauthorized && got != http.StatusForbidden {
				got = http.StatusOK
			}
			if got != want {
				t.Errorf("%s of %q with key %q: got %d, want %d (200 = let through)", call, topic, key, r.status, want)
			}
		}
		let := func(ok bool, otherwise int) int {
			if ok {
				return http.StatusOK
			}
			return otherwise
		}
		try("", "in.x", let(v.open, http.StatusUnauthorized))
		try("wrong", "in.x", let(v.open, http.StatusUnauthorized))
		for i, k := range keys {
			has := true
			for _, c := range v.need {
				has = has && strings.ContainsRune(k, c)
			}
			try(fmt.Sprintf("key%d", i), "out.x", let(has || v.open, http.StatusForbidden))
			try(fmt.Sprintf("lim%d", i), "in.x", let(has || v.open, http.StatusForbidden))
			try(fmt.Sprintf("lim%d", i), "out.x", let(has && !v.prefix || v.open, http.StatusForbidden))
		}
	}
}

func TestProbesNeedAKeyOnlyIfAskedTo(t *testing.T) {
	s := serveTest(t, func(c *Config) { c.Keys, c.ProbeAuth = parseKeys(t, "k:r"), true })
	for _, path := range []string{"/v0/health", "/healthz", "/v0/ready", "/readyz"} {
		s.want(s.ask("GET", path, "", nil), 401, "unauthorized")
	}
	s.want(s.ask("GET", "/healthz", "", header{"Authorization": "Bearer k"}), 200, "")
}

func TestTheBearerHeaderIsMatchedExactly(t *testing.T) {
	s := serveTest(t, func(c *Config) { c.Keys = parseKeys(t, "secret") })
	for value, want := range map[string]int{
		"Bearer secret":      200,
		"Bearer   secret  ":  200,
		"bearer secret":      401,
		"BEARER secret":      401,
		"Bearersecret":       401,
		"Bearer":             401,
		"Bearer ":            401,
		"Basic secret":       401,
		"secret":             401,
		"Bearer secret,":     401,
		"Bearer Secret":      401,
		"Bearer secret more": 401,
	} {
		if r := s.ask("GET", "/v0/metrics", "", header{"Authorization": value}); r.status != want {
			t.Errorf("%q: got %d, want %d", value, r.status, want)
		}
	}
	s.want(s.ask("GET", "/v0/metrics?token=secret", "", nil), 401, "unauthorized")
}

func TestKeyEntries(t *testing.T) {
	for entry, want := range map[string]string{
		"k":                  "read+write+delete+admin []",
		" k : r ":            "read []",
		"k:R+Write":          "read+write []",
		"k:rw":               "read+write []",
		"k:del+d+delete":     "delete []",
		"k:a":                "admin []",
		"k:":                 "read+write+delete+admin []",
		"k::":                "read+write+delete+admin []",
		"k::a.|b":            "read+write+delete+admin [a. b]",
		"k:w:tenant:1|x:y:z": "write [tenant:1 x:y:z]",
		"k:r+":               "read []",
	} {
		k := parseKeys(t, entry).list[0]
		if got := fmt.Sprintf("%s %v", k.scopes, k.prefixes); got != want {
			t.Errorf("%q: got %s, want %s", entry, got, want)
		}
	}
	for _, bad := range []string{"k:+", "k: + ", "k:read+wrong", "k::|", "k:: | ", ":r", " :r", ":", "::p", "k,k:r", "k:r,x, k "} {
		if _, err := ParseKeys(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	for _, none := range []string{"", ",", " , ,"} {
		if k, err := ParseKeys(none); k != nil || err != nil {
			t.Errorf("%q: got %v, %v, want no keys", none, k, err)
		}
	}
}

func TestKeyErrorsHoldNoSecret(t *testing.T) {
	for _, list := range []string{"hush:bad", "hush,hush", "hush:+", "hush::|"} {
		if _, err := ParseKeys(list); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: the error is %v", list, err)
		}
	}
}

func TestAKeyHasOnlySoManyRequestsAtATime(t *testing.T) {
	s := serveTest(t, func(c *Config) {
		c.Keys = parseKeys(t, "k,other")
		c.Limits.MaxInflightPerKey = 1
	})
	k := s.keys.list[0]
	if !k.inflight.take(1, 1) {
		t.Fatal("the first slot is taken")
	}
	r := s.ask("GET", "/v0/metrics", "", header{"Authorization": "Bearer k"})
	s.want(r, 429, "throttled")
	if r.header.Get("Retry-After") != "1" || !strings.Contains(r.body, `"detail":{"limit":"max_inflight_per_key","max":1}`) {
		t.Errorf("the refusal is %v %s", r.header, r.body)
	}
	s.want(s.ask("GET", "/v0/metrics", "", header{"Authorization": "Bearer other"}), 200, "")
	k.inflight.give(1)
	for range 3 {
		s.want(s.ask("GET", "/v0/metrics", "", header{"Authorization": "Bearer k"}), 200, "")
		s.want(s.ask("GET", "/v0/nothing", "", header{"Authorization": "Bearer k"}), 404, "not_found")
	}
	if n := k.inflight.n.Load(); n != 0 {
		t.Errorf("%d slots stay taken", n)
	}
}
