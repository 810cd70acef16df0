// Package client is the other end of /v0: the calls weir's own programs make, in the
// nouns of package api, with errors that say whether retrying makes sense. It is the
// service of a remote queue. It keeps no state besides its connections and retries
// nothing itself.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// callTimeout ends a call that does not wait by itself, if nothing of its answer comes for so long.
	callTimeout = 30 * time.Second
	// slowLink is how many bytes of a request a second are given their time on top of that.
	slowLink = 64 << 10
	// answerTimeout ends a call whose answer is on its way.
	answerTimeout = 10 * time.Minute
	// dialTimeout bounds an attempt to connect.
	dialTimeout = 5 * time.Second
	// maxIdleConns is how many goroutines can repeatedly call at once without
	// reconnecting.
	maxIdleConns = 128
	// bufferBytes holds a request or an answer of about a hundred messages: with less, as in
	// net/http, each takes several system calls.
	bufferBytes = 32 << 10
	// readAhead is how much of an answer is made room for because its head says so.
	readAhead = 1 << 20
	// maxAnswerBytes bounds how much of an answer the client holds.
	maxAnswerBytes = 256 << 20
	// maxErrorBytes bounds how much of an error answer is read.
	maxErrorBytes = 64 << 10
)

// Client talks to one server. It is safe for use by many goroutines.
type Client struct {
	base string
	key  string
	http *http.Client
	skew atomic.Int64 // how far the server's clock is ahead by its last answer, in nanoseconds
}

// Open returns a client for a target. It fails if its certificates cannot be read.
func Open(t Target) (*Client, error) {
	conf, err := t.Certs.Config()
	if err != nil {
		return nil, err
	}
	return connect(t.Base, t.Key, conf), nil
}

// New returns a client for the server at base ("http://host:port", without a
// path). Behind commas there may be more hosts, of which one leads at a time. An empty key sends no Authorization header.
func New(base, key string) *Client { return connect(base, key, nil) }

func connect(base, key string, conf *tls.Config) *Client {
	transport := &http.Transport{
		TLSClientConfig:     conf,
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		MaxIdleConnsPerHost: maxIdleConns,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: dialTimeout,
		WriteBufferSize:     bufferBytes,
		ReadBufferSize:      bufferBytes,
		// The server is usually nearby: CPU costs more than bytes.
		DisableCompression: true,
	}
	base = strings.TrimSuffix(base, "/")
	var trips http.RoundTripper = transport
	if first, hosts := splitHosts(base); len(hosts) > 1 {
		base, trips = first, &rotation{next: transport, hosts: hosts}
	}
	return &Client{
		base: base,
		key:  key,
		http: &http.Client{
			Transport: trips,
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
		},
	}
}

// Base returns the server's address as given to New; it never contains a key.
func (c *Client) Base() string { return c.base }

// minSkew is the smallest clock skew that is corrected, since answers have whole
// seconds.
const minSkew = 2 * time.Second

// Now returns the time by the server's clock as far as its answers show it: this
// process's own time, unless the clocks are seconds apart; then it is accurate to a
// second.
func (c *Client) Now() time.Time {
	now := time.Now()
	if skew := time.Duration(c.skew.Load()); skew.Abs() >= minSkew {
		return now.Add(skew)
	}
	return now
}

// noteDate compares the clocks.
func (c *Client) noteDate(h http.Header) {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		c.skew.Store(int64(time.Until(date.Add(500 * time.Millisecond))))
	}
}

// Upstream returns the address of the server behind a relay, empty if the server is none.
func (c *Client) Upstream(ctx context.Context) (string, error) {
	var health struct {
		Relay struct {
			Upstream string `json:"upstream"`
		} `json:"relay"`
	}
	err := c.get(ctx, "/v0/health", &health)
	return printable(health.Relay.Upstream), err
}

// Ready returns nil if the server is ready to take every call, and otherwise what it says
// is missing.
func (c *Client) Ready(ctx context.Context) error { return c.get(ctx, "/v0/ready", new(struct{})) }

// Live returns nil if the server answers, ready or not.
func (c *Client) Live(ctx context.Context) error { return c.get(ctx, "/v0/health", new(struct{})) }

// Close drops the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func topicPath(topic, verb string) string {
	p := "/v0/topics/" + url.PathEscape(topic)
	if verb != "" {
		p += "/" + verb
	}
	return p
}

