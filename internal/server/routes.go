package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/board"
	"github.com/weirmq/weir/internal/relay"
)

// route is one call of the contract.
type route struct {
	method string
	path   string // a segment that starts with a colon is a name
	need   scope
	open   bool // answers without a key, unless WEIR_PROBE_AUTH is set
	early  bool // answers before recovery is done and while draining
	auth   authRule
	body   bodyRule
	most   int64    // bytes of the body; 0: as many as any
	forms  bool     // the body may be of other types than JSON
	query  []string // the parameters that it knows
	do     func(*request) error
}

// authRule says where the key of a request may be and who checks it.
type authRule uint8

const (
	authHeader authRule = iota // in the header
	authToken                  // in the header or as ?token=
	authItself                 // the verb checks it
)

// routes are all calls this server answers; GET includes HEAD.
var routes = []route{
	{method: "GET", path: "/v0/health", open: true, early: true, do: (*request).getHealth},
	{method: "GET", path: "/healthz", open: true, early: true, do: (*request).getHealth},
	{method: "GET", path: "/v0/ready", open: true, early: true, do: (*request).getReady},
	{method: "GET", path: "/readyz", open: true, early: true, do: (*request).getReady},
	{method: "GET", path: "/v0/openapi.json", open: true, early: true, do: (*request).getOpenAPI},
	{method: "GET", path: "/v0/metrics", need: scopeRead, early: true, do: (*request).getMetrics},
	{method: "GET", path: "/metrics", need: scopeRead, early: true, do: (*request).getScrape},

	{method: "GET", path: "/v0/topics", need: scopeRead, query: []string{"prefix", "page_size", "cursor", "touch"}, do: (*request).listTopics},
	{method: "PUT", path: "/v0/topics/:topic", need: scopeAdmin, body: bodyMayBeEmpty, do: (*request).putTopic},
	{method: "GET", path: "/v0/topics/:topic", need: scopeRead, query: []string{"touch"}, do: (*request).getTopic},
	{method: "DELETE", path: "/v0/topics/:topic", need: scopeDelete, query: []string{"if_empty"}, do: (*request).deleteTopic},
	{method: "POST", path: "/v0/topics/:topic", need: scopeWrite, body: bodyRequired, forms: true, query: []string{"return_seqs"}, do: (*request).postWrite},
	{method: "POST", path: "/v0/topics/:topic/writes", need: scopeWrite, body: bodyRequired, do: (*request).postWrites},
	{method: "GET", path: "/v0/topics/:topic/records/:seq", need: scopeRead, do: (*request).getRecord},
	{method: "POST", path: "/v0/topics/:topic/diff", need: scopeRead, body: bodyMayBeEmpty, do: (*request).postDiff},
	{method: "POST", path: "/v0/topics/:topic/delete", need: scopeDelete, body: bodyRequired, do: (*request).postDelete},
	{method: "POST", path: "/v0/topics/:topic/claim", need: scopeRead | scopeWrite, body: bodyNotEmpty, do: (*request).postClaim},
	{method: "POST", path: "/v0/topics/:topic/ack", need: scopeWrite, body: bodyRequired, do: (*request).postAck},
	{method: "POST", path: "/v0/topics/:topic/nack", need: scopeWrite, body: bodyRequired, do: (*request).postNack},
	{method: "POST", path: "/v0/topics/:topic/extend", need: scopeWrite, body: bodyRequired, do: (*request).postExtend},
	{method: "POST", path: "/v0/topics/:topic/offered", need: scopeWrite, body: bodyRequired, do: (*request).postOffered},
	{method: "POST", path: "/v0/topics/:topic/pause", need: scopeAdmin, do: (*request).postPause},
	{method: "POST", path: "/v0/topics/:topic/resume", need: scopeAdmin, do: (*request).postResume},
	{method: "GET", path: "/v0/topics/:topic/work", need: scopeRead | scopeWrite, auth: authToken, query: []string{"node", "max", "lease_ms", "events", "token"}, do: (*request).getWork},

	{method: "GET", path: "/v0/routers", need: scopeRead, query: []string{"prefix", "page_size", "cursor", "source", "dest"}, do: (*request).listRouters},
	{method: "PUT", path: "/v0/routers/:router", need: scopeAdmin, body: bodyRequired, do: (*request).putRouter},
	{method: "GET", path: "/v0/routers/:router", need: scopeRead, do: (*request).getRouter},
	{method: "DELETE", path: "/v0/routers/:router", need: scopeDelete, do: (*request).deleteRouter},

	{method: "GET", path: "/v0/webhooks", need: scopeAdmin, query: []string{"prefix", "page_size", "cursor"}, do: (*request).listWebhooks},
	{method: "PUT", path: "/v0/webhooks/:webhook", need: scopeAdmin, body: bodyRequired, do: (*request).putWebhook},
	{method: "GET", path: "/v0/webhooks/:webhook", need: scopeAdmin, do: (*request).getWebhook},
	{method: "DELETE", path: "/v0/webhooks/:webhook", need: scopeAdmin, do: (*request).deleteWebhook},

	{method: "POST", path: "/v0/watch", need: scopeRead, body: bodyRequired, query: []string{"lenient", "relay"}, do: (*request).postWatch},
	{method: "GET", path: "/v0/watch/:wid", auth: authItself, query: []string{"events", "token"}, do: (*request).getWatch},
	{method: "GET", path: "/v0/ws", auth: authToken, query: []string{"token"}, do: (*request).getSocket},
	{method: "POST", path: "/v0/tokens", need: scopeRead, body: bodyRequired, do: (*request).postTokens},

	{method: "GET", path: "/", open: true, early: true, do: (*request).getPage},
	{method: "GET", path: "/ui/live", need: scopeRead, do: (*request).getDashLive},
	{method: "GET", path: "/ui/history", need: scopeRead, do: (*request).getDashHistory},
	{method: "GET", path: "/ui/history/:topic", need: scopeRead, do: (*request).getDashHistory},
	{method: "GET", path: "/ui/streams/:stream", need: scopeRead, do: (*request).getDetail},
	{method: "GET", path: "/ui/letters/:stream", need: scopeRead, do: (*request).getLetters},
	{method: "GET", path: "/ui/letters/:stream/:letter", need: scopeRead, do: (*request).getLetter},
	{method: "POST", path: "/ui/redrive/:stream", need: scopeRead | scopeWrite | scopeDelete, body: bodyRequired, do: (*request).postRedrive},
	{method: "POST", path: "/ui/purge/:stream", need: scopeRead | scopeDelete, body: bodyRequired, do: (*request).postPurge},
	{method: "POST", path: "/ui/session", open: true, early: true, body: bodyNotEmpty, most: smallBody, do: (*request).postSession},
	{method: "DELETE", path: "/ui/session", open: true, early: true, do: (*request).deleteSession},
	{method: "GET", path: "/ui/:file", open: true, early: true, do: (*request).getPage},

	{method: "POST", path: "/admin/backup", need: scopeAdmin, query: []string{"rate"}, do: (*request).postBackup},
	{method: "POST", path: "/admin/bundle", need: scopeAdmin, early: true, query: []string{"profile"}, do: (*request).postBundle},
}

