package server

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// anyOrigin stands for every origin in a list of them.
const anyOrigin = "*"

// Headers for pages of other origins. There is no Access-Control-Allow-Credentials: cookies
// never count for them.
var (
	corsMethods = []string{"DELETE, GET, HEAD, POST, PUT"}
	corsHeaders = []string{"Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Weir-Strict, X-Request-Id, " + eventHeaders}
	corsExposed = []string{"Allow, Retry-After, Weir-Caught-Up, Weir-Head-Seq, Weir-Next-From-Seq, Weir-Seq, Weir-Tombstone, Weir-Ts, Weir-Warning, WWW-Authenticate, X-Request-Id, " +
		eventHeaders}
	corsMaxAge = []string{"7200"}
	headerTrue = []string{"true"}
	varyOrigin = []string{"Origin"}
	varyBoth   = []string{"Accept-Encoding, Origin"}
)

// eventHeaders are those of CloudEvents; a page sends and reads events with other attributes in
// structured mode.
const eventHeaders = "Ce-Dataschema, Ce-Id, Ce-Source, Ce-Specversion, Ce-Subject, Ce-Time, Ce-Type"

// origins are the web pages of other origins that may use what is below /v0. A nil one has
// none.
type origins struct {
	listed map[string]bool // as a browser spells them
	all    func() bool     // nil, or whether every other one counts as listed now
}

// newOrigins reads a list that CheckOrigins has accepted. keyed says whether keys are needed
// now, without which nobody else is let in by "*".
func newOrigins(list []string, keyed func() bool) *origins {
	if len(list) == 0 {
		return nil
	}
	o := &origins{listed: make(map[string]bool, len(list))}
	for _, one := range list {
		if one == anyOrigin {
			o.all = keyed
		} else {
			o.listed[one] = true
		}
	}
	return o
}

// CheckOrigins refuses a list of origins in which one would match no page, or in which "*"
// would open a server that has no keys.
func CheckOrigins(list []string, keyed bool) error {
	for _, one := range list {
		if err := checkOrigin(one); err != nil {
			return err
		}
	}
	if slices.Contains(list, anyOrigin) && !keyed {
		return errors.New(`"*" without keys would let every web page do everything; name the origins, or set WEIR_API_KEYS or --keys-file`)
	}
	return nil
}

var defaultPorts = map[string]string{"http": "80", "https": "443"}

// checkOrigin refuses what a browser never sends as Origin.
func checkOrigin(text string) error {
	if text == anyOrigin {
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme == "" || u.Host == "" || text != u.Scheme+"://"+u.Host || strings.ContainsAny(u.Host, "*?"):
		return fmt.Errorf("%q is no origin; write it as https://app.example or http://localhost:3000, without a path or wildcard", text)
	case text != strings.ToLower(text) || strings.ContainsFunc(text, func(c rune) bool { return c >= 0x80 }):
		return fmt.Errorf("%q is not as browsers send it; write it in small letters of ASCII", text)
	case u.Port() != "" && u.Port() == defaultPorts[u.Scheme]:
		return fmt.Errorf("%q matches no page: browsers leave out the port that belongs to the scheme", text)
	}
	return nil
}

// lists reports whether a page of this origin may use path.
func (o *origins) lists(r *http.Request) bool {
	if o == nil || !isV0(r.URL) {
		return false
	}
	origin := r.Header.Get("Origin")
	return origin != "" && (o.listed[origin] || o.all != nil && o.all())
}

// isV0 reports whether a path is one of the contract's: pages of other origins use no other.
func isV0(u *url.URL) bool { return strings.HasPrefix(u.Path, "/v0/") }

// mark lets the page that asks read the answer, whatever that will be, if it may.
func (o *origins) mark(h http.Header, r *http.Request) {
	if o == nil || !isV0(r.URL) {
		return
	}
	h["Vary"] = varyOrigin
	if o.lists(r) {
		h["Access-Control-Allow-Origin"] = []string{r.Header.Get("Origin")}
		h["Access-Control-Expose-Headers"] = corsExposed
	}
}

// vary adds that the answer depends on the encodings that the client takes.
func (o *origins) vary(h http.Header) {
	if h["Vary"] != nil {
		h["Vary"] = varyBoth
		return
	}
	h["Vary"] = headerVary
}

// keep removes from an answer's head all but what mark has set.
func (o *origins) keep(h http.Header) {
	for name := range h {
		if name != "Vary" && !strings.HasPrefix(name, "Access-Control-") {
			delete(h, name)
		}
	}
}

// preflight reports whether a browser asks by the request if a page that is listed may send
// another one. Browsers ask without a key.
func (o *origins) preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" && o.lists(r)
}

// allowPage answers a preflight.
func (q *request) allowPage() {
	h := q.w.Header()
	h["Access-Control-Allow-Methods"] = corsMethods
	h["Access-Control-Allow-Headers"] = corsHeaders
	h["Access-Control-Max-Age"] = corsMaxAge
	delete(h, "Access-Control-Expose-Headers")
	if q.r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h["Access-Control-Allow-Private-Network"] = headerTrue
	}
	q.sent, q.status = true, http.StatusNoContent
	q.w.WriteHeader(http.StatusNoContent)
}
