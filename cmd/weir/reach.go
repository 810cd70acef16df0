package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/client"
)

const (
	// reachFor is how long a command waits at its start for a server that is not there yet:
	// as long as one takes that was started together with it, or is being replaced.
	reachFor = 15 * time.Second
	// lookFor bounds one look whether a weir server answers.
	lookFor = 5 * time.Second
)

// reacher opens streams for the commands that use them. A server that is not there yet is
// waited for, alike on every kind: nobody listens, it is loading, it does not answer. What
// waiting does not mend ends at once.
type reacher struct {
	log  io.Writer
	what string        // the command, in front of its line
	most time.Duration // how long to wait
}

func (r reacher) open(ctx context.Context, keys *keyOptions, url string, open func(context.Context, *keyOptions, string) (*weir.Stream, error)) (*weir.Stream, error) {
	end := time.Now().Add(r.most)
	for try := 1; ; try++ {
		s, err := open(ctx, keys, url)
		if err == nil {
			if err = answers(ctx, s); err == nil {
				return s, nil
			}
			_ = s.Close() // it has not been used
		}
		if fix := hopeless(err, url); fix != "" {
			return nil, &remedied{err, fix}
		}
		switch {
		case ctx.Err() != nil, !backend.Retryable(err):
			return nil, err
		case !time.Now().Before(end):
			return nil, fmt.Errorf("the server was not there for %s: %w", r.most, withRemedy(err, url))
		case try == 1:
			fmt.Fprintf(r.log, "%s: waiting up to %s for the server: %v\n", r.what, r.most, withRemedy(err, url))
		}
		if err := client.Sleep(ctx, min(client.Backoff(try, reconnectMin, time.Second), time.Until(end))); err != nil {
			return nil, err
		}
	}
}

// answers returns why a weir server cannot be used yet, or at all: the other kinds have
// been asked when the stream was opened. What the key may not read, and what is missing, is
// for the command to meet.
func answers(ctx context.Context, s *weir.Stream) error {
	if s.Info().Kind != "http" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	_, err := s.Pressure(ctx)
	var refused *api.Error
	switch {
	case err == nil, errors.As(err, &refused) && refused.Code != api.CodeNotReady && refused.Code != api.CodeUnauthorized:
		return nil
	}
	return err
}

// remedied is an error with what mends it.
type remedied struct {
	err error
	fix string
}

func (e *remedied) Error() string {
	text := e.err.Error()
	if strings.Contains(text, e.fix) { // it says so itself
		return text
	}
	return text + "; " + e.fix
}
func (e *remedied) Unwrap() error { return e.err }

// withRemedy adds to an error of a command what mends it, if that is known and not said yet.
func withRemedy(err error, url string) error {
	var said *remedied
	fix := hopeless(err, url)
	if fix == "" && err != nil && isHTTP(url) && errors.Is(err, io.EOF) { // a server that goes down does that, too
		fix = "if it does not speak HTTP, but is a Redis, use redis://"
	}
	if fix == "" || errors.As(err, &said) {
		return err
	}
	return &remedied{err, fix}
}

// hopeless says what mends an error that waiting does not mend; it is empty for others, and
// for those that say it themselves.
func hopeless(err error, url string) string {
	if err == nil {
		return ""
	}
	var name *net.DNSError
	if errors.As(err, &name) && name.IsNotFound && !strings.Contains(url, ",") { // another host may be there
		return "check the host in the URL"
	}
	var (
		refused *api.Error
		status  *client.StatusError
	)
	switch {
	case errors.As(err, &refused) && refused.Code == api.CodeUnauthorized:
		return "give a key that the server knows, with --api-key-file or WEIR_API_KEY"
	case errors.As(err, &status) && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden):
		return "what stands in front of the server refuses the key"
	case errors.As(err, &status) && status.Status == http.StatusNotFound:
		return "check the host, the port and the path"
	case !isHTTP(url):
		return ""
	}
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
	)
	switch text := err.Error(); {
	case errors.As(err, &authority):
		return "name its authority's PEM file with --ca, or with ca=FILE in the URL"
	case errors.As(err, &host):
		return "use a name that the certificate holds"
	case errors.As(err, &invalid):
		return "renew the certificate, or set the clock"
	case errors.As(err, &record), strings.Contains(text, "gave HTTP response to HTTPS client"):
		return client.NoTLS
	case strings.Contains(text, "malformed HTTP"):
		return "the server does not speak HTTP; if it is a Redis, use redis://"
	case strings.Contains(text, "remote error: tls:") && strings.Contains(text, "certificate"):
		return "name a client certificate that the server accepts, with --tls-cert and --tls-key, or with cert=FILE and key=FILE in the URL"
	}
	return ""
}
