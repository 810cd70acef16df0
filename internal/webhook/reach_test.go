package webhook

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirmq/weir/internal/api"
)

func TestOnlyPublicAddressesAreReachedInWhateverFormTheyAreWritten(t *testing.T) {
	var r Reach
	for _, addr := range strings.Fields(`0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.127.255.255 127.0.0.1 127.255.255.254 169.254.169.254 172.16.0.1 172.31.255.255
		192.0.0.8 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.7 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255
		:: ::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::127.0.0.1 ::ffff:0:127.0.0.1 64:ff9b::127.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b::10.0.0.1
		64:ff9b:1::7f00:1 64:ff9b:1::8.8.8.8 100::1 2001::1 2001:0:4136:e378::1 2001:10::1 2001:20::1 2001:db8::1 2002:7f00:1:: 2002:a00:1:: 2002:808:808::
		3fff::1 4000::1 5f00::1 fc00::1 fd12:3456::1 fe80::1 fe80::1%eth0 fec0::1 ff02::1 ff0e::1`) {
		if err := r.checkAddr(netip.MustParseAddr(addr)); !errors.Is(err, errPrivate) {
			t.Errorf("%s: %v, want it to be refused", addr, err)
		}
		if err := r.control("tcp6", netip.AddrPortFrom(netip.MustParseAddr(addr), 443).String(), nil); !errors.Is(err, errPrivate) {
			t.Errorf("a connection to %s: %v, want it to be refused", addr, err)
		}
	}
	for _, addr := range strings.Fields(`1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.1 172.15.255.255 172.32.0.0
		192.169.0.1 198.17.255.255 198.20.0.0 223.255.255.255 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2001:4860:4860::8888 2606:4700::1111 2a00:1450::1`) {
		if err := r.checkAddr(netip.MustParseAddr(addr)); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if err := r.control("udp4", "8.8.8.8:53", nil); err == nil {
		t.Error("a delivery may go over UDP")
	}
}

func TestListedRangesAreReachedAndNoOthers(t *testing.T) {
	list, err := ParsePrefixes([]string{"10.1.0.0/16", "127.0.0.1", "fd00::/8"})
	if err != nil {
		t.Fatal(err)
	}
	r := Reach{Private: list}
	for addr, ok := range map[string]bool{"10.1.2.3": true, "::ffff:10.1.2.3": true, "64:ff9b::10.1.2.3": true, "127.0.0.1": true, "fd00::1": true, "fd00::1%eth0": true,
		"10.2.0.1": false, "127.0.0.2": false, "::1": false, "fc00::1": false, "169.254.169.254": false} {
		if err := r.checkAddr(netip.MustParseAddr(addr)); (err == nil) != ok {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, bad := range []string{"", "private", "10.0.0.1/8", "10.0.0.0/33", "::ffff:10.0.0.0/104"} {
		if _, err := ParsePrefixes([]string{bad}); err == nil || !strings.Contains(err.Error(), `"`+bad+`"`) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestURLsAndHeadersThatAreRefused(t *testing.T) {
	var r Reach
	for _, url := range []string{"", "example.com", "//example.com", "https://", "https://:443", "https:example.com", "ftp://example.com", "http://example.com",
		"file:///etc/passwd", "gopher://example.com", "unix:///run/x", "https://user@example.com", "https://u:p@example.com", "https://example.com/#a", "https://%zz",
		"https://127.0.0.1", "https://[::1]:8080/x", "https://[::ffff:10.0.0.1]", "https://[fe80::1%25eth0]/", "https://169.254.169.254/latest", "https://0.0.0.0",
		"https://example.com:0", "https://example.com:65536", "https://example.com/\n", "https://example.com/" + strings.Repeat("a", api.MaxWebhookURLBytes)} {
		cfg := config()
		cfg.URL = url
		if err := r.Check(&cfg); !api.IsCode(err, api.CodeInvalidRequest) {
			t.Errorf("%.60q: %v, want it to be refused", url, err)
		}
	}
	for allowed, want := range map[bool]string{false: "begin with https://", true: "begin with https:// or http://"} {
		cfg := config()
		cfg.URL = "ftp://example.com"
		if err := (&Reach{HTTP: allowed}).Check(&cfg); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("http allowed %t: %v, want %q", allowed, err, want)
		}
	}
	for name, value := range map[string]string{"": "a", "a b": "a", "a:": "a", "é": "a", "host": "a", "Content-type": "a", "content-length": "1", "weir-signature": "a",
		"Transfer-Encoding": "chunked", "connection": "close", "Proxy-Authorization": "a", "X-A": "a\r\nb: c", "X-B": "é", "X-C": "\x00"} {
		cfg := config()
		cfg.Headers = map[string]string{name: value}
		if err := r.Check(&cfg); !api.IsCode(err, api.CodeInvalidRequest) {
			t.Errorf("header %q: %q: %v, want it to be refused", name, value, err)
		}
	}
	cfg := config()
	cfg.Headers = map[string]string{"X-Tenant": "a", "x-tenant": "b"}
	if err := r.Check(&cfg); !api.IsCode(err, api.CodeInvalidRequest) {
		t.Errorf("a header field twice: %v, want it to be refused", err)
	}
	cfg.URL, cfg.Headers = "https://example.com:65535/"+strings.Repeat("a", api.MaxWebhookURLBytes-len("https://example.com:65535/")), map[string]string{"Authorization": "Bearer abc", "X-Tenant": ""}
	if err := r.Check(&cfg); err != nil {
		t.Error(err)
	}
}

// local allows what tests listen on.
func local() Reach {
	return Reach{HTTP: true, Private: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
}

// post makes one delivery.
func post(t *testing.T, r *Reach, url string, resolver *net.Resolver) result {
	t.Helper()
	cfg := config()
	cfg.URL = url
	tr := newTransport(r, 1, resolver, nil)
	defer tr.CloseIdleConnections()
	s := &sender{name: "w", cfg: cfg, trip: tr}
	return s.send(t.Context(), &job{seq: 1, deliveries: 1, data: []byte("1")})
}

func TestARedirectIsAFailureWhereverItLeads(t *testing.T) {
	var asked atomic.Int32
	secret := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer secret.Close()
	for _, status := range []int{300, 301, 302, 303, 307, 308} {
		for _, to := range []string{secret.URL + "/metadata", "/elsewhere"} {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/" {
					asked.Add(1)
				}
				w.Header().Set("Location", to)
				w.WriteHeader(status)
			}))
			r := local()
			if res := post(t, &r, srv.URL, nil); res.err == nil || res.status != status {
				t.Errorf("%d: %+v", status, res)
			}
			srv.Close()
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

func TestTheEnvironmentsProxyIsNotUsed(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the proxy was asked") }))
	defer proxy.Close()
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	if p := newTransport(new(Reach), 1, nil, nil).Proxy; p != nil {
		t.Error("deliveries go through a proxy")
	}
	r := local()
	r.Private = nil
	if res := post(t, &r, "http://receiver.test/", namesAre(t, "192.0.2.1")); res.err == nil {
		t.Error("no error")
	}
}

// namesAre returns a resolver for which every name has these addresses, one after the
// other from lookup to lookup; those of one lookup are joined by +.
func namesAre(t *testing.T, lookups ...string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf, n := make([]byte, 1500), 0
		for {
			size, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			// Header, one question with its name, type and class; other records are left out.
			end := 12
			for buf[end] != 0 {
				end += int(buf[end]) + 1
			}
			kind := binary.BigEndian.Uint16(buf[end+1:])
			answer := append([]byte(nil), buf[:min(size, end+5)]...)
			answer[2], answer[3], answer[10], answer[11] = 0x81, 0x80, 0, 0
			var count uint16
			if kind == 1 {
				for a := range strings.SplitSeq(lookups[min(n, len(lookups)-1)], "+") {
					answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
					answer = append(answer, netip.MustParseAddr(a).AsSlice()...)
					count++
				}
				n++
			}
			binary.BigEndian.PutUint16(answer[6:], count)
			_, _ = conn.WriteTo(answer, from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp4", conn.LocalAddr().String())
	}}
}

// What a name resolves to is checked with every connection: a name that was harmless when
// the webhook was set, or a delivery ago, may be anything by now.
func TestANameThatResolvesToSomethingElseByNowIsNotFollowed(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer srv.Close()
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	url, r := "http://receiver.test:"+port+"/", local()
	names := namesAre(t, "127.0.0.1", "127.0.0.2", "10.0.0.1", "169.254.169.254", "0.0.0.0", "127.0.0.2+127.0.0.1", "127.0.0.2+10.0.0.1")
	for i, ok := range []bool{true, false, false, false, false, true, false} {
		res := post(t, &r, url, names)
		if ok && res.err != nil || !ok && (res.err == nil || !strings.Contains(res.err.Error(), errPrivate.Error())) {
			t.Errorf("lookup %d: %v", i, res.err)
		}
	}
}
