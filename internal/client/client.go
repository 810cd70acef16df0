// Package client is the other end of /v0: the calls that weir's own programs make,
// in the nouns of package api, with errors that say whether trying again is of use.
// It is the service of a remote queue. It holds no state besides its connections
// and retries nothing itself.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// callTimeout ends a call that has no waiting of its own.
	callTimeout = 30 * time.Second
	// dialTimeout ends an attempt to connect.
	dialTimeout = 5 * time.Second
	// maxIdleConns is how many goroutines can call at once and again without
	// connecting anew.
	maxIdleConns = 128
	// maxAnswerBytes bounds what one answer may make the client hold.
	maxAnswerBytes = 256 << 20
	// maxErrorBytes bounds how much of an error answer is read.
	maxErrorBytes = 64 << 10
)

// Client talks to one server. It is safe for use by many goroutines.
type Client struct {
	base string
	key  string
	http *http.Client
	skew atomic.Int64 // nanoseconds that the server's clock is ahead, by its last answer
}

// New returns a client for the server at base ("http://host:port", without a
// path). An empty key sends no Authorization header.
func New(base, key string) *Client {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		MaxIdleConnsPerHost: maxIdleConns,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: dialTimeout,
		// The server is mostly one host away or none: CPU is dearer than bytes.
		DisableCompression: true,
	}
	return &Client{
		base: strings.TrimSuffix(base, "/"),
		key:  key,
		http: &http.Client{
			Transport: transport,
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
		},
	}
}

// Base returns the server's address as it was given to New; it never holds a key.
func (c *Client) Base() string { return c.base }

// minSkew is what a clock is told to be wrong by: an answer names whole seconds.
const minSkew = 2 * time.Second

// Now is the time by the server's clock as far as its answers tell: this
// process's own unless they are seconds apart, and then within a second.
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
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := c.exchange(limited, method, path, body, out)
	if ended := ctx.Err(); ended != nil && err != nil && !errors.Is(err, ended) {
		return fmt.Errorf("%w: %w", err, ended) // which is what ended the call
	}
	return err
}

func (c *Client) exchange(ctx context.Context, method, path string, body []byte, out any) error {
	resp, err := c.send(ctx, method, path, nil, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err != nil {
		return &Unreachable{Err: hideURL(err)}
	}
	if len(text) > maxAnswerBytes {
		return fmt.Errorf("the answer is larger than %d bytes; ask for fewer records at a time", maxAnswerBytes)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("the answer of %s is not what /v0 says: %w", c.base, err)
	}
	return nil
}

// send makes one request and returns its 2xx answer; the caller closes the
// body. header (may be nil) is the start of the request's.
func (c *Client) send(ctx context.Context, method, path string, header http.Header, body []byte) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
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
		return nil, &Unreachable{Err: hideURL(err)}
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

// encode is json.Marshal of what cannot fail: numbers, texts and slices of them.
func encode(v any) []byte {
	text, _ := json.Marshal(v)
	return text
}

// hideURL takes the request's address off a transport error.
func hideURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