// routesOf are the calls of a server, or of one that has no engine: it shows a board, or is
// a relay.
func routesOf(b *board.Board, r *relay.Relay) []route {
	if r != nil {
		return relayRoutes()
	}
	if b == nil {
		return routes
	}
	return slices.DeleteFunc(slices.Clone(routes), func(r route) bool {
		return r.path != "/" && r.path != "/healthz" && !strings.HasPrefix(r.path, "/ui/")
	})
}

// maxSegments is the depth of the deepest route, plus one.
const maxSegments = 6

// path is a request path, split at its slashes, with each segment decoded once.
type path struct {
	seg [maxSegments]string
	n   int // segments; 0: not a valid path
}

// split splits a path. Nothing is cleaned: empty segments stay.
func (p *path) split(u *url.URL) {
	p.n = 0
	rest, raw := u.Path, u.RawPath != ""
	if raw {
		rest = u.EscapedPath()
	}
	if rest == "" || rest[0] != '/' {
		return
	}
	for more := true; more && p.n < maxSegments; p.n++ {
		rest = rest[1:]
		end := strings.IndexByte(rest, '/')
		if more = end >= 0; !more {
			end = len(rest)
		}
		s := rest[:end]
		if raw {
			// The escapes are valid, or the path would not have been parsed.
			s, _ = url.PathUnescape(s)
		}
		p.seg[p.n], rest = s, rest[end:]
	}
}

