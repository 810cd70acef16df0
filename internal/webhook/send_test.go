package webhook

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/atomicfile"
)

// raw answers each request with what say writes, and then closes the connection.
func raw(t *testing.T, say func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if req, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					_, _ = io.Copy(io.Discard, req.Body)
					say(c)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

func TestAReceiverThatLies(t *testing.T) {
	endless := func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
		for part := strings.Repeat("x", 4096); ; {
			if _, err := io.WriteString(c, part); err != nil {
				return
			}
		}
	}
	text := func(s string) func(net.Conn) { return func(c net.Conn) { _, _ = io.WriteString(c, s) } }
	for name, test := range map[string]struct {
		say  func(net.Conn)
		done bool
	}{
		"no body":                {text("HTTP/1.1 204 No Content\r\n\r\n"), true},
		"a body":                 {text("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), true},
		"more than it announced": {text("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokok"), true},
		"less than it announced": {text("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok"), false},
		"a chunk that ends":      {text("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nok"), false},
		"a reset in the body": {func(c net.Conn) {
			text("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok")(c)
			_ = c.(*net.TCPConn).SetLinger(0)
		}, false},
		"an endless body":       {endless, true},
		"an endless header":     {text("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20)), false},
		"a long header":         {text("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n"), false},
		"nothing":               {func(net.Conn) {}, false},
		"no HTTP":               {text("SSH-2.0-OpenSSH_9\r\n"), false},
		"no HTTP at length":     {text(strings.Repeat("é", 1000) + "\r\n"), false},
		"informational for now": {text(strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n", 10_000)), false},
		"another protocol":      {text("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), false},
		"another protocol, that it waits for": {func(c net.Conn) {
			text("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")(c)
			_, _ = io.Copy(io.Discard, c) // until the other side ends it
		}, false},
		"not modified":      {text("HTTP/1.1 304 Not Modified\r\n\r\n"), false},
		"gone":              {text("HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"), false},
		"a compressed bomb": {text("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := local()
			if res := post(t, &r, raw(t, test.say), nil); (res.err == nil) != test.done {
				t.Errorf("%+v", res)
			} else if res.err != nil && len(res.err.Error()) > maxErrorText {
				t.Errorf("an error of %d bytes", len(res.err.Error()))
			}
		})
	}
}

func TestADeliveryIsSignedAndSaysWhatItIs(t *testing.T) {
	var got *http.Request
	var body []byte
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	}))
	defer srv.Close()
	r, cfg := local(), config()
	cfg.URL, cfg.Headers = srv.URL+"/a?b=c", map[string]string{"authorization": "Bearer x", "User-Agent": "me"}
	tr := newTransport(&r, 1, nil, nil)
	s := &sender{name: "w", cfg: cfg, trip: tr}
	if res := s.send(t.Context(), &job{seq: 7, deliveries: 2, data: []byte(`{"a":"ü"}`)}); res.err != nil {
		t.Fatal(res.err)
	}
	tr.CloseIdleConnections()
	if string(body) != `{"a":"ü"}` || got.Method != "POST" || got.RequestURI != "/a?b=c" {
		t.Errorf("%s %s %s", got.Method, got.RequestURI, body)
	}
	for name, want := range map[string]string{"Content-Type": "application/json", "Weir-Webhook": "w", "Weir-Topic": "orders", "Weir-Seq": "7",
		"Weir-Delivery": "2", "Authorization": "Bearer x", "User-Agent": "me", "Weir-Signature": sign(cfg.Secret, got.Header.Get("Weir-Timestamp"), body)} {
		if have := got.Header.Values(name); len(have) != 1 || have[0] != want {
			t.Errorf("%s: %q, want %q", name, have, want)
		}
	}
	// The same as `printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac 0123456789abcdef`.
	if got, want := sign("0123456789abcdef", "1700000000", []byte(`{"a":1}`)), "v1=9eb18f493f8ec135d9eb2dad817c369bb4e9cbfa818657897a7437c1cd8c3a23"; got != want {
		t.Errorf("the signature is %s, want %s", got, want)
	}
}

func TestACertificateThatNobodyVouchesForIsRefused(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	srv.Config.ErrorLog = nil
	srv.StartTLS()
	defer srv.Close()
	r := local()
	if res := post(t, &r, srv.URL, nil); res.err == nil || !strings.Contains(res.err.Error(), "certificate") {
		t.Errorf("%+v", res)
	}
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	cfg := config()
	cfg.URL = srv.URL
	tr := newTransport(&r, 1, nil, &tls.Config{RootCAs: roots})
	defer tr.CloseIdleConnections()
	if res := (&sender{name: "w", cfg: cfg, trip: tr}).send(t.Context(), &job{data: []byte("1")}); res.err != nil {
		t.Error(res.err)
	}
}

func TestWebhooksOutliveARestartInAFileThatOnlyTheServerReads(t *testing.T) {
	to := &receiver{answer: func(*http.Request) (int, error) { return 200, nil }}
	s := newSet(t, to)
	s.Start(newFakeQueue(0))
	st, created, secret, err := s.Put("w", api.WebhookConfig{Topic: "orders", URL: "https://example.com/", Concurrency: 2, Rate: 3, TimeoutMS: 400, Headers: map[string]string{"A": "b"}})
	if err != nil || !created || !strings.HasPrefix(secret, "whsec_") || len(secret) < 40 {
		t.Fatal(st, created, secret, err)
	}
	cfg := st.Config
	cfg.Secret, cfg.Rate = "", 5
	if _, created, again, err := s.Put("w", cfg); created || again != "" || err != nil {
		t.Errorf("replaced: created %v, secret %q, %v", created, again, err)
	}
	s.Stop(time.Second)
	info, err := os.Stat(s.opt.File)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info.Mode(), err)
	}
	next := New(s.opt)
	next.Start(newFakeQueue(0))
	defer next.Stop(time.Second)
	if now := get(t, next, "w").Config; now.Secret != secret || now.Rate != 5 || now.Headers["A"] != "b" || now.TimeoutMS != 400 {
		t.Errorf("after a restart: %+v", now)
	}
}

// What the server takes it must be able to read again.
func TestWebhooksAtTheirLimitsOutliveARestart(t *testing.T) {
	s := newSet(t, &receiver{answer: func(*http.Request) (int, error) { return 200, nil }})
	s.Start(newFakeQueue(0))
	want := map[string]api.WebhookConfig{}
	for name, limits := range map[string]struct{ secret, concurrency, rate, timeout int }{
		"least": {api.MinWebhookSecretBytes, 1, 0, api.MinWebhookTimeoutMS},
		"most":  {api.MaxWebhookSecretBytes, api.MaxWebhookConcurrency, api.MaxWebhookRate, api.MaxWebhookTimeoutMS},
	} {
		body := fmt.Sprintf(`{"topic":"orders","url":"https://example.com/","secret":%q,"concurrency":%d,"rate":%d,"timeout_ms":%d}`,
			strings.Repeat("s", limits.secret), limits.concurrency, limits.rate, limits.timeout)
		cfg, err := api.DecodeWebhook([]byte(body), nil)
		if err != nil {
			t.Fatal(name, err)
		}
		if _, _, _, err := s.Put(name, cfg); err != nil {
			t.Fatal(name, err)
		}
		want[name] = cfg
	}
	s.Stop(time.Second)
	next := New(s.opt)
	next.Start(newFakeQueue(0))
	defer next.Stop(time.Second)
	for name, cfg := range want {
		if now := get(t, next, name).Config; !reflect.DeepEqual(now, cfg) {
			t.Errorf("%s after a restart: %+v, want %+v", name, now, cfg)
		}
	}
}

// A full disk is the caller's to know about: room helps, and a later try.
func TestAFullDiskIsToldAsOne(t *testing.T) {
	s := newSet(t, &receiver{answer: func(*http.Request) (int, error) { return 200, nil }})
	s.Start(newFakeQueue(0))
	defer s.Stop(time.Second)
	put(t, s, "w", config())
	s.opt.save = func(file string, _ map[string]api.WebhookConfig) error {
		return &fs.PathError{Op: "write", Path: file, Err: syscall.ENOSPC}
	}
	cfg := config()
	cfg.Rate = 7
	_, _, _, put := s.Put("w", cfg)
	_, del := s.Delete("w")
	for _, err := range []error{put, del} {
		if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeDiskFull || e.RetryAfter <= 0 || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%v", err)
		}
	}
	if rate := get(t, s, "w").Config.Rate; rate == 7 {
		t.Error("a change that is not stored is made")
	}
}

// A change that is in the file is made, though its call fails: the next start would make it.
func TestAChangeThatPowerMayTakeIsMadeAndTold(t *testing.T) {
	s := newSet(t, &receiver{answer: func(*http.Request) (int, error) { return 200, nil }})
	s.Start(newFakeQueue(0))
	defer s.Stop(time.Second)
	put(t, s, "w", config())
	s.opt.save = func(file string, all map[string]api.WebhookConfig) error {
		return errors.Join(save(file, all), atomicfile.ErrUnsynced)
	}
	cfg := config()
	cfg.Rate = 7
	if _, _, _, err := s.Put("w", cfg); !api.IsCode(err, api.CodeInternal) {
		t.Errorf("put: %v", err)
	}
	if rate := get(t, s, "w").Config.Rate; rate != 7 {
		t.Errorf("the rate is %d; the file has 7", rate)
	}
	if _, err := s.Delete("w"); !api.IsCode(err, api.CodeInternal) {
		t.Errorf("delete: %v", err)
	}
	if _, err := s.Get("w"); !api.IsCode(err, api.CodeNotFound) {
		t.Errorf("the webhook is there, %v; the file has none", err)
	}
}

func TestAStartCleansUpAfterACrash(t *testing.T) {
	s := newSet(t, &receiver{answer: func(*http.Request) (int, error) { return 200, nil }})
	left := filepath.Join(filepath.Dir(s.opt.File), "."+FileName+".new-123")
	if err := os.WriteFile(left, []byte("a secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Start(newFakeQueue(0))
	defer s.Stop(time.Second)
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there, %v", left, err)
	}
}

func TestAFileThatIsNotOursIsLeftAlone(t *testing.T) {
	texts := []string{"", "{", "[]", `{"webhooks":{}}`, `{"format":2,"webhooks":{}}`, `{"format":1,"more":1}`, `{"format":1,"webhooks":{"w":{"topic":"a"}}}`, `{"format":1,"webhooks":{}} x`}
	for _, wrong := range []string{`"secret":"short"`, `"concurrency":0`, `"concurrency":65`, `"rate":-1`, `"rate":1000001`, `"timeout_ms":0`, `"timeout_ms":86400000`} {
		w := map[string]any{"topic": "a", "url": "https://example.com", "secret": config().Secret, "concurrency": 1, "timeout_ms": 10_000}
		if err := json.Unmarshal([]byte("{"+wrong+"}"), &w); err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(map[string]any{"format": 1, "webhooks": map[string]any{"w": w}})
		texts = append(texts, string(text))
	}
	for _, text := range texts {
		s := newSet(t, &receiver{})
		if err := os.WriteFile(s.opt.File, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Start(newFakeQueue(0))
		if _, _, _, err := s.Put("w", config()); !api.IsCode(err, api.CodeInternal) {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := s.Delete("w"); !api.IsCode(err, api.CodeInternal) {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := s.All(); !api.IsCode(err, api.CodeInternal) {
			t.Errorf("%q: %v", text, err)
		}
		if now, _ := os.ReadFile(s.opt.File); string(now) != text {
			t.Errorf("%q became %q", text, now)
		}
		s.Stop(0)
	}
}

func TestAllWebhooksTogetherHaveALimit(t *testing.T) {
	s := newSet(t, &receiver{})
	s.opt.Off = false
	s.Start(newFakeQueue(0))
	defer s.Stop(0)
	cfg := config()
	cfg.Concurrency = api.MaxWebhookConcurrency
	for i := range api.MaxWebhookDeliveries / api.MaxWebhookConcurrency {
		put(t, s, fmt.Sprint("w", i), cfg)
	}
	if _, _, _, err := s.Put("more", config()); !api.IsCode(err, api.CodeThrottled) {
		t.Error(err)
	}
	put(t, s, "w0", cfg) // one that is there may be set again
}

func TestWhatSettingsDoNotAllowAnyMoreIsKeptAndNotDelivered(t *testing.T) {
	to := &receiver{answer: func(*http.Request) (int, error) { t.Error("a delivery"); return 200, nil }}
	s := newSet(t, to)
	s.opt.Reach.HTTP = true
	s.Start(newFakeQueue(0))
	cfg := config()
	cfg.URL = "http://example.com/"
	put(t, s, "w", cfg)
	s.Stop(0)
	for _, off := range []bool{false, true} {
		opt := s.opt
		opt.Reach.HTTP, opt.Off = off, off
		next := New(opt)
		next.Start(newFakeQueue(3))
		if st := get(t, next, "w"); st.On || off == (st.LastError != "") {
			t.Errorf("off %v: %+v", off, st)
		}
		next.Stop(0) // so that what is set now delivers nothing
		if _, _, _, err := next.Put("x", config()); api.IsCode(err, api.CodeForbidden) != off {
			t.Errorf("off %v: %v", off, err)
		}
	}
}
