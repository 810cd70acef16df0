package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// verdicts says for every route which scopes it needs and whether a prefix
// limit bears on its name, or keys with prefixes are refused. A route that is missing here fails the test.
var verdicts = map[string]struct {
	need   string
	open   bool
	prefix bool
	whole  bool
}{
	"GET /v0/health":                     {open: true},
	"GET /healthz":                       {open: true},
	"GET /v0/ready":                      {open: true},
	"GET /readyz":                        {open: true},
	"GET /v0/metrics":                    {need: "r"},
	"GET /metrics":                       {need: "r"},
	"GET /v0/topics":                     {need: "r"},
	"PUT /v0/topics/:topic":              {need: "a", prefix: true},
	"GET /v0/topics/:topic":              {need: "r", prefix: true},
	"DELETE /v0/topics/:topic":           {need: "d", prefix: true},
	"POST /v0/topics/:topic":             {need: "w", prefix: true},
	"POST /v0/topics/:topic/diff":        {need: "r", prefix: true},
	"POST /v0/topics/:topic/delete":      {need: "d", prefix: true},
	"POST /v0/topics/:topic/claim":       {need: "rw", prefix: true},
	"POST /v0/topics/:topic/ack":         {need: "w", prefix: true},
	"POST /v0/topics/:topic/nack":        {need: "w", prefix: true},
	"POST /v0/topics/:topic/extend":      {need: "w", prefix: true},
	"POST /v0/topics/:topic/offered":     {need: "w", prefix: true},
	"POST /v0/topics/:topic/writes":      {need: "w", prefix: true},
	"POST /v0/topics/:topic/pause":       {need: "a", prefix: true},
	"POST /v0/topics/:topic/resume":      {need: "a", prefix: true},
	"POST /admin/backup":                 {need: "a"},
	"POST /admin/bundle":                 {need: "a", whole: true},
	"PATCH /v0/topics":                   {need: "w"},
	"PATCH /v0/topics/:topic":            {need: "w", prefix: true},
	"GET /v0/topics/:topic/work":         {need: "rw", prefix: true},
	"GET /v0/topics/:topic/records/:seq": {need: "r", prefix: true},
	"GET /v0/topics/:topic/diff":         {need: "w", prefix: true},
	"POST /v0/topics/:topic/x/y/z":       {need: "w", prefix: true},
	"GET /v0/topics/:topic/":             {need: "w", prefix: true},
	"GET /v0/routers":                    {need: "r"},
	"PUT /v0/routers/:router":            {need: "a", prefix: true},
	"GET /v0/routers/:router":            {need: "r", prefix: true},
	"DELETE /v0/routers/:router":         {need: "d", prefix: true},
	"POST /v0/routers/:router":           {need: "a", prefix: true},
	"PATCH /v0/routers":                  {need: "a"},
	"POST /v0/watch":                     {need: "r"},
	"GET /v0/watch/:wid":                 {open: true},
	"POST /v0/watch/:wid":                {},
	"GET /v0/ws":                         {},
	"POST /v0/tokens":                    {need: "r"},
	"GET /v0/nothing":                    {},
	"POST /":                             {},
	"GET /v0//topics":                    {},
	"POST /ui/":                          {},
	"GET /":                              {open: true},
	"GET /ui/app.js":                     {open: true},
	"GET /ui/nothing":                    {open: true},
	"GET /ui/:file":                      {open: true},
	"GET /ui/live":                       {need: "r"},
	"GET /ui/history":                    {need: "r"},
	"GET /ui/history/:topic":             {need: "r", prefix: true},
	"GET /ui/streams/:stream":            {need: "r", prefix: true},
	"GET /ui/letters/:stream":            {need: "r", prefix: true},
	"GET /ui/letters/:stream/:letter":    {need: "r", prefix: true},
	"POST /ui/redrive/:stream":           {need: "rwd", prefix: true},
	"POST /ui/purge/:stream":             {need: "rd", prefix: true},
	"POST /ui/session":                   {open: true},
	"DELETE /ui/session":                 {open: true},
	"GET /v0/%74opics/:topic":            {need: "r", prefix: true},
	"POST /v0/topics/:topic%2Fdiff":      {need: "w", prefix: true},
	"DELETE /v0/topics/:topic%2F..":      {need: "d", prefix: true},
	"OPTIONS /v0/topics/:topic":          {need: "w", prefix: true},
	"OPTIONS /v0/topics/:topic/diff":     {need: "w", prefix: true},
	"GET /v0/openapi.json":               {open: true},
	"GET /v0/webhooks":                   {need: "a"},
	"PUT /v0/webhooks/:webhook":          {need: "a", prefix: true},
	"GET /v0/webhooks/:webhook":          {need: "a", prefix: true},
	"DELETE /v0/webhooks/:webhook":       {need: "a", prefix: true},
	"POST /v0/webhooks/:webhook":         {need: "a", prefix: true},
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
			r := s.ask(method, strings.NewReplacer(":topic", topic, ":router", topic, ":webhook", topic, ":stream", topic).Replace(path), "", head)
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
			try(fmt.Sprintf("lim%d", i), "in.x", let(has && !v.whole || v.open, http.StatusForbidden))
			try(fmt.Sprintf("lim%d", i), "out.x", let(has && !v.prefix && !v.whole || v.open, http.StatusForbidden))
		}
	}
}

