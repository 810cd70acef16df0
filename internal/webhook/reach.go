package webhook

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/weirmq/weir/internal/api"
)

// Reach says where deliveries may go. The zero value allows https to public addresses.
type Reach struct {
	HTTP    bool           // http, too
	Private []netip.Prefix // addresses that are reached though they are not public
}

// closed are the ranges of IPv4 that are no public unicast addresses, by the registry of
// special-purpose addresses.
var closed = prefixes("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3")

// Of IPv6 only global unicast is public, and of that not what is for protocols, for
// documentation, or a tunnel that ends at an IPv4 address of the sender's choice (Teredo
// in 2001::/23, 6to4 in 2002::/16).
var (
	global  = netip.MustParsePrefix("2000::/3")
	closed6 = prefixes("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
	nat64   = netip.MustParsePrefix("64:ff9b::/96") // the address of IPv4 stands in its last four bytes
)

func prefixes(list ...string) (all []netip.Prefix) {
	for _, p := range list {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

// ParsePrefixes reads a list of ranges such as 10.0.0.0/8, or of single addresses.
func ParsePrefixes(list []string) (all []netip.Prefix, err error) {
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if addr, bad := netip.ParseAddr(text); err != nil && bad == nil {
			p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil || p != p.Masked() || p.Addr().Is4In6() {
			return nil, fmt.Errorf("%q is not a range of addresses such as 10.0.0.0/8 or fd00::/8", text)
		}
		all = append(all, p)
	}
	return all, nil
}

// errPrivate is why an address is not connected to.
var errPrivate = errors.New("the address is not a public one; see webhook_allow_private")

// checkAddr refuses addresses that are not public, in every form in which one of IPv4 may
// be written.
func (r *Reach) checkAddr(addr netip.Addr) error {
	addr = addr.WithZone("").Unmap()
	if nat64.Contains(addr) {
		b := addr.As16()
		addr = netip.AddrFrom4([4]byte(b[12:]))
	}
	within := func(p netip.Prefix) bool { return p.Contains(addr) }
	public := !slices.ContainsFunc(closed, within)
	if !addr.Is4() {
		public = global.Contains(addr) && !slices.ContainsFunc(closed6, within)
	}
	if public || slices.ContainsFunc(r.Private, within) {
		return nil
	}
	return fmt.Errorf("%s: %w", addr, errPrivate)
}

// control is called for every connection, with the address that it is about to go to. So
// what a name resolves to is checked when it counts, and not an answer of DNS before the
// last one.
func (r *Reach) control(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("deliveries do not go to %s", network)
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return r.checkAddr(to.Addr())
}

// Check refuses a webhook that could not be delivered to where its URL says. That a name
// does not resolve to what may not be reached is checked with every connection.
func (r *Reach) Check(c *api.WebhookConfig) error {
	if err := r.checkURL(c.URL); err != nil {
		return api.Errorf(api.CodeInvalidRequest, "field \"url\" %v", err)
	}
	fields := make(map[string]string, len(c.Headers))
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		if err := checkHeader(name, c.Headers[name]); err != nil {
			return api.Errorf(api.CodeInvalidRequest, "field \"headers\": %v", err)
		}
		field := http.CanonicalHeaderKey(name)
		if other, ok := fields[field]; ok {
			return api.Errorf(api.CodeInvalidRequest, "field \"headers\": %.100q and %.100q are the same header field; leave one out", other, name)
		}
		fields[field] = name
	}
	return nil
}

func (r *Reach) checkURL(text string) error {
	if len(text) > api.MaxWebhookURLBytes {
		return fmt.Errorf("is longer than %d bytes", api.MaxWebhookURLBytes)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Opaque != "":
		return errors.New("is not a URL such as https://example.com/jobs")
	case u.Scheme == "http" && !r.HTTP:
		return errors.New("has to begin with https://; the setting webhook_allow_http allows http://")
	case u.Scheme != "http" && u.Scheme != "https" && r.HTTP:
		return errors.New("has to begin with https:// or http://")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("has to begin with https://")
	case u.User != nil:
		return errors.New("must hold no user or password, since it is shown; put them into headers")
	case u.Fragment != "":
		return errors.New("must have no fragment, since none is ever sent")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("has the port %.20s; ports are 1 to 65535", port)
		}
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		if err := r.checkAddr(addr); err != nil {
			return fmt.Errorf("must not name %w", err)
		}
	}
	return nil
}

// reserved are the header fields that belong to the delivery itself or to its connection.
var reserved = []string{"Host", "Content-Type", "Content-Length", "Content-Encoding", "Transfer-Encoding", "Connection", "Proxy-Connection",
	"Keep-Alive", "Te", "Trailer", "Upgrade", "Expect", "Accept-Encoding"}

// checkHeader refuses a header field of a webhook. The error does not repeat the value.
func checkHeader(name, value string) error {
	token := name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
	field := http.CanonicalHeaderKey(name)
	switch {
	case !token:
		return fmt.Errorf("%.100q is not the name of a header field", name)
	case slices.Contains(reserved, field) || strings.HasPrefix(field, "Weir-") || strings.HasPrefix(field, "Proxy-"):
		return fmt.Errorf("%.100q is set by the server or not sent", name)
	case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' }):
		return fmt.Errorf("the value of %.100q has characters other than printable ASCII", name)
	}
	return nil
}
