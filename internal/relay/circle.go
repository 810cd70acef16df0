package relay

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/weirmq/weir/internal/api"
)

// transport sends everything that goes to the upstream, with the name of this relay in Via,
// the header in which RFC 9110 looks for requests that go in a circle.
type transport struct {
	http.Transport
	via string
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	before, _ := req.Context().Value(viaKey{}).([]string)
	req = req.Clone(req.Context())
	if req.Header["Via"] == nil { // a question of the relay's own, asked for a request
		req.Header["Via"] = slices.Clip(before)
	}
	req.Header.Add("Via", "1.1 "+t.via)
	return t.Transport.RoundTrip(req)
}

// viaKey is of the lines of Via of the request that a context belongs to.
type viaKey struct{}

// CheckRound returns an error for a request that this relay has sent: its upstream is the
// relay itself, or another relay in front of it. Passed on, it would come back for ever.
// Any other request it returns with a context that remembers where it came by.
func (r *Relay) CheckRound(req *http.Request) (*http.Request, error) {
	lines := req.Header["Via"]
	if lines == nil {
		return req, nil
	}
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, r.via) }) {
		return req.WithContext(context.WithValue(req.Context(), viaKey{}, lines)), nil
	}
	r.round.Do(func() {
		r.log.Error("what is sent to the upstream comes back to this relay; set upstream to the server itself", "upstream", r.Upstream())
	})
	return nil, api.Errorf(api.CodeNotReady, "this relay stands in front of itself: what it sends to its upstream comes back; set upstream to the server itself").
		With("upstream", r.Upstream())
}
