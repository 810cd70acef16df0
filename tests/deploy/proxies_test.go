package deploy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/weirmq/weir/tests/process"
	"github.com/weirmq/weir/tests/weirtest"
)

// site is the name under which browsers know the server behind the proxy.
const site = "weir.example.com"

// proxied is a proxy in front of a server.
type proxied struct {
	proxy
	t    *testing.T
	addr string
}

// proxy is a program that is put in front of a server.
type proxy struct {
	// command makes a configuration of a site, which listens on addr and has no TLS, in dir
	// and returns the command that runs it.
	command func(t *testing.T, site, addr, dir string) *exec.Cmd
	// The server takes bodies of up to limit bytes; that one of tooLarge bytes is refused
	// reaches every client.
	limit, tooLarge int
	// client is as the program leaves connections: nginx closes one whose body it has not
	// read to the end.
	client *http.Client
}

var (
	nginx = proxy{runNginx, 1 << 20, 3 << 20, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	// Caddy reads up to 256 KiB of a refused body; of a larger one a client may see the end of
	// its connection only.
	caddy   = proxy{runCaddy, 64 << 10, 128 << 10, http.DefaultClient}
	haproxy = proxy{runHAProxy, 64 << 10, 128 << 10, http.DefaultClient}
)

func runNginx(t *testing.T, site, addr, dir string) *exec.Cmd {
	t.Helper()
	site = regexp.MustCompile(`(?m)^ *ssl_\S+ .*\n`).ReplaceAllString(site, "")
	site = strings.ReplaceAll(site, "listen 443 ssl;", "listen "+addr+";")
	temp := ""
	for _, kind := range strings.Fields("client_body proxy fastcgi uwsgi scgi") {
		temp += fmt.Sprintf("%s_temp_path %s/%s;\n", kind, dir, kind)
	}
	conf := filepath.Join(dir, "nginx.conf")
	write(t, conf, fmt.Sprintf("daemon off;\nmaster_process off;\npid %s/pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n%s%s}\n", dir, temp, site))
	return exec.Command(daemon("nginx"), "-p", dir, "-c", conf, "-e", "stderr")
}

func runCaddy(t *testing.T, text, addr, dir string) *exec.Cmd {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(site)+` \{`).ReplaceAllString(text, "http://"+site+":"+port+" {")
	conf := filepath.Join(dir, "Caddyfile")
	write(t, conf, fmt.Sprintf("{\n\tadmin off\n\tauto_https off\n\tdefault_bind %s\n}\n%s", host, text))
	cmd := exec.Command("caddy", "run", "--config", conf, "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	return cmd
}

func runHAProxy(t *testing.T, site, addr, dir string) *exec.Cmd {
	t.Helper()
	site = regexp.MustCompile(`bind :443 .*`).ReplaceAllString(site, "bind "+addr)
	conf := filepath.Join(dir, "haproxy.cfg")
	write(t, conf, site)
	return exec.Command(daemon("haproxy"), "-db", "-f", conf)
}

// daemon is the path of a program that Debian has where not everybody's PATH leads.
func daemon(name string) string {
	program, err := exec.LookPath(name)
	if err != nil {
		program = "/usr/sbin/" + name
	}
	return program
}

// newProxied starts a proxy with a site of deploy/proxies.
func newProxied(t *testing.T, program proxy, site string) *proxied {
	t.Helper()
	s := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_ALLOWED_HOSTS=weir.example.com", fmt.Sprint("WEIR_MAX_BODY_BYTES=", program.limit)}})
	site = strings.ReplaceAll(site, "127.0.0.1:4000", strings.TrimPrefix(s.URL, "http://"))
	for range 5 { // somebody may take the port in between
		port, err := process.FreePort(0)
		if err != nil {
			t.Fatal(err)
		}
		p := &proxied{program, t, fmt.Sprint("127.0.0.1:", port)}
		if dir := t.TempDir(); p.start(program.command(t, site, p.addr, dir), filepath.Join(dir, "log")) {
			return p
		}
	}
	t.Fatal("the proxy does not start")
	return nil
}

// start reports whether the proxy listens. A site that it does not understand fails the test.
func (p *proxied) start(cmd *exec.Cmd, log string) bool {
	p.t.Helper()
	said, err := os.Create(log)
	if err != nil {
		p.t.Fatal(err)
	}
	defer said.Close()
	cmd.Stderr = said
	running, err := process.Start(cmd)
	if err != nil {
		p.t.Fatalf("%s, which make deps installs: %v", cmd.Path, err)
	}
	p.t.Cleanup(func() { running.End(syscall.SIGKILL) })
	for {
		if conn, err := net.Dial("tcp", p.addr); err == nil {
			conn.Close()
			return true
		}
		select {
		case <-running.Exited():
			if text := process.Tail(log); !strings.Contains(strings.ToLower(text), "address already in use") {
				p.t.Fatalf("%s: %s", cmd.Path, text)
			}
			return false
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// request is one as a browser on the site would make, or on another one.
func (p *proxied) request(ctx context.Context, method, path, origin, body string) *http.Request {
	p.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+p.addr+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Host = site
	if origin != "" {
		req.Header.Set("Origin", origin)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}

func (p *proxied) do(method, path, origin, body string) *http.Response {
	p.t.Helper()
	resp, err := p.client.Do(p.request(p.t.Context(), method, path, origin, body))
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
	p.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// want makes a request and compares its status, and what is in its answer.
func (p *proxied) want(status int, text, method, path, origin, body string) []byte {
	p.t.Helper()
	resp := p.do(method, path, origin, body)
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status || !strings.Contains(string(answer), text) {
		p.t.Errorf("%s %s from %q: %d %s (%v), want %d and %q", method, path, origin, resp.StatusCode, answer, err, status, text)
	}
	return answer
}

func TestNginxInFront(t *testing.T) {
	t.Parallel()
	newProxied(t, nginx, read(t, root+"proxies/nginx.conf")).pass()
}

func TestCaddyInFront(t *testing.T) {
	t.Parallel()
	newProxied(t, caddy, read(t, root+"proxies/Caddyfile")).pass()
}

func TestHAProxyInFront(t *testing.T) {
	t.Parallel()
	newProxied(t, haproxy, read(t, root+"proxies/haproxy.cfg")).pass()
}

// of is the same for a subtest.
func (p *proxied) of(t *testing.T) *proxied { return &proxied{p.proxy, t, p.addr} }

// pass makes the requests that a proxy has to let through.
func (p *proxied) pass() {
	t := p.t
	const own = "https://" + site
	t.Run("writes of browsers", func(t *testing.T) {
		p := p.of(t)
		p.want(201, `"last_seq":1`, "POST", "/v0/topics/writes", own, `{"records":[{"data":"x"}]}`)
		p.want(403, "another origin", "POST", "/v0/topics/writes", "https://elsewhere.example", `{"records":[{"data":"x"}]}`)
		p.want(413, `"payload_too_large"`, "POST", "/v0/topics/writes", own, `{"records":[{"data":"`+strings.Repeat("x", p.tooLarge)+`"}]}`)
	})
	t.Run("event streams", func(t *testing.T) {
		p := p.of(t)
		p.want(201, "", "POST", "/v0/topics/events", own, `{"records":[{"data":"old"}]}`)
		var session struct {
			WID string `json:"wid"`
		}
		if err := json.Unmarshal(p.want(200, "", "POST", "/v0/watch", own, `{"topics":{"events":{"tail":true}}}`), &session); err != nil {
			t.Fatal(err)
		}
		events := bufio.NewScanner(p.do("GET", "/v0/watch/"+session.WID, "", "").Body)
		for _, text := range []string{"caught-up", "first", "second"} {
			if text != "caught-up" {
				p.want(200, "", "POST", "/v0/topics/events", own, `{"records":[{"data":"`+text+`"}]}`)
			}
			for events.Scan() && !strings.Contains(events.Text(), text) {
			}
			if events.Err() != nil {
				t.Fatalf("waiting for %q: %v", text, events.Err())
			}
		}
	})
	t.Run("claims that wait", func(t *testing.T) {
		p := p.of(t)
		p.want(201, "", "PUT", "/v0/topics/jobs", own, `{"type":"queue"}`)
		var claim sync.WaitGroup
		claim.Go(func() { // the other way round a failure would come behind the end of the test
			p.want(200, `"count":1`, "POST", "/v0/topics/jobs/claim", own, `{"node":"w","wait_ms":30000}`)
		})
		time.Sleep(100 * time.Millisecond) // most likely it waits now; a claim that comes later finds the job
		p.want(200, "", "POST", "/v0/topics/jobs", own, `{"records":[{"data":"x"}]}`)
		claim.Wait()
	})
	t.Run("claims whose worker has gone", func(t *testing.T) {
		p := p.of(t)
		for try := range 3 { // the server may hear late that it has gone
			topic := fmt.Sprint("/v0/topics/left-", try)
			p.want(201, "", "PUT", topic, own, `{"type":"queue"}`)
			ctx, leave := context.WithTimeout(t.Context(), 200*time.Millisecond)
			if resp, err := p.client.Do(p.request(ctx, "POST", topic+"/claim", own, `{"node":"gone","wait_ms":30000}`)); err == nil {
				resp.Body.Close()
				t.Fatalf("a claim of an empty queue: %s", resp.Status)
			}
			leave()
			time.Sleep(100 * time.Millisecond)
			p.want(200, "", "POST", topic, own, `{"records":[{"data":"x"}]}`)
			resp := p.do("POST", topic+"/claim", own, `{"node":"here","wait_ms":1000}`)
			if answer, err := io.ReadAll(resp.Body); err != nil {
				t.Fatal(err)
			} else if strings.Contains(string(answer), `"count":1`) {
				return
			}
		}
		t.Error("three times, the job went to a worker that had gone")
	})
	t.Run("WebSockets", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		conn, _, err := websocket.Dial(ctx, "ws://"+p.addr+"/v0/ws", &websocket.DialOptions{Host: site, HTTPHeader: http.Header{"Origin": {own}}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseNow()
		if err := conn.Write(ctx, websocket.MessageText, []byte(`{"op":"publish","request_id":7,"topic":"socket","records":[{"data":"x"}]}`)); err != nil {
			t.Fatal(err)
		}
		if _, answer, err := conn.Read(ctx); err != nil || !strings.Contains(string(answer), `"op":"ack"`) {
			t.Errorf("the answer to a publish: %s, %v", answer, err)
		}
	})
}

// What the site's Host line is for.
func TestNginxWithItsOwnHostIsToldSo(t *testing.T) {
	t.Parallel()
	text := regexp.MustCompile(`(?m)^ *proxy_set_header Host .*\n`).ReplaceAllString(read(t, root+"proxies/nginx.conf"), "")
	p := newProxied(t, nginx, text)
	p.want(403, "is neither loopback nor listed", "POST", "/v0/topics/writes", "https://"+site, `{"records":[{"data":"x"}]}`)
}
