package cli

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/certtest"
	"github.com/weirmq/weir/tests/kafkatest"
	"github.com/weirmq/weir/tests/link"
	"github.com/weirmq/weir/tests/process"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/stall"
	"github.com/weirmq/weir/tests/weirtest"
)

// What waiting does not mend ends every command at once, with one line that says what does.
func TestWhatWaitingDoesNotMendEndsAtOnce(t *testing.T) {
	t.Parallel()
	certs := certtest.New(t)
	redis, redisTLS := redistest.StartTLS(t, certs.File("server.pem"), certs.File("server.key"), certs.File("ca.pem"),
		"--requirepass", "right", "--tls-auth-clients", "no")
	weir := startSecure(t)
	addr := strings.TrimPrefix(weir.url, "https://")
	ca := "ca=" + neturl.QueryEscape(certs.File("ca.pem"))
	weirCA := "?ca=" + neturl.QueryEscape(weir.certs.File("ca.pem"))
	plain := weirtest.Start(t, weirtest.Options{})
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	t.Cleanup(door.Close)
	kafka := kafkatest.StartSecure(t, kafkatest.Options{})
	kafkaCA := "?partitions=1&ca=" + neturl.QueryEscape(kafka.CA)
	cases := []struct{ name, url, want string }{
		{"redis, unknown host", "redis://nobody..invalid/0?stream=a", "check the host"},
		{"redis, TLS on a plain port", "rediss://:right@" + redis.Addr() + "/0?stream=a", "use redis://"},
		{"redis, plain on a TLS port", "redis://:right@" + redisTLS + "/0?stream=a", "use rediss://"},
		{"redis, unknown authority", "rediss://:right@" + redisTLS + "/0?stream=a", "is not trusted"},
		{"redis, wrong password", "redis://:wrong@" + redis.Addr() + "/0?stream=a", "does not know the URL's user and password"},
		{"redis, no password", redis.URL() + "?stream=a", "wants a password"},
		{"redis over TLS, wrong password", "rediss://:wrong@" + redisTLS + "/0?stream=a&" + ca, "does not know the URL's user and password"},
		{"redis, a web server", "redis://" + plain.Addr + "/0?stream=a", "use http://"},
		{"redis, no such database", "redis://:right@" + redis.Addr() + "/99?stream=a", "use a smaller number"},

		{"http, unknown host", "http://nobody..invalid:4000/a", "check the host"},
		{"http, TLS on a plain port", "https://" + plain.Addr + "/a", "use http://"},
		{"http, plain on a TLS port", "http://" + addr + "/a", "use https://"},
		{"http, unknown authority", weir.url + "/a", "ca=FILE"},
		{"http, unknown key", strings.Replace(weir.url, "https://", "https://:wrong@", 1) + "/a" + weirCA, "WEIR_API_KEY"},
		{"http, no key", weir.url + "/a" + weirCA, "WEIR_API_KEY"},
		{"http, another server", web.URL + "/a", "check the host, the port and the path"},
		{"http, a proxy that refuses", door.URL + "/a", "refuses the key"},

		{"kafka, unknown host", "kafka://nobody..invalid:9092/a", "check the host"},
		{"kafka, TLS on a plain port", "kafkas://" + kafka.Addr() + "/a", "use kafka://"},
		{"kafka, plain on a TLS port", "kafka://" + kafka.Listener(kafkatest.TLS) + "/a", "use kafkas://"},
		{"kafka, unknown authority", "kafkas://" + kafka.Listener(kafkatest.TLS) + "/a", "with ca="},
		{"kafka, wrong password", "kafkas://admin:wrong@" + kafka.Listener(kafkatest.SASL) + "/a" + kafkaCA, "does not accept the user and password"},
		{"kafka, no password", "kafkas://" + kafka.Listener(kafkatest.SASL) + "/a" + kafkaCA, "wants a user and a password"},
		{"kafka, no such topic", kafka.URL() + "/nothing", "partitions=N"},
	}
	lines := writeLines(t, []string{"a"})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			commands := [][]string{{"publish", c.url, lines}, {"sample", c.url}}
			switch {
			case strings.HasPrefix(c.url, "http"): // tail has a way of its own there
				server := neturl.URL{Scheme: "http", Host: "127.0.0.1:1"}
				if u, err := neturl.Parse(c.url); err == nil {
					server = neturl.URL{Scheme: u.Scheme, User: u.User, Host: u.Host, RawQuery: u.RawQuery}
				}
				commands = append(commands, []string{"tail", c.url}, []string{"tail", "--from=0", c.url}, []string{"doctor", c.url},
					[]string{"topic", "info", c.url}, []string{"topic", "ls", server.String()})
				if !strings.HasSuffix(c.name, "key") { // it needs none
					commands = append(commands, []string{"health", server.String()})
				}
			case strings.HasSuffix(c.name, "unknown host"):
				commands = append(commands, []string{"work", c.url, "--", "true"}, []string{"tail", c.url}, []string{"dlq", "ls", c.url}, []string{"queue", "pause", c.url})
			}
			for _, args := range commands {
				begun, stalled := time.Now(), stall.Busy()
				out, stderr, code := weirtest.Run(t, nil, args...)
				said := strings.TrimSpace(stderr)
				if args[0] == "work" || args[0] == "publish" {
					said = said[strings.LastIndex(said, "\n")+1:] // the pool's own lines
				}
				if code != 1 || !strings.Contains(said, c.want) || strings.Contains(said, "\n") || strings.Contains(stderr, "waiting up to") {
					t.Errorf("weir %s: code %d, want %q in one line:\n%s%s", strings.Join(args[:2], " "), code, c.want, out, stderr)
				}
				if took, late := time.Since(begun), stalled(); took > 12*time.Second+late {
					t.Errorf("weir %s took %s, of which the machine stood still for %s", args[0], took, late)
				}
			}
		})
	}
}

