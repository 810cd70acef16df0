package contract

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/stall"
)

// requestTimeout bounds one exchange; it is longer than the longest long poll.
const requestTimeout = 40 * time.Second

// Target is the server that a case runs against.
type Target interface {
	// URL is the base URL, without a slash at its end.
	URL() string
	// Restart ends the server with SIGTERM, or SIGKILL if kill is set, and
	// starts it again on the same data.
	Restart(t testing.TB, kill bool)
	// Starts starts another server with the settings and reports whether it
	// got ready, and what it wrote to standard error.
	Starts(t testing.TB, env []string) (ready bool, stderr string)
}

// Runner runs cases. Make one per test process: it gives topics unique names.
type Runner struct {
	h1, h2 *http.Client
	stamp  string
	count  int
	out    *recorder // nil: nothing is recorded
}

// NewRunner returns a runner whose topic names begin with stamp.
func NewRunner(stamp string) *Runner {
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	h1 := &http.Transport{DisableCompression: true}
	h2 := &http.Transport{DisableCompression: true, Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	return &Runner{
		h1:    &http.Client{Transport: h1, CheckRedirect: noRedirect},
		h2:    &http.Client{Transport: h2, CheckRedirect: noRedirect},
		stamp: stamp,
	}
}

// Close ends the record and drops idle connections.
func (r *Runner) Close() {
	r.dropIdle()
	r.out.close()
}

func (r *Runner) dropIdle() {
	r.h1.CloseIdleConnections()
	r.h2.CloseIdleConnections()
}

// Run runs one case and reports the first difference. A case that sleeps, and fails while the
// machine stalls, has three tries.
func (r *Runner) Run(t testing.TB, c *Case, target Target) {
	t.Helper()
	for tries := 1; ; tries++ {
		stalled := stall.Busy()
		err := r.once(t, c, target)
		busy := stalled()
		if err == nil {
			break
		}
		if !c.sleeps() || busy < hurtful || tries == 3 {
			t.Errorf("%v", err)
			return
		}
		t.Logf("once more, the machine was busy for %v: %v", busy, err)
	}
	if err := r.out.failure(); err != nil {
		t.Errorf("recording exchanges: %v", err)
	}
}

// hurtful is how long a machine may stall during a case whose leases or records end meanwhile:
// what has to come before their end may then come after it.
const hurtful = 20 * time.Millisecond

func (c *Case) sleeps() bool {
	return slices.ContainsFunc(c.Steps, func(s *Step) bool { return s.Sleep > 0 })
}

// once runs the case with names of its own.
func (r *Runner) once(t testing.TB, c *Case, target Target) error {
	t.Helper()
	r.count++
	v := &vars{prefix: fmt.Sprintf("%s-%d-", r.stamp, r.count), saved: map[string]string{}, streams: map[string]*stream{}}
	defer v.closeStreams()
	for _, s := range c.Steps {
		if err := r.step(t, c, s, target, v); err != nil {
			return fmt.Errorf("%s: %w", c.where(s), err)
		}
	}
	return nil
}

func (r *Runner) step(t testing.TB, c *Case, s *Step, target Target, v *vars) error {
	switch {
	case s.Sleep > 0:
		time.Sleep(s.Sleep)
		return nil
	case s.Command == "restart" || s.Command == "kill":
		target.Restart(t, s.Command == "kill")
		r.dropIdle()
		return nil
	case s.Command != "":
		return s.start(t, target, v)
	}
	v.host = strings.TrimPrefix(target.URL(), "http://")
	if s.Stream != "" {
		if err := r.streamStep(c.where(s), s, target, v); err != nil {
			return fmt.Errorf("%s: %w", s.describe(v), err)
		}
		return nil
	}
	for v.round = 1; v.round <= s.Times; v.round++ {
		a, err := r.exchange(t, s, target, v)
		if err == nil {
			if err = a.check(s, v); err == nil {
				r.exchanged(c.where(s), s, a)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.describe(v), err)
		}
	}
	return nil
}

// start runs a !starts or !refuses line.
func (s *Step) start(t testing.TB, target Target, v *vars) error {
	v.host = strings.TrimPrefix(target.URL(), "http://")
	env := make([]string, len(s.Args))
	for i, kv := range s.Args {
		env[i] = v.fill(kv)
	}
	want := s.Command == "starts"
	ready, stderr := target.Starts(t, env)
	if ready != want {
		return fmt.Errorf("%s %v: ready is %v; standard error: %s", s.Command, env, ready, stderr)
	}
	if !want && strings.TrimSpace(stderr) == "" {
		return fmt.Errorf("refuses %v: nothing on standard error", env)
	}
	return nil
}

func (s *Step) describe(v *vars) string {
	if s.IsRaw {
		return "RAW " + s.Raw[0]
	}
	body := s.Body
	if len(body) > 200 {
		body = body[:200] + "…"
	}
	return strings.TrimSpace(s.Stream+" "+s.Name+" "+s.Method) + " " + v.fill(s.Path+" "+body)
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
	took   time.Duration
	proto  int
	// closed: the connection ended behind the answer (RAW only).
	closed bool
	sent   *Exchange // what it answers
}

func (r *Runner) exchange(t testing.TB, s *Step, target Target, v *vars) (*answer, error) {
	ctx, cancel := context.WithTimeout(t.Context(), requestTimeout)
	defer cancel()
	if s.IsRaw {
		a, err := exchangeRaw(ctx, s, v)
		if err == nil {
			a.sent, err = r.sentRaw(s, v)
		}
		return a, err
	}
	req, err := newRequest(ctx, s, target.URL(), v)
	if err != nil {
		return nil, err
	}
	client := r.h1
	if s.HTTP2 {
		client = r.h2
	}
	asked := r.sent(req)
	begin := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	a, err := readAnswer(resp)
	if err != nil {
		return nil, err
	}
	a.took, a.sent = time.Since(begin), asked
	if s.HTTP2 != (a.proto == 2) {
		return nil, fmt.Errorf("the answer came over HTTP/%d", a.proto)
	}
	return a, nil
}

func readAnswer(resp *http.Response) (*answer, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return &answer{status: resp.StatusCode, header: resp.Header, body: body, proto: resp.ProtoMajor}, err
}

func newRequest(ctx context.Context, s *Step, base string, v *vars) (*http.Request, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	var body []byte
	var gzipped bool
	if s.Body != "" {
		if body, gzipped, err = expandBody(v.fill(s.Body)); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, s.Method, base+"/", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	path, _, err := expandBody(v.fill(s.Path))
	if err != nil {
		return nil, err
	}
	// An opaque URL is sent as written: double slashes and escapes survive.
	req.URL = &url.URL{Scheme: u.Scheme, Host: u.Host, Opaque: string(path)}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if gzipped {
		req.Header.Set("Content-Encoding", "gzip")
	}
	for _, h := range s.Header {
		name, value := http.CanonicalHeaderKey(h[0]), v.fill(h[1])
		switch {
		case value == "\x00":
			req.Header.Del(name)
		case name == "Host":
			req.Host = value
		case name == "Transfer-Encoding":
			req.ContentLength = -1
		default:
			req.Header.Set(name, value)
		}
	}
	return req, nil
}

// exchangeRaw sends the lines of a RAW step and reads one answer.
func exchangeRaw(ctx context.Context, s *Step, v *vars) (*answer, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", v.host)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	begin := time.Now()
	if err := conn.SetDeadline(begin.Add(requestTimeout)); err != nil {
		return nil, err
	}
	text, err := rawText(s.Raw, v)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return nil, err
	}
	method, _, _ := strings.Cut(text, " ")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		return nil, fmt.Errorf("no answer: %w", err)
	}
	a, err := readAnswer(resp)
	if err != nil {
		return nil, err
	}
	a.took = time.Since(begin)
	if resp.Close { // net/http takes the header away
		a.header.Set("Connection", "close")
	}
	if s.expects("closed") {
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		_, err = in.ReadByte()
		var timeout net.Error
		a.closed = err != nil && !(errors.As(err, &timeout) && timeout.Timeout())
	}
	return a, nil
}

func (s *Step) expects(kind string) bool {
	for _, e := range s.Expect {
		if e.Kind == kind {
			return true
		}
	}
	return false
}

func rawText(lines []string, v *vars) (string, error) {
	var b strings.Builder
	for _, line := range lines {
		line, bare := strings.CutSuffix(line, `\`)
		text, err := strconv.Unquote(`"` + strings.ReplaceAll(v.fill(line), `"`, `\"`) + `"`)
		if err != nil {
			return "", fmt.Errorf("line %q: %w", line, err)
		}
		b.WriteString(text)
		if !bare {
			b.WriteString("\r\n")
		}
	}
	return b.String(), nil
}

// environment is the key under which servers are shared between cases.
func environment(env []string) string {
	set := map[string]bool{}
	for _, kv := range env {
		set[kv] = true
	}
	var keys []string
	for kv := range maps.Keys(set) {
		keys = append(keys, kv)
	}
	return strings.Join(sorted(keys), "\n")
}
