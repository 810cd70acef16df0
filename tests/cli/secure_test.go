package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/certtest"
	"github.com/weirmq/weir/tests/stall"
	"github.com/weirmq/weir/tests/weirtest"
)

// secure is a server with TLS and a file of keys.
type secure struct {
	t     *testing.T
	certs *certtest.Dir
	keys  string // the file
	url   string
	*weirtest.Process
}

var readyAt = regexp.MustCompile(`is ready at (https://127\.0\.0\.1:\d+),`)

func startSecure(t *testing.T, args ...string) *secure {
	t.Helper()
	s := &secure{t: t, certs: certtest.New(t), keys: filepath.Join(t.TempDir(), "keys.json")}
	s.newKey("admin", "read,write,delete,admin", "")
	s.Process = weirtest.Go(t, nil, append([]string{
		"serve", "--port=0", "--data-dir=" + t.TempDir(), "--keys-file=" + s.keys,
		"--tls-cert=" + s.certs.File("server.pem"), "--tls-key=" + s.certs.File("server.key"),
	}, args...)...)
	eventually(t, "the server is ready", func() bool {
		found := readyAt.FindStringSubmatch(s.Stdout.String())
		if found != nil {
			s.url = found[1]
		}
		return found != nil || !s.Running()
	})
	if s.url == "" {
		t.Fatal("the server has ended")
	}
	return s
}

// newKey makes a key, and returns it.
func (s *secure) newKey(name, scopes, prefixes string, more ...string) string {
	s.t.Helper()
	args := append([]string{"key", "new", name, "--keys-file", s.keys, "--scopes", scopes}, more...)
	if prefixes != "" {
		args = append(args, "--prefixes", prefixes)
	}
	return strings.TrimSpace(must(s.t, args...))
}

// client is one that trusts the server's authority, and may have a certificate.
func (s *secure) client(h2 bool) *http.Client {
	s.t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.certs.PEM)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: h2, MaxIdleConnsPerHost: 10}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// ask makes a call and returns the answer's status and body.
func (s *secure) ask(ctx context.Context, c *http.Client, key, method, path, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	return c.Do(req)
}