// A Redis cuts a request of HTTP off, as a server that goes down does.
func TestAnHTTPURLOfARedisIsNamed(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t, redistest.Options{}).Addr()
	for _, args := range [][]string{{"doctor", "http://" + addr + "/a"}, {"topic", "ls", "http://" + addr}, {"health", "http://" + addr}} {
		if _, stderr, code := weirtest.Run(t, nil, args...); code != 1 || !strings.Contains(stderr, "use redis://") {
			t.Errorf("weir %v: code %d, %s", args, code, stderr)
		}
	}
	p := run(t, "sample", "http://"+addr+"/a")
	eventually(t, "sample says so while it waits", func() bool { return strings.Contains(p.Stderr.String(), "use redis://") })
}

// A signal ends a command that waits: work as if it had drained, others because they did
// nothing.
func TestASignalEndsTheWaitForAServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // it answers nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	redis := redistest.Start(t, redistest.Options{})
	lines := writeLines(t, []string{"a"})
	must(t, "publish", redis.URL()+"?stream=a", lines)
	must(t, "work", redis.URL()+"?stream=a", "--until-empty=10ms", "--", "true") // which makes the group
	asked := make(chan net.Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil { // it is closed at the end
			asked <- c
		}
	}()
	between := link.NewProxy(t, redis.Addr())
	said := func(p *weirtest.Process) bool { return strings.Contains(p.Stderr.String(), "waiting") }
	for _, c := range []struct {
		args  []string
		code  int
		waits func(*weirtest.Process) bool
	}{
		{[]string{"work", "http://127.0.0.1:1/a", "--", "true"}, 0, said},
		{[]string{"tail", "http://127.0.0.1:1/a"}, 0, said},
		{[]string{"publish", "http://127.0.0.1:1/a", lines}, 1, said},
		{[]string{"sample", "http://127.0.0.1:1/a"}, 1, said},
		{[]string{"dlq", "ls", "http://127.0.0.1:1/a"}, 1, said},
		{[]string{"doctor", "http://" + l.Addr().String() + "/a"}, 1, func(*weirtest.Process) bool { return len(asked) > 0 }},
		{[]string{"doctor", "--interval=1m", "redis://" + between.Addr() + "/0?stream=a"}, 1, func(*weirtest.Process) bool { return between.Connections() > 0 }},
	} {
		t.Run(c.args[0], func(t *testing.T) {
			t.Parallel()
			p := run(t, c.args...)
			eventually(t, "it waits", func() bool { return c.waits(p) })
			p.Signal(syscall.SIGINT)
			code := p.Wait()
			if said := p.Stderr.String(); code != c.code || c.code == 1 && !strings.HasSuffix(said, "weir: interrupted\n") || strings.Contains(said, "canceled") {
				t.Errorf("weir %v: exit code %d, %s", c.args, code, said)
			}
		})
	}
}

// A signal is the end of a command that has no other, and a failure of one that had more to do.
func TestASignalBeforeTheEndIsNoSuccess(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	url := srv.URL + "/jobs"
	bury(t, openStream(t, url), 60, backend.ReasonPoison)
	must(t, "publish", url, writeLines(t, []string{"a"}))
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"tail", "--from=0", url}, 0},
		{[]string{"tail", "--from=0", "--count=99", url}, 1},
		{[]string{"sample", "--every=100ms", url}, 0},
		{[]string{"sample", "--every=100ms", "--count=9999", url}, 1},
		{[]string{"top", "--every=100ms", srv.URL}, 0},
		{[]string{"top", "--every=100ms", "--count=9999", srv.URL}, 1},
		{[]string{"dlq", "redrive", "--delay=0", "--rate=1", url}, 1},
	} {
		t.Run(strings.Join(c.args[:len(c.args)-1], " "), func(t *testing.T) {
			t.Parallel()
			p := run(t, c.args...)
			if c.args[0] == "dlq" {
				eventually(t, "a letter is sent back", func() bool { return topicState(t, srv, "jobs.dlq").Count < 60 })
			} else {
				eventually(t, "something is printed", func() bool { return p.Stdout.String() != "" })
			}
			p.Signal(syscall.SIGTERM)
			if code := p.Wait(); code != c.code || (code == 1) != strings.HasSuffix(p.Stderr.String(), "weir: interrupted\n") {
				t.Errorf("exit code %d, %s", code, p.Stderr.String())
			}
			if out := p.Stdout.String(); c.args[0] == "dlq" && !strings.Contains(out, " sent back from jobs.dlq") {
				t.Errorf("it said %q", out)
			}
		})
	}
}