func TestProbesNeedAKeyOnlyIfAskedTo(t *testing.T) {
	s := serveTest(t, func(c *Config) { c.Keys, c.ProbeAuth = parseKeys(t, "k:r"), true })
	for _, path := range []string{"/v0/health", "/healthz", "/v0/ready", "/readyz", "/v0/openapi.json"} {
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
		"k":                    "read+write+delete+admin []",
		" k : r ":              "read []",
		"k:R+Write":            "read+write []",
		"k:rw":                 "read+write []",
		"k:del+d+delete":       "delete []",
		"k:a":                  "admin []",
		"k::a.|b":              "read+write+delete+admin [a. b]",
		"k:: a. | b ":          "read+write+delete+admin [a. b]",
		"k:w:tenant:1|x:y:z":   "write [tenant:1 x:y:z]",
		"k:a:in.|in.->out":     "admin [in. in.->out]",
		"k:r+":                 "read []",
		"k::p|":                "read+write+delete+admin [p]",
		"sésame ouvre-toi:r":   "read []",
		",, k:r ,":             "read []",
		"k::" + name255 + "|p": "read+write+delete+admin [" + name255 + " p]",
	} {
		k := parseKeys(t, entry).list[0]
		if got := fmt.Sprintf("%s %v", k.scopes, k.prefixes); got != want {
			t.Errorf("%q: got %s, want %s", entry, got, want)
		}
	}
	for _, none := range []string{"", " ", "\n"} {
		if k, err := ParseKeys(none); k != nil || err != nil {
			t.Errorf("%q: got %v, %v, want no keys", none, k, err)
		}
	}
}

var name255 = strings.Repeat("n", 255)

// Each of these lists holds an entry that would grant nothing, or more than its
// writer can have meant: an empty variable in a template makes "k:rw:" of a key
// that was to be limited. "hush" stands for what is secret, and may have come
// into any field by a wrong separator.
func TestAMalformedKeyIsRefusedByThePartThatIsWrong(t *testing.T) {
	for list, want := range map[string][]string{
		":r":                  {"entry 1", "secret is empty"},
		"hush, :r":            {"entry 2", "secret is empty"},
		":":                   {"entry 1", "secret is empty"},
		"::p":                 {"entry 1", "secret is empty"},
		"hush\nhush2":         {"entry 1", "secret", "byte 5"},
		"hu\x00sh:r":          {"entry 1", "secret", "byte 3"},
		"hush,hush":           {"entry 2", "secret", "entry 1"},
		"hush:r,x, hush ":     {"entry 3", "secret", "entry 1"},
		"hush:":               {"entry 1", "scope field is empty", "leave out the colon"},
		"hush: ":              {"entry 1", "scope field is empty"},
		"hush::":              {"entry 1", "prefix field is empty"},
		"hush:: ":             {"entry 1", "prefix field is empty"},
		"hush:rw:":            {"entry 1", "prefix field is empty", "leave out the colon"},
		"hush:rw: ":           {"entry 1", "prefix field is empty"},
		"k,hush:+":            {"entry 2", "scope field"},
		"hush: + ":            {"entry 1", "scope field"},
		"hush:bad":            {"entry 1", "scope 1", "use read, write, delete, admin or rw"},
		"hush:read+wrong":     {"entry 1", "scope 2"},
		"k:*":                 {"entry 1", "scope 1"},
		"k:r hush:w":          {"entry 1", "scope 1"},
		"k:r;hush:w":          {"entry 1", "scope 1"},
		"hu:sh":               {"entry 1", "scope 1"},
		"k::|":                {"entry 1", "prefix field"},
		"k:: | ":              {"entry 1", "prefix field"},
		"k:rw:orders-*":       {"entry 1", "prefix 1", "'*'", "without a wildcard"},
		"k:rw:*":              {"entry 1", "prefix 1", "'*'"},
		"k,k2:r:a|orders-?":   {"entry 2", "prefix 2", "'?'"},
		"k:rw:a b":            {"entry 1", "prefix 1", "' '"},
		"k:rw:/v0/topics/a":   {"entry 1", "prefix 1", "'/'"},
		"k:rw:a;hush:rw:b":    {"entry 1", "prefix 1", "';'"},
		"k:rw:größe":          {"entry 1", "prefix 1", "'ö'"},
		"k:rw:\xff":           {"entry 1", "prefix 1"},
		"k:rw:-a":             {"entry 1", "prefix 1", "begin"},
		"k:rw:.a":             {"entry 1", "prefix 1", "begin"},
		"k:rw:>a":             {"entry 1", "prefix 1", "begin"},
		"k:rw:a|:b":           {"entry 1", "prefix 2", "begin"},
		"k::" + name255 + "n": {"entry 1", "prefix 1", "256", "255"},
		",":                   {"no key", "leave"},
		" , ,":                {"no key"},
	} {
		_, err := ParseKeys(list)
		if err == nil {
			t.Errorf("%q was accepted", list)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: the error %q does not say %q", list, err, part)
			}
		}
		if strings.Contains(err.Error(), "hu") {
			t.Errorf("%q: the error shows a secret: %v", list, err)
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
