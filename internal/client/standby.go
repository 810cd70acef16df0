package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
)

// splitHosts takes a base with several hosts apart: the first one's base, and all
// hosts.
func splitHosts(base string) (first string, hosts []string) {
	scheme, list, _ := strings.Cut(base, "://")
	hosts = strings.Split(list, ",")
	return scheme + "://" + hosts[0], hosts
}

// rotation sends requests to the one of several servers that leads. A server that
// cannot be reached or is not ready has done nothing, so the request goes to the
// next one; after another failure, such as one of a proxy that has passed it on, the
// next request does.
type rotation struct {
	next  http.RoundTripper
	hosts []string
	at    atomic.Uint32
}

func (r *rotation) RoundTrip(req *http.Request) (*http.Response, error) {
	for tries := 1; ; tries++ {
		at := r.at.Load()
		to := req.WithContext(req.Context())
		address := *req.URL
		address.Host = r.hosts[int(at)%len(r.hosts)]
		to.URL, to.Host = &address, ""
		if tries > 1 && req.GetBody != nil {
			var err error
			if to.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
		resp, err := r.next.RoundTrip(to)
		if err == nil && resp.StatusCode != http.StatusServiceUnavailable {
			return resp, nil
		}
		r.at.CompareAndSwap(at, at+1)
		if tries == len(r.hosts) || req.Context().Err() != nil || req.Body != nil && req.GetBody == nil || err != nil && !undialed(err) {
			return resp, err
		}
		if err == nil {
			text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
			resp.Body.Close()
			if passedOn(text) {
				resp.Body = io.NopCloser(bytes.NewReader(text))
				return resp, nil
			}
		}
	}
}

// CloseIdleConnections is for http.Client.
func (r *rotation) CloseIdleConnections() {
	if t, ok := r.next.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

func undialed(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// standbys are the other servers that the query of a URL names: standby=b:4000,c:4000.
func standbys(query url.Values) ([]string, error) {
	list := query.Get("standby")
	if list == "" {
		return nil, nil
	}
	hosts := strings.Split(list, ",")
	for _, host := range hosts {
		u, err := url.Parse("http://" + host)
		if err != nil || u.Hostname() == "" || u.Host != host {
			return nil, errors.New("standby in the URL is not a list of hosts; expected standby=host:port,host:port")
		}
		if err := validPort(u); err != nil {
			return nil, fmt.Errorf("standby in the URL: %w", err)
		}
	}
	return hosts, nil
}