// A server that is not there yet is waited for, with one line, whatever its kind.
func TestCommandsWaitForAServerThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Options{})
	weir := weirtest.Start(t, weirtest.Options{Stays: true})
	loading, loaded := loadingRedis(t, redistest.Start(t, redistest.Options{}).Addr())
	late, listen := lateListener(t, kafkatest.Start(t, kafkatest.Options{}).Addr())
	starting, ready := startingWeir(t, weirtest.Start(t, weirtest.Options{}).URL)
	kinds := map[string]struct {
		url         string
		stop, start func()
	}{
		"redis":         {redis.URL() + "?stream=a", redis.Kill, redis.Restart},
		"redis loading": {"redis://" + loading + "/0?stream=a", func() {}, loaded},
		"kafka":         {"kafka://" + late + "/a?partitions=1", func() {}, listen},
		"http":          {weir.URL + "/a", weir.Kill, weir.Restart},
		"http starting": {starting + "/a", func() {}, ready},
	}
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			k.stop()
			commands := map[string]*weirtest.Process{
				"publish": run(t, "publish", k.url, writeLines(t, []string{"a"})),
				"sample":  run(t, "sample", k.url),
				"work":    run(t, "work", "--until-empty=300ms", k.url, "--", "true"),
				"dlq":     run(t, "dlq", "ls", k.url),
			}
			for name, p := range commands {
				eventually(t, name+" says that it waits", func() bool { return strings.Contains(p.Stderr.String(), "waiting up to 15s for the server: ") })
			}
			k.start()
			for name, p := range commands {
				if code := p.Wait(); code != 0 && (name != "dlq" || !strings.Contains(p.Stderr.String(), "stream not found")) { // dlq may be there before publish
					t.Errorf("weir %s ended with code %d", name, code)
				}
				if n := strings.Count(p.Stderr.String(), "waiting up to"); n != 1 {
					t.Errorf("weir %s said %d times that it waits:\n%s", name, n, p.Stderr.String())
				}
			}
		})
	}
}

// loadingRedis is an address that answers as a server of Redis that reads its data in, until
// it is told to pass on what comes to the one at addr.
func loadingRedis(t *testing.T, addr string) (at string, loaded func()) {
	t.Helper()
	var passes atomic.Bool
	l := listenOn(t, "127.0.0.1:0", func(conn net.Conn) {
		for in := bufio.NewScanner(conn); !passes.Load() && in.Scan(); {
			if strings.HasPrefix(in.Text(), "*") { // a command begins
				_, _ = io.WriteString(conn, "-LOADING Redis is loading the dataset in memory\r\n")
			}
		}
	}, &passes, addr)
	return l, func() { passes.Store(true) }
}

// lateListener is an address where nobody listens, until listen has what comes there passed
// on to addr.
func lateListener(t *testing.T, addr string) (at string, listen func()) {
	t.Helper()
	port, err := process.FreePort(0) // which nobody else is given meanwhile
	if err != nil {
		t.Fatal(err)
	}
	at = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	var passes atomic.Bool
	passes.Store(true)
	return at, func() { listenOn(t, at, nil, &passes, addr) }
}

// listenOn serves the connections to an address: with before, and those that come once it
// passes with what addr answers.
func listenOn(t *testing.T, at string, before func(net.Conn), passes *atomic.Bool, addr string) string {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(func() { l.Close() })
	serve := func(conn net.Conn) {
		defer conn.Close()
		if !passes.Load() {
			before(conn)
			return
		}
		server, err := net.Dial("tcp", addr)
		if err != nil {
			return // as if it were not there
		}
		all.Go(func() {
			_, _ = io.Copy(server, conn) // ends with either side
			server.Close()
		})
		_, _ = io.Copy(conn, server)
	}
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { serve(conn) })
		}
	})
	return l.Addr().String()
}

// startingWeir is a server that is not ready, until it is told to pass on what comes to the
// one at base.
func startingWeir(t *testing.T, base string) (url string, ready func()) {
	t.Helper()
	to, err := neturl.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	var passes atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if passes.Load() {
			proxy.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":{"code":"not_ready","message":"the log is being read"}}`)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() { passes.Store(true) }
}

// The wait has an end.
func TestTheWaitForAServerEnds(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis://127.0.0.1:1/0?stream=a", "http://127.0.0.1:1/a", "kafka://127.0.0.1:1/a"} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			_, stderr, code := weirtest.Run(t, nil, "publish", "--give-up=1s", url, writeLines(t, []string{"a"}))
			want := "weir publish: waiting up to 1s for the server: "
			if code != 1 || strings.Count(stderr, want) != 1 || !strings.Contains(stderr, "the server was not there for 1s: ") || strings.Count(stderr, "\n") != 2 {
				t.Errorf("code %d\n%s", code, stderr)
			}
		})
	}
}
