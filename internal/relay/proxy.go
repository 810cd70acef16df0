package relay

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/weirmq/weir/internal/api"
)

// newProxy passes requests on as they are. What they may do is the upstream's to say; who
// may send them from a web page was checked here, and the upstream sees another host.
func (r *Relay) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = r.base.Scheme, r.base.Host, ""
			p.Out.URL.RawQuery = p.In.URL.RawQuery
			tellPage(p.In, p.Out.Header)
			p.SetXForwarded()
		},
		ModifyResponse: func(resp *http.Response) error {
			leaveOrigins(resp.Header)
			leaveID(resp)
			secureCookies(resp)
			return nil
		},
		Transport:     r.client.Transport,
		FlushInterval: -1,
		ErrorHandler:  r.proxyFailed,
		ErrorLog:      log.New(slogWriter{r.log}, "", 0),
	}
}

// tellPage tells the upstream by h what it cannot see: whether a page of the relay asks, for which alone a
// cookie counts. What others send has none.
func tellPage(in *http.Request, h http.Header) {
	h.Del("Origin")
	h.Del("Sec-Fetch-Site")
	switch {
	case api.OwnPage(in):
		h.Set("Sec-Fetch-Site", "same-origin")
	case api.ForeignPage(in):
		h.Del("Cookie")
	}
}

// secureCookies marks cookies by how the client came to the relay: a browser keeps none that is for TLS
// alone without it, and sends one that is not anywhere.
func secureCookies(resp *http.Response) {
	lines := resp.Header["Set-Cookie"]
	for i, line := range lines {
		if c, err := http.ParseSetCookie(line); err == nil {
			c.Secure = resp.Request.Header.Get("X-Forwarded-Proto") == "https" // as the relay has set it
			lines[i] = c.String()
		}
	}
}

// leaveOrigins removes what an answer of the upstream says about web pages of other origins:
// the relay has said so for its own, and the upstream is asked without an Origin.
func leaveOrigins(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, "Access-Control-") {
			delete(h, name)
		}
	}
	var rest []string
	for _, line := range h["Vary"] {
		for word := range strings.SplitSeq(line, ",") {
			if word = strings.TrimSpace(word); word != "" && !strings.EqualFold(word, "Origin") {
				rest = append(rest, word)
			}
		}
	}
	if delete(h, "Vary"); rest != nil {
		h["Vary"] = []string{strings.Join(rest, ", ")}
	}
}

// leaveID removes the client's id of a request from the answer: the relay has returned it.
func leaveID(resp *http.Response) {
	const name = "X-Request-Id"
	if id := resp.Header.Get(name); id != "" && id == resp.Request.Header.Get(name) {
		resp.Header.Del(name)
	}
}

type slogWriter struct{ log *slog.Logger }

func (w slogWriter) Write(p []byte) (int, error) {
	w.log.Debug("passing a request on", "error", string(p))
	return len(p), nil
}

// ServeHTTP passes a request on to the upstream.
func (r *Relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if err := r.Serves(); err != nil {
		WriteError(w, err)
		return
	}
	got := new(atomic.Bool)
	ctx := context.WithValue(req.Context(), connectedKey{}, got)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { got.Store(true) }})
	r.proxy.ServeHTTP(w, req.WithContext(ctx))
}

// connectedKey is of whether the request that a context belongs to has had a connection.
type connectedKey struct{}

// proxyFailed answers when there is no answer to pass on. Only if the request cannot have
// reached the upstream, or changes nothing, that is an answer of the relay; otherwise nobody
// knows whether it took effect, and the connection breaks as it would without a relay.
func (r *Relay) proxyFailed(w http.ResponseWriter, req *http.Request, err error) {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		WriteError(w, api.Errorf(api.CodePayloadTooLarge, "the body is larger than %d bytes", tooLarge.Limit))
		return
	}
	if cause := context.Cause(req.Context()); cause != nil {
		// An EventSource comes back where the connection breaks, and only there.
		if why, ok := errors.AsType[*api.Error](cause); ok && req.Method != http.MethodGet {
			WriteError(w, why)
			return
		}
		panic(http.ErrAbortHandler)
	}
	r.counts.failed.Add(1)
	r.log.Debug("a request could not be passed on", "method", req.Method, "path", req.URL.Path, "error", err)
	if !neverSent(req, err) && req.Method != http.MethodGet && req.Method != http.MethodHead {
		panic(http.ErrAbortHandler)
	}
	WriteError(w, r.errAway())
}

// neverSent reports that there was no connection, or none whose handshake had succeeded.
func neverSent(req *http.Request, err error) bool {
	if got, ok := req.Context().Value(connectedKey{}).(*atomic.Bool); ok && !got.Load() {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// WriteError sends an error of /v0.
func WriteError(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		e = api.Errorf(api.CodeInternal, "the relay could not do this: %v", err)
	}
	w.Header().Set("Content-Type", "application/json")
	if s := e.Code.Status(); s == http.StatusServiceUnavailable || s == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int(e.RetryAfter.Seconds()))))
	}
	w.WriteHeader(e.Code.Status())
	_, _ = w.Write(api.AppendError(nil, e)) // a client that is gone needs no answer
}
