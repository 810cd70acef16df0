package server

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/relay"
)

// hosts decides which Host and Origin a request may have. A web page that points its
// own name at a loopback address sends that name as Host, and one that posts across
// origins sends its Origin; both are refused before anything else is checked.
type hosts struct {
	allowed map[string]bool // lower case, without port
	anyHost func() bool     // no Host is foreign
	origins *origins        // may change what is below /v0, too
	foreign http.CrossOriginProtection
}

// keyed says whether a server, or the one behind a relay, wants keys.
func keyed(keys *Keys, r *relay.Relay) func() bool {
	if r != nil {
		return r.Keyed
	}
	return func() bool { return keys != nil }
}

// anyHost says whether requests for any Host are taken: a key is needed, or a relay serves nobody yet,
// but probes.
func anyHost(keyed func() bool, r *relay.Relay) func() bool {
	if r == nil {
		return keyed
	}
	return func() bool { return keyed() || r.Serves() != nil }
}

// CheckHosts refuses a list in which one would match no request.
func CheckHosts(list []string) error {
	for _, one := range list {
		if !isHost(hostName(one)) || strings.Contains(one, "/") { // the hostName of a URL is its scheme
			return fmt.Errorf("%q is no host; write it as weir.example.com or 10.0.0.5, in ASCII and without a scheme, path or wildcard", one)
		}
	}
	return nil
}

func isHost(name string) bool {
	_, err := netip.ParseAddr(name)
	return err == nil || name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("-._", c))
	})
}

func newHosts(allowed []string, listed *origins, anyHost func() bool) *hosts {
	h := &hosts{allowed: make(map[string]bool, len(allowed)), anyHost: anyHost, origins: listed}
	for _, name := range allowed {
		h.allowed[strings.ToLower(hostName(name))] = true
	}
	return h
}

// check refuses a foreign Host while auth is off, a state-changing request of a foreign
// Origin and, while auth is off or some origins are listed, a WebSocket of one as well, since
// what goes over it may also change state.
func (h *hosts) check(r *http.Request) error {
	if !h.anyHost() && !h.known(r.Host) {
		return api.Errorf(api.CodeForbidden, "the Host %q is neither loopback nor listed in WEIR_ALLOWED_HOSTS", r.Host)
	}
	if h.origins.lists(r) {
		return nil
	}
	if h.foreign.Check(r) != nil && !h.trusts(r.Header.Get("Origin")) {
		return api.Errorf(api.CodeForbidden, "the request comes from a web page of another origin; list that in WEIR_CORS_ORIGINS to allow it")
	}
	if origin := r.Header.Get("Origin"); origin != "" && isUpgrade(r) && (h.origins != nil || !h.anyHost()) && !api.SameOrigin(origin, r.Host) && !h.trusts(origin) {
		return api.Errorf(api.CodeForbidden, "the WebSocket is asked for by a web page of another origin; list that in WEIR_CORS_ORIGINS to allow it")
	}
	return nil
}

func (h *hosts) known(hostport string) bool {
	if hostport == "" { // HTTP/1.0; no browser sends it
		return true
	}
	name := hostName(hostport)
	if name == "127.0.0.1" || name == "localhost" {
		return true
	}
	name = strings.ToLower(name)
	if name == "localhost" || h.allowed[name] {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Unmap().IsLoopback()
}

func (h *hosts) trusts(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && h.allowed[strings.ToLower(hostName(u.Host))]
}

// hostName returns a Host without its port and brackets.
func hostName(hostport string) string {
	if strings.HasPrefix(hostport, "[") {
		if end := strings.IndexByte(hostport, ']'); end > 0 {
			return hostport[1:end]
		}
		return hostport
	}
	if i := strings.LastIndexByte(hostport, ':'); i >= 0 && i == strings.IndexByte(hostport, ':') {
		return hostport[:i]
	}
	return hostport
}
