package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// probeFor bounds the examination of a server that could not be opened: a handshake with one
// that is far away takes most of it.
const probeFor = time.Second

// misfit returns what in the URL does not match the server, and the fix, if the opening
// error or a look at the server shows it; otherwise nil. early returns what a look has shown
// before ctx ended.
func (s settings) misfit(ctx context.Context, err error, early func() error) error {
	text := err.Error()
	said := func(parts ...string) bool {
		for _, part := range parts {
			if strings.Contains(text, part) {
				return true
			}
		}
		return false
	}
	if said("HTTP/1.") { // the client could not read it as an answer
		return fmt.Errorf("%s speaks HTTP, not Redis; for a weir server use http://HOST:PORT/TOPIC", s.server())
	}
	sentinels := s.master != "" && said("sentinels specified")
	switch {
	case sentinels && errors.Is(err, redis.Nil):
		return fmt.Errorf("master=%s: the Sentinels at %s know no master of that name; SENTINEL MASTERS lists those they know", s.master, s.server())
	case sentinels && said("unknown command"):
		return fmt.Errorf("master=%s: %s is not a Sentinel; name the Sentinels' hosts (port %s), or leave master= out", s.master, s.server(), defaultSentinel)
	case sentinels && said("NOAUTH", "WRONGPASS", "NOPERM"):
		return fmt.Errorf("the Sentinels at %s want a user or password that the URL does not give; add sentinel_password=… (and sentinel_user=…), beside the servers' own in front of the host", s.server())
	case s.cluster() && said("unknown command", "cluster support disabled"):
		return fmt.Errorf("hosts %s: several hosts are nodes of a Cluster, and these are not; name one host, or add master=NAME if they are Sentinels", s.server())
	case said("NOAUTH"):
		return fmt.Errorf("%s wants a password; put USER:PASSWORD@ in front of the host", s.server())
	case said("WRONGPASS", "invalid password"):
		return fmt.Errorf("%s does not know the URL's user and password; special characters in them need percent-encoding", s.server())
	case said("without any password configured", "no password is set"):
		return fmt.Errorf("%s has no password; leave the one in front of the host out", s.server())
	case said("DB index is out of range"):
		return fmt.Errorf("database %d: %s has fewer; use a smaller number behind the host", s.db, s.server())
	}
	return s.misfitTLS(ctx, err, early)
}

func (s settings) misfitTLS(ctx context.Context, err error, early func() error) error {
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
	)
	switch {
	case s.tls != nil && errors.As(err, &authority):
		return fmt.Errorf("the certificate of %s is not trusted; name its authority's PEM file with ca=, or put it into the system's store: %w", s.server(), authority)
	case s.tls != nil && errors.As(err, &name):
		return fmt.Errorf("the certificate of %s is not trusted for that name; use a name that it holds: %w", s.server(), name)
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" && !op.Timeout() {
		return nil // nobody listens
	}
	if ctx.Err() != nil { // nobody waits for another look
		return early()
	}
	ctx, cancel := context.WithTimeout(ctx, probeFor)
	defer cancel()
	return s.look(ctx)
}

// look finds a server that uses TLS when the URL does not, or vice versa; neither
// side says so by itself.
func (s settings) look(ctx context.Context) error {
	for _, addr := range s.addrs {
		switch {
		case s.tls != nil && speaksPlain(ctx, addr):
			return fmt.Errorf("scheme rediss: %s does not speak TLS; use redis://", addr)
		case s.tls == nil && speaksTLS(ctx, addr):
			return fmt.Errorf("scheme redis: %s speaks TLS; use rediss://", addr)
		}
	}
	return nil
}

// speaksTLS attempts only the handshake. Nothing is sent on the connection.
func speaksTLS(ctx context.Context, addr string) bool {
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // whoever it is, nothing is said to it
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

func speaksPlain(ctx context.Context, addr string) bool {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	if _, err = conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	answer := make([]byte, 1)
	_, err = conn.Read(answer)
	return err == nil && (answer[0] == '+' || answer[0] == '-')
}
