package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// Bounds of what a receiver can make the server do.
const (
	connectTime  = 10 * time.Second // to connect, and again for TLS
	idleTime     = 30 * time.Second // a connection is kept for
	maxAnswer    = 64 << 10         // bytes of an answer's body that are read, and of its header
	maxErrorText = 300
)

// job is what is delivered.
type job struct {
	seq        uint64
	lease      uint64
	deliveries uint64
	data       []byte
}

// result is what a delivery has come to.
type result struct {
	status int           // 0: there was no answer
	after  time.Duration // what the receiver asked to wait; 0: nothing
	err    error         // nil: the receiver has the job
}

// sender makes the deliveries of one configuration of a webhook.
type sender struct {
	name string
	cfg  api.WebhookConfig
	trip http.RoundTripper
}

// newTransport makes what connects to receivers: without a proxy, since that would connect
// to what must not be reached, and checked with each connection. A RoundTripper follows
// no redirect.
func newTransport(r *Reach, concurrency int, resolver *net.Resolver, trust *tls.Config) *http.Transport {
	dialer := &net.Dialer{Timeout: connectTime, Control: r.control, Resolver: resolver}
	t := &http.Transport{
		Proxy:                  nil,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        trust,
		TLSHandshakeTimeout:    connectTime,
		IdleConnTimeout:        idleTime,
		MaxIdleConnsPerHost:    concurrency,
		MaxConnsPerHost:        concurrency,
		MaxResponseHeaderBytes: maxAnswer,
		DisableCompression:     true, // an answer is not made larger than it came
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// sign returns the signature of a delivery.
func sign(secret string, at string, body []byte) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(at))
	h.Write([]byte{'.'})
	h.Write(body)
	return "v1=" + hex.EncodeToString(h.Sum(nil))
}

// send delivers a job. It is done if the answer is 2xx and arrives whole, or as much of it
// as is read: a receiver that breaks off in the middle may not have done what it says.
func (s *sender) send(ctx context.Context, j *job) result {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.cfg.URL, bytes.NewReader(j.data))
	if err != nil {
		return result{err: err}
	}
	h, at := req.Header, strconv.FormatInt(time.Now().Unix(), 10)
	for name, value := range s.cfg.Headers {
		h.Set(name, value)
	}
	if h.Get("User-Agent") == "" {
		h.Set("User-Agent", "weir-webhook")
	}
	h.Set("Content-Type", "application/json")
	h.Set("Weir-Webhook", s.name)
	h.Set("Weir-Topic", s.cfg.Topic)
	h.Set("Weir-Seq", strconv.FormatUint(j.seq, 10))
	h.Set("Weir-Delivery", strconv.FormatUint(j.deliveries, 10))
	h.Set("Weir-Timestamp", at)
	h.Set("Weir-Signature", sign(s.cfg.Secret, at, j.data))
	resp, err := s.trip.RoundTrip(req)
	if err != nil {
		return result{err: s.shorten(ctx, err)}
	}
	defer resp.Body.Close()
	res := result{status: resp.StatusCode}
	if res.status < 200 || res.status > 299 {
		// Nobody looks at the body; closing it unread ends the connection if there is much.
		res.after = retryAfter(resp.Header.Get("Retry-After"))
		if res.status != http.StatusSwitchingProtocols { // whose body is the connection, for ever
			_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
		}
		res.err = fmt.Errorf("the receiver answered %d", res.status)
		if res.status >= 300 && res.status < 400 {
			res.err = fmt.Errorf("the receiver answered %d; redirects are not followed", res.status)
		}
		return res
	}
	if _, err := io.CopyN(io.Discard, resp.Body, maxAnswer); err != nil && !errors.Is(err, io.EOF) {
		res.err = s.shorten(ctx, fmt.Errorf("the answer %d broke off: %w", res.status, err))
	}
	return res
}

// shorten makes an error fit to be shown.
func (s *sender) shorten(ctx context.Context, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), errStopped):
		return errStopped
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("no whole answer within %d ms", s.cfg.TimeoutMS)
	}
	text := strings.ToValidUTF8(err.Error(), "?")
	if len(text) > maxErrorText {
		return errors.New(strings.ToValidUTF8(text[:maxErrorText], ""))
	}
	return errors.New(text)
}

// retryAfter reads the header field in both of its forms, as a time to wait of at most
// maxAfter.
func retryAfter(field string) time.Duration {
	if n, err := strconv.ParseUint(field, 10, 31); err == nil {
		return min(time.Duration(n)*time.Second, maxAfter)
	}
	if at, err := http.ParseTime(field); err == nil {
		return min(max(time.Until(at), 0), maxAfter)
	}
	return 0
}