// status is that of the answer to a call.
func (s *secure) status(c *http.Client, key, method, path, body string) int {
	s.t.Helper()
	resp, err := s.ask(s.t.Context(), c, key, method, path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func TestCommandsOverTLS(t *testing.T) {
	t.Parallel()
	s := startSecure(t)
	env := []string{"WEIR_API_KEY=" + s.newKey("app", "read,write,delete,admin", ""), "WEIR_CA=" + s.certs.File("ca.pem")}
	command := func(args ...string) (string, string, int) { return weirtest.Run(t, env, args...) }
	lines := accessLog(t)[:200]
	eventually(t, "the new key counts", func() bool {
		_, _, code := command("publish", s.url+"/orders", writeLines(t, lines))
		return code == 0
	})
	out, errs, code := command("work", "--until-empty=1s", s.url+"/orders", "--", "cat")
	if code != 0 || !strings.Contains(errs, "200 acked") {
		t.Errorf("work ended with %d: %s%s", code, out, errs)
	}
	if _, errs, code := command("doctor", s.url+"/orders"); code != 0 {
		t.Errorf("doctor ended with %d: %s", code, errs)
	}
	if _, errs, code := command("tail", "--from=0", "--no-follow", s.url+"/orders"); code != 0 {
		t.Errorf("tail ended with %d: %s", code, errs)
	}
	if _, errs, code := command("backup", s.url, filepath.Join(t.TempDir(), "copy")); code != 0 {
		t.Errorf("backup ended with %d: %s", code, errs)
	}
	if out, errs, code := command("top", "--count=1", s.url); code != 0 || !strings.Contains(out, "orders") {
		t.Errorf("top ended with %d: %s%s", code, out, errs)
	}

	_, errs, code = weirtest.Run(t, []string{env[0], "WEIR_CA=" + s.keys}, "tail", "--no-follow", s.url+"/orders")
	if code != 2 || !strings.Contains(errs, "holds no certificate") {
		t.Errorf("with a file of authorities that is none: code %d, %s", code, errs)
	}

	resp, err := s.ask(t.Context(), s.client(true), strings.TrimPrefix(env[0], "WEIR_API_KEY="), http.MethodGet, "/metrics", "")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil || resp.ProtoMajor != 2 || !bytes.Contains(page, []byte("weir_tls_certificate_end_timestamp_seconds")) {
		t.Errorf("the page comes over %s with %d bytes: %v", resp.Proto, len(page), err)
	}
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code != 0 {
		t.Errorf("the server ended with code %d", code)
	}
}

func TestClientsWithoutACertificateAreRefused(t *testing.T) {
	t.Parallel()
	dir := certtest.New(t)
	s := startSecure(t, "--tls-client-ca="+dir.File("ca.pem"))
	key := "WEIR_API_KEY=" + s.newKey("app", "read,write,admin", "")
	lines := writeLines(t, []string{"one"})
	own := []string{"publish", "--ca=" + s.certs.File("ca.pem"), "--tls-cert=" + dir.File("client.pem"), "--tls-key=" + dir.File("client.key"), s.url + "/orders", lines}
	eventually(t, "a client with a certificate is let in", func() bool {
		_, _, code := weirtest.Run(t, []string{key}, own...)
		return code == 0
	})
	if resp, err := s.ask(t.Context(), s.client(false), "", http.MethodGet, "/v0/health", ""); err == nil {
		resp.Body.Close()
		t.Errorf("without a certificate the answer is %s", resp.Status)
	}
}

// streams are listeners of one key.
type streams struct {
	open, ended, broken atomic.Int64
	records             atomic.Int64 // that all have received together
	why                 atomic.Value // the first reason why one is broken
	all                 sync.WaitGroup
}

func (n *streams) fail(why ...any) {
	n.broken.Add(1)
	n.why.CompareAndSwap(nil, fmt.Sprintln(why...))
}

// listen opens a stream on a topic and counts the numbers that come, each one above the last.
func (s *secure) listen(ctx context.Context, c *http.Client, key, topic string, n *streams) {
	n.all.Go(func() {
		resp, err := s.ask(ctx, c, key, http.MethodPost, "/v0/watch", `{"topics":{"`+topic+`":{"from_seq":0}}}`)
		if err != nil {
			n.fail(err)
			return
		}
		var made struct {
			URL string `json:"stream_url"`
		}
		err = json.NewDecoder(resp.Body).Decode(&made)
		resp.Body.Close()
		if err != nil || made.URL == "" {
			n.fail("no session", resp.Status, err)
			return
		}
		resp, err = s.ask(ctx, c, key, http.MethodGet, made.URL, "")
		if err != nil || resp.StatusCode != http.StatusOK {
			n.fail("no stream", resp, err)
			return
		}
		defer resp.Body.Close()
		n.open.Add(1)
		defer n.ended.Add(1)
		in, last := bufio.NewScanner(resp.Body), 0
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			for _, found := range seqAt.FindAllStringSubmatch(in.Text(), -1) {
				if seq, err := strconv.Atoi(found[1]); err != nil || seq != last+1 {
					n.fail("number", found[1], "behind", last)
				} else {
					last = seq
					n.records.Add(1)
				}
			}
		}
	})
}

var seqAt = regexp.MustCompile(`"\$seq":(\d+)`)

// A thousand streams, half of each key, with writes: the certificate is replaced, one key
// is revoked, another one is made.
func TestKeysAndCertificatesAreReplacedUnderStreams(t *testing.T) {
	t.Parallel()
	const each = 500
	s := startSecure(t)
	stays, goes := s.newKey("stays", "read,write,admin", "orders"), s.newKey("goes", "read", "orders", "--expires=1h")
	c, many := s.client(false), s.client(true)
	many.Transport.(*http.Transport).MaxConnsPerHost = 8
	eventually(t, "the keys count", func() bool {
		return s.status(c, stays, http.MethodPut, "/v0/topics/orders", `{"type":"log","durability":"disk"}`)/100 == 2
	})
	eventually(t, "the other key counts", func() bool { return s.status(c, goes, http.MethodGet, "/v0/topics/orders", "") == 200 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var staying, going streams
	for range each {
		s.listen(ctx, many, stays, "orders", &staying)
		s.listen(ctx, many, goes, "orders", &going)
	}
	eventually(t, "all streams are open", func() bool {
		return staying.open.Load()+staying.broken.Load() == each && going.open.Load()+going.broken.Load() == each
	})
	if n := staying.broken.Load() + going.broken.Load(); n > 0 {
		t.Fatalf("%d streams cannot be opened: %v %v", n, staying.why.Load(), going.why.Load())
	}
	var writing sync.WaitGroup
	var written atomic.Int64
	stop := make(chan struct{})
	for range 2 {
		writing.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if s.status(c, stays, http.MethodPost, "/v0/topics/orders", `{"records":[{"data":"x"}]}`)/100 != 2 {
					t.Error("a write was refused")
					return
				}
				written.Add(1)
			}
		})
	}

	next := certtest.Loopback()
	next.Subject = pkix.Name{CommonName: "next"}
	s.certs.Issue("server", next)
	must(t, "key", "revoke", "goes", "--keys-file", s.keys)
	revoked, stalled := time.Now(), stall.Busy()
	eventually(t, "the streams of the revoked key end", func() bool { return going.ended.Load() == each })
	took, late := time.Since(revoked), stalled()
	if status := s.status(c, goes, http.MethodGet, "/v0/topics/orders", ""); status != http.StatusUnauthorized {
		t.Errorf("the revoked key is answered %d", status)
	}
	made := s.newKey("made", "read", "orders")
	eventually(t, "a new key counts", func() bool { return s.status(c, made, http.MethodGet, "/v0/topics/orders", "") == 200 })
	eventually(t, "new connections are shown the new certificate", func() bool {
		resp, err := s.ask(t.Context(), s.client(false), stays, http.MethodGet, "/v0/topics/orders", "")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.TLS.PeerCertificates[0].Subject.CommonName == "next"
	})
	close(stop)
	writing.Wait()
	eventually(t, "every stream has every record", func() bool { return staying.records.Load() >= each*written.Load() || staying.broken.Load() > 0 })
	if n := staying.ended.Load(); n > 0 {
		t.Errorf("%d streams ended although their key stands", n)
	}
	cancel()
	staying.all.Wait()
	going.all.Wait()
	if a, b := staying.broken.Load(), going.broken.Load(); a+b > 0 {
		t.Errorf("%d streams of the key that stays were not opened or had gaps, %d of the other: %v %v", a, b, staying.why.Load(), going.why.Load())
	}
	t.Logf("%d writes; the streams of the revoked key ended after %s", written.Load(), took)
	if took > 20*time.Second+late {
		t.Errorf("it took %s, of which the machine stood still for %s", took, late)
	}
}

// What a file that cannot be read held before stays.
func TestABrokenFileOfKeysChangesNothing(t *testing.T) {
	t.Parallel()
	s := startSecure(t)
	c := s.client(false)
	key := s.newKey("app", "read", "")
	eventually(t, "the key counts", func() bool { return s.status(c, key, http.MethodGet, "/v0/topics", "") == 200 })
	for _, text := range []string{`{"keys":[`, `{"keys":[{"name":"app"}]}`, `{"keys":[],"more":1}`} {
		before := strings.Count(s.Stderr.String(), "cannot be read")
		if err := errors.Join(os.WriteFile(s.keys+".new", []byte(text), 0o600), os.Rename(s.keys+".new", s.keys)); err != nil {
			t.Fatal(err)
		}
		eventually(t, fmt.Sprintf("the log says that %s is wrong", text), func() bool { return strings.Count(s.Stderr.String(), "cannot be read") > before })
		if status := s.status(c, key, http.MethodGet, "/v0/topics", ""); status != 200 {
			t.Errorf("with %s the key is answered %d", text, status)
		}
	}
}
