package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/kafkalogin"
	"github.com/weirmq/weir/internal/patient"
)

const (
	probeFor = 2 * time.Second        // for each look at brokers that could not be opened
	briefly  = 300 * time.Millisecond // for that if they have been silent already
)

// mismatch is a difference between the URL and the brokers.
type mismatch struct{ error }

func (m *mismatch) Unwrap() error { return m.error }

// misfit returns what in the URL does not match the brokers, and the fix, if the error shows
// it; otherwise nil. Trying again cannot help.
func (s *settings) misfit(err error) error {
	if why := s.misfitLogin(err); why != nil {
		return fmt.Errorf("%w: %w", backend.ErrForbidden, why)
	}
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		untrusted *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &authority):
		return fmt.Errorf("the certificate of %s comes from an authority that is not trusted; name the authority's PEM file with ca=, or put it into the system's store: %w", s.server(), authority)
	case errors.As(err, &name):
		return fmt.Errorf("the certificate of %s is for another name; use a name that it holds: %w", s.server(), name)
	case errors.As(err, &untrusted):
		return fmt.Errorf("the certificate of %s is not valid: %w", s.server(), untrusted.Err)
	}
	text := err.Error()
	switch {
	case !strings.Contains(text, "remote error: tls:"):
		return nil
	case s.tls != nil && s.tls.GetClientCertificate == nil && strings.Contains(text, "certificate"):
		return fmt.Errorf("%w: %s wants a client certificate; name its PEM files with cert= and key=", backend.ErrForbidden, s.server())
	case strings.Contains(text, "certificate"):
		return fmt.Errorf("%w: %s does not accept the client certificate of cert=; it has to come from an authority that the brokers trust: %w", backend.ErrForbidden, s.server(), err)
	}
	return fmt.Errorf("%s refuses the TLS connection: %w", s.server(), err)
}

// misfitLogin is misfit for the user and the password.
func (s *settings) misfitLogin(err error) error {
	var closed *kgo.ErrFirstReadEOF
	switch known := s.login.User != ""; {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return fmt.Errorf("%s does not accept the user and password (SASL %s); check both, and percent-encode special characters in a URL", s.server(), s.login.Names())
	case errors.Is(err, kerr.UnsupportedSaslMechanism) && s.tls == nil && len(s.login.Mechanisms) > 1:
		return fmt.Errorf("%s offers none of SASL %s; use kafkas:// if it has a port with TLS, or sasl=plain to send the password unencrypted", s.server(), s.login.Names())
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return fmt.Errorf("%s does not offer SASL %s; choose another mechanism with sasl=%s, %s or %s", s.server(), s.login.Names(), kafkalogin.Plain, kafkalogin.SHA256, kafkalogin.SHA512)
	case known && errors.Is(err, kerr.IllegalSaslState):
		return fmt.Errorf("%s takes no user and password on this port; leave them out, or use the port for SASL", s.server())
	case !known && errors.As(err, &closed) && strings.Contains(closed.Error(), "SASL"):
		return fmt.Errorf("%s wants a user and a password; write USER:PASSWORD@ in front of the host, or set KAFKA_USER and KAFKA_PASSWORD", s.server())
	}
	return nil
}

// misfitTLS says what a look at the brokers shows, and what the error shows of them. early
// returns what a look has shown before ctx ended.
func (s *settings) misfitTLS(ctx context.Context, err error, early func() error) error {
	var (
		op    *net.OpError
		known *mismatch
	)
	if errors.As(err, &known) || errors.As(err, &op) && op.Op == "dial" {
		return nil // that is it, or nobody listens
	}
	patience := probeFor
	if errors.Is(err, context.DeadlineExceeded) {
		patience = briefly
	}
	if ctx.Err() != nil { // nobody waits for another look
		return early()
	}
	if why := s.look(ctx, patience); why != nil {
		return why
	}
	var closed *kgo.ErrFirstReadEOF
	if errors.As(err, &closed) || strings.Contains(err.Error(), "invalid large response size") || strings.Contains(err.Error(), "invalid negative response size") {
		return fmt.Errorf("%s does not answer as a Kafka broker does; check the host and the port", s.server())
	}
	return nil
}

// look finds brokers that use TLS when the URL does not, or vice versa, and what is no
// broker: neither side says so by itself.
func (s *settings) look(ctx context.Context, patience time.Duration) error {
	if s.dial == nil {
		return nil
	}
	for _, addr := range s.addrs {
		switch {
		case s.tls != nil && probe(ctx, patience, new(net.Dialer).DialContext, addr, speaksPlain):
			if s.tlsGiven {
				return fmt.Errorf("%s does not speak TLS, which the program's kgo.DialTLSConfig asks for", addr)
			}
			return fmt.Errorf("scheme kafkas: %s does not speak TLS; use kafka://", addr)
		case s.tls == nil && probe(ctx, patience, s.dial, addr, speaksTLS):
			return fmt.Errorf("scheme kafka: %s speaks TLS; use kafkas://", addr)
		case s.tls == nil && probe(ctx, patience, s.dial, addr, speaksHTTP):
			return fmt.Errorf("%s is a web server and no Kafka broker; check the host and the port", addr)
		}
	}
	return nil
}

// probe asks who is there, by the way that the client goes: a dialer of the program may do TLS itself.
func probe(ctx context.Context, patience time.Duration, dial patient.Dial, addr string, is func(context.Context, patient.Dial, string) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return is(ctx, dial, addr)
}

// speaksTLS attempts only the handshake. Nothing is sent on the connection.
func speaksTLS(ctx context.Context, dial patient.Dial, addr string) bool {
	c, err := dial(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer c.Close()
	return tls.Client(c, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) == nil // whoever it is, nothing is said to it
}

// speaksPlain asks without TLS and without logging in.
func speaksPlain(ctx context.Context, dial patient.Dial, addr string) bool {
	greets, _ := patient.Greets(ctx, dial, addr)
	return greets
}

func speaksHTTP(ctx context.Context, dial patient.Dial, addr string) bool {
	answer, _ := patient.Ask(ctx, dial, addr, "HEAD / HTTP/1.0\r\n\r\n")
	return strings.HasPrefix(answer, "HTTP/")
}
