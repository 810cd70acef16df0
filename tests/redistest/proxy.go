package redistest

import "github.com/weirmq/weir/tests/link"

// Proxy is a TCP proxy in front of a server that disturbs its connections.
type Proxy struct{ *link.Proxy }

// Fault is how a Proxy treats what it forwards. The zero value forwards at once.
type Fault = link.Fault

// Blackhole is the fault of a network that swallows everything.
var Blackhole = link.Blackhole

// NewProxy starts a proxy to target (host:port) that ends with the test.
func NewProxy(t TB, target string) *Proxy {
	t.Helper()
	return &Proxy{link.NewProxy(t, target)}
}

// URL is the proxy's address as a URL without a stream: redis://host:port/0.
func (p *Proxy) URL() string { return "redis://" + p.Addr() + "/0" }