// name returns the segment that key prefixes apply to.
func (p *path) name() (string, bool) {
	if p.n < 3 || p.strictScope() == 0 && !p.isPage() {
		return "", false
	}
	return p.seg[2], true
}

// strictScope returns the scope a path without a route needs.
func (p *path) strictScope() scope {
	if p.n >= 2 && p.seg[0] == "v0" {
		switch p.seg[1] {
		case "topics":
			return scopeWrite
		case "routers", "webhooks":
			return scopeAdmin
		}
	}
	return 0
}

// isPage reports whether the path is one of a dashboard's.
func (p *path) isPage() bool {
	return p.n == 1 && p.seg[0] == "" || p.n >= 2 && p.seg[0] == "ui"
}

// spot is a path of the table with its methods.
type spot struct {
	seg   []string // "" for a name
	open  bool
	allow []string // the value of Allow
	calls []*route // GET is also under HEAD
	heads *route
}

func (p *spot) route(method string) *route {
	if p == nil {
		return nil
	}
	if method == http.MethodHead {
		return p.heads
	}
	for _, r := range p.calls {
		if r.method == method {
			return r
		}
	}
	return nil
}

// table finds a path by its number of segments.
type table [maxSegments][]*spot

func newTable(routes []route) table {
	var t table
	byPath := make(map[string]*spot)
	for i := range routes {
		r := &routes[i]
		p := byPath[r.path]
		if p == nil {
			p = &spot{open: r.open}
			for s := range strings.SplitSeq(r.path[1:], "/") {
				if s == "" {
					break // the root
				}
				if strings.HasPrefix(s, ":") {
					s = ""
				}
				p.seg = append(p.seg, s)
			}
			byPath[r.path] = p
			t[len(p.seg)] = append(t[len(p.seg)], p)
		}
		p.calls = append(p.calls, r)
		if r.method == http.MethodGet {
			p.heads = r
		}
	}
	for _, p := range byPath {
		p.allow = []string{p.methods()}
	}
	return t
}

func (p *spot) methods() string {
	var all []string
	for _, r := range p.calls {
		all = append(all, r.method)
	}
	if p.heads != nil {
		all = append(all, http.MethodHead)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func (t *table) find(p *path) *spot {
	if p.n >= maxSegments {
		return nil
	}
	if p.n == 0 {
		return nil
	}
	if p.n == 1 && p.seg[0] == "" {
		return t[0][0]
	}
	for _, s := range t[p.n] {
		if s.matches(p) {
			return s
		}
	}
	return nil
}

func (p *spot) matches(at *path) bool {
	for i, s := range p.seg {
		if at.seg[i] == "" || s != "" && s != at.seg[i] {
			return false
		}
	}
	return true
}

// errRoute is the answer for an unknown path, or for a path without this method.
func errRoute(q *request, at *spot) error {
	if at == nil && q.s.board != nil && q.path.seg[0] == "v0" {
		return api.Errorf(api.CodeNotFound, "this is the page of weir dash, which has no topics: use the address of a server that it shows")
	}
	if at == nil {
		return api.Errorf(api.CodeNotFound, "there is nothing at this path; GET /v0/openapi.json lists all paths")
	}
	q.w.Header()["Allow"] = at.allow
	return api.Errorf(api.CodeMethodNotAllowed, "the path does not know %s; use one of %s", q.r.Method, at.allow[0])
}