// get makes a call without a body.
func (c *Client) get(ctx context.Context, path string, out any) error {
	return c.call(ctx, callTimeout, http.MethodGet, path, nil, out)
}

// call sends body (nil: none) and decodes a 2xx answer into out.
func (c *Client) call(ctx context.Context, timeout time.Duration, method, path string, body []byte, out any) error {
	if err := ctx.Err(); err != nil {
		return err // nothing was sent
	}
	timeout += time.Duration(len(body)) * time.Second / slowLink
	bounded, cancel := context.WithTimeout(ctx, timeout+answerTimeout)
	defer cancel()
	limited, giveUp := context.WithCancelCause(bounded)
	defer giveUp(nil)
	late := time.AfterFunc(timeout, func() { giveUp(errLate) })
	defer late.Stop()
	err := c.exchange(limited, &impatientReader{timer: late, limit: timeout}, method, path, body, out)
	if u, ok := errors.AsType[*Unreachable](err); ok && context.Cause(limited) == errLate {
		u.Err = errLate
	}
	ended := ctx.Err()
	if u, ok := errors.AsType[*Unreachable](err); ok && u.unsent && ended != nil {
		return fmt.Errorf("not sent: %w", ended)
	}
	if ended != nil && err != nil && !errors.Is(err, ended) {
		return fmt.Errorf("%w: %w", err, ended) // the context ended the call
	}
	return err
}

// errLate means that the answer, or its next part, did not come in time.
var errLate = fmt.Errorf("its answer is late: %w", context.DeadlineExceeded)

// exchange makes a call and reads its answer through answer.
func (c *Client) exchange(ctx context.Context, answer *impatientReader, method, path string, body []byte, out any) error {
	resp, err := c.send(ctx, method, path, nil, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	text.Grow(int(min(max(resp.ContentLength, 0), readAhead)) + bytes.MinRead)
	answer.r = resp.Body
	if _, err := text.ReadFrom(io.LimitReader(answer, maxAnswerBytes+1)); err != nil {
		return &Unreachable{Err: hideURL(err)}
	}
	if text.Len() > maxAnswerBytes {
		return fmt.Errorf("the answer is larger than %d bytes; ask for fewer records at a time", maxAnswerBytes)
	}
	if err := decode(text.Bytes(), out); err != nil {
		return &unreadable{c.base, err}
	}
	if a, ok := out.(interface{ foreign() bool }); ok && a.foreign() {
		return &unreadable{c.base, errForeign}
	}
	return nil
}

// decode reads an answer: one that reads itself is not looked through twice.
func decode(text []byte, out any) error {
	if out, ok := out.(json.Unmarshaler); ok {
		return out.UnmarshalJSON(text)
	}
	return json.Unmarshal(text, out)
}

// change makes a call that changes something. An answer of success that cannot be read
// leaves open whether it did.
func (c *Client) change(ctx context.Context, timeout time.Duration, method, path string, body []byte, out any) error {
	return unsure(c.call(ctx, timeout, method, path, body, out))
}

// send makes one request and returns its 2xx answer; the caller closes the body.
// header, which may be nil, becomes the request's.
func (c *Client) send(ctx context.Context, method, path string, header http.Header, body []byte) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { connected.Store(false) }, // a server asked before this one has done nothing
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, reader)
	if err != nil {
		return nil, errors.New("the server's address is not usable in a request")
	}
	if header != nil {
		req.Header = header
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	c.authorize(req.Header)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, &Unreachable{Err: withRemedy(hideURL(err)), unsent: !connected.Load()}
	}
	c.noteDate(resp.Header)
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, readError(resp)
	}
	return resp, nil
}

func (c *Client) authorize(h http.Header) {
	if c.key != "" {
		h.Set("Authorization", "Bearer "+c.key)
	}
}

// encode is json.Marshal for values that cannot fail: numbers, strings and slices of
// them.
func encode(v any) []byte {
	text, _ := json.Marshal(v)
	return text
}

// withRemedy says what mends the error of a server that answers without TLS.
func withRemedy(err error) error {
	if strings.Contains(err.Error(), "gave HTTP response to HTTPS client") { // net/http has no type for it
		return fmt.Errorf("%w; %s", err, NoTLS)
	}
	return err
}

// NoTLS is what mends an https URL of a server that speaks plain HTTP.
const NoTLS = "the server does not speak TLS: use http://"

// hideURL removes the request's address from a transport error.
func hideURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
