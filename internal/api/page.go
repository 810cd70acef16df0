package api

import (
	"net/http"
	"net/url"
	"strings"
)

// OwnPage reports whether a request that may change something comes from a page of this
// server. Without that, a cookie does not count as a key.
func OwnPage(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	origin := r.Header.Get("Origin")
	return origin != "" && SameOrigin(origin, r.Host)
}

// ForeignPage reports whether a page of another origin asks. One of the same host with
// another port sends the cookie, too, and asks for a WebSocket with a GET.
func ForeignPage(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site != "same-origin" && site != "none"
	}
	return r.Header.Get("Origin") != "" && !OwnPage(r)
}

// SameOrigin reports whether an Origin is that of the server that a request names.
func SameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}
