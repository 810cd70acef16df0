package backendtest

import (
	"testing"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/link"
)

// Through returns what a Harness needs to open handles over links of their own to a server
// at target (host:port), and to break such a link until it is healed.
func Through(target string, open func(t testing.TB, addr, stream string) backend.Backend, breaks func(*link.Proxy)) func(t testing.TB, stream string) (backend.Backend, func() (heal func())) {
	return func(t testing.TB, stream string) (backend.Backend, func() func()) {
		own := link.NewProxy(t, target)
		return open(t, own.Addr(), stream), func() func() {
			breaks(own)
			return own.Heal
		}
	}
}

// HoldDown makes a link Faulty.
func HoldDown(own *link.Proxy) { own.Set(link.Fault{HoldDown: true}) }

// HoldUp makes a link Clogged.
func HoldUp(own *link.Proxy) { own.Set(link.Fault{HoldUp: true}) }

// Refuse makes the server Unreachable.
func Refuse(own *link.Proxy) { own.Refuse() }
